//! The token bucket, kept as one theoretical arrival time: the generic cell rate algorithm (ITU-T
//! I.371, section A), turned round so that a burst is the capacity itself.
//!
//! A bucket that holds fewer tokens than its capacity owes the difference; the state is the time at
//! which the debt will be repaid. Time is counted in **units** chosen for each rate, so that one token
//! costs a whole number of them: nothing is rounded from call to call, and a burst at one instant
//! admits exactly the capacity.
//!
//! With the interval between two tokens reduced to `p/n` nanoseconds:
//!
//! - `n ≤ 8`, as for every round rate: a unit is `1/n` ns and a token costs `p`. All is exact.
//! - otherwise a token costs `k = ⌊p/n⌋` units and `units(now) = ⌊now × k × n ÷ p⌋`. The long-run
//!   rate is exact too; after an idle time a token may come up to one unit early, which is less than
//!   2 ns (longer only where capacity × interval passes 73 years).
//!
//! Unit times wrap around at 2⁶³ and are compared by their distance, so no date is the last one. A
//! state must be touched or dropped within 2⁶² units (18 years at the least). The 64th bit is left to
//! who stores it.

use super::{
    Answer, Counter, Decision, MAX_COUNT, MAX_PERIOD, NOW, REORDER, Retry, mul_div_ceil, retry_in, saturate,
};
use crate::Timestamp;
use crate::rule::model::{Algorithm, Rate};
use crate::time::nanos;

/// Where unit times wrap around.
const WRAP: u64 = 1 << 63;
/// Largest debt in units; a quarter of the range, so that a debt is never taken for the past.
pub(super) const MAX_DEBT: u64 = WRAP / 4;
/// Finest exact unit: a fraction of a nanosecond.
const MAX_FRACTION: u64 = 8;

/// Compiled parameters of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    scale: Scale,
    capacity: u64,
    per_token: u64,
    /// What an empty bucket owes.
    full_debt: u64,
    /// 2⁶⁴ ÷ `per_token`, rounded down or one less: a multiplication by it is several times quicker
    /// than the division.
    inverse: u64,
}

/// How nanoseconds become units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// So many units in a nanosecond, 1 to 8.
    Times(u64),
    /// `num ÷ den` units in a nanosecond, below 1 + 1/den.
    Ratio { num: u64, den: u64 },
}

/// When the debt is repaid, in units, wrapping: below 2⁶³.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival(u64);

impl Arrival {
    #[inline]
    pub(super) fn new(units: u64) -> Self {
        Self(units % WRAP)
    }
}

impl TokenBucket {
    /// A bucket of `capacity` tokens (from 1) that gains `refill.count` in every `refill.per`.
    ///
    /// Numbers that [`check`](super::check) refuses are brought inside its bounds, towards admitting less.
    pub fn new(capacity: u64, refill: Rate) -> Self {
        let capacity = capacity.clamp(1, MAX_COUNT);
        let per = nanos(refill.per).clamp(1, nanos(MAX_PERIOD));
        // At most one token each nanosecond: a token costs at least one unit of at most 1 ns.
        let count = refill.count.clamp(1, MAX_COUNT).min(per);
        let common = gcd(per, count);
        let (p, n) = (per / common, count / common);
        let most = MAX_DEBT / capacity;
        let (scale, per_token) = if n <= MAX_FRACTION && p <= most {
            (Scale::Times(n), p)
        } else {
            let per_token = (p / n).min(most).max(1);
            // per_token × n ≤ p, so neither overflows.
            (Scale::Ratio { num: per_token.saturating_mul(n), den: p }, per_token)
        };
        let inverse = u64::MAX.checked_div(per_token).unwrap_or(0);
        Self { scale, capacity, per_token, full_debt: capacity.saturating_mul(per_token), inverse }
    }

    /// What [`settle`](Counter::settle), [`test`](Counter::test) and [`take`](Counter::take) do in turn:
    /// the decision, and the state if it is charged.
    ///
    /// `None` for a state so far ahead that it must be settled: only a clock that was set back, or other
    /// numbers, leave one. A state returned is `state` itself or later than it.
    #[inline]
    pub fn step(&self, state: Arrival, cost: u64, now: Timestamp) -> Option<(Decision, Arrival)> {
        let at = self.units(now);
        let debt = Self::debt(state, at);
        if debt > self.full_debt {
            return None;
        }
        let (decision, after) = self.judge(debt, cost, now);
        Some((decision, if decision.admitted() { Arrival::new(at.wrapping_add(after)) } else { state }))
    }

    /// The decision on a bucket that owes `debt`, and what it owes then.
    #[inline]
    fn judge(&self, debt: u64, cost: u64, now: Timestamp) -> (Decision, u64) {
        let (answer, debt) = if cost > self.capacity {
            (Answer::Denied(Retry::Never), debt)
        } else {
            let after = debt.saturating_add(cost.saturating_mul(self.per_token));
            match after.checked_sub(self.full_debt) {
                None | Some(0) => (NOW, after),
                Some(missing) => (retry_in(self.nanos_until(missing, now)), debt),
            }
        };
        let decision = Decision {
            answer,
            limit: self.capacity,
            remaining: self.tokens(self.full_debt.saturating_sub(debt)),
            reset: self.nanos_until(debt, now),
        };
        (decision, debt)
    }

    /// How many whole tokens `units` buy.
    #[inline]
    fn tokens(&self, units: u64) -> u64 {
        // Short by less than two: by less than one for the rounded inverse, and by what is cut off here.
        let least = ((u128::from(units) * u128::from(self.inverse)) >> 64) as u64;
        let rest = units.wrapping_sub(least.wrapping_mul(self.per_token));
        least.saturating_add(u64::from(rest >= self.per_token))
    }

    #[inline]
    pub(super) fn units(&self, now: Timestamp) -> u64 {
        match self.scale {
            Scale::Times(1) => now.as_nanos(),
            Scale::Times(n) => now.as_nanos().wrapping_mul(n),
            Scale::Ratio { num, den } => ratio_units(now, num, den) as u64,
        }
    }

    /// What is owed at `at`, in units.
    #[inline]
    pub(super) fn debt(state: Arrival, at: u64) -> u64 {
        let ahead = state.0.wrapping_sub(at) % WRAP;
        if ahead < WRAP / 2 { ahead } else { 0 }
    }

    /// The shortest time, in nanoseconds, after which `units` more have passed.
    #[inline]
    pub(super) fn nanos_until(&self, units: u64, now: Timestamp) -> u64 {
        match self.scale {
            Scale::Times(1) => units,
            Scale::Times(n) => units.div_ceil(n),
            Scale::Ratio { num, den } => {
                let target = ratio_units(now, num, den) + u128::from(units);
                // target ≤ 2⁶⁴ × num ÷ den + 2⁶³ and num ≤ den < 2⁵⁹: the product fits.
                let then = target.saturating_mul(u128::from(den)).div_ceil(u128::from(num.max(1)));
                saturate(then.saturating_sub(u128::from(now.as_nanos())))
            }
        }
    }

    /// [`REORDER`] in units.
    fn reorder(&self) -> u64 {
        match self.scale {
            Scale::Times(n) => nanos(REORDER).saturating_mul(n),
            Scale::Ratio { num, den } => mul_div_ceil(nanos(REORDER), num, den),
        }
    }

    /// A time that lies `most` ahead of `at` although no call can have put it further ahead is what a
    /// clock set back leaves; it is brought to `most`.
    pub(super) fn bound(&self, state: &mut Arrival, most: u64, at: u64) {
        if Self::debt(*state, at) > most.saturating_add(self.reorder()) {
            *state = Arrival::new(at.wrapping_add(most));
        }
    }

    /// `debt` units of `old` in units of this bucket: whole tokens exactly, a part of one rounded up.
    pub(super) fn debt_from(&self, old: &Self, debt: u64) -> u64 {
        mul_div_ceil(debt, self.per_token, old.per_token)
    }

    pub(super) fn full_debt(&self) -> u64 {
        self.full_debt
    }

    pub(super) fn per_token(&self) -> u64 {
        self.per_token
    }
}

impl Counter for TokenBucket {
    type State = Arrival;

    fn compile(algorithm: &Algorithm) -> Option<Self> {
        if let Algorithm::TokenBucket { capacity, refill } = algorithm {
            Some(Self::new(*capacity, *refill))
        } else {
            None
        }
    }

    #[inline]
    fn fresh(&self, now: Timestamp) -> Arrival {
        Arrival::new(self.units(now))
    }

    #[inline]
    fn is_fresh(&self, state: &Arrival, now: Timestamp) -> bool {
        Self::debt(*state, self.units(now)) == 0
    }

    #[inline]
    fn settle(&self, state: &mut Arrival, now: Timestamp) {
        self.bound(state, self.full_debt, self.units(now));
    }

    #[inline]
    fn test(&self, state: &Arrival, cost: u64, now: Timestamp) -> Decision {
        self.judge(Self::debt(*state, self.units(now)), cost, now).0
    }

    #[inline]
    fn take(&self, state: &mut Arrival, cost: u64, now: Timestamp) {
        let at = self.units(now);
        let debt = Self::debt(*state, at).saturating_add(cost.saturating_mul(self.per_token));
        // Without a test before it the debt could be taken for the past.
        *state = Arrival::new(at.wrapping_add(debt.min(MAX_DEBT)));
    }

    /// Keeps the debt: tokens = clamp(new capacity − (old capacity − tokens), 0, new capacity).
    fn convert(&self, old: &Self, state: &mut Arrival, now: Timestamp) {
        let debt = Self::debt(*state, old.units(now)).min(old.full_debt);
        let debt = self.debt_from(old, debt).min(self.full_debt);
        *state = Arrival::new(self.units(now).wrapping_add(debt));
    }

    fn seed(&self, shared: &Arrival) -> Option<Arrival> {
        Some(*shared)
    }

    #[inline]
    fn to_word(state: &Arrival) -> Option<u64> {
        Some(state.0)
    }

    #[inline]
    fn from_word(word: u64) -> Option<Arrival> {
        Some(Arrival::new(word))
    }
}

/// Unwrapped units since the epoch; the product is below 2¹²⁸ as both factors are below 2⁶⁴.
#[inline]
fn ratio_units(now: Timestamp, num: u64, den: u64) -> u128 {
    (u128::from(now.as_nanos()) * u128::from(num)).checked_div(u128::from(den)).unwrap_or(0)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests;
