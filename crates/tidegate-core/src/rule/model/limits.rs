//! Rate limits.

use std::time::Duration;

use super::{Condition, Resources};

/// A rate limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Unique among limits.
    pub id: String,
    /// Free text for people.
    pub description: Option<String>,
    /// Free text: who is paged.
    pub owner: Option<String>,
    /// Whether it refuses. Default enforce.
    pub mode: Mode,
    /// What it covers.
    pub resources: Resources,
    /// Attributes whose values make the counter's key; empty is one counter for the rule.
    pub key: Vec<String>,
    /// How it counts.
    pub algorithm: Algorithm,
    /// What a call costs. Default 1.
    pub cost: Cost,
    /// Other numbers for some keys; the first whose condition holds counts.
    pub overrides: Vec<LimitOverride>,
    /// Where the counter lives. Default local.
    pub sharing: Sharing,
    /// What happens while the shared store does not answer.
    pub on_store_failure: Option<OnStoreFailure>,
    /// How counters start after the shared store lost its data.
    pub after_store_loss: AfterStoreLoss,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Decide, count and refuse.
    #[default]
    Enforce,
    /// Decide, count and log, but never refuse.
    Shadow,
    /// Do nothing.
    Off,
}

/// How a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// At most `capacity` at once and `refill` over time.
    TokenBucket {
        /// Most tokens that the bucket holds, from 1.
        capacity: u64,
        /// How fast it refills.
        refill: Rate,
    },
    /// At most `limit` in each window aligned to the UTC epoch, so up to 2 × `limit` in any window.
    FixedWindow {
        /// Calls in a window, from 1.
        limit: u64,
        /// Length of the window.
        window: Duration,
    },
    /// At most `limit` in any window; keeps every timestamp.
    SlidingLog {
        /// Calls in a window, from 1.
        limit: u64,
        /// Length of the window.
        window: Duration,
    },
    /// Two counters weighted by overlap: approximate, under 2 × `limit` in any window.
    SlidingWindow {
        /// Calls in a window, from 1.
        limit: u64,
        /// Length of the window.
        window: Duration,
    },
    /// Shapes: calls wait their turn at `rate`; refused when `queue` calls wait already.
    LeakyBucket {
        /// How fast calls leave.
        rate: Rate,
        /// How many may wait, from 0.
        queue: u64,
    },
    /// At most `max` calls at the same time.
    Concurrency {
        /// Calls in flight, from 1.
        max: u64,
    },
}

impl Algorithm {
    /// Its name in documents, metrics and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket { .. } => "token_bucket",
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingLog { .. } => "sliding_log",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::LeakyBucket { .. } => "leaky_bucket",
            Self::Concurrency { .. } => "concurrency",
        }
    }
}

/// `count` in every `per`: `10/s`, `5/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// From 1.
    pub count: u64,
    /// Longer than zero.
    pub per: Duration,
}

/// What a call costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for each call, from 1.
    Fixed(u64),
    /// An attribute that must be an integer from 1 to `max`, else 400 `cost-invalid`.
    Attribute {
        /// The attribute's name.
        from: String,
        /// The cost of a call without it. Default 1.
        default: u64,
        /// The largest accepted cost.
        max: u64,
    },
}

/// Other numbers for the keys for which a condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitOverride {
    /// Tests attributes of the rule's key only, so that one key always has one set of numbers.
    pub when: Condition,
    /// The same kind of algorithm as the rule's.
    pub algorithm: Algorithm,
}

/// Where a counter lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// In this process.
    #[default]
    Local,
    /// In the shared store; every decision is made there.
    Exact,
    /// Batches of permits are taken from the shared store and spent here.
    Leased,
}

/// What happens while the shared store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Admit, and count it.
    FailOpen,
    /// Refuse with 503 `store-unavailable`.
    FailClosed,
    /// Count locally against this instance's share.
    LocalFallback,
}

/// How counters start after the shared store lost its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterStoreLoss {
    /// As if nothing had been used.
    #[default]
    Fresh,
    /// As if all had been used.
    Exhausted,
}
