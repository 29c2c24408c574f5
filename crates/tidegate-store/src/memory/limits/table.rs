//! One rule's counters.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tidegate_core::Timestamp;
use tidegate_core::limit::concurrency::Concurrency;
use tidegate_core::limit::{Counter, Decision};

use super::LocalLimitsConfig;

/// Buckets that each new key looks into for entries to drop: more than one, so that the sweep
/// outruns the growth.
const SWEEP_STEP: usize = 4;
/// Buckets that a new key looks into when its shard is full.
const SWEEP_FULL: usize = 64;
/// A table is not split into shards of fewer keys than this.
const MIN_SHARD_KEYS: usize = 64;
/// Sets of numbers kept before the unused ones are looked for.
const GENERATIONS: usize = 8;

/// The counters of one rule, through all versions that only change its numbers.
pub(super) struct Table<C: Counter> {
    /// Grows with each table: the order in which locks are taken.
    pub(super) uid: u64,
    sip: RandomState,
    check: foldhash::quality::RandomState,
    /// A power of two.
    shard_count: usize,
    /// Keys of one shard.
    shard_keys: usize,
    max_runs: usize,
    keyed: bool,
    /// Made when first asked. One more than `shard_count`: the last holds the shared counters.
    shards: OnceLock<Box<[Mutex<Shard<C>>]>>,
    /// Oldest first. Never locked before a shard by one who then wants a shard.
    generations: RwLock<Vec<Arc<Generation<C>>>>,
    /// Whether a shared counter is in use. Changed only under the last shard's lock.
    overflowing: AtomicBool,
    pub(super) overflowed: AtomicU64,
    pub(super) coarsened: AtomicU64,
    /// Records of variable number in all states.
    runs: AtomicUsize,
}

/// The numbers of one version of a rule. Their ids follow on those of the generation before.
pub(super) struct Generation<C> {
    first: u32,
    /// The rule's own, then the overrides'. Never empty.
    params: Box<[C]>,
}

/// A table as one version of the rules sees it.
pub(super) struct Bound<C: Counter> {
    pub(super) table: Arc<Table<C>>,
    generation: Arc<Generation<C>>,
}

/// Where a key's counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: usize,
    hash: u64,
    check: u32,
}

pub(super) struct Shard<C: Counter> {
    entries: HashTable<Entry<C::State>>,
    /// Where the sweep goes on.
    cursor: usize,
}

#[derive(Clone)]
struct Entry<S> {
    hash: u64,
    check: u32,
    /// The id of the numbers that it was filled under.
    params: u32,
    state: S,
}

/// A shard under its lock.
pub(super) struct Held<'a, C: Counter> {
    pub(super) bound: &'a Bound<C>,
    shard: MutexGuard<'a, Shard<C>>,
}

impl<C: Counter> Clone for Bound<C> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table), generation: Arc::clone(&self.generation) }
    }
}

impl<C: Counter> Bound<C> {
    /// A new table; `params` are the rule's own numbers and the overrides'.
    pub(super) fn fresh(params: Vec<C>, keyed: bool, config: &LocalLimitsConfig, uid: u64) -> Self {
        let generation = Arc::new(Generation { first: 0, params: params.into_boxed_slice() });
        let most = (config.max_keys / MIN_SHARD_KEYS).max(1);
        let shard_count = if keyed { config.shards.min(most + 1 - most % 2) } else { 1 };
        let shard_count =
            if shard_count.is_power_of_two() { shard_count } else { (shard_count / 2).next_power_of_two() };
        let table = Table {
            uid,
            sip: RandomState::new(),
            check: foldhash::quality::RandomState::default(),
            shard_count,
            shard_keys: config.max_keys.div_ceil(shard_count),
            max_runs: config.max_log_runs,
            keyed,
            shards: OnceLock::new(),
            generations: RwLock::new(vec![Arc::clone(&generation)]),
            overflowing: AtomicBool::new(false),
            overflowed: AtomicU64::new(0),
            coarsened: AtomicU64::new(0),
            runs: AtomicUsize::new(0),
        };
        Self { table: Arc::new(table), generation }
    }

    /// The same table under other numbers. `None` when ids have run out.
    pub(super) fn changed(&self, params: Vec<C>) -> Option<Self> {
        self.table.forget_unused();
        let mut generations = self.table.generations.write();
        let first = generations.last().map_or(Some(0), |last| last.end())?;
        let generation = Arc::new(Generation { first, params: params.into_boxed_slice() });
        generation.end()?;
        generations.push(Arc::clone(&generation));
        Some(Self { table: Arc::clone(&self.table), generation })
    }

    pub(super) fn place(&self, key: &[u8]) -> Place {
        self.table.place(key)
    }

    pub(super) fn lock(&self, shard: usize) -> Held<'_, C> {
        Held { bound: self, shard: self.table.lock(shard) }
    }

    pub(super) fn lock_overflow(&self) -> Held<'_, C> {
        self.lock(self.table.shard_count)
    }

    /// A variant that exists.
    fn variant(&self, variant: usize) -> usize {
        if variant < self.generation.params.len() { variant } else { 0 }
    }

    /// The numbers that decide for `entry`. One filled under older numbers is carried over to this
    /// version's; one filled under newer numbers is decided by those.
    fn adopt(&self, entry: &mut Entry<C::State>, variant: usize, now: Timestamp) -> Option<Cow<'_, C>> {
        let variant = self.variant(variant);
        let params = self.generation.params.get(variant)?;
        let id = self.generation.first.saturating_add(variant as u32);
        if entry.params == id {
            return Some(Cow::Borrowed(params));
        }
        let filled = self.table.params(entry.params);
        if self.generation.end().is_some_and(|end| entry.params >= end)
            && let Some(newer) = filled
        {
            return Some(Cow::Owned(newer));
        }
        if let Some(old) = filled.filter(|old| old != params) {
            params.convert(&old, &mut entry.state, now);
        }
        entry.params = id;
        Some(Cow::Borrowed(params))
    }

    /// Brings an entry to `now` and the right numbers, and lets `step` use it.
    fn step<R>(
        &self,
        entry: &mut Entry<C::State>,
        variant: usize,
        now: Timestamp,
        step: impl FnOnce(&C, &mut C::State) -> R,
    ) -> Option<R> {
        let before = C::footprint(&entry.state);
        let params = self.adopt(entry, variant, now)?;
        params.settle(&mut entry.state, now);
        let result = step(&params, &mut entry.state);
        let after = C::footprint(&entry.state);
        if before != after {
            self.table.account(before, after, &mut entry.state);
        }
        Some(result)
    }

    fn new_entry(&self, place: Place, variant: usize, now: Timestamp) -> Option<Entry<C::State>> {
        let variant = self.variant(variant);
        let state = self.generation.params.get(variant)?.fresh(now);
        let params = self.generation.first.saturating_add(variant as u32);
        Some(Entry { hash: place.hash, check: place.check, params, state })
    }

    fn is_fresh(&self, entry: &Entry<C::State>, now: Timestamp) -> bool {
        let own = entry.params.checked_sub(self.generation.first);
        match own.and_then(|own| self.generation.params.get(own as usize)) {
            Some(params) => params.is_fresh(&entry.state, now),
            None => self.table.params(entry.params).is_some_and(|params| params.is_fresh(&entry.state, now)),
        }
    }

    /// The whole of a decision on one counter. `charge`: whether it counts.
    pub(super) fn decide(
        &self,
        place: Place,
        variant: usize,
        cost: u64,
        now: Timestamp,
        charge: bool,
    ) -> (Decision, Place) {
        let decide = |params: &C, state: &mut C::State| {
            let decision = params.test(state, cost, now);
            if charge && decision.admitted() {
                params.take(state, cost, now);
            }
            decision
        };
        let mut home = self.lock(place.shard);
        if let Some(entry) = home.shard.find(place) {
            return (self.step(entry, variant, now, decide).unwrap_or(Decision::NEVER), place);
        }
        home.sweep(now);
        if home.has_room() && !self.table.overflowing.load(Ordering::Acquire) {
            // A key that is not admitted leaves no entry.
            let Some(mut entry) = self.new_entry(place, variant, now) else {
                return (Decision::NEVER, place);
            };
            let decision = self.step(&mut entry, variant, now, decide).unwrap_or(Decision::NEVER);
            if charge && decision.admitted() {
                home.shard.insert(entry);
            }
            return (decision, place);
        }
        let mut overflow = self.lock_overflow();
        let at = overflow.receive(&mut home, place, variant, now);
        let held = if at.shard == place.shard { &mut home } else { &mut overflow };
        let decision = held.shard.find(at).and_then(|entry| self.step(entry, variant, now, decide));
        (decision.unwrap_or(Decision::NEVER), at)
    }

    /// What [`decide`](Self::decide) would say, without effect.
    pub(super) fn peek(&self, place: Place, variant: usize, cost: u64, now: Timestamp) -> (Decision, bool) {
        let home = self.lock(place.shard);
        let mut found = home.shard.get(place).cloned();
        let mut shared = false;
        let full = home.shard.entries.len() >= self.table.shard_keys;
        if found.is_none() && (full || self.table.overflowing.load(Ordering::Acquire)) {
            found = self.lock_overflow().shard.get(self.table.overflow_place(self.variant(variant))).cloned();
            shared = full;
        }
        let decision = found.or_else(|| self.new_entry(place, variant, now)).and_then(|mut entry| {
            let params = self.adopt(&mut entry, variant, now)?;
            Some(params.peek(&entry.state, cost, now))
        });
        (decision.unwrap_or(Decision::NEVER), shared)
    }

    pub(super) fn keys(&self) -> usize {
        let shards = self.table.shards.get().map_or(&[] as &[_], |shards| &shards[..]);
        shards.iter().take(self.table.shard_count).map(|shard| shard.lock().entries.len()).sum()
    }

    /// Drops what equals a fresh entry everywhere, and gives memory back.
    pub(super) fn sweep(&self, now: Timestamp) -> usize {
        let Some(shards) = self.table.shards.get() else {
            return 0;
        };
        let mut dropped = 0;
        for shard in 0..self.table.shard_count.min(shards.len()) {
            let mut held = self.lock(shard);
            let before = held.shard.entries.len();
            held.shard.entries.retain(|entry| {
                let fresh = self.is_fresh(entry, now);
                if fresh {
                    self.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
                }
                !fresh
            });
            let left = held.shard.entries.len();
            dropped += before - left;
            if left < held.shard.entries.capacity() / 4 {
                held.shard.entries.shrink_to(left * 2, |entry| entry.hash);
            }
        }
        self.lock_overflow().close_if_fresh(now);
        dropped
    }
}

impl<C: Counter> Held<'_, C> {
    pub(super) fn contains(&self, place: Place) -> bool {
        self.shard.get(place).is_some()
    }

    /// Makes sure that `place` has an entry. False: the shared counters must be asked, see
    /// [`receive`](Self::receive).
    pub(super) fn prepare(&mut self, place: Place, variant: usize, now: Timestamp) -> bool {
        if self.contains(place) {
            return true;
        }
        if !self.has_room() || self.bound.table.overflowing.load(Ordering::Acquire) {
            return false;
        }
        if let Some(entry) = self.bound.new_entry(place, variant, now) {
            self.shard.insert(entry);
        }
        true
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
    fn close_if_fresh(&mut self, now: Timestamp) {
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

    fn has_room(&self) -> bool {
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
}

impl<C: Counter> Table<C> {
    fn place(&self, key: &[u8]) -> Place {
        if !self.keyed {
            return Place { shard: 0, hash: 0, check: 0 };
        }
        let mut sip = self.sip.build_hasher();
        sip.write(key);
        let hash = sip.finish();
        let mut check = self.check.build_hasher();
        check.write(key);
        // The table uses the lowest bits and the highest seven.
        let shard = (hash >> 40) as usize & self.shard_count.saturating_sub(1);
        Place { shard, hash, check: (check.finish() >> 32) as u32 }
    }

    /// Where the keys that share `variant`'s numbers are counted.
    fn overflow_place(&self, variant: usize) -> Place {
        // Spread by a multiplication, because the table takes hash bits at both ends.
        let hash = (variant as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Place { shard: self.shard_count, hash, check: variant as u32 }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard<C>> {
        let shards = self.shards.get_or_init(|| {
            let shard = || Mutex::new(Shard { entries: HashTable::new(), cursor: 0 });
            (0..=self.shard_count).map(|_| shard()).collect()
        });
        // Places are made by this table only, so the index is always in range.
        shards[shard.min(self.shard_count)].lock()
    }

    /// The numbers with this id.
    fn params(&self, id: u32) -> Option<C> {
        let generations = self.generations.read();
        let after = generations.partition_point(|generation| generation.first <= id);
        let generation = generations.get(after.checked_sub(1)?)?;
        generation.params.get(id.checked_sub(generation.first)? as usize).cloned()
    }

    fn account(&self, before: usize, after: usize, state: &mut C::State) {
        if after < before {
            self.runs.fetch_sub(before - after, Ordering::Relaxed);
            return;
        }
        let total = self.runs.fetch_add(after - before, Ordering::Relaxed) + (after - before);
        if total > self.max_runs {
            C::coarsen(state);
            let less = after.saturating_sub(C::footprint(state));
            if less > 0 {
                self.runs.fetch_sub(less, Ordering::Relaxed);
                self.coarsened.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets generations that neither a version nor an entry uses.
    fn forget_unused(&self) {
        // Those that only the list holds cannot come into use again: entries are made under the
        // generation of a version, and an entry keeps its shard.
        let mut unused: Vec<u32> = {
            let generations = self.generations.read();
            if generations.len() < GENERATIONS {
                return;
            }
            let idle = generations.iter().filter(|generation| Arc::strong_count(generation) == 1);
            idle.map(|generation| generation.first).collect()
        };
        let starts: Vec<u32> = self.generations.read().iter().map(|generation| generation.first).collect();
        for shard in self.shards.get().map_or(&[] as &[_], |shards| &shards[..]) {
            for entry in &shard.lock().entries {
                let after = starts.partition_point(|first| *first <= entry.params);
                let first = after.checked_sub(1).and_then(|at| starts.get(at));
                unused.retain(|candidate| Some(candidate) != first);
            }
        }
        self.generations.write().retain(|generation| !unused.contains(&generation.first));
    }
}

impl Table<Concurrency> {
    /// Gives back what a call took at `place`.
    pub(super) fn release(&self, place: Place, cost: u64) {
        if let Some(entry) = self.lock(place.shard).find(place) {
            Concurrency::release(&mut entry.state, cost);
        }
    }
}

impl<C: Counter> Shard<C> {
    fn get(&self, place: Place) -> Option<&Entry<C::State>> {
        self.entries.find(place.hash, |entry| entry.hash == place.hash && entry.check == place.check)
    }

    fn find(&mut self, place: Place) -> Option<&mut Entry<C::State>> {
        self.entries.find_mut(place.hash, |entry| entry.hash == place.hash && entry.check == place.check)
    }

    fn insert(&mut self, entry: Entry<C::State>) {
        self.entries.insert_unique(entry.hash, entry, |entry| entry.hash);
    }
}

impl<C> Generation<C> {
    /// The first id after this generation's. `None` when ids have run out.
    fn end(&self) -> Option<u32> {
        self.first.checked_add(u32::try_from(self.params.len()).ok()?)
    }
}
