//! The good results of a window, counted by a thread that has not looked up which window it is.
//!
//! A [`Window`](super::Window) is replaced when its breaker moves, so whoever counts into one must first
//! get hold of it. A [`Good`] stays where it is. What changes is its [`Shape`]: the length of its ticks and
//! its *era*, which grows when counts from before mean nothing any more. A word holds the era and tick that
//! it counts for and the count together, so a thread that was held up with the shape of an older era finds
//! that out in the same step that would have counted.
//!
//! Ticks, and what becomes of a clock that steps, are those of the window; the ring has as many words for
//! each length.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::breaker::window::{BUCKETS, Word, ticks};
use crate::time::Timestamp;

/// Words in the ring; a power of two, so that a place in it is a mask away.
const RING: u32 = BUCKETS;
/// A tick's bits in a word. A word that was last written exactly a multiple of 2²⁴ ticks ago (half a year
/// with a window of 10 s) would pass for new.
const TICK_BITS: u32 = 24;
const TICK_MASK: u32 = (1 << TICK_BITS) - 1;

/// Which results count: those of an era, in ticks of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(u64);

impl Shape {
    /// No shape: the one that counts is being changed.
    pub const CHANGING: Self = Self(u64::MAX);

    /// The first era of a window over `length`.
    pub fn new(length: Duration) -> Self {
        let (shift, buckets) = ticks(length, BUCKETS);
        Self((u64::from(buckets) << 8) + u64::from(shift))
    }

    /// A window over `length` in which nothing of this one counts.
    #[must_use]
    pub fn next(self, length: Duration) -> Self {
        // Far from a carry: 2⁴⁸ eras.
        Self((self.0 & !0xffff).wrapping_add(0x1_0000).wrapping_add(Self::new(length).0))
    }

    /// From its bits.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// As one word; differs between any two eras.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// When a result of `now` leaves the window; saturates.
    pub fn leaves(self, now: Timestamp) -> Timestamp {
        let end = self.tick(now).saturating_add(u64::from(self.buckets()));
        let nanos = u128::from(end) << self.shift();
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    #[inline]
    const fn shift(self) -> u32 {
        (self.0 & 0x7f) as u32
    }

    #[inline]
    const fn buckets(self) -> u32 {
        ((self.0 >> 8) & 0xff) as u32
    }

    #[inline]
    fn tick(self, now: Timestamp) -> u64 {
        now.as_nanos().checked_shr(self.shift()).unwrap_or(0)
    }

    /// The upper half of a word that counts for `tick`.
    #[inline]
    fn tag(self, tick: u64) -> u32 {
        (((self.0 >> 16) as u32) << TICK_BITS) + (tick as u32 & TICK_MASK)
    }
}

/// A ring of counts of good results; 128 bytes with real words.
#[derive(Debug)]
pub struct Good<W = AtomicU64> {
    words: [W; RING as usize],
}

impl<W: Word> Default for Good<W> {
    fn default() -> Self {
        Self { words: std::array::from_fn(|_| W::default()) }
    }
}

/// How a word's tag stands to the one that is counted for.
enum Age {
    /// Its era, and its tick or up to a ring ahead: a faster thread's.
    Now,
    /// Its era, or an older one, and past.
    Past,
    /// Of a newer era.
    Newer,
}

impl<W: Word> Good<W> {
    /// Counts one good result, unless the ring is of a newer era already: then the result is a straggler,
    /// and counts for nothing.
    ///
    /// A count stops at 4,294,967,295 for each tick. A thread that is held up here for 128 eras or more
    /// could count in the place of a newer one.
    #[inline]
    pub fn record(&self, shape: Shape, now: Timestamp) {
        let tick = shape.tick(now);
        let tag = shape.tag(tick);
        let Some(word) = self.words.get(tick as usize & (RING as usize - 1)) else { return };
        let mut seen = word.load();
        loop {
            let next = match age(seen, tag) {
                Age::Now if seen as u32 == u32::MAX => return,
                Age::Now => seen + 1,
                Age::Past => (u64::from(tag) << 32) + 1,
                Age::Newer => return,
            };
            match word.replace(seen, next) {
                Ok(()) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// How many good results stand in the window that ends `now`.
    pub fn count(&self, shape: Shape, now: Timestamp) -> u64 {
        let tag = shape.tag(shape.tick(now));
        let counts = |word: &u64| {
            let ahead = ahead(*word, tag);
            era_ahead(*word, tag) == 0
                && (ahead <= RING || ahead.wrapping_neg() & TICK_MASK < shape.buckets())
        };
        let words = self.words.iter().map(Word::load).filter(counts);
        words.fold(0, |sum, word| sum.saturating_add(word & u64::from(u32::MAX)))
    }

    /// Forgets all counts, as each new era begins: an era's number comes round again after 256.
    pub fn clear(&self) {
        for word in &self.words {
            let mut seen = word.load();
            while let Err(other) = word.replace(seen, 0) {
                seen = other;
            }
        }
    }
}

#[inline]
fn age(word: u64, tag: u32) -> Age {
    match era_ahead(word, tag) {
        // An empty word is of no era.
        _ if word == 0 => Age::Past,
        0 if ahead(word, tag) <= RING => Age::Now,
        1.. => Age::Newer,
        _ => Age::Past,
    }
}

#[inline]
fn era_ahead(word: u64, tag: u32) -> i8 {
    ((word >> (32 + TICK_BITS)) as u8).wrapping_sub((tag >> TICK_BITS) as u8) as i8
}

/// How many ticks the word is ahead; huge when it is behind.
#[inline]
fn ahead(word: u64, tag: u32) -> u32 {
    ((word >> 32) as u32).wrapping_sub(tag) & TICK_MASK
}

#[cfg(test)]
mod tests;
