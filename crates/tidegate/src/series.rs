//! Metric series that threads write apart, so that a busy one does not pass a cache line between
//! processors, nor a lock. Reading adds the shards up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use tidegate_core::time::nanos;

use crate::shard::Sharded;

/// A number that grows. Clones count together.
///
/// Its shards are made when it first counts: most series of most rules never do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<OnceLock<Sharded<AtomicU64>>>);

impl Counter {
    /// Counts one.
    #[inline]
    pub(crate) fn inc(&self) {
        self.0.get_or_init(|| Sharded::new(AtomicU64::default)).mine().fetch_add(1, Ordering::Relaxed);
    }

    /// Counts several.
    pub(crate) fn inc_by(&self, count: u64) {
        self.0.get_or_init(|| Sharded::new(AtomicU64::default)).mine().fetch_add(count, Ordering::Relaxed);
    }

    /// How many were counted.
    pub(crate) fn get(&self) -> u64 {
        let Some(shards) = self.0.get() else { return 0 };
        let counts = shards.iter().map(|count| count.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

impl TypedMetric for Counter {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Counter {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, _, u64>(&self.get(), None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Upper bounds in nanoseconds, those that OpenTelemetry advises for request durations.
const BOUNDS: [u64; 14] = [
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    7_500_000_000,
    10_000_000_000,
];

/// How long requests took. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Arc<Sharded<Spread>>);

/// 16 words, 128 bytes: one for each bound, one for what is longer, and the sum in nanoseconds, which
/// is enough for 584 years of waiting.
#[derive(Debug, Default)]
struct Spread {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self(Arc::new(Sharded::new(Spread::default)))
    }
}

impl Latencies {
    /// Counts one that took so long.
    #[inline]
    pub(crate) fn observe(&self, took: Duration) {
        let took = nanos(took);
        let spread = self.0.mine();
        // Most are below the first bound.
        let place = BOUNDS.iter().position(|bound| took <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = spread.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        spread.sum.fetch_add(took, Ordering::Relaxed);
    }
}

impl TypedMetric for Latencies {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latencies {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS.iter().map(|bound| Duration::from_nanos(*bound).as_secs_f64());
        let mut buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        let mut sum = 0_u64;
        for spread in self.0.iter() {
            for ((_, total), count) in buckets.iter_mut().zip(&spread.counts) {
                *total += count.load(Ordering::Relaxed);
            }
            sum = sum.wrapping_add(spread.sum.load(Ordering::Relaxed));
        }
        // From the buckets, so that the count is theirs even while others write.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_nanos(sum).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;

    use super::*;

    fn text(register: impl FnOnce(&mut Registry)) -> String {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn threads_lose_nothing_and_clones_count_together() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let counter = counter.clone();
                scope.spawn(move || (0..1_000).for_each(|_| counter.inc()));
            }
        });
        assert_eq!(counter.get(), 4_000);
        let text = text(|registry| registry.register("c", "C", counter.clone()));
        assert!(text.contains("c_total 4000\n"), "{text}");
    }

    /// Written out as the library's own histogram is, at, below and above each bound.
    #[test]
    fn a_histogram_reads_as_the_librarys_own() {
        let (ours, theirs) = (
            Latencies::default(),
            Histogram::new(BOUNDS.map(|bound| Duration::from_nanos(bound).as_secs_f64())),
        );
        for bound in BOUNDS {
            // Exact in binary too: sums of quarters of milliseconds.
            for took in [bound, bound + 250_000, bound - 250_000, 0, 20_000_000_000] {
                let took = Duration::from_nanos(took);
                ours.observe(took);
                theirs.observe(took.as_secs_f64());
            }
        }
        let without_sum = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("h_sum")).map(ToOwned::to_owned).collect()
        };
        let sum = |text: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix("h_sum "));
            line.unwrap().parse().unwrap()
        };
        let ours = text(|registry| registry.register("h", "H", ours));
        let theirs = text(|registry| registry.register("h", "H", theirs));
        assert_eq!(without_sum(&ours), without_sum(&theirs));
        assert!((sum(&ours) - sum(&theirs)).abs() < 1e-6, "{ours}");
    }
}
