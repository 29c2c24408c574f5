//! Latencies of the recent past: p50, p90 and p99, because a slow threshold is chosen from the tail
//! and never from a mean.
//!
//! A log-linear histogram in a sliding window: each power of two is cut into 16 equal classes, so a
//! reported quantile is the upper edge of a class that is at most 1/16 as wide as its value. It is
//! never below the true value and at most 6.25 % above it (plus 1.024 µs, the unit).

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::breaker::window::{Window, Word};
use crate::time::{Timestamp, nanos};

/// A unit is 2¹⁰ ns.
const UNIT_BITS: u32 = 10;
/// 2⁴ classes in each power of two.
const SUB_BITS: u32 = 4;
/// Latencies from 2³² units (73 minutes) on share the last class.
const RANGE_BITS: u32 = 32;
/// One class for each unit below 16, then 16 for each power of two.
const CLASSES: usize = ((RANGE_BITS - SUB_BITS + 1) << SUB_BITS) as usize;
/// The window moves in quarters or finer: bounded memory matters more here than a sharp edge.
const BUCKETS: u32 = 4;

/// Latencies of the last `window`; about 15 KB.
#[derive(Debug)]
pub struct Histogram<W = AtomicU64> {
    window: Window<W>,
}

/// Three quantiles and how many calls they are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Calls in the window.
    pub calls: u64,
    /// Half of the calls took at most this long.
    pub p50: Duration,
    /// Nine of ten calls took at most this long.
    pub p90: Duration,
    /// 99 of 100 calls took at most this long.
    pub p99: Duration,
}

impl<W: Word> Histogram<W> {
    /// An empty histogram over the last `window`, give or take a third of it.
    pub fn new(window: Duration) -> Self {
        Self { window: Window::new(window, BUCKETS, CLASSES) }
    }

    /// Counts a call that took `elapsed`.
    #[inline]
    pub fn record(&self, elapsed: Duration, now: Timestamp) {
        self.window.record(class(nanos(elapsed)), now);
    }

    /// The quantiles of the window that ends `now`; all zero when it is empty.
    pub fn quantiles(&self, now: Timestamp) -> Quantiles {
        quantiles([self], now)
    }
}

/// The quantiles over several histograms together, as when each thread keeps its own.
pub fn quantiles<'a, W: Word + 'a>(
    parts: impl IntoIterator<Item = &'a Histogram<W>>,
    now: Timestamp,
) -> Quantiles {
    let mut counts = vec![0; CLASSES];
    for part in parts {
        part.window.add_to(&mut counts, now);
    }
    let calls = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    if calls == 0 {
        return Quantiles::default();
    }
    let at = |percent: u64| {
        // Nearest rank: the smallest value that at least so many percent of the calls do not exceed.
        let rank = (u128::from(calls) * u128::from(percent)).div_ceil(100);
        let mut passed = 0_u128;
        let class = counts.iter().position(|count| {
            passed += u128::from(*count);
            passed >= rank
        });
        Duration::from_nanos(class.map_or(u64::MAX, upper_edge))
    };
    Quantiles { calls, p50: at(50), p90: at(90), p99: at(99) }
}

#[inline]
fn class(nanos: u64) -> usize {
    let units = (nanos >> UNIT_BITS).min((1 << RANGE_BITS) - 1);
    let octave = units.max(1).ilog2().saturating_sub(SUB_BITS);
    // From 16 units on the leading bit of `units >> octave` adds the 16 of the linear part.
    ((octave << SUB_BITS) as usize) + (units >> octave) as usize
}

/// The longest latency of a class, in nanoseconds.
fn upper_edge(class: usize) -> u64 {
    let class = class as u64;
    let octave = (class >> SUB_BITS).saturating_sub(1);
    let units = (class - (octave << SUB_BITS) + 1) << octave;
    (units << UNIT_BITS) - 1
}

#[cfg(test)]
mod tests;
