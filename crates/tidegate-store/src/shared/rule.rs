//! A rule's shared counters.

use std::time::Duration;

use tidegate_core::rule::model::{Limit, Mode};

use super::Counter;
use super::key::KeySpace;
use super::numbers::Numbers;

/// One version of a limit, ready to name the counters that it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRule {
    space: KeySpace,
    mode: Mode,
    own: Numbers,
    overrides: Box<[Numbers]>,
}

impl SharedRule {
    /// A silent holder of a concurrency permit counts as gone after `permit_life`.
    pub fn new(limit: &Limit, permit_life: Duration) -> Self {
        let numbers = |algorithm| Numbers::new(algorithm, permit_life);
        Self {
            space: KeySpace::new(&limit.id, &limit.key),
            mode: limit.mode,
            own: numbers(&limit.algorithm),
            overrides: limit.overrides.iter().map(|other| numbers(&other.algorithm)).collect(),
        }
    }

    /// The counter of a key, as [`tidegate_core::limit::key::encode`] makes it; `variant` is 0 for the
    /// rule's own numbers, i + 1 for those of override i, and the rule's own where there is none. `ordinal`
    /// orders the versions of the rules among all instances: it grows with each and is below 2⁵³. `None`
    /// when the key is not of that form.
    pub fn counter(&self, variant: usize, key: &[u8], ordinal: u64) -> Option<Counter> {
        let other = variant.checked_sub(1).and_then(|at| self.overrides.get(at));
        let numbers = *other.unwrap_or(&self.own);
        let key = self.space.counter_of(key, &numbers)?;
        Some(Counter { key, numbers, ordinal: ordinal.min((1 << 53) - 1), mode: self.mode })
    }
}
