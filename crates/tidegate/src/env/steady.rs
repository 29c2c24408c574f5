//! A steady clock in nanoseconds, read from the processor's counter between looks at the kernel's.
//!
//! Each thread remembers a moment by both clocks, an *anchor*. Within [`REACH`] of it the time is the
//! anchor's plus what the counter counted since; past that the kernel is asked again. So the time follows
//! the kernel's monotonic clock, with its slewing, and whatever a virtual machine does to the counter is
//! bounded: a counter that runs at another speed after a move to another host, or that jumps ahead, is
//! wrong by [`REACH`] at the most, and one that falls back behind the anchor asks the kernel at once. One
//! that falls back to less than [`REACH`] after the anchor, of all places, tells a time that is late by as
//! much as it fell back, until it has counted to the end of the reach: a quarter of a millisecond later. On
//! one thread the time never goes back: a time that was told before is told again.
//!
//! Where a processor has no counter that runs evenly, `quanta` reads the kernel's clock in its place.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::Instant;

use tidegate_core::time;

/// For how long the counter is believed, in nanoseconds: about a quarter of a millisecond. A counter that
/// is wrong by 100 parts in a million is wrong by 26 ns then.
const REACH: u64 = 1 << 18;
/// The longest that a look at the kernel's clock may take to be an anchor, in nanoseconds. A thread that
/// was held up meanwhile cannot tell when it looked.
const PROMPT: u64 = 2_000;

struct Clocks {
    counter: quanta::Clock,
    origin: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the clock of Env")]
static CLOCKS: LazyLock<Clocks> =
    LazyLock::new(|| Clocks { counter: quanta::Clock::new(), origin: Instant::now() });

thread_local!(static ANCHOR: Anchor = const { Anchor::new() });

/// Nanoseconds since the first call in this process. Never less than before on one thread.
#[inline]
pub(super) fn nanos() -> u64 {
    let clocks = &*CLOCKS;
    ANCHOR.with(|anchor| anchor.read(clocks))
}

/// Where the two clocks come from, so that tests can bend them.
trait Source {
    fn counter(&self) -> u64;
    /// What the counter counts from `start` to `end`, in nanoseconds.
    fn scaled(&self, start: u64, end: u64) -> u64;
    fn kernel(&self) -> u64;
}

impl Source for Clocks {
    #[inline]
    fn counter(&self) -> u64 {
        self.counter.raw()
    }

    #[inline]
    fn scaled(&self, start: u64, end: u64) -> u64 {
        self.counter.delta_as_nanos(start, end)
    }

    fn kernel(&self) -> u64 {
        time::nanos(self.origin.elapsed())
    }
}

struct Anchor {
    counter: Cell<u64>,
    nanos: Cell<u64>,
    /// Whether the other two are of any use.
    held: Cell<bool>,
    told: Cell<u64>,
}

impl Anchor {
    const fn new() -> Self {
        Self { counter: Cell::new(0), nanos: Cell::new(0), held: Cell::new(false), told: Cell::new(0) }
    }

    #[inline]
    fn read(&self, source: &impl Source) -> u64 {
        let (start, end) = (self.counter.get(), source.counter());
        let passed = source.scaled(start, end);
        let now = if self.held.get() && start <= end && passed < REACH {
            self.nanos.get().saturating_add(passed)
        } else {
            self.renew(source)
        };
        let now = now.max(self.told.get());
        self.told.set(now);
        now
    }

    #[cold]
    fn renew(&self, source: &impl Source) -> u64 {
        let before = source.counter();
        let nanos = source.kernel();
        let after = source.counter();
        self.held.set(before <= after && source.scaled(before, after) <= PROMPT);
        // The later reading: what is counted from here on is never ahead of the kernel's clock.
        self.counter.set(after);
        self.nanos.set(nanos);
        nanos
    }
}

#[cfg(test)]
mod tests;
