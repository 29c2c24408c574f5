//! Some of a rule's counters under one lock: finding, making, charging and dropping entries.

use std::sync::atomic::Ordering;

use hashbrown::HashTable;
use parking_lot::MutexGuard;
use tidegate_core::Timestamp;
use tidegate_core::limit::{Counter, Decision};

use super::table::Bound;

/// Buckets that each new key looks into for entries to drop: more than one, so that the sweep
/// outruns the growth.
const SWEEP_STEP: usize = 4;
/// Buckets that a new key looks into when its shard is full.
const SWEEP_FULL: usize = 64;
/// Where a key's counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: usize,
    pub(super) hash: u64,
    pub(super) check: u32,
}

/// Some of a rule's counters, under one lock.
pub(super) struct Shard<C: Counter> {
    pub(super) entries: HashTable<Entry<C::State>>,
    /// Where the sweep goes on.
    cursor: usize,
}

/// One counter.
#[derive(Clone)]
pub(super) struct Entry<S> {
    pub(super) hash: u64,
    pub(super) check: u32,
    /// The id of the numbers that it was filled under.
    pub(super) params: u32,
    pub(super) state: S,
}

/// What [`Held::prepare`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    /// There was an entry.
    Found,
    /// There is a fresh one now.
    Made,
    /// There is no room, or keys share a counter: see [`Held::receive`].
    AskShared,
}

/// A shard under its lock.
pub(super) struct Held<'a, C: Counter> {
    pub(super) bound: &'a Bound<C>,
    pub(super) shard: MutexGuard<'a, Shard<C>>,
}

impl<'a, C: Counter> Held<'a, C> {
    pub(super) fn new(bound: &'a Bound<C>, shard: MutexGuard<'a, Shard<C>>) -> Self {
        Self { bound, shard }
    }

    pub(super) fn contains(&self, place: Place) -> bool {
        self.shard.get(place).is_some()
    }

    /// Makes sure that `place` has an entry, if its own shard can tell.
    pub(super) fn prepare(&mut self, place: Place, variant: usize, now: Timestamp) -> Prepared {
        if self.contains(place) {
            return Prepared::Found;
        }
        if !self.has_room() || self.bound.table.overflowing.load(Ordering::Acquire) {
            return Prepared::AskShared;
        }
        if let Some(entry) = self.bound.new_entry(place, variant, now) {
            self.shard.insert(entry);
        }
        Prepared::Made
    }

    /// Takes back an entry that was made for a call that was then denied.
    pub(super) fn unmake(&mut self, place: Place) {
        let same = |entry: &Entry<C::State>| entry.hash == place.hash && entry.check == place.check;
        if let Ok(entry) = self.shard.entries.find_entry(place.hash, same) {
            let (entry, _) = entry.remove();
            self.bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
        }
    }

    /// For a key without an entry, called on the shared counters: gives it one in its own shard where
    /// there is room, or lets it share. Returns the place that has its entry.
    pub(super) fn receive(&mut self, home: &mut Self, place: Place, variant: usize, now: Timestamp) -> Place {
        let bound = self.bound;
        let table = &bound.table;
        if home.contains(place) {
            return place;
        }
        let variant = bound.variant(variant);
        let shared = table.overflow_place(variant);
        if home.has_room() {
            self.close_if_fresh(now);
            let own = match self.shard.find(shared) {
                None => bound.new_entry(place, variant, now),
                Some(entry) => {
                    let state = bound.step(entry, variant, now, |params, state| {
                        if params.is_fresh(state, now) { Some(params.fresh(now)) } else { params.seed(state) }
                    });
                    let params = entry.params;
                    let (hash, check) = (place.hash, place.check);
                    state.flatten().map(|state| Entry { hash, check, params, state })
                }
            };
            if let Some(own) = own {
                home.shard.insert(own);
                return place;
            }
        }
        if !self.contains(shared)
            && let Some(entry) = bound.new_entry(shared, variant, now)
        {
            self.shard.insert(entry);
        }
        table.overflowing.store(true, Ordering::Release);
        table.overflowed.fetch_add(1, Ordering::Relaxed);
        shared
    }

    /// Ends the sharing once none of the shared counters has anything left to remember.
    pub(super) fn close_if_fresh(&mut self, now: Timestamp) {
        if self.shard.entries.iter().all(|entry| self.bound.is_fresh(entry, now)) {
            for entry in self.shard.entries.drain() {
                self.bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
            }
            self.bound.table.overflowing.store(false, Ordering::Release);
        }
    }

    pub(super) fn test(&mut self, place: Place, variant: usize, cost: u64, now: Timestamp) -> Decision {
        let bound = self.bound;
        let entry = self.shard.find(place);
        let tested = entry
            .and_then(|entry| bound.step(entry, variant, now, |params, state| params.test(state, cost, now)));
        tested.unwrap_or(Decision::NEVER)
    }

    pub(super) fn take(&mut self, place: Place, variant: usize, cost: u64, now: Timestamp) {
        let bound = self.bound;
        if let Some(entry) = self.shard.find(place) {
            bound.step(entry, variant, now, |params, state| params.take(state, cost, now));
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.shard.entries.len() < self.bound.table.shard_keys
    }

    /// Looks for entries to drop: a few, or more when the shard is full.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let buckets = self.shard.entries.num_buckets();
        let steps = if self.has_room() { SWEEP_STEP } else { SWEEP_FULL };
        for _ in 0..steps.min(buckets) {
            let at = if self.shard.cursor < buckets { self.shard.cursor } else { 0 };
            self.shard.cursor = at + 1;
            let fresh =
                self.shard.entries.get_bucket(at).is_some_and(|entry| self.bound.is_fresh(entry, now));
            if fresh && let Ok(entry) = self.shard.entries.get_bucket_entry(at) {
                let (entry, _) = entry.remove();
                self.bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
            }
        }
    }

    /// Drops all that equals a fresh entry, and gives memory back. Returns how many it dropped.
    pub(super) fn sweep_all(&mut self, now: Timestamp) -> usize {
        let bound = self.bound;
        let before = self.shard.entries.len();
        self.shard.entries.retain(|entry| {
            let fresh = bound.is_fresh(entry, now);
            if fresh {
                bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
            }
            !fresh
        });
        let left = self.shard.entries.len();
        if left < self.shard.entries.capacity() / 4 {
            self.shard.entries.shrink_to(left * 2, |entry| entry.hash);
        }
        before - left
    }
}

impl<C: Counter> Default for Shard<C> {
    fn default() -> Self {
        Self { entries: HashTable::new(), cursor: 0 }
    }
}

impl<C: Counter> Shard<C> {
    pub(super) fn get(&self, place: Place) -> Option<&Entry<C::State>> {
        self.entries.find(place.hash, |entry| entry.hash == place.hash && entry.check == place.check)
    }

    pub(super) fn find(&mut self, place: Place) -> Option<&mut Entry<C::State>> {
        self.entries.find_mut(place.hash, |entry| entry.hash == place.hash && entry.check == place.check)
    }

    pub(super) fn insert(&mut self, entry: Entry<C::State>) {
        self.entries.insert_unique(entry.hash, entry, |entry| entry.hash);
    }
}
