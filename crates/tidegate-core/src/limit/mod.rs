//! Rate limits: six ways to count, each a pure step from one state to the next.
//!
//! An algorithm's compiled parameters implement [`Counter`]; its state is as small as the promise
//! allows and says nothing without the parameters that it was filled under. A denied call consumes
//! nothing.
//!
//! | algorithm | promise | state |
//! |---|---|---|
//! | [`TokenBucket`] | capacity + refill × t in any span t | one `u64` |
//! | [`FixedWindow`] | limit in a window aligned to the UTC epoch, up to 2 × limit in any | two `u64` |
//! | [`SlidingLog`] | limit in any window | one run for each instant |
//! | [`SlidingWindow`] | under 2 × limit in any window | three `u64` |
//! | [`LeakyBucket`] | its rate | two `u64` |
//! | [`Concurrency`] | max at the same time | one `u64` |
//!
//! # A clock that runs backwards
//!
//! Threads read the clock and then wait for a lock, so a `now` may be a little older than the one
//! before it. Up to [`REORDER`] such a call counts as made at the later time (or sees the debt as it
//! is), and nothing is forgotten. A `now` that is further back can only be a clock that was set: what
//! was used is then carried to the new time, so that no capacity is gained and no wait is longer than
//! one period (two for [`SlidingWindow`], as without a step). What is lost: whatever had been refilled
//! or had left the window between the new time and the old one, and, if the clock is set forward
//! again, the memory of what was carried back.

mod check;
pub mod concurrency;
pub mod fixed_window;
pub mod gcra;
pub mod key;
pub mod leaky_bucket;
pub mod outage;
pub mod share;
pub mod sliding_log;
pub mod sliding_window;
pub mod waiter;
mod window;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use check::{AlgorithmError, MAX_COUNT, MAX_PERIOD, check, check_rate};
pub use concurrency::Concurrency;
pub use fixed_window::FixedWindow;
pub use gcra::TokenBucket;
pub use key::KeyBytes;
pub use leaky_bucket::LeakyBucket;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use waiter::{NextTry, Waiter};

use crate::Timestamp;
use crate::rule::model::{Algorithm, Rate};
use crate::time::nanos;

/// How much older than the latest call's a `now` may be and still count as reordered rather than as a
/// clock that was set back: longer than any thread is kept off its processor.
pub const REORDER: Duration = Duration::from_secs(1);

/// What [`Decision::retry_after`] says where only the end of another call helps, which no formula
/// foretells.
pub const RELEASE_HINT: Duration = Duration::from_secs(1);

/// How long an empty counter takes to equal a fresh one by time alone; `None` where time does not bring that
/// about (concurrency).
pub fn refilled_after(algorithm: &Algorithm) -> Option<Duration> {
    let filled = |quota: u64, rate: &Rate| {
        let span = u128::from(nanos(rate.per)) * u128::from(quota) / u128::from(rate.count.max(1));
        Some(Duration::from_nanos(u64::try_from(span).unwrap_or(u64::MAX)))
    };
    match algorithm {
        Algorithm::TokenBucket { capacity, refill } => filled(*capacity, refill),
        Algorithm::LeakyBucket { rate, queue } => filled(queue.saturating_add(1), rate),
        Algorithm::FixedWindow { window, .. }
        | Algorithm::SlidingWindow { window, .. }
        | Algorithm::SlidingLog { window, .. } => Some(*window),
        Algorithm::Concurrency { .. } => None,
    }
}

/// The answer to one call on one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may go on.
    pub answer: Answer,
    /// The most that the counter ever holds, in units of cost.
    pub limit: u64,
    /// What is left after this call (or as it is, when the call is denied), in units of cost.
    pub remaining: u64,
    /// Nanoseconds until the counter equals a fresh one if no further call is admitted; 0 where time
    /// alone does not bring that about (concurrency).
    pub(crate) reset: u64,
}

impl Decision {
    /// A denial by a counter that does not exist or holds nothing: never passes.
    pub const NEVER: Self = Self { answer: Answer::Denied(Retry::Never), limit: 0, remaining: 0, reset: 0 };

    /// An answer that was found elsewhere, by a store that counts for many.
    pub fn new(answer: Answer, limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self { answer, limit, remaining, reset: nanos(reset_after) }
    }

    /// Whether the call may go on, perhaps after a wait.
    #[inline]
    pub const fn admitted(&self) -> bool {
        matches!(self.answer, Answer::Admitted { .. })
    }

    /// How long an admitted call must wait for its turn; zero for every algorithm but the leaky
    /// bucket, and for a denied call.
    #[inline]
    pub const fn wait(&self) -> Duration {
        match self.answer {
            Answer::Admitted { wait } => wait,
            Answer::Denied(_) => Duration::ZERO,
        }
    }

    /// When a denied call would pass if nobody else comes: exact to the nanosecond, except that
    /// concurrency gives [`RELEASE_HINT`]. `None`: it can never pass. Zero for an admitted call.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.answer {
            Answer::Admitted { .. } => Some(Duration::ZERO),
            Answer::Denied(Retry::After(wait)) => Some(wait),
            Answer::Denied(Retry::OnRelease) => Some(RELEASE_HINT),
            Answer::Denied(Retry::Never) => None,
        }
    }

    /// The same answer, beside what is left of `untouched`: for a call that this counter would have
    /// admitted and that another one denied.
    #[must_use]
    pub const fn uncharged(self, untouched: Self) -> Self {
        Self { answer: self.answer, ..untouched }
    }

    /// How long until the counter equals a fresh one if no further call is admitted; zero where time
    /// alone does not bring that about (concurrency).
    pub const fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset)
    }
}

/// Whether a call may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may, once `wait` is over.
    Admitted {
        /// Zero for every algorithm but the leaky bucket.
        wait: Duration,
    },
    /// It may not, and nothing was consumed.
    Denied(Retry),
}

/// When a denied call would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After so long, if nobody else comes; one nanosecond earlier it is denied.
    After(Duration),
    /// When calls in flight have ended: no time can be told.
    OnRelease,
    /// Never: it costs more than the limit holds.
    Never,
}

/// The compiled parameters of one algorithm, and the steps that its state takes.
///
/// `test` and `take` are apart so that several counters can be tested before any is charged. Both
/// expect a state that [`settle`](Self::settle) has brought to the same `now`.
pub trait Counter: Clone + PartialEq + Send + Sync + 'static {
    /// What one key remembers.
    type State: Clone + Send + 'static;

    /// The parameters that `algorithm` gives; `None` when it is of another kind.
    fn compile(algorithm: &Algorithm) -> Option<Self>;

    /// A state in which nothing is used.
    fn fresh(&self, now: Timestamp) -> Self::State;

    /// Whether `state` decides like a fresh one from `now` on, so that it may be forgotten.
    fn is_fresh(&self, state: &Self::State, now: Timestamp) -> bool;

    /// Brings a state to `now`: rolls windows, drops what has left them, and bounds what a clock that
    /// was set back can do. Changes no decision at or after `now`.
    fn settle(&self, state: &mut Self::State, now: Timestamp);

    /// What a call of `cost` would get.
    fn test(&self, state: &Self::State, cost: u64, now: Timestamp) -> Decision;

    /// Charges a call that `test` has admitted with this state, cost and time.
    fn take(&self, state: &mut Self::State, cost: u64, now: Timestamp);

    /// Carries a state that was filled under `old` over to these parameters.
    fn convert(&self, old: &Self, state: &mut Self::State, now: Timestamp);

    /// The first state of a key whose calls were counted together with others' in `shared` until now:
    /// at least as used as the key itself can be. `None` when no such state can be made, and the key
    /// must go on sharing until `shared` is fresh.
    fn seed(&self, shared: &Self::State) -> Option<Self::State>;

    /// How many records of variable number a state holds; 0 for states of one size.
    fn footprint(_state: &Self::State) -> usize {
        0
    }

    /// Gives up precision to hold one record less, without ever admitting more for it.
    fn coarsen(_state: &mut Self::State) {}

    /// A state that is one word, as that word: below 2⁶³, and never less (as a distance on the circle)
    /// from one decision to the next while the clock runs forward. `None` for every other kind.
    fn to_word(_state: &Self::State) -> Option<u64> {
        None
    }

    /// The state that [`to_word`](Self::to_word) gave this word.
    fn from_word(_word: u64) -> Option<Self::State> {
        None
    }

    /// One whole step: `(parameters, state, cost, now) -> (decision, new state)`.
    fn decide(&self, mut state: Self::State, cost: u64, now: Timestamp) -> (Decision, Self::State) {
        self.settle(&mut state, now);
        let decision = self.test(&state, cost, now);
        if decision.admitted() {
            self.take(&mut state, cost, now);
        }
        (decision, state)
    }

    /// What [`decide`](Self::decide) would say, without effect.
    fn peek(&self, state: &Self::State, cost: u64, now: Timestamp) -> Decision {
        let mut state = state.clone();
        self.settle(&mut state, now);
        self.test(&state, cost, now)
    }
}

/// An admitted call that need not wait.
const NOW: Answer = Answer::Admitted { wait: Duration::ZERO };

/// Denied for so many nanoseconds.
fn retry_in(nanos: u64) -> Answer {
    Answer::Denied(Retry::After(Duration::from_nanos(nanos)))
}

/// `a × b ÷ c` rounded down, without overflow on the way; saturates. `c` = 0 gives `u64::MAX`.
fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product.checked_div(u128::from(c)).map_or(u64::MAX, saturate)
}

/// `a × b ÷ c` rounded up, without overflow on the way; saturates. `c` = 0 gives `u64::MAX`.
fn mul_div_ceil(a: u64, b: u64, c: u64) -> u64 {
    if c == 0 {
        return u64::MAX;
    }
    saturate((u128::from(a) * u128::from(b)).div_ceil(u128::from(c)))
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
