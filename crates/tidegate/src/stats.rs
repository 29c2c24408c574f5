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
    counters: Sharded<Arc<Counters>>,
    blocked: RwLock<BTreeMap<(Gate, Arc<str>), AtomicU64>>,
}

/// On cache lines of its own, with its reference count.
#[derive(Debug)]
#[repr(align(128))]
struct Counters {
    started: AtomicU64,
    ended: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
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
pub struct Running(Arc<Counters>);

impl ResourceStats {
    /// A call was let through and begins.
    #[inline]
    pub fn start(&self) -> Running {
        let counters = Arc::clone(self.counters.mine());
        counters.started.fetch_add(1, Ordering::Relaxed);
        Running(counters)
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
            // Ended before started, so that no call seems to have ended without having begun.
            ended = ended.saturating_add(counters.ended.load(Ordering::Acquire));
            snapshot.succeeded += counters.succeeded.load(Ordering::Relaxed);
            snapshot.failed += counters.failed.load(Ordering::Relaxed);
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
        let counters = || {
            Arc::new(Counters {
                started: AtomicU64::new(0),
                ended: AtomicU64::new(0),
                succeeded: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                latency: Histogram::new(LATENCY_WINDOW),
            })
        };
        Self { counters: Sharded::new(counters), blocked: RwLock::default() }
    }
}

impl Running {
    /// The call ended `now`, after `elapsed`.
    pub fn finish(self, ended: Ended, elapsed: Duration, now: Timestamp) {
        let count = match ended {
            Ended::Succeeded => &self.0.succeeded,
            Ended::Failed => &self.0.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.0.latency.record(elapsed, now);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
