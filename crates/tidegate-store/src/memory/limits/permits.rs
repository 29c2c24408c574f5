//! Concurrency permits.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::limit::Concurrency;

use super::shard::Place;
use super::table::Table;

/// The places in flight that one call holds; given back when dropped.
#[derive(Default)]
pub struct Permits(SmallVec<[Permit; 1]>);

/// A place of one rule.
struct Permit {
    table: Arc<Table<Concurrency>>,
    place: Place,
    cost: u64,
}

impl Permits {
    /// How many rules gave a permit.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no rule gave one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, table: &Arc<Table<Concurrency>>, place: Place, cost: u64) {
        if cost > 0 {
            self.0.push(Permit { table: Arc::clone(table), place, cost });
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.table.release(self.place, self.cost);
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permits").field(&self.len()).finish()
    }
}
