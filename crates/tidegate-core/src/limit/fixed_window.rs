//! The fixed window: one count for each window aligned to the UTC epoch.
//!
//! Cheap, and exact inside its windows; but calls at the end of one window and at the start of the
//! next are counted apart, so that any span of one window's length may see up to 2 × limit.

use std::time::Duration;

use super::window::{length, not_before, start_of};
use super::{Answer, Counter, Decision, MAX_COUNT, NOW, Retry, retry_in};
use crate::Timestamp;
use crate::rule::model::Algorithm;

/// Compiled parameters of a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    /// Nanoseconds.
    window: u64,
}

/// What was used in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Nanoseconds since the UTC epoch.
    start: u64,
    used: u64,
}

impl FixedWindow {
    /// `limit` units (from 1) in each `window`.
    ///
    /// Numbers that [`check`](super::check) refuses are brought inside its bounds, towards admitting less.
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit: limit.clamp(1, MAX_COUNT), window: length(window) }
    }
}

impl Used {
    /// `used` units in the window that starts at `start`, as another store has counted them.
    pub fn new(start: Timestamp, used: u64) -> Self {
        Self { start: start.as_nanos(), used }
    }
}

impl Counter for FixedWindow {
    type State = Used;

    fn compile(algorithm: &Algorithm) -> Option<Self> {
        if let Algorithm::FixedWindow { limit, window } = algorithm {
            Some(Self::new(*limit, *window))
        } else {
            None
        }
    }

    fn fresh(&self, now: Timestamp) -> Used {
        Used { start: start_of(now, self.window), used: 0 }
    }

    fn is_fresh(&self, state: &Used, now: Timestamp) -> bool {
        state.used == 0 || state.start.saturating_add(self.window) <= now.as_nanos()
    }

    fn settle(&self, state: &mut Used, now: Timestamp) {
        let start = start_of(not_before(now, state.start), self.window);
        if start > state.start {
            state.used = 0;
        }
        // Earlier only when the clock was set back: what was used is carried along.
        state.start = start;
    }

    fn test(&self, state: &Used, cost: u64, now: Timestamp) -> Decision {
        let end = state.start.saturating_add(self.window).saturating_sub(now.as_nanos());
        let after = state.used.saturating_add(cost);
        let (answer, used) = if after <= self.limit {
            (NOW, after)
        } else if cost > self.limit {
            (Answer::Denied(Retry::Never), state.used)
        } else {
            (retry_in(end), state.used)
        };
        Decision {
            answer,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: if used == 0 { 0 } else { end },
        }
    }

    fn take(&self, state: &mut Used, cost: u64, _: Timestamp) {
        state.used = state.used.saturating_add(cost);
    }

    /// Keeps what was used; another window starts fresh.
    fn convert(&self, old: &Self, state: &mut Used, now: Timestamp) {
        if self.window != old.window {
            *state = self.fresh(now);
        }
    }

    fn seed(&self, shared: &Used) -> Option<Used> {
        Some(*shared)
    }
}

#[cfg(test)]
mod tests;
