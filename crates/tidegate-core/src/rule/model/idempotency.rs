//! Idempotency rules.

use std::time::Duration;

use super::{AttributeSource, Resources};

/// An idempotency rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Idempotency {
    /// Unique among idempotency rules.
    pub id: String,
    /// What it covers.
    pub resources: Resources,
    /// A key means one intent inside one operation. Default: the rule's id.
    pub operation: String,
    /// Attributes that say whose key it is.
    pub scope: Vec<String>,
    /// Where the key comes from.
    pub key: KeySource,
    /// What must be equal on a retry.
    pub fingerprint: Vec<FingerprintPart>,
    /// When the record is completed.
    pub commit: CommitMode,
    /// What a retry gets when the lease is over and the outcome is not known.
    pub on_unknown: OnUnknown,
    /// How long an executor that has fallen silent holds the record. Default 30 s.
    pub lease: Duration,
    /// How long an executor may renew its lease. Default 5 min.
    pub max_execution: Duration,
    /// How long a record is kept after its last transition. Default 24 h.
    pub retention: Duration,
    /// What a concurrent duplicate gets.
    pub in_progress: InProgress,
    /// Largest response body that is kept, in bytes. Default 1 MiB.
    pub max_response: u64,
    /// Headers that a replay repeats, lower case.
    pub replay_headers: Vec<String>,
}

/// Where an idempotency key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Sent by the client.
    Attribute {
        /// Where it stands.
        from: AttributeSource,
        /// Whether a request without it is refused; otherwise it passes unguarded.
        required: bool,
    },
    /// Derived from the request, and meaning one intent for `window` from the first claim.
    Derived {
        /// What it is made of.
        parts: Vec<FingerprintPart>,
        /// From the first claim.
        window: Duration,
    },
}

/// A part of a request that is compared or hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FingerprintPart {
    /// The method.
    Method,
    /// The normalised path.
    Path,
    /// The raw query.
    Query,
    /// The raw body bytes.
    Body,
    /// The value at a JSON pointer, compared without key order and spacing.
    BodyPointer(String),
    /// An attribute of the resource.
    Attribute(String),
}

/// When an idempotency record is completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CommitMode {
    /// Apart from the effects, after the response is known.
    #[default]
    AfterResponse,
    /// In the same transaction as the business write, which updates the record by token and owner.
    WithEffects,
    /// Claim, effects and completion in one transaction (library only).
    OneTransaction,
}

/// What a retry gets when the lease is over and the outcome is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// 409 `outcome-unknown` until an operator resolves it or retention ends.
    #[default]
    Hold,
    /// It takes over: at least once.
    Retry,
}

/// What a concurrent duplicate gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InProgress {
    /// 409 with `Retry-After`.
    #[default]
    Reject,
    /// The first result, if it comes within this time; else 409.
    Wait(Duration),
}
