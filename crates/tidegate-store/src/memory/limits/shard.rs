//! Some of a rule's counters under one lock: finding, making, charging and dropping entries.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwapOption;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::{Counter, Decision};

use super::lines::{At, Kept, Lines, Print};
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

/// Some of a rule's counters, and the lock of their owner.
pub(super) struct Cell<C: Counter> {
    /// Counters of one word, which are decided without the lock while nothing else is the matter.
    pub(super) lines: ArcSwapOption<Lines>,
    shard: Apart<Mutex<Shard<C>>>,
}

/// On a cache line of its own, so that taking the lock does not slow down those that need none.
#[repr(align(64))]
#[derive(Default)]
struct Apart<T>(T);

/// What the owner of some counters keeps.
pub(super) struct Shard<C: Counter> {
    /// All counters that are not in lines.
    pub(super) entries: HashTable<Entry<C::State>>,
    /// How many are in lines.
    pub(super) in_lines: usize,
    /// Where the sweep of the entries goes on.
    cursor: usize,
    /// Where the sweep of the lines goes on.
    line_cursor: usize,
    /// How many counters there must be before lines are added.
    grow_at: usize,
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

/// The lines of a shard.
enum InUse<'a> {
    Single(&'a Lines),
    Shared(Arc<Lines>),
}

impl Deref for InUse<'_> {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        match self {
            Self::Single(lines) => lines,
            Self::Shared(lines) => lines,
        }
    }
}

/// A shard under its lock.
pub(super) struct Held<'a, C: Counter> {
    pub(super) bound: &'a Bound<C>,
    cell: &'a Cell<C>,
    pub(super) shard: MutexGuard<'a, Shard<C>>,
    /// The lines in use: those of the rule without a key, or the cell's.
    lines: Option<InUse<'a>>,
    /// Whether counters may be kept in lines.
    flat: bool,
    /// Counters that nobody else may decide on until this is dropped.
    kept: SmallVec<[Place; 2]>,
}

impl<C: Counter> Drop for Held<'_, C> {
    fn drop(&mut self) {
        for place in &self.kept {
            if let Some((lines, at)) = self.line(*place)
                && let Some(kept) = lines.get(at)
            {
                lines.put(at, kept, false);
            }
        }
    }
}

impl<'a, C: Counter> Held<'a, C> {
    pub(super) fn new(bound: &'a Bound<C>, cell: &'a Cell<C>, flat: bool) -> Self {
        let shard = cell.shard.0.lock();
        let lines = match &bound.table.single {
            Some(single) if flat => Some(InUse::Single(single)),
            _ => cell.lines.load_full().map(InUse::Shared),
        };
        Self { bound, cell, shard, lines, flat, kept: SmallVec::new() }
    }

    pub(super) fn contains(&self, place: Place) -> bool {
        self.line(place).is_some() || self.shard.get(place).is_some()
    }

    fn line(&self, place: Place) -> Option<(&Lines, At)> {
        let lines = self.lines.as_deref()?;
        Some((lines, lines.find(Print::new(place.hash))?))
    }

    /// Keeps everybody else from deciding on a counter until this is dropped: the lock alone does not
    /// keep off those who need none.
    pub(super) fn keep(&mut self, place: Place) {
        if let Some((lines, at)) = self.line(place) {
            lines.hold(at);
        }
        self.kept.push(place);
    }

    /// A copy of what a counter is now.
    pub(super) fn look(&self, place: Place) -> Option<Entry<C::State>> {
        match self.line(place) {
            Some((lines, at)) => from_kept::<C>(place, lines.get(at)?),
            None => self.shard.get(place).cloned(),
        }
    }

    /// Lets `change` use a counter.
    pub(super) fn with<R>(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut Entry<C::State>) -> R,
    ) -> Option<R> {
        let print = Print::new(place.hash);
        let keep = self.kept.contains(&place);
        let Some((lines, at)) = self.line(place) else {
            let entry = self.shard.find(place)?;
            let result = change(entry);
            // It is here because there was no room in the lines, or its word went back.
            if let Some(lines) = self.lines.as_deref()
                && let Some(kept) = to_kept::<C>(entry)
                && lines.insert(print, kept, keep, |_| false).is_some()
            {
                self.shard.remove(place);
                self.shard.in_lines += 1;
            }
            return Some(result);
        };
        let mut entry: Entry<C::State> = from_kept::<C>(place, lines.hold(at)?)?;
        let result = change(&mut entry);
        let next = to_kept::<C>(&entry);
        if !next.is_some_and(|next| lines.put(at, next, keep)) {
            lines.remove(at);
            if next.is_none_or(|next| lines.insert(print, next, keep, |_| false).is_none()) {
                self.shard.in_lines -= 1;
                self.shard.insert(entry);
            }
        }
        Some(result)
    }

    /// Gives a new entry its place; there must be room.
    pub(super) fn add(&mut self, place: Place, entry: Entry<C::State>, now: Timestamp) {
        if let Some(kept) = to_kept::<C>(&entry).filter(|_| self.flat) {
            self.extend();
            let bound = self.bound;
            let may_go = |kept: Kept| {
                C::from_word(kept.word).is_some_and(|state| bound.is_fresh(kept.params, &state, now))
            };
            let print = Print::new(place.hash);
            if let Some(lines) = self.lines.as_deref()
                && let Some(dropped) = lines.insert(print, kept, false, may_go)
            {
                self.shard.in_lines = (self.shard.in_lines + 1).saturating_sub(dropped);
                return;
            }
        }
        self.shard.insert(entry);
    }

    /// Sees that there are lines, and that they are not crowded with one counter more.
    fn extend(&mut self) {
        let now = self.lines.as_deref().map_or(0, Lines::len);
        let crowded = self.lines.as_deref().is_none_or(|lines| lines.is_crowded(self.shard.in_lines + 1));
        let most = <Lines>::for_keys(self.bound.table.shard_keys);
        let due = crowded && self.shard.keys() >= self.shard.grow_at;
        if due && now < most && self.bound.table.single.is_none() && !self.resize(next_size(now, most)) {
            // It found no room for one of them, which is next to impossible. Not again for each new key.
            self.shard.grow_at = self.shard.keys() + self.shard.keys() / 16;
        }
    }

    /// Says no, and changes nothing, if there is a counter that finds no room.
    fn resize(&mut self, lines: usize) -> bool {
        let next = match self.lines.as_deref() {
            Some(now) => now.moved(lines),
            None => Some(Lines::new(lines)),
        };
        let Some(next) = next.map(Arc::new) else { return false };
        self.cell.lines.store(Some(Arc::clone(&next)));
        self.lines = Some(InUse::Shared(next));
        true
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
            self.add(place, entry, now);
        }
        Prepared::Made
    }

    /// Takes back an entry that was made for a call that was then denied.
    pub(super) fn unmake(&mut self, place: Place) {
        if let Some((lines, at)) = self.line(place) {
            lines.remove(at);
            self.shard.in_lines -= 1;
        } else if let Some(entry) = self.shard.remove(place) {
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
                home.add(place, own, now);
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
        if self.shard.entries.iter().all(|entry| self.bound.is_fresh(entry.params, &entry.state, now)) {
            for entry in self.shard.entries.drain() {
                self.bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
            }
            self.bound.table.overflowing.store(false, Ordering::Release);
        }
    }

    pub(super) fn test(&mut self, place: Place, variant: usize, cost: u64, now: Timestamp) -> Decision {
        let bound = self.bound;
        let test = |params: &C, state: &mut C::State| params.test(state, cost, now);
        let tested = self.with(place, |entry| bound.step(entry, variant, now, test));
        tested.flatten().unwrap_or(Decision::NEVER)
    }

    pub(super) fn take(&mut self, place: Place, variant: usize, cost: u64, now: Timestamp) {
        let bound = self.bound;
        let take = |params: &C, state: &mut C::State| params.take(state, cost, now);
        self.with(place, |entry| bound.step(entry, variant, now, take));
    }

    pub(super) fn has_room(&self) -> bool {
        self.shard.keys() < self.bound.table.shard_keys
    }

    /// Looks for entries to drop: a few, or more when the shard is full.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let steps = if self.has_room() { SWEEP_STEP } else { SWEEP_FULL };
        let buckets = self.shard.entries.num_buckets();
        for _ in 0..steps.min(buckets) {
            let at = if self.shard.cursor < buckets { self.shard.cursor } else { 0 };
            self.shard.cursor = at + 1;
            let bound = self.bound;
            let fresh = |entry: &Entry<C::State>| bound.is_fresh(entry.params, &entry.state, now);
            if self.shard.entries.get_bucket(at).is_some_and(fresh)
                && let Ok(entry) = self.shard.entries.get_bucket_entry(at)
            {
                let (entry, _) = entry.remove();
                bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
            }
        }
        let slots = self.lines.as_deref().map_or(0, Lines::slots);
        for _ in 0..steps.min(slots) {
            let at = if self.shard.line_cursor < slots { self.shard.line_cursor } else { 0 };
            self.shard.line_cursor = at + 1;
            self.drop_if_fresh(<Lines>::nth(at), now);
        }
    }

    /// Empties a slot whose counter equals a fresh one and is not kept. Returns whether it did.
    fn drop_if_fresh(&mut self, at: At, now: Timestamp) -> bool {
        let Some(lines) = self.lines.as_deref() else { return false };
        let fresh = |kept: Kept| {
            C::from_word(kept.word).is_some_and(|state| self.bound.is_fresh(kept.params, &state, now))
        };
        if lines.is_held(at) || !lines.get(at).is_some_and(fresh) {
            return false;
        }
        // It may have been charged since.
        let Some(held) = lines.hold(at) else { return false };
        if fresh(held) {
            lines.remove(at);
            self.shard.in_lines -= 1;
            true
        } else {
            lines.put(at, held, false);
            false
        }
    }

    /// Drops all that equals a fresh entry, and gives memory back. Returns how many it dropped.
    pub(super) fn sweep_all(&mut self, now: Timestamp) -> usize {
        let bound = self.bound;
        let before = self.shard.keys();
        self.shard.entries.retain(|entry| {
            let fresh = bound.is_fresh(entry.params, &entry.state, now);
            if fresh {
                bound.table.runs.fetch_sub(C::footprint(&entry.state), Ordering::Relaxed);
            }
            !fresh
        });
        let left = self.shard.entries.len();
        if left < self.shard.entries.capacity() / 4 {
            self.shard.entries.shrink_to(left * 2, |entry| entry.hash);
        }
        for at in 0..self.lines.as_deref().map_or(0, Lines::slots) {
            self.drop_if_fresh(<Lines>::nth(at), now);
        }
        let left = self.shard.in_lines;
        if left < self.lines.as_deref().map_or(0, Lines::slots) / 4 && bound.table.single.is_none() {
            if left == 0 {
                self.cell.lines.store(None);
                self.lines = None;
            } else {
                self.resize(<Lines>::for_keys(left * 2));
            }
        }
        before - self.shard.keys()
    }
}

/// How many lines follow on `now`: each step is a third more, and the last is `most`.
fn next_size(now: usize, most: usize) -> usize {
    let mut size = most;
    while size - size.div_ceil(4) > now {
        size -= size.div_ceil(4);
    }
    size
}

/// The entry that is kept as one word.
fn from_kept<C: Counter>(place: Place, kept: Kept) -> Option<Entry<C::State>> {
    let state = C::from_word(kept.word)?;
    Some(Entry { hash: place.hash, check: place.check, params: kept.params, state })
}

/// The entry as one word, if that is all there is to it.
fn to_kept<C: Counter>(entry: &Entry<C::State>) -> Option<Kept> {
    Some(Kept { params: entry.params, word: C::to_word(&entry.state)? })
}

impl<C: Counter> Default for Cell<C> {
    fn default() -> Self {
        Self { lines: ArcSwapOption::empty(), shard: Apart::default() }
    }
}

impl<C: Counter> Cell<C> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Shard<C>> {
        self.shard.0.lock()
    }
}

impl<C: Counter> Default for Shard<C> {
    fn default() -> Self {
        Self { entries: HashTable::new(), in_lines: 0, cursor: 0, line_cursor: 0, grow_at: 0 }
    }
}

impl<C: Counter> Shard<C> {
    pub(super) fn get(&self, place: Place) -> Option<&Entry<C::State>> {
        self.entries.find(place.hash, |entry| entry.hash == place.hash && entry.check == place.check)
    }

    pub(super) fn find(&mut self, place: Place) -> Option<&mut Entry<C::State>> {
        self.entries.find_mut(place.hash, |entry| entry.hash == place.hash && entry.check == place.check)
    }

    fn remove(&mut self, place: Place) -> Option<Entry<C::State>> {
        let same = |entry: &Entry<C::State>| entry.hash == place.hash && entry.check == place.check;
        self.entries.find_entry(place.hash, same).ok().map(|entry| entry.remove().0)
    }

    /// How many counters there are.
    pub(super) fn keys(&self) -> usize {
        self.entries.len() + self.in_lines
    }

    pub(super) fn insert(&mut self, entry: Entry<C::State>) {
        self.entries.insert_unique(entry.hash, entry, |entry| entry.hash);
    }
}
