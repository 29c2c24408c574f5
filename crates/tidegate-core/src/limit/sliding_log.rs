//! The sliding log: every call's time is kept, so that no window of the given length, wherever it
//! starts, ever holds more than the limit.
//!
//! A window is half-open: a call at t no longer counts at t + window. Calls of one instant share one
//! run, so a log holds at most min(limit, instants) runs of 16 bytes.

use std::collections::VecDeque;
use std::time::Duration;

use super::window::length;
use super::{Answer, Counter, Decision, MAX_COUNT, NOW, REORDER, Retry, retry_in};
use crate::Timestamp;
use crate::rule::model::Algorithm;
use crate::time::nanos;

/// Unused places that a log may keep before it gives memory back.
const SPARE_RUNS: usize = 8;

/// Compiled parameters of a sliding log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    /// Nanoseconds.
    window: u64,
}

/// The calls of the last window, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    runs: VecDeque<Run>,
    /// The sum of the runs.
    used: u64,
}

/// What was used at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Nanoseconds since the UTC epoch.
    at: u64,
    used: u64,
}

impl SlidingLog {
    /// `limit` units (from 1) in any `window`.
    ///
    /// Numbers that [`check`](super::check) refuses are brought inside its bounds, towards admitting less.
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit: limit.clamp(1, MAX_COUNT), window: length(window) }
    }

    /// Nanoseconds from `now` until `missing` more units have left the window.
    fn until(&self, state: &Log, missing: u64, now: Timestamp) -> u64 {
        let mut freed = 0_u64;
        for run in &state.runs {
            freed = freed.saturating_add(run.used);
            if freed >= missing {
                return run.at.saturating_add(self.window).saturating_sub(now.as_nanos());
            }
        }
        0
    }
}

impl Log {
    fn newest(&self) -> u64 {
        self.runs.back().map_or(0, |run| run.at)
    }
}

impl Counter for SlidingLog {
    type State = Log;

    fn compile(algorithm: &Algorithm) -> Option<Self> {
        if let Algorithm::SlidingLog { limit, window } = algorithm {
            Some(Self::new(*limit, *window))
        } else {
            None
        }
    }

    fn fresh(&self, _: Timestamp) -> Log {
        Log { runs: VecDeque::new(), used: 0 }
    }

    fn is_fresh(&self, state: &Log, now: Timestamp) -> bool {
        state.used == 0 || state.newest().saturating_add(self.window) <= now.as_nanos()
    }

    fn settle(&self, state: &mut Log, now: Timestamp) {
        let now = now.as_nanos();
        if state.newest() > now.saturating_add(nanos(REORDER)) {
            // The clock was set back: what lies in its future counts as used now.
            let mut used = 0_u64;
            while let Some(run) = state.runs.pop_back_if(|run| run.at >= now) {
                used = used.saturating_add(run.used);
            }
            state.runs.push_back(Run { at: now, used });
        }
        while let Some(run) = state.runs.pop_front_if(|run| run.at.saturating_add(self.window) <= now) {
            state.used = state.used.saturating_sub(run.used);
        }
        if state.runs.capacity() > SPARE_RUNS && state.runs.len() < state.runs.capacity() / 4 {
            state.runs.shrink_to(state.runs.len().saturating_mul(2));
        }
    }

    fn test(&self, state: &Log, cost: u64, now: Timestamp) -> Decision {
        let after = state.used.saturating_add(cost);
        let (answer, used, newest) = if after <= self.limit {
            let newest = if cost > 0 { state.newest().max(now.as_nanos()) } else { state.newest() };
            (NOW, after, newest)
        } else if cost > self.limit {
            (Answer::Denied(Retry::Never), state.used, state.newest())
        } else {
            (retry_in(self.until(state, after - self.limit, now)), state.used, state.newest())
        };
        let reset = newest.saturating_add(self.window).saturating_sub(now.as_nanos());
        Decision {
            answer,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: if used == 0 { 0 } else { reset },
        }
    }

    fn take(&self, state: &mut Log, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        // A reordered call counts as made at the later time, so that the log stays in order.
        let at = now.as_nanos().max(state.newest());
        match state.runs.back_mut() {
            Some(run) if run.at == at => run.used = run.used.saturating_add(cost),
            _ => state.runs.push_back(Run { at, used: cost }),
        }
        state.used = state.used.saturating_add(cost);
    }

    /// Keeps what was used; another window starts fresh.
    fn convert(&self, old: &Self, state: &mut Log, now: Timestamp) {
        if self.window != old.window {
            *state = self.fresh(now);
        }
    }

    /// A copy could take as much memory as the limit allows, so the key goes on sharing.
    fn seed(&self, _: &Log) -> Option<Log> {
        None
    }

    fn footprint(state: &Log) -> usize {
        state.runs.len()
    }

    /// Counts the last but one instant's calls as made at the last.
    fn coarsen(state: &mut Log) {
        if state.runs.len() < 2 {
            return;
        }
        if let Some(last) = state.runs.pop_back()
            && let Some(run) = state.runs.back_mut()
        {
            *run = Run { at: last.at, used: run.used.saturating_add(last.used) };
        }
    }
}

#[cfg(test)]
mod tests;
