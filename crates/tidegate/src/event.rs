//! One event for each decision: `emit` makes the log line and moves the metric.

use std::time::Duration;

use http::HeaderValue;
use tidegate_core::Timestamp;
use tidegate_core::rollout::{EvaluateError, Evaluation, Reason};
use tidegate_core::rule::model::Mode;
use tidegate_store::memory::limits::Verdict;
use tidegate_store::traits::StoreError;

use crate::breakers::{Recorded, Transition};
use crate::call::CallError;
use crate::exchange::Exchange;
use crate::gates::Gates;
use crate::respond::Refusal;
use crate::runtime::{FlagRuntime, LimitRuntime, Source};

/// A limit decided.
pub(crate) struct LimitDecided<'a> {
    pub(crate) counters: &'a LimitRuntime,
    pub(crate) verdict: &'a Verdict,
    /// Whether all limits of the request admitted it.
    pub(crate) admitted: bool,
    pub(crate) source: Source,
    /// The start of the window that the shared store counted it in.
    pub(crate) window: Option<Timestamp>,
    pub(crate) request_id: &'a HeaderValue,
}

impl LimitDecided<'_> {
    #[inline]
    pub(crate) fn emit(self) {
        let decision = &self.verdict.decision;
        if self.verdict.overflow {
            self.counters.overflowed.inc();
        }
        let counters = self.counters.counters(self.source);
        match (decision.admitted(), self.verdict.mode == Mode::Shadow) {
            // Admitted by this one, refused by another: nothing was charged and nothing is counted.
            (true, _) if !self.admitted => {}
            (true, _) => {
                counters.allowed.inc();
                if self.source != Source::Local {
                    self.log_admitted();
                }
            }
            (false, true) => {
                counters.shadow_denied.inc();
                self.log("limit would deny (shadow)");
            }
            (false, false) => {
                counters.denied.inc();
                self.log("limit denies");
            }
        }
    }
}

impl LimitDecided<'_> {
    /// A call that can never pass has no `retry_after`.
    fn log(&self, message: &str) {
        let retry_after = self.verdict.decision.retry_after().map(tracing::field::debug);
        let (rule, source) = (&self.counters.rule, self.source.name());
        tracing::info!(rule, source, retry_after, request_id = ?self.request_id, "{message}");
    }

    /// By its window, in microseconds since the UTC epoch, what instances admitted can be added up.
    fn log_admitted(&self) {
        let (rule, source) = (&self.counters.rule, self.source.name());
        let window = self.window.map(|start| start.as_nanos() / 1000);
        tracing::debug!(rule, source, window, request_id = ?self.request_id, "limit admits");
    }
}

/// A flag was evaluated for a label.
pub(crate) struct FlagEvaluated<'a> {
    pub(crate) counters: &'a FlagRuntime,
    pub(crate) evaluated: &'a Result<Evaluation<'a>, EvaluateError>,
}

impl FlagEvaluated<'_> {
    pub(crate) fn emit(self) {
        match self.evaluated {
            Ok(evaluation) => self.counters.count(evaluation.variant_index, evaluation.reason),
            Err(error) => {
                tracing::info!(flag = self.counters.flag, %error, "flag falls back to its default");
                self.counters.count(self.counters.default, Reason::Error);
            }
        }
    }
}

/// A request was refused before or by a gate.
pub(crate) struct Refused<'a> {
    pub(crate) resource: &'a str,
    pub(crate) refusal: &'a Refusal,
    pub(crate) request_id: &'a HeaderValue,
}

impl Refused<'_> {
    pub(crate) fn emit(self) {
        tracing::info!(
            resource = self.resource,
            status = self.refusal.status().as_u16(),
            reason = self.refusal.name(),
            rule = self.refusal.rule(),
            request_id = ?self.request_id,
            "refused"
        );
    }
}

/// The call got no response.
pub(crate) struct CallFailed<'a> {
    pub(crate) error: &'a CallError,
    pub(crate) request_id: &'a HeaderValue,
}

impl CallFailed<'_> {
    pub(crate) fn emit(self) {
        tracing::warn!(error = %self.error, sent = self.error.sent, request_id = ?self.request_id, "call failed");
    }
}

/// What the idempotency gate did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdempotencyOutcome {
    Executed,
    Replayed,
    InProgress,
    Mismatch,
    Takeover,
    Superseded,
    Released,
    Unknown,
    Invalid,
    Unrecorded,
    /// Completed apart, though the rule says `with_effects` and the handler succeeded.
    CommitMissing,
}

impl IdempotencyOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::InProgress => "in_progress",
            Self::Mismatch => "mismatch",
            Self::Takeover => "takeover",
            Self::Superseded => "superseded",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Invalid => "invalid",
            Self::Unrecorded => "unrecorded",
            Self::CommitMissing => "commit_missing",
        }
    }
}

/// The idempotency gate answered, or an execution moved on.
pub(crate) struct IdempotencyAnswered<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) outcome: IdempotencyOutcome,
}

impl IdempotencyAnswered<'_> {
    pub(crate) fn emit(self) {
        let (exchange, outcome) = (self.exchange, self.outcome.name());
        let rule = exchange.plan().idempotency.as_ref().map(|plan| plan.rule);
        let rule = rule.map_or("", |rule| &exchange.rules.plan.rules.idempotency[rule].id);
        let metrics = exchange.gates.metrics();
        let labels = vec![
            ("resource", metrics.name(&exchange.resource().id)),
            ("rule", metrics.name(rule)),
            ("outcome", outcome.to_owned()),
        ];
        metrics.idempotency_outcomes.get_or_create(&labels).inc();
        match self.outcome {
            IdempotencyOutcome::Executed | IdempotencyOutcome::Replayed => {
                tracing::debug!(rule, outcome, request_id = ?exchange.context.request_id, "idempotency");
            }
            IdempotencyOutcome::Unknown
            | IdempotencyOutcome::Unrecorded
            | IdempotencyOutcome::Superseded
            | IdempotencyOutcome::CommitMissing => {
                tracing::warn!(rule, outcome, request_id = ?exchange.context.request_id, "idempotency");
            }
            _ => tracing::info!(rule, outcome, request_id = ?exchange.context.request_id, "idempotency"),
        }
    }
}

/// The idempotency store gave no answer.
pub(crate) struct StoreFailed<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) error: &'a StoreError,
}

impl StoreFailed<'_> {
    pub(crate) fn emit(self) {
        let request_id = &self.exchange.context.request_id;
        tracing::error!(error = %self.error, ?request_id, "idempotency store failed");
    }
}

/// A breaker would not let a call through.
pub(crate) struct BreakerRefused<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) rule: usize,
    pub(crate) retry_after: Duration,
}

impl BreakerRefused<'_> {
    pub(crate) fn emit(self) {
        breaker_call(self.exchange, self.rule, "rejected");
        let rule = &self.exchange.rules.plan.rules.breakers[self.rule].id;
        tracing::info!(rule, retry_after = ?self.retry_after, request_id = ?self.exchange.context.request_id, "breaker refuses");
    }
}

/// Breakers counted the result of a call.
pub(crate) struct BreakerRecorded<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) recorded: &'a Recorded,
}

impl BreakerRecorded<'_> {
    pub(crate) fn emit(self) {
        for outcome in &self.recorded.results {
            breaker_call(self.exchange, outcome.rule, outcome.result());
        }
        transitions(&self.exchange.gates, &self.recorded.transitions);
    }
}

/// A call was given up before it ended.
pub(crate) struct BreakerCancelled<'a> {
    pub(crate) exchange: &'a Exchange,
}

impl BreakerCancelled<'_> {
    pub(crate) fn emit(self) {
        for &rule in &self.exchange.plan().breakers {
            breaker_call(self.exchange, rule, "cancelled");
        }
    }
}

fn breaker_call(exchange: &Exchange, rule: usize, result: &'static str) {
    if let Some(series) = exchange.runtime().breaker_calls(rule, result) {
        series.inc();
    }
}

/// Breakers moved.
pub(crate) fn transitions(gates: &Gates, moved: &[Transition]) {
    for transition in moved {
        let metrics = gates.metrics();
        let (from, to) = (transition.change.from.name(), transition.change.to.name());
        let labels =
            vec![("rule", metrics.name(&transition.rule)), ("from", from.to_owned()), ("to", to.to_owned())];
        metrics.breaker_transitions.get_or_create(&labels).inc();
        let (rule, host) = (&*transition.rule, transition.host.as_deref());
        let cause = transition.change.cause.to_string();
        tracing::warn!(rule, host, from, to, cause, "breaker moved");
    }
}

/// An answer was given in place of a call.
pub(crate) struct FallbackGiven<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) rule: &'a str,
    pub(crate) layer: &'static str,
}

impl FallbackGiven<'_> {
    pub(crate) fn emit(self) {
        let metrics = self.exchange.gates.metrics();
        let labels = vec![("rule", metrics.name(self.rule)), ("layer", self.layer.to_owned())];
        metrics.fallbacks.get_or_create(&labels).inc();
        let (rule, layer) = (self.rule, self.layer);
        tracing::info!(rule, layer, request_id = ?self.exchange.context.request_id, "fallback");
    }
}
