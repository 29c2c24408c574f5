//! Resources: which requests they are, and what is known of them.

use super::{Changes, Entry, Section, Severity, StateEffect, What, names, pairs};
use crate::rule::RuleSet;
use crate::rule::model::{Missing, Resource};
use crate::rule::render;

pub(super) fn diff(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let pairs = pairs(&old.resources, &new.resources, |resource| &resource.id);
    for (before, after) in pairs.both {
        changed(before, after, new, &mut changes.entry(Section::Resource, &after.id));
    }
    for resource in pairs.removed {
        let detail = match matching(resource).as_str() {
            "none" => None,
            requests => Some(format!("requests of {requests} pass without its gates")),
        };
        let mut entry = changes.entry(Section::Resource, &resource.id);
        entry.push(What::Removed, detail, StateEffect::None, Severity::Warning);
    }
    for resource in pairs.added {
        let detail = match matching(resource).as_str() {
            "none" => None,
            requests => Some(format!("it takes requests of {requests}")),
        };
        let mut entry = changes.entry(Section::Resource, &resource.id);
        entry.push(What::Added, detail, StateEffect::None, Severity::Info);
    }
}

/// `POST api.example.com/orders/{order}/pay`
fn matching(resource: &Resource) -> String {
    let Some(matcher) = &resource.matcher else { return "none".to_owned() };
    let any = |list: &[String], word: &str| if list.is_empty() { word.to_owned() } else { list.join("|") };
    format!(
        "{} {}{}",
        any(&matcher.methods, "any method"),
        any(&matcher.hosts, ""),
        render::path(&matcher.path)
    )
}

fn changed(old: &Resource, new: &Resource, rules: &RuleSet, entry: &mut Entry<'_>) {
    if let Some(change) = entry.field("match", &matching(old), &matching(new), StateEffect::None) {
        change.detail("other requests are this resource, and its gates go with it");
    }
    let (before, after) = (render::duration(old.timeout), render::duration(new.timeout));
    entry.field("timeout", &before, &after, StateEffect::None);
    attributes(old, new, rules, entry);
    let subject = |resource: &Resource| resource.subject.clone().unwrap_or_else(|| "none".to_owned());
    let source = |resource: &Resource| {
        let attribute = resource.attribute(resource.subject.as_deref()?)?;
        Some(render::source(&attribute.from))
    };
    if let Some(change) = entry.field("subject", &subject(old), &subject(new), StateEffect::None)
        && source(old) != source(new)
    {
        change.detail("percentages are drawn for other subjects, who may get other variants").warn();
    }
    if let Some(change) = entry.field("flags", &names(&old.flags), &names(&new.flags), StateEffect::None) {
        change.detail("the upstream is told these");
    }
}

fn attributes(old: &Resource, new: &Resource, rules: &RuleSet, entry: &mut Entry<'_>) {
    let pairs = pairs(&old.attributes, &new.attributes, |attribute| &attribute.name);
    for (before, after) in pairs.both {
        let field = format!("attribute {}", after.name);
        let (from, to) = (render::source(&before.from), render::source(&after.from));
        if let Some(change) = entry.field(&field, &from, &to, StateEffect::None) {
            let keyed: Vec<&str> = rules
                .limits
                .iter()
                .filter(|limit| limit.resources.covers(&new.id) && limit.key.contains(&after.name))
                .map(|limit| limit.id.as_str())
                .collect();
            let is_subject = new.subject.as_ref() == Some(&after.name);
            let mut details = Vec::new();
            if !keyed.is_empty() {
                details.push(format!("limit {} counts by other values", keyed.join(", ")));
            }
            if is_subject {
                details
                    .push("percentages are drawn for other subjects, who may get other variants".to_owned());
            }
            if !details.is_empty() {
                change.detail(details.join(", and ")).warn();
            }
        }
        let missing = |missing| match missing {
            Missing::Share => "share",
            Missing::Reject => "reject",
        };
        let field = format!("attribute {} missing", after.name);
        if let Some(change) =
            entry.field(&field, missing(before.missing), missing(after.missing), StateEffect::None)
        {
            change.detail(match after.missing {
                Missing::Share => "requests without it pass, and share one counter",
                Missing::Reject => "requests without it get 400",
            });
        }
    }
    for attribute in pairs.removed {
        entry.field(
            &format!("attribute {}", attribute.name),
            &render::source(&attribute.from),
            "none",
            StateEffect::None,
        );
    }
    for attribute in pairs.added {
        entry.field(
            &format!("attribute {}", attribute.name),
            "none",
            &render::source(&attribute.from),
            StateEffect::None,
        );
    }
}
