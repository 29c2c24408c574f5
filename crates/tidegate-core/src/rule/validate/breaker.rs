//! Breakers: their times, and what may answer for a resource.

use crate::document::Report;
use crate::document::diagnostic::quoted;
use crate::document::quantity::show;
use crate::rule::model::Fallback;
use crate::rule::parse::breaker::BreakerDraft;
use crate::rule::parse::resource::ResourceDraft;

use super::Index;

/// Fewer results than this say little about a dependency.
const FEW_REQUESTS: u64 = 5;

pub(super) fn check(draft: &BreakerDraft, index: &Index, report: &mut Report) {
    let covered = draft.resources.value.as_ref();
    index.check_covered(covered, report);
    if let (Some(open_for), Some(max_open)) = (draft.open_for.value, draft.max_open.value)
        && open_for > max_open
    {
        let span = if draft.open_for.written { draft.open_for.span } else { draft.max_open.span };
        report.fault(
            span,
            format!("open_for ({}) is longer than max_open ({})", show(open_for), show(max_open)),
            "raise `max_open`, which bounds the growth of `open_for`",
        );
    }
    if let Some(least) = draft.min_requests.value
        && least < FEW_REQUESTS
    {
        report.warn(
            draft.min_requests.span,
            format!("min_requests is {least}: a single failure in a quiet minute may open this breaker"),
            "write 20 or more",
        );
    }
    let Some(covered) = covered else { return };
    for fallback in draft.fallback.value.iter().flat_map(|fallback| &fallback.items) {
        match fallback.value {
            Fallback::Cache { .. } => {
                if let Some((id, _)) = index.covered(covered).find(|(_, resource)| takes_writes(resource)) {
                    report.fault(
                        fallback.span,
                        format!(
                            "the cache answers only GET and HEAD, and resource {} takes other methods",
                            quoted(id)
                        ),
                        "restrict it with `match: { methods: [GET, HEAD] }`, or use `respond`",
                    );
                }
            }
            Fallback::Respond { status, .. } if (200..300).contains(&status) => {
                if let Some((id, _)) =
                    index.covered(covered).find(|(id, _)| index.idempotency_of(id).is_some())
                {
                    report.fault(
                        fallback.span,
                        format!(
                            "the fixed answer {status} claims success, and resource {} has an idempotency rule: callers would take it for the result",
                            quoted(id)
                        ),
                        "answer with 503, or another status that is not 2xx",
                    );
                }
            }
            Fallback::Respond { .. } => {}
        }
    }
}

/// Whether a matched resource takes methods other than GET and HEAD.
fn takes_writes(resource: &ResourceDraft) -> bool {
    let Some(matcher) = &resource.matcher.value else { return false };
    let Some(methods) = matcher.methods.value.as_ref().filter(|methods| methods.whole) else { return false };
    methods.items.is_empty() || methods.values().any(|method| method != "GET" && method != "HEAD")
}
