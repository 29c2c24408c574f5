//! Limits counted in this process.
//!
//! Every rule has a table of counters, split into shards. A shard has a lock, and whoever holds it owns
//! the shard's counters. A decision on several of them holds the lock of each shard that it touches from
//! the first test to the last charge, so it is one atomic step, and a call that any enforced limit
//! denies is charged nowhere.
//!
//! A token bucket is one word, and a decision on one bucket alone is one compare-and-set without a lock
//! ([`lines`]). That needs a counter that is there, was filled under the numbers now in force, and is not
//! held by an owner. All else is asked of the owner: a new key, numbers that changed, a clock that was
//! set back, a full table.
//!
//! # Memory
//!
//! A key is not stored. A token bucket takes 16 bytes, in lines that are between 9/16 and 3/4 full: 21 to
//! 29 bytes. It is found by 54 bits of `SipHash`, keyed at random for each table, beside those that choose
//! its shard: that any two of 10⁶ keys share a counter has a chance of 3 × 10⁻⁵ divided by the number of
//! shards, and nobody outside can look for such a pair. They would then be limited together, never
//! admitted more. A few of 10³ buckets, for which the lines near their own have no room, are kept like
//! the rest:
//!
//! Any other counter is found by 64 bits of `SipHash` and 32 bits of a second hash (a chance below 10⁻¹⁶).
//! One of concurrency takes 24 bytes, and in its table, with the free places that hashing needs, 29 to 58
//! bytes; 115 at worst, after long churn. A fixed window or a leaky bucket takes 4/3 of that, a sliding
//! window 5/3, and a sliding log 7/3 and 16 to 32 bytes for each instant in its window (64 at least).
//!
//! A flood of new keys cannot make it grow without bound, and cannot make it forget a throttled key: an
//! entry leaves only when it equals a fresh one, and each new key looks for such entries first. At
//! [`LocalLimitsConfig::max_keys`] further keys share one counter for each set of numbers (the rule's
//! own, or an override's), which [`LimitVersion::overflowed`] counts. While that counter is in use, a
//! key that gets a place of its own starts with what the shared counter had used, so that leaving it
//! gains nothing.

mod lines;
mod permits;
mod shard;
mod table;
mod version;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::Decision;
use tidegate_core::rule::diff::{Carry, FreshReason, state_effect};
use tidegate_core::rule::model::{Limit, Mode};

pub use permits::Permits;
pub use version::LimitVersion;
use version::{AnyBound, Rule};

/// Shards for each processor: enough that two decisions on different keys seldom meet.
const SHARDS_PER_CPU: usize = 8;
/// Most shards of one table.
const MAX_SHARDS: usize = 256;

/// How much memory limits may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLimitsConfig {
    /// Keys with a counter of their own, for each rule, from 1; rounded up to a multiple of the shards.
    /// Default 1,000,000.
    pub max_keys: usize,
    /// Instants that the sliding logs of one rule may remember together, beside one for each key.
    /// Beyond it neighbouring instants are merged, which admits less and never more. Default 1,000,000.
    pub max_log_runs: usize,
    /// Locks of one table, rounded up to a power of two, 1 to 256. Default 8 for each processor. A rule
    /// without a key has one.
    pub shards: usize,
}

impl Default for LocalLimitsConfig {
    fn default() -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        Self { max_keys: 1_000_000, max_log_runs: 1_000_000, shards: cpus.saturating_mul(SHARDS_PER_CPU) }
    }
}

/// The counters of one process. There is one, and every version of the rules is applied to it.
pub struct LocalLimits {
    config: LocalLimitsConfig,
    /// By rule id, as the version applied last has them.
    current: Mutex<HashMap<String, Current>>,
    next_table: AtomicU64,
}

/// A rule's counters, and the rule as it was applied last.
struct Current {
    limit: Limit,
    bound: AnyBound,
}

impl LocalLimits {
    /// No counters yet.
    pub fn new(config: LocalLimitsConfig) -> Arc<Self> {
        let shards = config.shards.clamp(1, MAX_SHARDS).next_power_of_two();
        let config = LocalLimitsConfig { max_keys: config.max_keys.max(1), shards, ..config };
        Arc::new(Self { config, current: Mutex::default(), next_table: AtomicU64::new(0) })
    }

    /// Makes a version of the limits ready to decide, and carries counters over by rule id.
    ///
    /// What becomes of a rule's counters is what [`state_effect`] says, and of one counter what
    /// [`algorithm_effect`](tidegate_core::rule::diff::algorithm_effect) says. An untouched rule keeps
    /// everything. Changed numbers keep what was used, each counter when it is next asked; a request that
    /// still holds an older version is then decided by the newer numbers. Another kind of algorithm, key
    /// or sharing starts fresh, and so does another window. A rule that is gone is forgotten when the last
    /// version that has it is dropped.
    pub fn apply(self: &Arc<Self>, limits: &[Limit]) -> LimitVersion {
        let mut current = self.current.lock();
        let mut next = HashMap::with_capacity(limits.len());
        let mut rules = Vec::with_capacity(limits.len());
        for limit in limits {
            // Taken out, so that an id that stands twice cannot tie two rules to one table.
            let bound = match current.remove(&limit.id) {
                Some(known) if same_numbers(&known.limit, limit) => known.bound,
                Some(known) if goes_on(&known.limit, limit) => {
                    known.bound.changed(limit).unwrap_or_else(|| self.fresh(limit))
                }
                _ => self.fresh(limit),
            };
            rules.push(Rule { mode: limit.mode, bound: bound.clone() });
            next.insert(limit.id.clone(), Current { limit: limit.clone(), bound });
        }
        *current = next;
        LimitVersion::new(rules)
    }

    /// Drops every entry that equals a fresh one and gives memory back. Returns how many it dropped.
    ///
    /// New keys do this on their own, a little at a time; to call it now and then keeps the memory of a
    /// flood that has passed from staying. It holds one shard's lock at a time.
    pub fn sweep(&self, now: Timestamp) -> usize {
        let bounds: Vec<AnyBound> = self.current.lock().values().map(|rule| rule.bound.clone()).collect();
        bounds.iter().map(|bound| bound.sweep(now)).sum()
    }

    fn fresh(&self, limit: &Limit) -> AnyBound {
        AnyBound::fresh(limit, &self.config, self.next_table.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether nothing changed that counters or their numbers depend on.
fn same_numbers(old: &Limit, new: &Limit) -> bool {
    state_effect(old, new) == Carry::Keep && old.algorithm == new.algorithm && old.overrides == new.overrides
}

/// Whether the table goes on. Under another window too, for the overrides may have kept theirs: each
/// counter is then looked at by the numbers that it was filled under.
fn goes_on(old: &Limit, new: &Limit) -> bool {
    match state_effect(old, new) {
        Carry::Keep => true,
        Carry::Fresh { why } => why.iter().all(|why| matches!(why, FreshReason::Window { .. })),
    }
}

/// One question to one counter.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Index of the rule in the slice that the version was made of.
    pub rule: usize,
    /// Which numbers: 0 the rule's own, i + 1 those of override i. Out of range means the rule's own.
    pub variant: usize,
    /// The key, as [`tidegate_core::limit::key::encode`] makes it; ignored by a rule without a key.
    pub key: &'a [u8],
    /// From 1. A cost of 0 asks whether the counter is not overdrawn, and takes nothing.
    pub cost: u64,
}

/// What one limit said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the rule.
    pub rule: usize,
    /// Whether it counts: only an enforced limit refuses.
    pub mode: Mode,
    /// Its decision. When another limit denied the call, what is left is as if it had not been made.
    pub decision: Decision,
    /// Whether the key shared a counter with others, because the table was full.
    pub overflow: bool,
}

/// The answer to all questions of one call.
#[must_use = "dropping the outcome gives its concurrency permits back"]
#[derive(Debug)]
pub struct Outcome {
    /// In the order of the asks.
    pub verdicts: SmallVec<[Verdict; 2]>,
    /// Whether every enforced limit admits the call. If not, nothing was charged anywhere.
    pub admitted: bool,
    /// How long the admitted call must wait for its turn: the longest of its leaky buckets.
    pub wait: Duration,
    /// Concurrency permits, given back when dropped.
    pub permits: Permits,
}
