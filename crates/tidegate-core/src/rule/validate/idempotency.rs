//! Idempotency rules: their attributes, their times, one rule a resource, one meaning an operation.

use std::collections::BTreeMap;

use crate::document::diagnostic::quoted;
use crate::document::quantity::show;
use crate::document::{List, Report};
use crate::rule::load::{Deployment, Shell};
use crate::rule::model::{AttributeSource, CommitMode, FingerprintPart, OnUnknown};
use crate::rule::parse::Drafts;
use crate::rule::parse::idempotency::{IdempotencyDraft, KeyDraft};
use crate::rule::parse::values::Covered;

use super::resource::check_path;
use super::{Index, Need};

/// One rule by itself.
pub(super) fn check(draft: &IdempotencyDraft, index: &Index, deployment: Deployment, report: &mut Report) {
    let covered = draft.resources.value.as_ref();
    index.check_covered(covered, report);
    if let Some(scope) = &draft.scope.value {
        for name in &scope.items {
            index.check_attribute(&name.value, name.span, covered, Need::Value, report);
        }
        if scope.items.is_empty() && scope.whole {
            report.warn(
                draft.scope.span,
                "with an empty scope, two callers who choose the same key get each other's answers",
                "name the attribute that says whose key it is, such as [tenant]",
            );
        }
    }
    if let Some(parts) = &draft.fingerprint.value {
        check_parts(parts, covered, Need::Declared, index, report);
    }
    match &draft.key.value {
        Some(KeyDraft::Sent { from, .. }) => {
            if let (Some(AttributeSource::Path(name)), Some(covered)) = (&from.value, covered) {
                for (_, resource) in index.covered(covered) {
                    check_path(resource, name, from.span, report);
                }
            }
        }
        Some(KeyDraft::Derived { parts, window }) => {
            if let Some(parts) = &parts.value {
                check_parts(parts, covered, Need::Value, index, report);
            }
            if let (Some(window_is), Some(retention)) = (window.value, draft.retention.value)
                && window_is > retention
            {
                report.fault(
                    window.span,
                    format!(
                        "a derived key means one intent for {}, and its record is kept for {} only",
                        show(window_is),
                        show(retention)
                    ),
                    "raise `retention` to at least `window`",
                );
            }
        }
        None => {}
    }
    check_times(draft, index, report);
    check_commit(draft, deployment, report);
}

fn check_parts(
    parts: &List<FingerprintPart>,
    covered: Option<&Covered>,
    need: Need,
    index: &Index,
    report: &mut Report,
) {
    for part in &parts.items {
        if let FingerprintPart::Attribute(name) = &part.value {
            index.check_attribute(name, part.span, covered, need, report);
        }
    }
}

fn check_times(draft: &IdempotencyDraft, index: &Index, report: &mut Report) {
    let Some(max_execution) = draft.max_execution.value else { return };
    if let (Some(lease), Some(retention)) = (draft.lease.value, draft.retention.value)
        && retention <= max_execution.saturating_add(lease)
    {
        let times = [&draft.retention, &draft.lease, &draft.max_execution];
        let span = times.iter().find(|time| time.written).map_or(draft.span, |time| time.span);
        report.fault(
            span,
            format!(
                "retention ({}) is not longer than max_execution ({}) and lease ({}) together, so a record could end before its call",
                show(retention),
                show(max_execution),
                show(lease)
            ),
            "raise `retention`, or lower the others",
        );
    }
    let Some(covered) = &draft.resources.value else { return };
    let slow = index
        .covered(covered)
        .find(|(_, resource)| resource.timeout.value.is_some_and(|timeout| max_execution < timeout));
    if let Some((id, resource)) = slow {
        let timeout = resource.timeout.value.unwrap_or_default();
        report.warn(
            draft.max_execution.span,
            format!(
                "max_execution ({}) is shorter than the timeout of resource {} ({}), so a call may outlive its record's lease",
                show(max_execution),
                quoted(id),
                show(timeout)
            ),
            "raise `max_execution`, or lower the resource's `timeout`",
        );
    }
}

fn check_commit(draft: &IdempotencyDraft, deployment: Deployment, report: &mut Report) {
    let span = draft.commit.span;
    let name = match draft.commit.value {
        Some(CommitMode::WithEffects) => "with_effects",
        Some(CommitMode::OneTransaction) => "one_transaction",
        Some(CommitMode::AfterResponse) => {
            if draft.on_unknown.value == Some(OnUnknown::Retry) {
                report.warn(
                    draft.on_unknown.span,
                    "`on_unknown: retry` with `commit: after_response` may carry out one intent twice",
                    "write `on_unknown: hold`, or let a unique constraint or the fencing token guard the business write",
                );
            }
            return;
        }
        None => return,
    };
    if !deployment.idempotency_store.is_transactional() {
        report.fault(
            span,
            format!("`commit: {name}` needs a store that shares a transaction with the business write"),
            "keep the records in the SQL database that holds the business rows, or write `commit: after_response`",
        );
    }
    match (deployment.shell, draft.commit.value) {
        (Shell::Gateway, Some(CommitMode::OneTransaction)) => report.fault(
            span,
            "`commit: one_transaction` works in the library only",
            "write `commit: after_response`, or use the library inside the service",
        ),
        (Shell::Gateway, _) => report.fault(
            span,
            "`commit: with_effects` is not available through the gateway in this release",
            "write `commit: after_response`, or use the library inside the service",
        ),
        (Shell::Library, Some(CommitMode::OneTransaction)) => report.fault(
            span,
            "`commit: one_transaction` is not available in this release",
            "write `commit: with_effects`, and complete the record with `claim.commit(tx, response)`",
        ),
        (Shell::Library, _) => {}
    }
}

/// The rules beside each other.
pub(super) fn check_together(drafts: &Drafts, index: &Index, report: &mut Report) {
    for (resource, rules) in &index.idempotent {
        if !index.resources.contains_key(resource) {
            continue;
        }
        let mut rules = rules.iter();
        let first = rules.next();
        for rule in rules {
            if let Some(first) = first {
                two_rules(first, rule, resource, report);
            }
        }
    }
    let mut all = index.idempotent_all.iter();
    if let Some(first) = all.next() {
        let listed = index.idempotent.iter().filter(|(resource, _)| index.resources.contains_key(*resource));
        for (resource, rules) in listed {
            if let Some(rule) = rules.first() {
                two_rules(first, rule, resource, report);
            }
        }
        for rule in all {
            two_rules(first, rule, "*", report);
        }
    }
    let mut operations: BTreeMap<&str, &IdempotencyDraft> = BTreeMap::new();
    for rule in &drafts.idempotency {
        let Some(operation) = rule.operation() else { continue };
        match operations.get(operation) {
            Some(first) => check_agreement(first, rule, operation, report),
            None => {
                operations.insert(operation, rule);
            }
        }
    }
}

fn two_rules(first: &IdempotencyDraft, second: &IdempotencyDraft, resource: &str, report: &mut Report) {
    if std::ptr::eq(first, second) || report.is_full() {
        // One rule that lists a resource twice was reported already.
        return;
    }
    let (first, second) = if first.span <= second.span { (first, second) } else { (second, first) };
    let name = first.id.as_ref().map_or("", |id| id.value.as_str());
    let span = match &second.resources.value {
        Some(Covered::Listed(ids)) => {
            ids.items.iter().find(|id| id.value == resource).map_or(second.resources.span, |id| id.span)
        }
        _ => second.resources.span,
    };
    let place = report.place(first.span, span);
    let whose =
        if resource == "*" { "every resource".to_owned() } else { format!("resource {}", quoted(resource)) };
    report.fault(
        span,
        format!("{whose} has two idempotency rules; the other is {} at {place}", quoted(name)),
        "keep one rule for each resource",
    );
}

fn check_agreement(
    first: &IdempotencyDraft,
    second: &IdempotencyDraft,
    operation: &str,
    report: &mut Report,
) {
    fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
        matches!((a, b), (Some(a), Some(b)) if a != b)
    }
    fn lists<T: PartialEq>(a: Option<&List<T>>, b: Option<&List<T>>) -> bool {
        matches!((a, b), (Some(a), Some(b)) if a.whole && b.whole && !a.values().eq(b.values()))
    }
    let key = |draft: &IdempotencyDraft| draft.key.value.as_ref().and_then(KeyDraft::build);
    let fields = [
        ("commit", differ(first.commit.value, second.commit.value)),
        ("on_unknown", differ(first.on_unknown.value, second.on_unknown.value)),
        ("fingerprint", lists(first.fingerprint.value.as_ref(), second.fingerprint.value.as_ref())),
        ("retention", differ(first.retention.value, second.retention.value)),
        ("scope", lists(first.scope.value.as_ref(), second.scope.value.as_ref())),
        ("key", differ(key(first), key(second))),
    ];
    let differing: Vec<&str> = fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    if differing.is_empty() {
        return;
    }
    let span = match &second.id {
        Some(id) if !second.operation.written => id.span,
        _ => second.operation.span,
    };
    let name = first.id.as_ref().map_or("", |id| id.value.as_str());
    report.fault(
        span,
        format!(
            "the operation {} also belongs to the rule {}, which differs in {}",
            quoted(operation),
            quoted(name),
            differing.join(", ")
        ),
        "make them equal, or give one of the rules another `operation`",
    );
}
