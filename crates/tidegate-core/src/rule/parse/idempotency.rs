//! The `idempotency` section.

use std::time::Duration;

use crate::document::diagnostic::quoted;
use crate::document::{At, Fields, Got, Kind, List, Node, Report, Span, fields, quantity, scalar};
use crate::idempotency::record::is_replayable;
use crate::rule::model::{
    AttributeSource, CommitMode, FingerprintPart, Idempotency, InProgress, KeySource, OnUnknown,
};

use crate::rule::render;
use crate::token::is_token;

use super::attribute;
use super::values::{self, Covered, MAX_PARTS};

/// Largest response body that a rule may keep: it is held in memory and written to the store whole.
pub const MAX_RESPONSE: u64 = 64 << 20;
/// The headers that a replay repeats unless the rule says otherwise.
pub const REPLAY_HEADERS: [&str; 4] = ["content-type", "content-encoding", "location", "etag"];

#[derive(Debug)]
pub(in crate::rule) struct IdempotencyDraft {
    pub(in crate::rule) span: Span,
    pub(in crate::rule) id: Option<At<String>>,
    pub(in crate::rule) resources: Got<Covered>,
    pub(in crate::rule) operation: Got<String>,
    pub(in crate::rule) scope: Got<List<String>>,
    pub(in crate::rule) key: Got<KeyDraft>,
    pub(in crate::rule) fingerprint: Got<List<FingerprintPart>>,
    pub(in crate::rule) commit: Got<CommitMode>,
    pub(in crate::rule) on_unknown: Got<OnUnknown>,
    pub(in crate::rule) lease: Got<Duration>,
    pub(in crate::rule) max_execution: Got<Duration>,
    pub(in crate::rule) retention: Got<Duration>,
    pub(in crate::rule) in_progress: Got<InProgress>,
    pub(in crate::rule) max_response: Got<u64>,
    pub(in crate::rule) replay_headers: Got<List<String>>,
}

#[derive(Debug)]
pub(in crate::rule) enum KeyDraft {
    Sent { from: Got<AttributeSource>, required: Got<bool> },
    Derived { parts: Got<List<FingerprintPart>>, window: Got<Duration> },
}

impl KeyDraft {
    /// As the model has it; `None` when something could not be read.
    pub(in crate::rule) fn build(&self) -> Option<KeySource> {
        Some(match self {
            Self::Sent { from, required } => {
                KeySource::Attribute { from: from.value.clone()?, required: required.value? }
            }
            Self::Derived { parts, window } => KeySource::Derived {
                parts: parts.value.as_ref().filter(|parts| parts.whole)?.values().cloned().collect(),
                window: window.value?,
            },
        })
    }
}

impl IdempotencyDraft {
    /// The operation, which is the id unless it is written.
    pub(in crate::rule) fn operation(&self) -> Option<&str> {
        if self.operation.written {
            self.operation.value.as_deref()
        } else {
            self.id.as_ref().map(|id| id.value.as_str())
        }
    }

    /// As the model has it; `None` when something could not be read.
    pub(in crate::rule) fn build(self) -> Option<Idempotency> {
        Some(Idempotency {
            operation: self.operation()?.to_owned(),
            key: self.key.value.as_ref()?.build()?,
            id: self.id?.value,
            resources: self.resources.value?.build()?,
            scope: self.scope.value?.into_values()?,
            fingerprint: self.fingerprint.value?.into_values()?,
            commit: self.commit.value?,
            on_unknown: self.on_unknown.value?,
            lease: self.lease.value?,
            max_execution: self.max_execution.value?,
            retention: self.retention.value?,
            in_progress: self.in_progress.value?,
            max_response: self.max_response.value?,
            replay_headers: self.replay_headers.value?.into_values()?,
        })
    }
}

/// Reads one entry.
pub(super) fn read(node: &Node, report: &mut Report) -> Option<IdempotencyDraft> {
    let mut fields = Fields::of(node, "this idempotency rule", report)?;
    let id = super::id(&mut fields, "pay-once", report);
    let resources = fields.required("resources", "[pay]", report, values::covered);
    let operation = fields.optional("operation", report, scalar::name);
    let scope = fields.required("scope", "[tenant]", report, |node, report| {
        let scope = fields::list(node, report, |node, report| scalar::text(node, report).map(str::to_owned))?;
        fields::reject_repeats(&scope, ToString::to_string, report);
        fields::at_most(scope, MAX_PARTS, report)
    });
    let key = fields.required("key", "{ from: header.idempotency-key, required: true }", report, read_key);
    let fingerprint = fields.or("fingerprint", default_fingerprint(node.span), report, |node, report| {
        let help = "leave it out for [method, path, body]; without any part, one answer would be replayed to every request";
        let parts = fields::non_empty_list(node, report, help, attribute::part)?;
        fields::reject_repeats(&parts, render::fingerprint_part, report);
        fields::at_most(parts, MAX_PARTS, report)
    });
    let commit = fields.or("commit", CommitMode::AfterResponse, report, |node, report| {
        let words = [
            ("after_response", CommitMode::AfterResponse),
            ("with_effects", CommitMode::WithEffects),
            ("one_transaction", CommitMode::OneTransaction),
        ];
        scalar::choice(node, &words, report)
    });
    let on_unknown = fields.or("on_unknown", OnUnknown::Hold, report, |node, report| {
        scalar::choice(node, &[("hold", OnUnknown::Hold), ("retry", OnUnknown::Retry)], report)
    });
    let lease = fields.or("lease", Duration::from_secs(30), report, values::span);
    let max_execution = fields.or("max_execution", Duration::from_mins(5), report, values::span);
    let retention = fields.or("retention", Duration::from_hours(24), report, values::span);
    let in_progress = fields.or("in_progress", InProgress::Reject, report, read_in_progress);
    let max_response = fields
        .or("max_response", 1 << 20, report, |node, report| quantity::bytes(node, 0..=MAX_RESPONSE, report));
    let replay_headers = fields.or("replay_headers", default_replay(node.span), report, |node, report| {
        let headers = fields::list(node, report, replay_header)?;
        fields::reject_repeats(&headers, ToString::to_string, report);
        Some(headers)
    });
    let span = fields.span();
    fields.finish(report);
    Some(IdempotencyDraft {
        span,
        id,
        resources,
        operation,
        scope,
        key,
        fingerprint,
        commit,
        on_unknown,
        lease,
        max_execution,
        retention,
        in_progress,
        max_response,
        replay_headers,
    })
}

fn default_fingerprint(span: Span) -> List<FingerprintPart> {
    let parts = [FingerprintPart::Method, FingerprintPart::Path, FingerprintPart::Body];
    List { items: parts.into_iter().map(|value| At { value, span }).collect(), whole: true }
}

fn default_replay(span: Span) -> List<String> {
    let items = REPLAY_HEADERS.iter().map(|name| At { value: (*name).to_owned(), span });
    List { items: items.collect(), whole: true }
}

fn read_key(node: &Node, report: &mut Report) -> Option<KeyDraft> {
    let mut fields = Fields::of(node, "key", report)?;
    let from = fields.optional("from", report, attribute::source);
    let required = fields.or("required", true, report, scalar::boolean);
    let parts = fields.optional("derive", report, |node, report| {
        let help = "name what makes two requests one intent, such as [tenant, body./sku]";
        let parts = fields::non_empty_list(node, report, help, attribute::part)?;
        fields::reject_repeats(&parts, render::fingerprint_part, report);
        fields::at_most(parts, MAX_PARTS, report)
    });
    let window = fields.optional("window", report, values::span);
    fields.finish(report);
    let mut misplaced = |field: &str, written: bool, span: Span, with: &str| {
        if written {
            let message = format!("`{field}` has no meaning in a key with `{with}`");
            report.fault(span, message, format!("remove `{field}`"));
        }
    };
    match (from.written, parts.written) {
        (true, false) => {
            misplaced("window", window.written, window.span, "from");
            Some(KeyDraft::Sent { from, required })
        }
        (false, true) => {
            misplaced("required", required.written, required.span, "derive");
            if !window.written {
                let message = "`window` is missing in a derived key";
                report.fault(
                    node.span,
                    message,
                    "add `window: 10s`: for so long the same values mean one intent",
                );
            }
            Some(KeyDraft::Derived { parts, window })
        }
        (both, _) => {
            let message =
                if both { "a key is either sent or derived" } else { "a key needs `from` or `derive`" };
            let help = "write { from: header.idempotency-key, required: true } or { derive: [tenant, body./sku], window: 10s }";
            report.fault(node.span, message, help);
            None
        }
    }
}

fn read_in_progress(node: &Node, report: &mut Report) -> Option<InProgress> {
    if matches!(&*node.kind, Kind::Mapping(_)) {
        let mut fields = Fields::of(node, "in_progress", report)?;
        let wait = fields.required("wait", "2s", report, values::span);
        fields.finish(report);
        return wait.value.map(InProgress::Wait);
    }
    if let Some(scalar::Scalar::Text("reject")) = scalar::Scalar::of(node) {
        Some(InProgress::Reject)
    } else {
        scalar::wrong_type(node, "`reject` or `{ wait: 2s }` is expected", "write one of them", report);
        None
    }
}

fn replay_header(node: &Node, report: &mut Report) -> Option<String> {
    let text = scalar::text(node, report)?;
    if !is_token(text) {
        report.fault(
            node.span,
            format!("{} is not a header's name", quoted(text)),
            "write content-type, etag, …",
        );
        return None;
    }
    let name = text.to_ascii_lowercase();
    if !is_replayable(&name) {
        report.fault(
            node.span,
            format!("{} is never replayed: it belongs to one message, not to the result", quoted(text)),
            "remove it",
        );
        return None;
    }
    Some(name)
}
