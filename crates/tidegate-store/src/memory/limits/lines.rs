//! Counters of one word each, decided without a lock.
//!
//! A [`Lines`] is a table of cache lines with four slots each. A slot is two atomic words: the **tag**
//! says whose counter it is and by which numbers it was filled, the **word** is the counter. A key may
//! be in any slot of the [`WINDOW`] lines from its home on, and is in one at most.
//!
//! Who decides on a key that is there needs no lock ([`Lines::quick`]): it reads the word, sees that the
//! tag is its own, and replaces the word by the next one if it is still the same. Everything else is
//! done by an **owner**, who has the lock of the shard that the lines belong to: there is one at a time.
//!
//! # Why a replaced word was the right one
//!
//! The owner keeps two rules:
//!
//! 1. While the top bit of a word ([`HELD`]) is set, only the owner writes the slot.
//! 2. A tag changes only while the slot is held, and the word that is stored when the hold ends is then
//!    later than the one at its beginning. Words never go back otherwise either: where a word must, as
//!    for a clock that was set back, the key is moved out of the slot and the slot keeps the later word.
//!
//! So a word that is equal at two moments has not been given to another key in between, and a tag that
//! was read in between was the slot's all the while. Words are compared by their distance on a circle of
//! 2⁶³ units, so this holds for a thread that stands still for less than 9 years.
//!
//! The orderings make "in between" true for other processors. The owner takes hold with an acquiring
//! compare-and-set and writes the tag with release; a decider reads word and tag with acquire.
//!
//! - The tag that is read is no older than the word: the word that was read was stored with release after
//!   its tag.
//! - It is no newer either. A decider that charges has replaced the word, with release. If the tag was
//!   written under a later hold, then taking that hold read the decider's word or one after it, with
//!   acquire, so reading the tag came before writing it: a contradiction. A decider that charges nothing
//!   reads the word once more. If the tag was written under a later hold, then reading it, with acquire,
//!   makes that hold's mark or a later word the least that is read: not the same word.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// Set in a word that only the owner may change.
pub(super) const HELD: u64 = 1 << 63;
/// Bits of a tag that name the numbers; the other 54 are the key's.
const PARAMS_BITS: u32 = 10;
/// Ids of numbers that a tag can name. Keys under later ones are kept in the locked table.
pub(super) const MAX_PARAMS: u32 = 1 << PARAMS_BITS;
/// Lines that a key may be in. With more, a fuller table finds room for all; to look for an absent key
/// costs as many reads.
const WINDOW: usize = 8;
/// Slots of one cache line.
const PER_LINE: usize = 4;
/// Lines are added when more than three quarters of the slots are taken.
const LOAD: (usize, usize) = (3, 4);

/// One atomic 64-bit word. A trait of its own so that a model checker can stand in for the hardware.
pub(super) trait Word: Default {
    /// Reads, with acquire.
    fn load(&self) -> u64;
    /// Writes, with release.
    fn store(&self, value: u64);
    /// Replaces `old` by `new`, or gives back what stands there. Both ways acquire, and release.
    fn replace(&self, old: u64, new: u64) -> Result<(), u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// The 54 bits of a key's hash that tell it from other keys in the same shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print(u64);

impl Print {
    /// Leaves out bits 40 to 49, of which the shard is chosen.
    #[inline]
    pub(super) fn new(hash: u64) -> Self {
        Self((hash >> 50 << 40) | (hash & ((1 << 40) - 1)))
    }

    /// Never 0, which is an empty slot's. (The prints 0 and 1 are one key: two of 2⁵⁴.)
    #[inline]
    fn tag(self, params: u32) -> u64 {
        (self.0.max(1) << PARAMS_BITS) | u64::from(params % MAX_PARAMS)
    }
}

/// Counters of some of a rule's keys.
pub(super) struct Lines<W = AtomicU64> {
    lines: Box<[Line<W>]>,
}

/// A cache line.
#[repr(align(64))]
#[derive(Default)]
struct Line<W>([Slot<W>; PER_LINE]);

#[derive(Default)]
struct Slot<W> {
    tag: W,
    word: W,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) params: u32,
    pub(super) word: u64,
}

/// Where a counter is, for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    line: usize,
    slot: usize,
}

/// Whether `later` is later than `earlier`, on the circle of 2⁶³.
#[inline]
fn is_later(later: u64, earlier: u64) -> bool {
    (1..HELD / 2).contains(&(later.wrapping_sub(earlier) & !HELD))
}

impl<W: Word> Lines<W> {
    /// All empty; at least one line.
    pub(super) fn new(lines: usize) -> Self {
        Self { lines: (0..lines.max(1)).map(|_| Line::default()).collect() }
    }

    /// Lines that hold `keys` without growing.
    pub(super) fn for_keys(keys: usize) -> usize {
        keys.saturating_mul(LOAD.1).div_ceil(LOAD.0 * PER_LINE).max(1)
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.lines.len() * PER_LINE
    }

    /// Whether so many counters are too many for quick searches.
    pub(super) fn is_crowded(&self, counters: usize) -> bool {
        counters > self.slots() * LOAD.0 / LOAD.1
    }

    // ---- without a lock ----------------------------------------------------------------------------

    /// Decides on the counter of `print`, filled under `params`.
    ///
    /// `step` is given the word and returns a result and the next word, which is the same or later; it is
    /// called again when another thread was quicker. `None` when `step` returns that, and when the counter
    /// is not here, is held, or was filled under other numbers: ask the owner.
    #[inline]
    pub(super) fn quick<R>(
        &self,
        print: Print,
        params: u32,
        step: impl FnMut(u64) -> Option<(R, u64)>,
    ) -> Option<R> {
        let tag = print.tag(params);
        for line in self.window(print) {
            for slot in &line.0 {
                if slot.tag.load() == tag {
                    return slot.attempt(tag, step);
                }
            }
        }
        None
    }

    /// [`quick`](Self::quick) for the only counter of a rule without a key.
    #[inline]
    pub(super) fn quick_single<R>(
        &self,
        params: u32,
        step: impl FnMut(u64) -> Option<(R, u64)>,
    ) -> Option<R> {
        let tag = Print(0).tag(params);
        let slot = self.lines.first()?.0.iter().find(|slot| slot.tag.load() == tag)?;
        slot.attempt(tag, step)
    }

    #[inline]
    fn home(&self, print: Print) -> usize {
        // The highest bits of the print as a fraction of the length.
        ((u128::from(print.0 << PARAMS_BITS) * self.lines.len() as u128) >> 64) as usize
    }

    #[inline]
    fn window(&self, print: Print) -> impl Iterator<Item = &Line<W>> {
        let home = self.home(print).min(self.lines.len());
        let (before, after) = self.lines.split_at(home);
        after.iter().chain(before).take(WINDOW)
    }

    // ---- for the owner -----------------------------------------------------------------------------

    /// Where the counter of `print` is, whatever numbers it was filled under.
    pub(super) fn find(&self, print: Print) -> Option<At> {
        let own = print.tag(0) >> PARAMS_BITS;
        self.places(print).find(|at| self.slot(*at).is_some_and(|slot| slot.tag.load() >> PARAMS_BITS == own))
    }

    /// What is there, as it is now. `None` for an empty slot.
    pub(super) fn get(&self, at: At) -> Option<Kept> {
        self.slot(at)?.kept()
    }

    /// Keeps deciders off the slot until [`put`](Self::put) or [`remove`](Self::remove).
    pub(super) fn hold(&self, at: At) -> Option<Kept> {
        let slot = self.slot(at)?;
        slot.hold();
        slot.kept()
    }

    pub(super) fn is_held(&self, at: At) -> bool {
        self.slot(at).is_some_and(|slot| slot.word.load() & HELD != 0)
    }

    /// Stores the next state of a held counter, and ends the hold unless `keep`. Says no, and changes
    /// nothing, where the slot's word would go back: the counter must then be kept elsewhere.
    pub(super) fn put(&self, at: At, kept: Kept, keep: bool) -> bool {
        let Some(slot) = self.slot(at) else { return false };
        let before = slot.word.load() & !HELD;
        let tag = slot.tag.load();
        let next = tag >> PARAMS_BITS << PARAMS_BITS | u64::from(kept.params % MAX_PARAMS);
        let same = next == tag && kept.word == before;
        if kept.params >= MAX_PARAMS || !(same || is_later(kept.word, before)) {
            return false;
        }
        slot.tag.store(next);
        slot.word.store(if keep { kept.word | HELD } else { kept.word });
        true
    }

    /// Empties a slot. What it held is returned.
    pub(super) fn remove(&self, at: At) -> Option<Kept> {
        let slot = self.slot(at)?;
        slot.hold();
        let kept = slot.kept()?;
        slot.tag.store(0);
        // 0 is kept for a slot that never had a counter.
        slot.word.store((kept.word.wrapping_add(1) & !HELD).max(1));
        Some(kept)
    }

    /// Gives `print` a slot: an empty one, or one whose counter `may_go`. Returns the dropped counters,
    /// one at most, or `None` when there is no room. The key must not be here. It is held if `keep`.
    pub(super) fn insert(
        &self,
        print: Print,
        kept: Kept,
        keep: bool,
        mut may_go: impl FnMut(Kept) -> bool,
    ) -> Option<usize> {
        if kept.params >= MAX_PARAMS {
            return None;
        }
        for drops in [false, true] {
            for at in self.places(print) {
                let slot = self.slot(at)?;
                let word = slot.word.load();
                let there = slot.kept();
                // A slot that never had a counter has the word 0, and no decider has seen it.
                if there.is_some() != drops || word & HELD != 0 || (word != 0 && !is_later(kept.word, word)) {
                    continue;
                }
                if let Some(there) = there {
                    if !may_go(there) {
                        continue;
                    }
                    // It may have been charged since.
                    slot.hold();
                    let Some(held) = slot.kept() else { continue };
                    if !may_go(held) || !is_later(kept.word, held.word) {
                        slot.word.store(held.word);
                        continue;
                    }
                }
                slot.word.store(HELD | (slot.word.load() & !HELD));
                slot.tag.store(print.tag(kept.params));
                slot.word.store(if keep { kept.word | HELD } else { kept.word });
                return Some(usize::from(drops));
            }
        }
        None
    }

    /// Moves every counter to new lines, and holds the old slots for good. `None`, and nothing is
    /// changed, if one would find no room.
    pub(super) fn moved(&self, lines: usize) -> Option<Self> {
        let to = Self::new(lines);
        let mut moves: SmallVec<[(At, At); 16]> = SmallVec::new();
        for from in self.all() {
            let Some(tag) = self.slot(from).map(|slot| slot.tag.load()).filter(|tag| *tag != 0) else {
                continue;
            };
            let at = to
                .places(Print(tag >> PARAMS_BITS))
                .find(|at| to.slot(*at).is_some_and(|slot| slot.tag.load() == 0))?;
            to.slot(at)?.tag.store(tag);
            moves.push((from, at));
        }
        for (from, at) in moves {
            let (Some(from), Some(at)) = (self.slot(from), to.slot(at)) else { continue };
            // Held by this owner for a decision that goes on: so it stays.
            let held = from.word.load() & HELD;
            from.hold();
            at.word.store(from.word.load() & !HELD | held);
        }
        Some(to)
    }

    /// All slots.
    pub(super) fn all(&self) -> impl Iterator<Item = At> {
        (0..self.slots()).map(Self::nth)
    }

    /// The `n`th slot.
    pub(super) fn nth(n: usize) -> At {
        At { line: n / PER_LINE, slot: n % PER_LINE }
    }

    fn places(&self, print: Print) -> impl Iterator<Item = At> {
        let (home, len) = (self.home(print), self.lines.len());
        (0..WINDOW.min(len))
            .flat_map(move |step| (0..PER_LINE).map(move |slot| At { line: (home + step) % len, slot }))
    }

    fn slot(&self, at: At) -> Option<&Slot<W>> {
        self.lines.get(at.line)?.0.get(at.slot)
    }
}

impl<W: Word> Slot<W> {
    #[inline]
    fn attempt<R>(&self, tag: u64, mut step: impl FnMut(u64) -> Option<(R, u64)>) -> Option<R> {
        let mut word = self.word.load();
        loop {
            if word & HELD != 0 || self.tag.load() != tag {
                return None;
            }
            let (result, next) = step(word)?;
            if next == word {
                let again = self.word.load();
                if again == word {
                    return Some(result);
                }
                word = again;
                continue;
            }
            match self.word.replace(word, next) {
                Ok(()) => return Some(result),
                Err(other) => word = other,
            }
        }
    }

    fn hold(&self) {
        let mut word = self.word.load();
        while word & HELD == 0 {
            match self.word.replace(word, word | HELD) {
                Ok(()) => return,
                Err(other) => word = other,
            }
        }
    }

    fn kept(&self) -> Option<Kept> {
        let tag = self.tag.load();
        let word = self.word.load() & !HELD;
        (tag != 0).then_some(Kept { params: (tag % u64::from(MAX_PARAMS)) as u32, word })
    }
}

#[cfg(test)]
mod tests;
