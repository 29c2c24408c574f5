//! What the gates would say to a described request, gate by gate, without any effect: nothing is
//! charged, claimed, reserved, counted or remembered.
//!
//! Each gate is asked even when one before it refuses, so that everything that stands in the way of a
//! request is seen at once; [`Explanation::verdict`] says what the client would get.

mod ask;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tidegate_core::idempotency::RecordId;
use tidegate_core::idempotency::record::State;
use tidegate_core::idempotency::transition::How;
use tidegate_core::limit::Decision;
use tidegate_core::rollout::explain::{Explanation as FlagExplanation, Outcome};
use tidegate_core::rollout::{EvaluateError, Reason};
use tidegate_core::rule::model::Mode;
use tidegate_core::rule::version::Version;
use tidegate_core::{Attributes, Timestamp};

use crate::breakers::Status;
use crate::gates::{Gates, InForce};
use crate::request::Scalar;
use crate::respond::Refusal;

/// A request to be explained.
#[derive(Clone, Debug)]
pub struct Question {
    /// As a client would send it. The target is a path, with or without a query; `Host` says whom the
    /// client meant.
    pub request: Request<Bytes>,
    /// Who it is from, after trusted hops.
    pub client: IpAddr,
    /// The hosts that the call may go to, for breakers that have one for each. Empty: their breakers are
    /// taken as never used.
    pub hosts: Vec<String>,
}

/// What each gate would say.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The rules that say so.
    pub version: Version,
    /// The target as it is matched and forwarded; as it was asked for when it is no valid path.
    pub target: String,
    /// The resource that the request is, if it is one.
    pub resource: Option<Explained>,
    /// What the client would get.
    pub verdict: Verdict,
}

/// What the gates of one resource would say, in the rule file's order.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The resource's id.
    pub id: String,
    /// What is taken from the request. When one that must be there is missing, no gate can be asked.
    pub attributes: Vec<AttributeTaken>,
    /// The subject of flags.
    pub subject: Option<String>,
    /// The resource's flags.
    pub flags: Vec<FlagSays>,
    /// Its limits, without those that are off; empty also when a cost is not valid.
    pub limits: Vec<LimitSays>,
    /// Its idempotency rule.
    pub idempotency: Option<IdempotencySays>,
    /// Its breakers.
    pub breakers: Vec<BreakerSays>,
}

/// What a client would get.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// No resource matches: the call is made, and nothing is decided.
    Unmatched,
    /// An answer of Tidegate's own.
    Refused(Refusal),
    /// The stored result.
    Replayed {
        /// Its status.
        status: u16,
    },
    /// Another attempt is at work: its result, if it comes in time, else 409.
    Waits {
        /// For so long at most.
        at_most: Duration,
    },
    /// A breaker is open, and this answers in place of the call.
    Fallback {
        /// The breaker.
        rule: String,
        /// `cache` or `respond`.
        layer: &'static str,
        /// The status of a configured answer.
        status: Option<u16>,
    },
    /// The call is made.
    Called {
        /// After so long in the queue of a leaky bucket.
        wait: Duration,
    },
}

/// One value of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeTaken {
    /// The name that rules use.
    pub name: String,
    /// Where it is taken from, in words.
    pub from: String,
    /// The value; `None` when it is absent or null.
    pub value: Option<Scalar>,
    /// Whether a request without it is refused.
    pub required: bool,
}

/// What a flag would say, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagSays {
    /// The flag's key.
    pub flag: String,
    /// Its result.
    pub result: Result<FlagResult, EvaluateError>,
    /// What became of each rule, in the order in which they are asked.
    pub rules: Vec<FlagRuleSays>,
}

/// The result of a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagResult {
    /// The variant's name.
    pub variant: String,
    /// Its value.
    pub value: serde_json::Value,
    /// Why.
    pub reason: Reason,
    /// The rule that decided; `None` for the default.
    pub rule: Option<String>,
    /// The subject's bucket, 0 to 9999, if a percentage was reached.
    pub bucket: Option<u16>,
    /// The subject's bucket in the draw between variants, if a split decided.
    pub split_bucket: Option<u16>,
}

/// What became of one rule of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagRuleSays {
    /// The rule's id.
    pub rule: String,
    /// Higher is asked first.
    pub priority: i64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a limit would say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSays {
    /// The limit's id.
    pub rule: String,
    /// Only an enforced limit refuses.
    pub mode: Mode,
    /// How it counts.
    pub algorithm: &'static str,
    /// The attributes that make its key, with their values; absent ones share a counter.
    pub key: Vec<(String, Option<String>)>,
    /// Which override's numbers count, from 0; `None` for the rule's own.
    pub overridden_by: Option<usize>,
    /// What the call costs.
    pub cost: u64,
    /// Its decision; `remaining` is what this call would leave.
    pub decision: Decision,
    /// Whether the key would share a counter with others, because the table is full.
    pub overflow: bool,
}

/// What the idempotency gate would say.
#[derive(Clone, Debug)]
pub struct IdempotencySays {
    /// The rule's id.
    pub rule: String,
    /// Which record; `None` without a valid key.
    pub record: Option<RecordId>,
    /// What the record says, if there is one.
    pub found: Option<RecordFound>,
    /// What the request would get.
    pub answer: IdempotencyAnswer,
}

/// A record as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFound {
    /// Where it stands.
    pub state: State,
    /// The fencing token.
    pub token: u64,
    /// Attempts at its intent so far.
    pub attempts: u32,
    /// The rule version that the first try saw.
    pub version: u64,
    /// When its intent was first claimed.
    pub first_claimed_at: Timestamp,
    /// When the latest attempt's lease ends or ended.
    pub lease_until: Timestamp,
    /// When it stops to count, unless it is leased then.
    pub expires_at: Timestamp,
    /// The status of its result, if it has one.
    pub status: Option<u16>,
}

/// What the idempotency gate would do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum IdempotencyAnswer {
    /// No key, and none is required: the call is not guarded.
    Unguarded,
    /// Execute.
    Execute(How),
    /// Replay the stored result.
    Replay {
        /// Its status.
        status: u16,
    },
    /// Refuse: key missing or malformed, used for another request, in progress, outcome unknown.
    Refuse(Refusal),
    /// Wait for the attempt that is at work.
    Wait {
        /// For so long at most.
        at_most: Duration,
    },
    /// Nothing can be said: the store does not answer.
    StoreFailed {
        /// Why.
        error: String,
    },
}

/// What one breaker would say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSays {
    /// The breaker's id.
    pub rule: String,
    /// The upstream host, where the rule has a breaker for each.
    pub host: Option<String>,
    /// What it is doing.
    pub status: Status,
    /// Until it lets a call through; `None` when it would let this one.
    pub refuses_for: Option<Duration>,
}

/// What each gate would say to this request; `None` when no rule version is in force.
pub async fn explain(gates: &Gates, question: Question) -> Option<Explanation> {
    let rules = gates.in_force()?;
    Some(ask::ask(gates, &rules, question).await)
}

/// What the flag called `key` would say; an error when there is no such flag.
pub fn explain_flag<A: Attributes + ?Sized>(
    rules: &InForce,
    key: &str,
    subject: Option<&str>,
    attributes: &A,
) -> Result<FlagSays, EvaluateError> {
    rules.plan.flags.explain(key, subject, attributes).map(|explained| FlagSays::of(&explained))
}

impl FlagSays {
    fn of(explained: &FlagExplanation<'_>) -> Self {
        let rules = explained.rules.iter().map(|trace| FlagRuleSays {
            rule: trace.rule.to_owned(),
            priority: trace.priority,
            outcome: trace.outcome.clone(),
        });
        Self {
            flag: explained.flag.to_owned(),
            result: explained.result.clone().map(|result| FlagResult {
                variant: result.variant.to_owned(),
                value: result.value.clone(),
                reason: result.reason,
                rule: result.rule.map(ToOwned::to_owned),
                bucket: result.bucket,
                split_bucket: result.split_bucket,
            }),
            rules: rules.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
