//! Circuit breakers.

use std::time::Duration;

use super::{Percentage, Resources};

/// A circuit breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct Breaker {
    /// Unique among breakers.
    pub id: String,
    /// What it covers.
    pub resources: Resources,
    /// Whether each upstream host has a breaker of its own.
    pub per_upstream_host: bool,
    /// Which results are failures.
    pub failure: Vec<FailureKind>,
    /// What opens it; any one does.
    pub trip: Vec<Trip>,
    /// Nothing trips before so many results stand in the window. Default 20.
    pub min_requests: u64,
    /// Length of the sliding window. Default 10 s.
    pub window: Duration,
    /// How long the first opening lasts. Default 5 s.
    pub open_for: Duration,
    /// Repeated trips lengthen the opening up to this. Default 60 s.
    pub max_open: Duration,
    /// How recovery is tried.
    pub half_open: HalfOpen,
    /// What answers while it is open, in order; then fail fast.
    pub fallback: Vec<Fallback>,
}

/// A result that counts as a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// No answer within the resource's timeout.
    Timeout,
    /// The connection broke before a complete response head.
    Reset,
    /// A status from 500 to 599.
    ServerError,
    /// Exactly this status.
    Status(u16),
}

/// What opens a breaker. `at_least` means ≥.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trip {
    /// The share of calls slower than a threshold.
    SlowRatio {
        /// Slower than this is slow.
        slower_than: Duration,
        /// The share that trips.
        at_least: Percentage,
    },
    /// The share of failures.
    ErrorRatio {
        /// The share that trips.
        at_least: Percentage,
    },
    /// The number of failures in the window.
    ErrorCount {
        /// The number that trips, from 1.
        at_least: u64,
    },
}

/// How recovery is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// Calls that must all succeed. Default 1.
    pub probes: u32,
    /// A probe that is silent for so long is a failure. Default 10 s.
    pub probe_timeout: Duration,
}

/// What answers while a breaker is open.
#[derive(Clone, Debug, PartialEq)]
pub enum Fallback {
    /// The last good answer, at most so old.
    Cache {
        /// Its age at most.
        ttl: Duration,
    },
    /// A fixed answer.
    Respond {
        /// 200 to 599.
        status: u16,
        /// The body and its content type.
        body: FallbackBody,
    },
}

/// The body of a fixed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum FallbackBody {
    /// None.
    Empty,
    /// `application/json`.
    Json(serde_json::Value),
    /// `text/plain; charset=utf-8`.
    Text(String),
}
