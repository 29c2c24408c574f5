//! A sliding window of counts: a ring of time buckets, written without a lock.
//!
//! A result belongs to one *class* (say: quick success, quick failure, slow success, slow failure)
//! and is counted with one compare-and-set on one word, so a reader sees it whole or not at all, and
//! no share ever exceeds 100 %. A word holds the tick that it counts for and the count together, so a
//! bucket that the ring has come round to is emptied and counted into in the same step. Nothing is
//! lost or doubled in between.
//!
//! Time is cut into ticks of a power of two in nanoseconds. The window spans `n` ticks, of which the
//! current one is partly over, so it covers the stated length give or take one tick, which is at most
//! an eighth of it with [`BUCKETS`].
//!
//! A clock that stands still counts on in one bucket. A clock that steps back by less than the window
//! goes on in the buckets that are there; by more, old buckets are recycled as it meets them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::time::{Timestamp, nanos};

/// The most buckets in a breaker's window. With more, a result leaves the window closer to its time;
/// with fewer, adding them up is quicker.
pub const BUCKETS: u32 = 16;

/// Counts by class.
pub type Counts = SmallVec<[u64; 8]>;

/// One atomic 64-bit word. A trait of its own so that a model checker can stand in for the hardware.
pub trait Word: Default {
    /// Reads it.
    fn load(&self) -> u64;
    /// Replaces `old` by `new`, or gives back what stands there. May fail without cause.
    fn replace(&self, old: u64, new: u64) -> Result<(), u64>;
}

// Sequentially consistent, so that of two threads that each count and then add up, at least one
// sees both: the result that reaches the threshold trips, not the next one.
impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }
}

/// Counts of the last `length`, by class.
#[derive(Debug)]
pub struct Window<W = AtomicU64> {
    /// `ring × classes` words: the tick's low 32 bits, then the count.
    words: Box<[W]>,
    /// `buckets`, rounded up to a power of two, so that a place in the ring is a mask away.
    ring: u32,
    classes: usize,
    buckets: u32,
    /// A tick is `1 << shift` nanoseconds.
    shift: u32,
}

impl<W: Word> Window<W> {
    /// A window over `length`, of at most `most_buckets` buckets, for `classes` classes.
    ///
    /// Zero counts as one everywhere. With one bucket it is no sliding window but a tumbling one.
    pub fn new(length: Duration, most_buckets: u32, classes: usize) -> Self {
        let (shift, buckets) = ticks(length, most_buckets);
        let classes = classes.max(1);
        // At most 2¹⁶ buckets.
        let ring = buckets.next_power_of_two();
        let words = (0..classes.saturating_mul(ring as usize)).map(|_| W::default()).collect();
        Self { words, ring, classes, buckets, shift }
    }

    /// Counts one result of `class`; one out of range counts in the last class.
    ///
    /// A count stops at 4,294,967,295 for each class and bucket.
    #[inline]
    pub fn record(&self, class: usize, now: Timestamp) {
        let tick = self.tick(now);
        let class = class.min(self.classes - 1);
        let slot = (tick & u64::from(self.ring - 1)) as usize;
        let Some(word) = self.words.get(slot * self.classes + class) else { return };
        let mut seen = word.load();
        loop {
            let next = if ahead(seen, tick) <= self.ring {
                // This tick's bucket; or, one lap on, that of a faster thread: what comes a whole
                // window late is counted as new rather than lost.
                if seen as u32 == u32::MAX { seen } else { seen + 1 }
            } else {
                (tick << 32) + 1
            };
            match word.replace(seen, next) {
                Ok(()) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// The counts of the window that ends `now`, by class.
    pub fn counts(&self, now: Timestamp) -> Counts {
        let mut counts = Counts::from_elem(0, self.classes);
        self.add_to(&mut counts, now);
        counts
    }

    /// Adds the counts of the window that ends `now` to `counts`, class by class.
    pub fn add_to(&self, counts: &mut [u64], now: Timestamp) {
        let tick = self.tick(now);
        for bucket in self.words.chunks_exact(self.classes) {
            for (count, word) in counts.iter_mut().zip(bucket) {
                let word = word.load();
                let ahead = ahead(word, tick);
                if ahead <= self.ring || ahead.wrapping_neg() < self.buckets {
                    *count = count.saturating_add(word & u64::from(u32::MAX));
                }
            }
        }
    }

    /// How many buckets there are, from 1.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The length of a tick; saturates.
    pub fn tick_length(&self) -> Duration {
        Duration::from_nanos(1_u64.checked_shl(self.shift).unwrap_or(u64::MAX))
    }

    #[inline]
    fn tick(&self, now: Timestamp) -> u64 {
        now.as_nanos().checked_shr(self.shift).unwrap_or(0)
    }
}

/// The shift that makes the ticks of a window over `length`, and how many of them it spans, from 1 to
/// `most`.
pub(super) fn ticks(length: Duration, most: u32) -> (u32, u32) {
    let length = nanos(length).max(1);
    let most = u64::from(most.clamp(1, 1 << 16));
    let spans = |shift: u32| ((length - 1).checked_shr(shift).unwrap_or(0)).saturating_add(1);
    let shift = (0..=u64::BITS).find(|shift| spans(*shift) <= most).unwrap_or(u64::BITS);
    (shift, u32::try_from(spans(shift)).unwrap_or(1))
}

/// How many ticks the word's bucket is ahead of `tick`; huge when it is behind. Only the low 32 bits
/// of a tick are kept: a bucket that was last written exactly a multiple of 2³² ticks ago (over a
/// century with a window of 10 s) would pass for new.
#[inline]
fn ahead(word: u64, tick: u64) -> u32 {
    ((word >> 32) as u32).wrapping_sub(tick as u32)
}

#[cfg(test)]
mod tests;
