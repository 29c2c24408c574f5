//! Idempotency rules: what changes, and whether records are still found.

use super::{Changes, Section, Severity, StateEffect, What, names, pairs};
use crate::rule::RuleSet;
use crate::rule::model::{
    CommitMode, FingerprintPart, Idempotency, InProgress, KeySource, OnUnknown, Resources,
};
use crate::rule::render;

pub(super) fn diff(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let pairs = pairs(&old.idempotency, &new.idempotency, |rule| &rule.id);
    for (before, after) in pairs.both {
        changed(before, after, changes);
    }
    for rule in pairs.removed {
        let heir = new.idempotency.iter().find(|other| same_records(rule, other));
        let mut entry = changes.entry(Section::Idempotency, &rule.id);
        if let Some(heir) = heir {
            let detail = format!("rule {} goes on with its records", heir.id);
            entry.push(What::Removed, Some(detail), StateEffect::Keeps, Severity::Info);
        } else {
            let detail =
                format!("requests of {} are no longer guarded by it", render::resources(&rule.resources));
            let effect = StateEffect::Forgets { operation: rule.operation.clone() };
            entry.push(What::Removed, Some(detail), effect, Severity::Warning);
        }
    }
    for rule in pairs.added {
        let covered = render::resources(&rule.resources);
        let detail = match old.idempotency.iter().find(|other| same_records(other, rule)) {
            Some(before) => format!("goes on with the records of rule {}", before.id),
            None => format!("requests of {covered} are guarded, from an empty record"),
        };
        let mut entry = changes.entry(Section::Idempotency, &rule.id);
        entry.push(What::Added, Some(detail), StateEffect::None, Severity::Info);
    }
    sources(old, new, changes);
}

/// Whether a request finds under one rule what it left under the other.
fn same_records(old: &Idempotency, new: &Idempotency) -> bool {
    old.operation == new.operation && old.scope == new.scope && identity(&old.key) == identity(&new.key)
}

/// What a key is made of; whether it is required, and for how long a derived one holds, is not part of
/// a record's name.
fn identity(key: &KeySource) -> String {
    match key {
        KeySource::Attribute { from, .. } => render::source(from),
        KeySource::Derived { parts, .. } => format!("derived from {}", join(parts)),
    }
}

fn join(parts: &[FingerprintPart]) -> String {
    parts.iter().map(render::fingerprint_part).collect::<Vec<_>>().join(", ")
}

fn changed(old: &Idempotency, new: &Idempotency, changes: &mut Changes) {
    let mut entry = changes.entry(Section::Idempotency, &new.id);
    let forgets = || StateEffect::Forgets { operation: old.operation.clone() };
    let names_of_records = [
        ("operation", old.operation.clone(), new.operation.clone()),
        ("scope", names(&old.scope), names(&new.scope)),
        ("key", identity(&old.key), identity(&new.key)),
    ];
    for (name, before, after) in names_of_records {
        if let Some(change) = entry.field(name, &before, &after, forgets()) {
            change.warn();
        }
    }

    let (before, after) = (render::resources(&old.resources), render::resources(&new.resources));
    if let Some(change) = entry.field("resources", &before, &after, StateEffect::Keeps)
        && let Some(left) = no_longer_covered(&old.resources, &new.resources)
    {
        change.detail(format!("requests of {left} are no longer guarded by it")).warn();
    }
    let mut field = |name: &str, text: &dyn Fn(&Idempotency) -> String| {
        entry.field(name, &text(old), &text(new), StateEffect::Keeps);
    };
    field("key required", &|rule| match &rule.key {
        KeySource::Attribute { required, .. } => required.to_string(),
        KeySource::Derived { .. } => "always there".to_owned(),
    });
    field("key window", &|rule| match &rule.key {
        KeySource::Derived { window, .. } => render::duration(*window),
        KeySource::Attribute { .. } => "none".to_owned(),
    });
    field("fingerprint", &|rule| join(&rule.fingerprint));
    field("commit", &|rule| {
        let text = match rule.commit {
            CommitMode::AfterResponse => "after_response",
            CommitMode::WithEffects => "with_effects",
            CommitMode::OneTransaction => "one_transaction",
        };
        text.to_owned()
    });
    field("on_unknown", &|rule| {
        match rule.on_unknown {
            OnUnknown::Hold => "hold",
            OnUnknown::Retry => "retry",
        }
        .to_owned()
    });
    field("lease", &|rule| render::duration(rule.lease));
    field("max_execution", &|rule| render::duration(rule.max_execution));
    field("retention", &|rule| render::duration(rule.retention));
    field("in_progress", &|rule| match rule.in_progress {
        InProgress::Reject => "reject".to_owned(),
        InProgress::Wait(span) => format!("wait {}", render::duration(span)),
    });
    field("max_response", &|rule| render::bytes(rule.max_response));
    field("replay_headers", &|rule| names(&rule.replay_headers));
}

/// The resources that lose the guard, if any.
fn no_longer_covered(old: &Resources, new: &Resources) -> Option<String> {
    match (old, new) {
        (_, Resources::All) => None,
        (Resources::All, Resources::Listed(_)) => Some("all others".to_owned()),
        (Resources::Listed(ids), Resources::Listed(_)) => {
            let left: Vec<String> = ids.iter().filter(|id| !new.covers(id)).cloned().collect();
            if left.is_empty() { None } else { Some(left.join(", ")) }
        }
    }
}

/// A scope or derived key whose attribute is taken from elsewhere names other records, though the rule
/// itself reads the same.
fn sources(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let rules = pairs(&old.idempotency, &new.idempotency, |rule| &rule.id);
    let resources = pairs(&old.resources, &new.resources, |resource| &resource.id);
    for (before, after) in rules.both {
        let named = |attribute: &str| {
            let derived = match &after.key {
                KeySource::Derived { parts, .. } => parts.as_slice(),
                KeySource::Attribute { .. } => &[],
            };
            after.scope.iter().any(|name| name == attribute)
                || derived
                    .iter()
                    .any(|part| matches!(part, FingerprintPart::Attribute(name) if name == attribute))
        };
        for (old_resource, new_resource) in &resources.both {
            if !before.resources.covers(&new_resource.id) || !after.resources.covers(&new_resource.id) {
                continue;
            }
            for attribute in new_resource.attributes.iter().filter(|attribute| named(&attribute.name)) {
                let Some(earlier) = old_resource.attribute(&attribute.name) else { continue };
                let field = format!("attribute {} of {}", attribute.name, new_resource.id);
                let effect = StateEffect::Forgets { operation: before.operation.clone() };
                let mut entry = changes.entry(Section::Idempotency, &after.id);
                let (from, to) = (render::source(&earlier.from), render::source(&attribute.from));
                if let Some(change) = entry.field(&field, &from, &to, effect) {
                    change.warn();
                }
            }
        }
    }
}
