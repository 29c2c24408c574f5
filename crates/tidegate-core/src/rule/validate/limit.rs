//! Limits: their attributes, overrides, sharing.

use crate::document::Report;
use crate::document::diagnostic::quoted;
use crate::rule::load::Deployment;
use crate::rule::model::{Algorithm, Sharing};
use crate::rule::parse::limit::{CostDraft, LimitDraft, OverrideDraft};

use super::segment::Segments;
use super::{Index, Need};

pub(super) fn check(
    draft: &LimitDraft,
    index: &Index,
    segments: &mut Segments,
    deployment: Deployment,
    report: &mut Report,
) {
    let covered = draft.resources.value.as_ref();
    index.check_covered(covered, report);
    for name in draft.key.value.iter().flat_map(|key| &key.items) {
        index.check_attribute(&name.value, name.span, covered, Need::Declared, report);
    }
    if let Some(CostDraft::Attribute { from, .. }) = &draft.cost.value
        && let Some(name) = from.at()
    {
        index.check_attribute(name.value, name.span, covered, Need::Declared, report);
    }
    for one in draft.overrides.value.iter().flat_map(|overrides| &overrides.items) {
        check_override(draft, &one.value, segments, report);
    }
    check_sharing(draft, deployment, report);
    warn_numbers(draft, index, report);
}

fn check_override(draft: &LimitDraft, one: &OverrideDraft, segments: &mut Segments, report: &mut Report) {
    if let (Some(rule), Some(own)) = (draft.algorithm.name, one.algorithm.name)
        && rule != own
    {
        report.fault(
            one.algorithm.span,
            format!("this override is a {own}, and its limit is a {rule}"),
            format!("write `{rule}: {{ … }}`, or make a limit of its own"),
        );
    }
    let Some(when) = &one.when.value else { return };
    if report.is_full() {
        return;
    }
    segments.check_references(when, report);
    let Some(key) = draft.key.value.as_ref().filter(|key| key.whole) else { return };
    let in_key = |name: &str| key.values().any(|known| known == name);
    let outside =
        |name: &str| format!("the override tests {}, which is not in the limit's key", quoted(name));
    let help = "add it to `key`, or test an attribute of the key: one key must always have the same numbers";
    for name in &when.attributes {
        if !in_key(&name.value) {
            report.fault(name.span, outside(&name.value), help);
        }
    }
    for segment in &when.segments {
        for name in segments.attributes_of(&segment.value).iter().filter(|name| !in_key(name)) {
            let message = format!("{} (through the segment {})", outside(name), quoted(&segment.value));
            report.fault(segment.span, message, help);
        }
    }
}

fn check_sharing(draft: &LimitDraft, deployment: Deployment, report: &mut Report) {
    let Some(sharing) = draft.sharing.value else { return };
    let (name, span) = match sharing {
        Sharing::Local => {
            if deployment.shared_store && !draft.sharing.written {
                report.fault(
                    draft.span,
                    "`sharing` is missing, and a shared store is configured",
                    "add `sharing: exact`, `sharing: leased`, or `sharing: local` for a counter in each instance",
                );
            }
            return;
        }
        Sharing::Exact => ("exact", draft.sharing.span),
        Sharing::Leased => ("leased", draft.sharing.span),
    };
    if !deployment.shared_store {
        report.fault(
            span,
            format!(
                "`sharing: {name}` needs a shared store, and none is configured"
            ),
            "configure a shared store with `--redis URL`, or write `sharing: local` and divide the limit by the number of instances",
        );
    }
    if sharing == Sharing::Leased && deployment.shared_store && !deployment.leases {
        report.fault(
            span,
            "`sharing: leased` is not in this release",
            "write `sharing: exact`, which admits the same and asks the store for each decision",
        );
    }
    if !draft.on_store_failure.written {
        report.fault(
            span,
            format!("`on_store_failure` is missing, and `sharing: {name}` needs it"),
            "add `on_store_failure: local_fallback`, fail_open or fail_closed",
        );
    }
    if let (Sharing::Leased, Some(algorithm @ ("leaky_bucket" | "concurrency"))) =
        (sharing, draft.algorithm.name)
    {
        report.fault(
            span,
            format!("a {algorithm} cannot be leased: its permits are places, not a supply"),
            "write `sharing: exact` or `sharing: local`",
        );
    }
}

fn warn_numbers(draft: &LimitDraft, index: &Index, report: &mut Report) {
    let Some(algorithm) = &draft.algorithm.value else { return };
    let span = draft.algorithm.span;
    if let Some(CostDraft::Fixed(cost)) = draft.cost.value {
        let most = match algorithm {
            Algorithm::TokenBucket { capacity, .. } => *capacity,
            Algorithm::FixedWindow { limit, .. }
            | Algorithm::SlidingLog { limit, .. }
            | Algorithm::SlidingWindow { limit, .. } => *limit,
            Algorithm::LeakyBucket { queue, .. } => queue.saturating_add(1),
            Algorithm::Concurrency { max } => *max,
        };
        if cost > most {
            report.warn(
                draft.cost.span,
                format!("a call costs {cost} and the limit holds {most}: no call can ever pass"),
                "lower `cost` or raise the limit",
            );
        }
    }
    match algorithm {
        Algorithm::TokenBucket { capacity, refill } => {
            // capacity = count per second, without rounding.
            let per_second = u128::from(refill.count) * 1_000_000_000;
            if u128::from(*capacity) * refill.per.as_nanos() == per_second {
                report.warn(
                    span,
                    format!("the capacity {capacity} equals what refills in a second, so bursts over a second's worth are refused"),
                    "choose the capacity by the burst that callers may send at once",
                );
            }
        }
        Algorithm::FixedWindow { .. } | Algorithm::SlidingWindow { .. } => {
            let guarded = draft.resources.value.as_ref().and_then(|covered| {
                index.covered(covered).find(|(id, _)| index.idempotency_of(id).is_some())
            });
            if let Some((id, _)) = guarded {
                let name = algorithm.name();
                report.warn(
                    span,
                    format!("a {name} admits up to twice its limit around a boundary, and resource {} has an idempotency rule, hence effects that count", quoted(id)),
                    "use token_bucket or sliding_log",
                );
            }
        }
        Algorithm::SlidingLog { .. } | Algorithm::LeakyBucket { .. } | Algorithm::Concurrency { .. } => {}
    }
}
