//! The sliding window by two counters: this aligned window's and the last one's, the latter weighted by
//! how much of it a window that ends now would still cover.
//!
//! With W the window and e the time since the present one started,
//! `used = current + ⌈previous × (W − e) ÷ W⌉`, in integers and rounded up. Calls are taken to have been
//! spread evenly over the last window, so a limit L may be passed, but never doubled: while any of a
//! full last window's weight is left the present one admits at most L − 1.

use std::time::Duration;

use super::window::{length, not_before, start_of};
use super::{Answer, Counter, Decision, MAX_COUNT, NOW, Retry, mul_div, mul_div_ceil, retry_in};
use crate::Timestamp;
use crate::rule::model::Algorithm;

/// Compiled parameters of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    /// Nanoseconds.
    window: u64,
}

/// What was used in two neighbouring windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Where the present window starts, in nanoseconds since the UTC epoch.
    start: u64,
    current: u64,
    previous: u64,
}

impl SlidingWindow {
    /// `limit` units (from 1) in about any `window`.
    ///
    /// Numbers that [`check`](super::check) refuses are brought inside its bounds, towards admitting less.
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit: limit.clamp(1, MAX_COUNT), window: length(window) }
    }

    /// How much of the present window is still to come. A reordered call counts as made at its start.
    fn left(&self, state: &Pair, now: Timestamp) -> u64 {
        self.window.saturating_sub(now.as_nanos().saturating_sub(state.start))
    }

    fn used(&self, state: &Pair, now: Timestamp) -> u64 {
        state.current.saturating_add(mul_div_ceil(state.previous, self.left(state, now), self.window))
    }

    /// Nanoseconds from `now` to the first moment at which `cost` more fit.
    fn until(&self, state: &Pair, cost: u64, now: Timestamp) -> u64 {
        let free = self.limit.saturating_sub(cost);
        let end = state.start.saturating_add(self.window);
        // ⌈count × left ÷ W⌉ ≤ room first holds when left is ⌊room × W ÷ count⌋.
        let at = if let Some(room) = free.checked_sub(state.current) {
            end.saturating_sub(mul_div(room, self.window, state.previous))
        } else {
            let left = mul_div(free, self.window, state.current);
            end.saturating_add(self.window.saturating_sub(left))
        };
        at.saturating_sub(now.as_nanos())
    }
}

impl Pair {
    /// `current` units in the window that starts at `start` and `previous` in the one before, as another
    /// store has counted them.
    pub fn new(start: Timestamp, current: u64, previous: u64) -> Self {
        Self { start: start.as_nanos(), current, previous }
    }
}

impl Counter for SlidingWindow {
    type State = Pair;

    fn compile(algorithm: &Algorithm) -> Option<Self> {
        if let Algorithm::SlidingWindow { limit, window } = algorithm {
            Some(Self::new(*limit, *window))
        } else {
            None
        }
    }

    fn fresh(&self, now: Timestamp) -> Pair {
        Pair { start: start_of(now, self.window), current: 0, previous: 0 }
    }

    fn is_fresh(&self, state: &Pair, now: Timestamp) -> bool {
        let mut state = *state;
        self.settle(&mut state, now);
        state.current == 0 && state.previous == 0
    }

    fn settle(&self, state: &mut Pair, now: Timestamp) {
        let start = start_of(not_before(now, state.start), self.window);
        if start > state.start {
            let next = start - state.start <= self.window;
            state.previous = if next { state.current } else { 0 };
            state.current = 0;
        }
        // Earlier only when the clock was set back: both counts are carried along.
        state.start = start;
    }

    fn test(&self, state: &Pair, cost: u64, now: Timestamp) -> Decision {
        let before = self.used(state, now);
        let after = before.saturating_add(cost);
        let (answer, used, current) = if after <= self.limit {
            (NOW, after, state.current.saturating_add(cost))
        } else if cost > self.limit {
            (Answer::Denied(Retry::Never), before, state.current)
        } else {
            (retry_in(self.until(state, cost, now)), before, state.current)
        };
        let windows = if current > 0 { 2 } else { u64::from(state.previous > 0) };
        let end = state.start.saturating_add(self.window.saturating_mul(windows));
        Decision {
            answer,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: end.saturating_sub(now.as_nanos()),
        }
    }

    fn take(&self, state: &mut Pair, cost: u64, _: Timestamp) {
        state.current = state.current.saturating_add(cost);
    }

    /// Keeps what was used; another window starts fresh.
    fn convert(&self, old: &Self, state: &mut Pair, now: Timestamp) {
        if self.window != old.window {
            *state = self.fresh(now);
        }
    }

    fn seed(&self, shared: &Pair) -> Option<Pair> {
        Some(*shared)
    }
}

#[cfg(test)]
mod tests;
