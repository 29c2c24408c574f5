//! The leaky bucket as a shaper: calls leave at an even rate, each waits its turn, and one that would
//! find the queue full is refused.
//!
//! It is the token bucket's arithmetic with a capacity of one place beside the queue, plus the wait. A
//! call that costs n takes n turns and leaves with the last, so that what has left never runs ahead
//! of the rate; it needs n − 1 places in the queue.

use std::time::Duration;

use super::gcra::{Arrival, TokenBucket};
use super::{Answer, Counter, Decision};
use crate::Timestamp;
use crate::rule::model::{Algorithm, Rate};

/// Compiled parameters of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    /// Its tokens are the places: the queue and the one whose turn it is.
    places: TokenBucket,
}

/// Which turns are given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The first free turn.
    free: Arrival,
    /// How far ahead of the time the first free turn can be, in units: what tells a backlog kept from a
    /// longer queue from a clock that was set back.
    span: u64,
}

impl LeakyBucket {
    /// Calls leave at `rate`, and up to `queue` (from 0) wait.
    ///
    /// Numbers that [`check`](super::check) refuses are brought inside its bounds, towards admitting less.
    pub fn new(rate: Rate, queue: u64) -> Self {
        Self { places: TokenBucket::new(queue.saturating_add(1), rate) }
    }
}

impl Counter for LeakyBucket {
    type State = Backlog;

    fn compile(algorithm: &Algorithm) -> Option<Self> {
        if let Algorithm::LeakyBucket { rate, queue } = algorithm {
            Some(Self::new(*rate, *queue))
        } else {
            None
        }
    }

    fn fresh(&self, now: Timestamp) -> Backlog {
        Backlog { free: self.places.fresh(now), span: self.places.full_debt() }
    }

    fn is_fresh(&self, state: &Backlog, now: Timestamp) -> bool {
        self.places.is_fresh(&state.free, now)
    }

    fn settle(&self, state: &mut Backlog, now: Timestamp) {
        let at = self.places.units(now);
        let ahead = TokenBucket::debt(state.free, at);
        self.places.bound(&mut state.free, state.span, at);
        state.span = state.span.min(ahead.max(self.places.full_debt()));
    }

    /// `limit` is the number of places: the queue and one.
    fn test(&self, state: &Backlog, cost: u64, now: Timestamp) -> Decision {
        let mut decision = self.places.test(&state.free, cost, now);
        if decision.admitted() {
            let turns = cost.saturating_sub(1).saturating_mul(self.places.per_token());
            let ahead = TokenBucket::debt(state.free, self.places.units(now)).saturating_add(turns);
            let wait = Duration::from_nanos(self.places.nanos_until(ahead, now));
            decision.answer = Answer::Admitted { wait };
        }
        decision
    }

    fn take(&self, state: &mut Backlog, cost: u64, now: Timestamp) {
        self.places.take(&mut state.free, cost, now);
    }

    /// Keeps the queue, also one that is longer than the new bound: those calls have their turn.
    fn convert(&self, old: &Self, state: &mut Backlog, now: Timestamp) {
        let debt = TokenBucket::debt(state.free, old.places.units(now)).min(state.span);
        let debt = self.places.debt_from(&old.places, debt).min(super::gcra::MAX_DEBT);
        state.free = Arrival::new(self.places.units(now).wrapping_add(debt));
        state.span = debt.max(self.places.full_debt());
    }

    fn seed(&self, shared: &Backlog) -> Option<Backlog> {
        Some(*shared)
    }
}

#[cfg(test)]
mod tests;
