//! Concurrency: at most so many units of cost in flight at the same time.

use super::{Answer, Counter, Decision, MAX_COUNT, NOW, Retry};
use crate::Timestamp;
use crate::rule::model::Algorithm;

/// Compiled parameters of a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    max: u64,
}

/// What is in flight, in units of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight(u64);

impl Concurrency {
    /// At most `max` units (from 1) in flight. A `max` above [`MAX_COUNT`] is lowered to it.
    pub fn new(max: u64) -> Self {
        Self { max: max.clamp(1, MAX_COUNT) }
    }

    /// Gives back what an admitted call took.
    pub fn release(state: &mut InFlight, cost: u64) {
        state.0 = state.0.saturating_sub(cost);
    }
}

impl InFlight {
    /// `count` units of cost in flight, as another store has counted them.
    pub fn new(count: u64) -> Self {
        Self(count)
    }

    /// Units of cost in flight.
    pub fn count(self) -> u64 {
        self.0
    }
}

impl Counter for Concurrency {
    type State = InFlight;

    fn compile(algorithm: &Algorithm) -> Option<Self> {
        if let Algorithm::Concurrency { max } = algorithm { Some(Self::new(*max)) } else { None }
    }

    fn fresh(&self, _: Timestamp) -> InFlight {
        InFlight(0)
    }

    fn is_fresh(&self, state: &InFlight, _: Timestamp) -> bool {
        state.0 == 0
    }

    fn settle(&self, _: &mut InFlight, _: Timestamp) {}

    fn test(&self, state: &InFlight, cost: u64, _: Timestamp) -> Decision {
        let after = state.0.saturating_add(cost);
        let (answer, used) = if after <= self.max {
            (NOW, after)
        } else if cost > self.max {
            (Answer::Denied(Retry::Never), state.0)
        } else {
            (Answer::Denied(Retry::OnRelease), state.0)
        };
        Decision { answer, limit: self.max, remaining: self.max.saturating_sub(used), reset: 0 }
    }

    fn take(&self, state: &mut InFlight, cost: u64, _: Timestamp) {
        state.0 = state.0.saturating_add(cost);
    }

    /// Keeps the holders: above a lowered maximum, nobody enters until enough have left.
    fn convert(&self, _: &Self, _: &mut InFlight, _: Timestamp) {}

    /// Holders in the shared counter give back to the shared counter, so the key goes on sharing.
    fn seed(&self, _: &InFlight) -> Option<InFlight> {
        None
    }
}
