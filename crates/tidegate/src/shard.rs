//! Counters that threads keep apart, so that a busy resource does not pass one cache line back and
//! forth between processors. Writing touches the thread's own shard, reading adds them up.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most shards: past so many threads at once, two may meet in one, which costs time only.
const MAX_SHARDS: usize = 8;
const _: () = assert!(MAX_SHARDS.is_power_of_two());

/// One value for each shard, each on cache lines of its own.
#[derive(Debug)]
pub(crate) struct Sharded<T>(Box<[Padded<T>]>);

/// 128 bytes, because processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Sharded<T> {
    /// As many as the machine has processors, rounded up to a power of two, from 1 to [`MAX_SHARDS`].
    pub(crate) fn new(mut make: impl FnMut() -> T) -> Self {
        static COUNT: OnceLock<usize> = OnceLock::new();
        let count = *COUNT.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.clamp(1, MAX_SHARDS).next_power_of_two()
        });
        Self((0..count).map(|_| Padded(make())).collect())
    }

    /// The calling thread's shard.
    #[inline]
    pub(crate) fn mine(&self) -> &T {
        // A power of two, so this is the remainder.
        &self.0[number() & (self.0.len() - 1)]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// The calling thread's number, given out in turn at its first use.
#[inline]
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed) % MAX_NUMBER);
        }
        number.get()
    })
}

/// Keeps a thread's number apart from the mark for "none yet".
const MAX_NUMBER: usize = 1 << 16;
