//! One rule's counters, and the numbers that they are decided by.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use tidegate_core::Timestamp;
use tidegate_core::limit::concurrency::Concurrency;
use tidegate_core::limit::{Counter, Decision, REORDER, TokenBucket};

use super::LocalLimitsConfig;
use super::lines::{Lines, MAX_PARAMS, Print};
use super::shard::{Cell, Entry, Held, Place};

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
    pub(super) shard_keys: usize,
    max_runs: usize,
    keyed: bool,
    /// Made when first asked. One more than `shard_count`: the last holds the shared counters.
    shards: OnceLock<Box<[Cell<C>]>>,
    /// Whether a counter is one word, and so may be kept in lines.
    flat: bool,
    /// The line of the one counter of a rule without a key, if it is flat.
    pub(super) single: Option<Lines>,
    /// Oldest first. Never locked before a shard by one who then wants a shard.
    generations: RwLock<Vec<Arc<Generation<C>>>>,
    /// Whether a shared counter is in use. Changed only under the last shard's lock.
    pub(super) overflowing: AtomicBool,
    pub(super) overflowed: AtomicU64,
    pub(super) coarsened: AtomicU64,
    /// Records of variable number in all states.
    pub(super) runs: AtomicUsize,
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
    /// The first of the generation's numbers, close at hand, and its id.
    own: Option<C>,
    first: u32,
}

impl<C: Counter> Clone for Bound<C> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
            generation: Arc::clone(&self.generation),
            own: self.own.clone(),
            first: self.first,
        }
    }
}

impl<C: Counter> Bound<C> {
    /// A new table; `params` are the rule's own numbers and the overrides'.
    pub(super) fn fresh(params: Vec<C>, keyed: bool, config: &LocalLimitsConfig, uid: u64) -> Self {
        let generation = Arc::new(Generation { first: 0, params: params.into_boxed_slice() });
        // Both are powers of two, and so is the lesser.
        let most = 1 << (config.max_keys / MIN_SHARD_KEYS).max(1).ilog2();
        let shard_count = if keyed { config.shards.min(most) } else { 1 };
        let own = generation.params.first().cloned();
        let flat = own.as_ref().is_some_and(|own| C::to_word(&own.fresh(Timestamp::EPOCH)).is_some());
        let table = Table {
            uid,
            sip: RandomState::new(),
            check: foldhash::quality::RandomState::default(),
            shard_count,
            shard_keys: config.max_keys.div_ceil(shard_count),
            max_runs: config.max_log_runs,
            keyed,
            shards: OnceLock::new(),
            flat,
            single: (flat && !keyed).then(|| Lines::new(1)),
            generations: RwLock::new(vec![Arc::clone(&generation)]),
            overflowing: AtomicBool::new(false),
            overflowed: AtomicU64::new(0),
            coarsened: AtomicU64::new(0),
            runs: AtomicUsize::new(0),
        };
        Self { table: Arc::new(table), generation, own, first: 0 }
    }

    /// The same table under other numbers. `None` when ids have run out.
    pub(super) fn changed(&self, params: Vec<C>) -> Option<Self> {
        self.table.forget_unused();
        let mut generations = self.table.generations.write();
        let first = generations.last().map_or(Some(0), |last| last.end())?;
        let generation = Arc::new(Generation { first, params: params.into_boxed_slice() });
        generation.end()?;
        generations.push(Arc::clone(&generation));
        let own = generation.params.first().cloned();
        Some(Self { table: Arc::clone(&self.table), generation, own, first })
    }

    pub(super) fn place(&self, key: &[u8]) -> Place {
        self.table.place(key)
    }

    pub(super) fn lock(&self, shard: usize) -> Held<'_, C> {
        Held::new(self, self.table.cell(shard), self.table.flat && shard < self.table.shard_count)
    }

    pub(super) fn lock_overflow(&self) -> Held<'_, C> {
        self.lock(self.table.shard_count)
    }

    /// A variant that exists.
    pub(super) fn variant(&self, variant: usize) -> usize {
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
    pub(super) fn step<R>(
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

    pub(super) fn new_entry(&self, place: Place, variant: usize, now: Timestamp) -> Option<Entry<C::State>> {
        let variant = self.variant(variant);
        let state = self.generation.params.get(variant)?.fresh(now);
        let params = self.generation.first.saturating_add(variant as u32);
        Some(Entry { hash: place.hash, check: place.check, params, state })
    }

    /// Whether an entry decides like a fresh one, also for a call that read the clock a little earlier.
    pub(super) fn is_fresh(&self, params: u32, state: &C::State, now: Timestamp) -> bool {
        let now = now.before(REORDER);
        let own = params.checked_sub(self.generation.first);
        match own.and_then(|own| self.generation.params.get(own as usize)) {
            Some(params) => params.is_fresh(state, now),
            None => self.table.params(params).is_some_and(|params| params.is_fresh(state, now)),
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
        if let Some(decision) = home.with(place, |entry| self.step(entry, variant, now, decide)) {
            return (decision.unwrap_or(Decision::NEVER), place);
        }
        home.sweep(now);
        if home.has_room() && !self.table.overflowing.load(Ordering::Acquire) {
            // A key that is not admitted leaves no entry.
            let Some(mut entry) = self.new_entry(place, variant, now) else {
                return (Decision::NEVER, place);
            };
            let decision = self.step(&mut entry, variant, now, decide).unwrap_or(Decision::NEVER);
            if charge && decision.admitted() {
                home.add(place, entry, now);
            }
            return (decision, place);
        }
        let mut overflow = self.lock_overflow();
        let at = overflow.receive(&mut home, place, variant, now);
        let held = if at.shard == place.shard { &mut home } else { &mut overflow };
        let decision = held.with(at, |entry| self.step(entry, variant, now, decide));
        (decision.flatten().unwrap_or(Decision::NEVER), at)
    }

    /// What [`decide`](Self::decide) would say, without effect.
    pub(super) fn peek(&self, place: Place, variant: usize, cost: u64, now: Timestamp) -> (Decision, bool) {
        let home = self.lock(place.shard);
        let mut found = home.look(place);
        let mut shared = false;
        let full = !home.has_room();
        if found.is_none() && (full || self.table.overflowing.load(Ordering::Acquire)) {
            found = self.lock_overflow().look(self.table.overflow_place(self.variant(variant)));
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
        shards.iter().take(self.table.shard_count).map(|shard| shard.lock().keys()).sum()
    }

    /// Drops what equals a fresh entry everywhere, and gives memory back.
    pub(super) fn sweep(&self, now: Timestamp) -> usize {
        let Some(shards) = self.table.shards.get() else {
            return 0;
        };
        let mut dropped = 0;
        for shard in 0..self.table.shard_count.min(shards.len()) {
            dropped += self.lock(shard).sweep_all(now);
        }
        self.lock_overflow().close_if_fresh(now);
        dropped
    }
}

impl<C: Counter> Table<C> {
    #[cfg(test)]
    pub(super) fn generation_count(&self) -> usize {
        self.generations.read().len()
    }

    #[cfg(test)]
    pub(super) fn run_count(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    fn place(&self, key: &[u8]) -> Place {
        if !self.keyed {
            return Place { shard: 0, hash: 0, check: 0 };
        }
        let hash = self.hash(key);
        let mut check = self.check.build_hasher();
        check.write(key);
        Place { shard: self.shard_of(hash), hash, check: (check.finish() >> 32) as u32 }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let mut sip = self.sip.build_hasher();
        sip.write(key);
        sip.finish()
    }

    /// By bits that neither the hash table (the lowest, and the highest seven) nor [`Print`] uses.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 40) as usize & self.shard_count.saturating_sub(1)
    }

    /// Where the keys that share `variant`'s numbers are counted.
    pub(super) fn overflow_place(&self, variant: usize) -> Place {
        // Spread by a multiplication, because the table takes hash bits at both ends.
        let hash = (variant as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Place { shard: self.shard_count, hash, check: variant as u32 }
    }

    fn cell(&self, shard: usize) -> &Cell<C> {
        let shards = self.shards.get_or_init(|| (0..=self.shard_count).map(|_| Cell::default()).collect());
        // Places are made by this table only, so the index is always in range.
        &shards[shard.min(self.shard_count)]
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
        let mut uses = |params: u32| {
            let after = starts.partition_point(|first| *first <= params);
            let first = after.checked_sub(1).and_then(|at| starts.get(at));
            unused.retain(|candidate| Some(candidate) != first);
        };
        for cell in self.shards.get().map_or(&[] as &[_], |shards| &shards[..]) {
            let shard = cell.lock();
            shard.entries.iter().for_each(|entry| uses(entry.params));
            let lines = cell.lines.load_full();
            for lines in lines.as_deref().into_iter().chain(&self.single) {
                lines.all().filter_map(|at| lines.get(at)).for_each(|kept| uses(kept.params));
            }
        }
        self.generations.write().retain(|generation| !unused.contains(&generation.first));
    }
}

impl Bound<TokenBucket> {
    /// The whole of a decision, without a lock. `None` when that cannot be: ask [`decide`](Self::decide).
    #[inline]
    pub(super) fn quick(
        &self,
        key: &[u8],
        variant: usize,
        cost: u64,
        now: Timestamp,
        charge: bool,
    ) -> Option<Decision> {
        let (params, id) = if variant == 0 {
            (self.own.as_ref()?, self.first)
        } else {
            let variant = self.variant(variant);
            (self.generation.params.get(variant)?, self.first.saturating_add(variant as u32))
        };
        if id >= MAX_PARAMS {
            return None;
        }
        let step = |word: u64| {
            let (decision, next) = params.step(TokenBucket::from_word(word)?, cost, now)?;
            Some((decision, if charge { TokenBucket::to_word(&next)? } else { word }))
        };
        if let Some(single) = &self.table.single {
            return single.quick_single(id, step);
        }
        let hash = self.table.hash(key);
        let cell = self.table.shards.get()?.get(self.table.shard_of(hash))?;
        cell.lines.load().as_ref()?.quick(Print::new(hash), id, step)
    }
}

impl Table<Concurrency> {
    /// Gives back what a call took at `place`.
    pub(super) fn release(&self, place: Place, cost: u64) {
        if let Some(entry) = self.cell(place.shard).lock().find(place) {
            Concurrency::release(&mut entry.state, cost);
        }
    }
}

impl<C> Generation<C> {
    /// The first id after this generation's. `None` when ids have run out.
    fn end(&self) -> Option<u32> {
        self.first.checked_add(u32::try_from(self.params.len()).ok()?)
    }
}
