//! The only clock and the only randomness.
//!
//! Everything else takes `now` and random numbers as arguments, so that tests decide them.

mod draw;
mod steady;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::RngExt as _;
use tidegate_core::Timestamp;
use tidegate_core::time::nanos;

/// Where a process gets its time and its random numbers from.
#[derive(Clone, Debug)]
pub struct Env(Clock);

#[derive(Clone, Debug)]
enum Clock {
    /// The wall clock is read once; from then on the monotonic clock counts. So a wall clock that
    /// steps neither grants permits nor locks anybody out, while windows stay aligned to UTC: the
    /// kernel slews the monotonic clock together with the wall clock.
    ///
    /// Between two looks at the kernel's clock the processor's counter counts; see [`steady`].
    System {
        /// The wall clock's time at the steady clock's zero.
        zero: u64,
    },
    Manual(Arc<AtomicU64>),
    Tokio {
        started: tokio::time::Instant,
        start: Timestamp,
    },
}

impl Env {
    /// The machine's clock.
    ///
    /// The first call in a process takes some 20 ms, at most 200, to learn how fast the processor's
    /// counter runs.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    pub fn system() -> Self {
        // First, because the first read is slow.
        let steady = steady::nanos();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos);
        Self(Clock::System { zero: wall.saturating_sub(steady) })
    }

    /// A clock that stands still until the returned handle moves it.
    pub fn manual(start: Timestamp) -> (Self, ManualClock) {
        let time = Arc::new(AtomicU64::new(start.as_nanos()));
        (Self(Clock::Manual(Arc::clone(&time))), ManualClock(time))
    }

    /// The clock that tokio's timers run on, which a test can pause: it then jumps from one timer to the
    /// next, and nothing sleeps.
    pub fn tokio(start: Timestamp) -> Self {
        Self(Clock::Tokio { started: tokio::time::Instant::now(), start })
    }

    /// The time now. On one thread it is never earlier than before; between threads it may differ by
    /// what a processor counts wrong in a quarter of a millisecond, some nanoseconds.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Clock::System { zero } => Timestamp::from_nanos(zero.saturating_add(steady::nanos())),
            Clock::Tokio { started, start } => *start + started.elapsed(),
            Clock::Manual(time) => Timestamp::from_nanos(time.load(Ordering::Acquire)),
        }
    }

    /// A uniformly distributed number, for jitter: whoever sees some may guess the next.
    #[inline]
    pub fn random(&self) -> u64 {
        draw::next()
    }

    /// Sixteen bytes that nobody can guess: an attempt's owner, a request id.
    pub fn nonce(&self) -> [u8; 16] {
        rand::rng().random()
    }
}

/// Moves the clock of [`Env::manual`].
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(nanos(by), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let (env, clock) = Env::manual(Timestamp::from_secs(5));
        assert_eq!(env.now(), Timestamp::from_secs(5));
        clock.advance(Duration::from_millis(1500));
        assert_eq!(env.now(), Timestamp::from_millis(6500));
    }

    #[test]
    fn the_system_clock_starts_at_the_wall_clock_and_never_runs_backwards() {
        let env = Env::system();
        let first = env.now();
        assert!(first > Timestamp::from_secs(1_700_000_000), "{first:?}");
        assert!(env.now() >= first);
    }

    #[test]
    fn nonces_differ() {
        let env = Env::system();
        assert_ne!(env.nonce(), env.nonce());
    }
}
