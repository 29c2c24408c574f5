//! What each resource has seen since the process started: admitted, blocked, succeeded, failed, in
//! flight, and how long calls took of late.
//!
//! *Blocked* means that a gate said no and no call was made; *failed* means that the call was made
//! and the business, or the way to it, said no.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tidegate_core::Timestamp;
use tidegate_core::breaker::histogram::{Histogram, Quantiles, quantiles};

use crate::shard::Sharded;

/// What p50, p90 and p99 are taken over.
pub const LATENCY_WINDOW: Duration = Duration::from_mins(1);
/// The most rules that a resource counts apart; what later ones block counts under [`OTHER`].
pub const MAX_BLOCKING_RULES: usize = 1_000;
/// The rule that stands for all rules past [`MAX_BLOCKING_RULES`].
pub const OTHER: &str = "other";

/// The gate that said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// A rate limit.
    Limit,
    /// An idempotency rule: in progress, reused with another fingerprint, outcome unknown, bad key.
    Idempotency,
    /// A circuit breaker.
    Breaker,
}

impl Gate {
    /// Its name in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Idempotency => "idempotency",
            Self::Breaker => "breaker",
        }
    }
}

/// How an admitted call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an answer that counts as good.
    Succeeded,
    /// With an error, or none.
    Failed,
}

/// The statistics of all resources, by id. They outlive rule versions.
#[derive(Debug, Default)]
pub struct Stats(Mutex<HashMap<String, Arc<ResourceStats>>>);

impl Stats {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `ids` the resources in force and gives their statistics, in this order. A resource that
    /// was there before goes on; one that is gone is forgotten.
    pub fn apply<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<Arc<ResourceStats>> {
        let mut known = self.0.lock();
        let mut next = HashMap::new();
        let mut given = Vec::new();
        for id in ids {
            let stats = match next.get(id).or_else(|| known.get(id)) {
                Some(stats) => Arc::clone(stats),
                None => Arc::default(),
            };
            next.insert(id.to_owned(), Arc::clone(&stats));
            given.push(stats);
        }
        *known = next;
        given
    }
}

/// The statistics of one resource.
#[derive(Debug)]
pub struct ResourceStats {
    counters: Sharded<Counters>,
    blocked: RwLock<BTreeMap<(Gate, Arc<str>), AtomicU64>>,
}

/// Each call moves two of these: `started`, and one of the others when it is over.
#[derive(Debug)]
struct Counters {
    started: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    latency: Histogram,
}

/// What a resource has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Calls that all gates let through.
    pub admitted: u64,
    /// Of those, calls that ended well.
    pub succeeded: u64,
    /// Of those, calls that did not.
    pub failed: u64,
    /// Of those, calls that have not ended. What is left over was cancelled.
    pub in_flight: u64,
    /// Requests that a gate refused, by gate and rule.
    pub blocked: Vec<(Gate, Arc<str>, u64)>,
    /// Latencies of the calls that ended in the last [`LATENCY_WINDOW`].
    pub latency: Quantiles,
}

/// A call in flight. Dropped, it was cancelled.
#[derive(Debug)]
#[must_use = "the call is in flight for as long as this lives"]
pub struct Running<'a> {
    /// `None` once it has ended. An end is counted where the start was, whichever thread it comes from.
    counters: Option<&'a Counters>,
}

impl ResourceStats {
    /// A call was let through and begins.
    #[inline]
    pub fn start(&self) -> Running<'_> {
        let counters = self.counters.mine();
        counters.started.fetch_add(1, Ordering::Relaxed);
        Running { counters: Some(counters) }
    }

    /// `rule` of `gate` refused a request.
    pub fn block(&self, gate: Gate, rule: &Arc<str>) {
        let key = (gate, Arc::clone(rule));
        if let Some(count) = self.blocked.read().get(&key) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut blocked = self.blocked.write();
        let full = blocked.len() >= MAX_BLOCKING_RULES && !blocked.contains_key(&key);
        let key = if full { (gate, OTHER.into()) } else { key };
        blocked.entry(key).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// What was seen until `now`.
    pub fn snapshot(&self, now: Timestamp) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut ended = 0_u64;
        for counters in self.counters.iter() {
            // Ends before starts, so that no call seems to have ended without having begun.
            let succeeded = counters.succeeded.load(Ordering::Acquire);
            let failed = counters.failed.load(Ordering::Acquire);
            let cancelled = counters.cancelled.load(Ordering::Acquire);
            ended += succeeded + failed + cancelled;
            snapshot.succeeded += succeeded;
            snapshot.failed += failed;
            snapshot.admitted += counters.started.load(Ordering::Relaxed);
        }
        snapshot.in_flight = snapshot.admitted.saturating_sub(ended);
        let blocked = self.blocked.read();
        snapshot.blocked = blocked
            .iter()
            .map(|((gate, rule), count)| (*gate, Arc::clone(rule), count.load(Ordering::Relaxed)))
            .collect();
        snapshot.latency = quantiles(self.counters.iter().map(|counters| &counters.latency), now);
        snapshot
    }
}

impl Default for ResourceStats {
    fn default() -> Self {
        let counters = || Counters {
            started: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            latency: Histogram::new(LATENCY_WINDOW),
        };
        Self { counters: Sharded::new(counters), blocked: RwLock::default() }
    }
}

impl Running<'_> {
    /// The call ended `now`, after `elapsed`.
    #[inline]
    pub fn finish(mut self, ended: Ended, elapsed: Duration, now: Timestamp) {
        let Some(counters) = self.counters.take() else { return };
        let count = match ended {
            Ended::Succeeded => &counters.succeeded,
            Ended::Failed => &counters.failed,
        };
        counters.latency.record(elapsed, now);
        // Release, as what reads the ends acquires them to see the starts that came before.
        count.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(counters) = self.counters {
            counters.cancelled.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
