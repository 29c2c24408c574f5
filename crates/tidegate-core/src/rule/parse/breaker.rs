//! The `breakers` section.

use std::time::Duration;

use crate::breaker::policy::MAX_PROBES;
use crate::document::diagnostic::quoted;
use crate::document::scalar::Scalar;
use crate::document::{At, Fields, Got, List, Node, Report, Span, fields, quantity, scalar};
use crate::rule::model::{Breaker, FailureKind, Fallback, FallbackBody, HalfOpen, Trip};
use crate::rule::render;

use super::values::{self, Covered, MAX_COUNT, MAX_SPAN, MIN_PERIOD};

#[derive(Debug)]
pub(in crate::rule) struct BreakerDraft {
    pub(in crate::rule) id: Option<At<String>>,
    pub(in crate::rule) resources: Got<Covered>,
    pub(in crate::rule) per_upstream_host: Got<bool>,
    pub(in crate::rule) failure: Got<List<FailureKind>>,
    pub(in crate::rule) trip: Got<List<Trip>>,
    pub(in crate::rule) min_requests: Got<u64>,
    pub(in crate::rule) window: Got<Duration>,
    pub(in crate::rule) open_for: Got<Duration>,
    pub(in crate::rule) max_open: Got<Duration>,
    pub(in crate::rule) half_open: Got<HalfOpen>,
    pub(in crate::rule) fallback: Got<List<Fallback>>,
}

impl BreakerDraft {
    /// As the model has it; `None` when something could not be read.
    pub(in crate::rule) fn build(self) -> Option<Breaker> {
        Some(Breaker {
            id: self.id?.value,
            resources: self.resources.value?.build()?,
            per_upstream_host: self.per_upstream_host.value?,
            failure: self.failure.value?.into_values()?,
            trip: self.trip.value?.into_values()?,
            min_requests: self.min_requests.value?,
            window: self.window.value?,
            open_for: self.open_for.value?,
            max_open: self.max_open.value?,
            half_open: self.half_open.value?,
            fallback: self.fallback.value?.into_values()?,
        })
    }
}

/// Reads one entry.
pub(super) fn read(node: &Node, report: &mut Report) -> Option<BreakerDraft> {
    let mut fields = Fields::of(node, "this breaker", report)?;
    let id = super::id(&mut fields, "account-slow", report);
    let resources = fields.required("resources", "[account]", report, values::covered);
    let per_upstream_host = fields.or("key", false, report, read_key);
    let failure = fields.or("failure", default_failure(node.span), report, |node, report| {
        let help = "leave it out for [connect, timeout, reset, 5xx]";
        let kinds = fields::non_empty_list(node, report, help, failure_kind)?;
        fields::reject_repeats(&kinds, |kind| render::failure(*kind), report);
        Some(kinds)
    });
    let trip = fields.required("trip", "[{ error_ratio: { at_least: 50% } }]", report, |node, report| {
        let help = "write at least one of slow_ratio, error_ratio, error_count";
        fields::non_empty_list(node, report, help, read_trip)
    });
    let min_requests = fields.or("min_requests", 20, report, values::count);
    let window = fields.or("window", Duration::from_secs(10), report, values::span);
    let open_for = fields.or("open_for", Duration::from_secs(5), report, values::span);
    let max_open = fields.or("max_open", Duration::from_mins(1), report, values::span);
    let half_open = fields.or(
        "half_open",
        HalfOpen { probes: 1, probe_timeout: Duration::from_secs(10) },
        report,
        read_half_open,
    );
    let fallback = fields
        .or("fallback", List::empty(), report, |node, report| fields::list(node, report, read_fallback));
    fields.finish(report);
    Some(BreakerDraft {
        id,
        resources,
        per_upstream_host,
        failure,
        trip,
        min_requests,
        window,
        open_for,
        max_open,
        half_open,
        fallback,
    })
}

fn read_key(node: &Node, report: &mut Report) -> Option<bool> {
    let parts = fields::list(node, report, |node, report| {
        scalar::choice(node, &[("upstream_host", "upstream_host")], report)
    })?;
    fields::reject_repeats(&parts, ToString::to_string, report);
    Some(!parts.into_values()?.is_empty())
}

fn default_failure(span: Span) -> List<FailureKind> {
    let kinds = [FailureKind::Connect, FailureKind::Timeout, FailureKind::Reset, FailureKind::ServerError];
    List { items: kinds.into_iter().map(|value| At { value, span }).collect(), whole: true }
}

fn failure_kind(node: &Node, report: &mut Report) -> Option<FailureKind> {
    if let Some(Scalar::Number(_)) = Scalar::of(node) {
        let status = scalar::integer(node, 400..=599, report)?;
        return u16::try_from(status).ok().map(FailureKind::Status);
    }
    let words = [
        ("connect", FailureKind::Connect),
        ("timeout", FailureKind::Timeout),
        ("reset", FailureKind::Reset),
        ("5xx", FailureKind::ServerError),
    ];
    scalar::choice(node, &words, report)
}

fn read_trip(node: &Node, report: &mut Report) -> Option<Trip> {
    let mut fields = Fields::of(node, "a trip", report)?;
    let slow = fields.optional("slow_ratio", report, |node, report| {
        let mut fields = Fields::of(node, "slow_ratio", report)?;
        let slower_than = fields.required("slower_than", "250ms", report, |node, report| {
            quantity::duration(node, MIN_PERIOD..=MAX_SPAN, report)
        });
        let at_least = fields.required("at_least", "50%", report, values::ratio);
        fields.finish(report);
        Some(Trip::SlowRatio { slower_than: slower_than.value?, at_least: at_least.value? })
    });
    let errors = fields.optional("error_ratio", report, |node, report| {
        let mut fields = Fields::of(node, "error_ratio", report)?;
        let at_least = fields.required("at_least", "50%", report, values::ratio);
        fields.finish(report);
        Some(Trip::ErrorRatio { at_least: at_least.value? })
    });
    let count = fields.optional("error_count", report, |node, report| {
        let mut fields = Fields::of(node, "error_count", report)?;
        let at_least = fields.required("at_least", "200", report, |node, report| {
            if let Some(Scalar::Text(text)) = Scalar::of(node)
                && text.ends_with('%')
            {
                let message =
                    format!("error_count takes a number of failures, not the share {}", quoted(text));
                report.fault(node.span, message, "write a whole number, or use error_ratio");
                return None;
            }
            scalar::integer(node, 1..=MAX_COUNT, report)
        });
        fields.finish(report);
        Some(Trip::ErrorCount { at_least: at_least.value? })
    });
    let span = fields.span();
    fields.finish(report);
    let written = [slow.written, errors.written, count.written].iter().filter(|written| **written).count();
    if written != 1 {
        let message =
            format!("a trip has exactly one of slow_ratio, error_ratio and error_count, not {written}");
        report.fault(span, message, "write one `- error_ratio: { at_least: 50% }` for each");
        return None;
    }
    slow.value.or(errors.value).or(count.value)
}

fn read_half_open(node: &Node, report: &mut Report) -> Option<HalfOpen> {
    let mut fields = Fields::of(node, "half_open", report)?;
    let probes =
        fields.or("probes", 1, report, |node, report| scalar::integer(node, 1..=MAX_PROBES.into(), report));
    let probe_timeout = fields.or("probe_timeout", Duration::from_secs(10), report, values::span);
    fields.finish(report);
    Some(HalfOpen { probes: u32::try_from(probes.value?).ok()?, probe_timeout: probe_timeout.value? })
}

fn read_fallback(node: &Node, report: &mut Report) -> Option<Fallback> {
    let mut fields = Fields::of(node, "a fallback", report)?;
    let cache = fields.optional("cache", report, |node, report| {
        let mut fields = Fields::of(node, "cache", report)?;
        let ttl = fields.required("ttl", "5m", report, values::span);
        fields.finish(report);
        Some(Fallback::Cache { ttl: ttl.value? })
    });
    let respond = fields.optional("respond", report, read_respond);
    let span = fields.span();
    fields.finish(report);
    if cache.written == respond.written {
        let message = "a fallback has exactly one of cache and respond";
        report.fault(span, message, "write `- cache: { ttl: 5m }` or `- respond: { status: 503 }` for each");
        return None;
    }
    cache.value.or(respond.value)
}

fn read_respond(node: &Node, report: &mut Report) -> Option<Fallback> {
    let mut fields = Fields::of(node, "respond", report)?;
    let status =
        fields.required("status", "503", report, |node, report| scalar::integer(node, 200..=599, report));
    let json = fields.entry("json").map(|entry| (entry.key_span, scalar::json(&entry.value, report)));
    let text = fields.optional("text", report, scalar::free_text);
    fields.finish(report);
    if let Some((span, _)) = &json
        && text.written
    {
        report.fault(*span, "a fixed answer has one body, `json` or `text`", "remove one of them");
        return None;
    }
    let has_body = json.is_some() || text.written;
    if let Some(204 | 205 | 304) = status.value
        && has_body
    {
        report.fault(
            status.span,
            "an answer with this status has no body",
            "remove the body, or choose another status",
        );
    }
    let body = match (json, text.written) {
        (Some((_, value)), _) => FallbackBody::Json(value?),
        (None, true) => FallbackBody::Text(text.value?),
        (None, false) => FallbackBody::Empty,
    };
    Some(Fallback::Respond { status: u16::try_from(status.value?).ok()?, body })
}
