//! Segments and flags: who gets another result.

use std::collections::HashSet;

use super::{Changes, Entry, Section, Severity, StateEffect, What, pairs};
use crate::rule::RuleSet;
use crate::rule::model::{Condition, Flag, FlagRule, Percentage, Serve, Sticky};
use crate::rule::render;
use crate::rule::version::{condition, serve};

pub(super) fn segments(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let pairs = pairs(&old.segments, &new.segments, |segment| &segment.id);
    for (before, after) in pairs.both {
        let (from, to) = (condition(&before.when).render(), condition(&after.when).render());
        let mut entry = changes.entry(Section::Segment, &after.id);
        if let Some(change) = entry.field("when", &from, &to, StateEffect::None) {
            let users = users(new, &after.id);
            change.detail(match users.as_slice() {
                [] => "nothing asks it".to_owned(),
                users => format!("it decides for {}", users.join(", ")),
            });
        }
    }
    for segment in pairs.removed {
        changes.entry(Section::Segment, &segment.id).push(
            What::Removed,
            None,
            StateEffect::None,
            Severity::Info,
        );
    }
    for segment in pairs.added {
        changes.entry(Section::Segment, &segment.id).push(
            What::Added,
            None,
            StateEffect::None,
            Severity::Info,
        );
    }
}

/// The flags and limits whose conditions ask a segment, also through other segments.
fn users(rules: &RuleSet, id: &str) -> Vec<String> {
    let mut asked: HashSet<&str> = HashSet::from([id]);
    // Each round adds at least one segment, so this ends after as many rounds as there are segments.
    loop {
        let more: Vec<&str> = rules
            .segments
            .iter()
            .filter(|segment| !asked.contains(segment.id.as_str()) && asks(&segment.when, &asked))
            .map(|segment| segment.id.as_str())
            .collect();
        if more.is_empty() {
            break;
        }
        asked.extend(more);
    }
    let limits = rules
        .limits
        .iter()
        .filter(|limit| limit.overrides.iter().any(|other| asks(&other.when, &asked)))
        .map(|limit| format!("limit {}", limit.id));
    let flags = rules
        .flags
        .iter()
        .filter(|flag| {
            flag.rules.iter().any(|rule| rule.when.as_ref().is_some_and(|when| asks(when, &asked)))
        })
        .map(|flag| format!("flag {}", flag.key));
    limits.chain(flags).collect()
}

fn asks(condition: &Condition, segments: &HashSet<&str>) -> bool {
    match condition {
        Condition::Attribute { .. } => false,
        Condition::Segment(id) => segments.contains(id.as_str()),
        Condition::All(parts) | Condition::Any(parts) => parts.iter().any(|part| asks(part, segments)),
        Condition::Not(inner) => asks(inner, segments),
    }
}

pub(super) fn diff(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let pairs = pairs(&old.flags, &new.flags, |flag| &flag.key);
    for (before, after) in pairs.both {
        changed(before, after, &mut changes.entry(Section::Flag, &after.key));
    }
    for flag in pairs.removed {
        let detail = "whoever asks for it gets an error".to_owned();
        let mut entry = changes.entry(Section::Flag, &flag.key);
        entry.push(What::Removed, Some(detail), StateEffect::None, Severity::Warning);
    }
    for flag in pairs.added {
        let detail = match flag.rules.as_slice() {
            [] => format!("everybody gets {}", flag.default),
            rules => format!("{} where none of its {} rules decides", flag.default, rules.len()),
        };
        let mut entry = changes.entry(Section::Flag, &flag.key);
        entry.push(What::Added, Some(detail), StateEffect::None, Severity::Info);
    }
}

fn changed(old: &Flag, new: &Flag, entry: &mut Entry<'_>) {
    variants(old, new, entry);
    if let Some(change) = entry.field("default", &old.default, &new.default, StateEffect::None) {
        change
            .detail(format!("subjects that no rule decides change from {} to {}", old.default, new.default));
    }
    let sticky = |sticky| match sticky {
        Sticky::None => "none",
        Sticky::Session => "session",
    };
    if let Some(change) = entry.field("sticky", sticky(old.sticky), sticky(new.sticky), StateEffect::None) {
        change.detail(match new.sticky {
            Sticky::None => "sessions no longer keep their first result",
            Sticky::Session => "sessions keep their first result from now on",
        });
    }
    let pairs = pairs(&old.rules, &new.rules, |rule| &rule.id);
    for (before, after) in pairs.both {
        rule_changed((old, before), (new, after), entry);
    }
    for rule in pairs.removed {
        let detail = format!("those that it decided go on to {}", after_rule(old, rule));
        let name = format!("rule {}", rule.id);
        if let Some(change) = entry.field(&name, &summary(rule), "none", StateEffect::None) {
            change.detail(detail);
        }
    }
    for rule in pairs.added {
        let detail = format!("so far they went on to {}", after_rule(new, rule));
        let name = format!("rule {}", rule.id);
        if let Some(change) = entry.field(&name, "none", &summary(rule), StateEffect::None) {
            change.detail(detail);
        }
    }
}

fn variants(old: &Flag, new: &Flag, entry: &mut Entry<'_>) {
    let pairs = pairs(&old.variants, &new.variants, |(name, _)| name);
    for ((name, before), (_, after)) in pairs.both {
        if let Some(change) = entry.field(
            &format!("variant {name}"),
            &before.to_string(),
            &after.to_string(),
            StateEffect::None,
        ) {
            change.detail(format!("all that get {name} get the new value"));
        }
    }
    for (name, value) in pairs.removed {
        entry.field(&format!("variant {name}"), &value.to_string(), "none", StateEffect::None);
    }
    for (name, value) in pairs.added {
        entry.field(&format!("variant {name}"), "none", &value.to_string(), StateEffect::None);
    }
}

fn rule_changed(
    (old_flag, old): (&Flag, &FlagRule),
    (new_flag, new): (&Flag, &FlagRule),
    entry: &mut Entry<'_>,
) {
    let field = |name: &str| format!("rule {} {name}", new.id);
    let (before, after) = (old.priority.to_string(), new.priority.to_string());
    if let Some(change) = entry.field(&field("priority"), &before, &after, StateEffect::None) {
        change.detail("it is asked at another place in the order");
    }
    let when = |rule: &FlagRule| match &rule.when {
        None => "everybody".to_owned(),
        Some(when) => condition(when).render(),
    };
    if let Some(change) = entry.field(&field("when"), &when(old), &when(new), StateEffect::None) {
        change.detail("it is for others now");
    }
    // `rule ramp 10% → 50%`
    let percentage = |rule: &FlagRule| match rule.percentage {
        None => "all".to_owned(),
        Some(share) => format!("{}%", render::percent(share)),
    };
    let name = format!("rule {}", new.id);
    if let Some(change) = entry.field(&name, &percentage(old), &percentage(new), StateEffect::None)
        && let Some(detail) = moved_by_percentage(share(old), share(new), (old_flag, old), (new_flag, new))
    {
        change.detail(detail);
    }
    let (before, after) = (serve(&old.serve).render(), serve(&new.serve).render());
    if let Some(change) = entry.field(&field("serve"), &before, &after, StateEffect::None) {
        change.detail(moved_by_serve(&old.serve, &new.serve));
    }
}

fn share(rule: &FlagRule) -> Percentage {
    rule.percentage.unwrap_or(Percentage::FULL)
}

/// Raising a percentage only adds subjects, lowering one only takes some away.
fn moved_by_percentage(
    old: Percentage,
    new: Percentage,
    (old_flag, old_rule): (&Flag, &FlagRule),
    (new_flag, new_rule): (&Flag, &FlagRule),
) -> Option<String> {
    let (from, to) = match old.cmp(&new) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Less => (after_rule(old_flag, old_rule), served(&new_rule.serve)),
        std::cmp::Ordering::Greater => (served(&old_rule.serve), after_rule(new_flag, new_rule)),
    };
    let moved = Percentage::from_hundredths(old.hundredths().abs_diff(new.hundredths()))?;
    Some(format!("{} % of the subjects that reach it change from {from} to {to}", render::percent(moved)))
}

fn served(serve: &Serve) -> String {
    match serve {
        Serve::Variant(name) => name.clone(),
        Serve::Split(_) => "their share of its split".to_owned(),
    }
}

/// What those get whom a rule passes over.
fn after_rule(flag: &Flag, rule: &FlagRule) -> String {
    let is_last = flag.rules.last().is_some_and(|last| last.id == rule.id);
    if is_last { flag.default.clone() } else { "what later rules decide".to_owned() }
}

/// Shares are laid end to end in document order; what lies under another variant now has moved.
pub(super) fn moved_by_serve(old: &Serve, new: &Serve) -> String {
    let (old, new) = (ends(old), ends(new));
    let mut moves: Vec<(&str, &str, u16)> = Vec::new();
    let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
    let mut at = 0;
    while let (Some((from, from_end)), Some((to, to_end))) = (left.peek(), right.peek()) {
        let end = (*from_end).min(*to_end);
        if from != to && end > at {
            // A variant has one share, so each pair of them meets in one place at most.
            moves.push((from, to, end - at));
        }
        at = end;
        if *from_end == end {
            left.next();
        }
        if *to_end == end {
            right.next();
        }
    }
    let moves: Vec<String> = moves
        .into_iter()
        .map(|(from, to, moved)| match Percentage::from_hundredths(moved) {
            Some(share) if share != Percentage::FULL => {
                format!("{} % of those that it decides change from {from} to {to}", render::percent(share))
            }
            _ => format!("all that it decides change from {from} to {to}"),
        })
        .collect();
    if moves.is_empty() { "nobody changes".to_owned() } else { moves.join(", ") }
}

/// Variants with the hundredth of a percent at which the share of each ends.
fn ends(serve: &Serve) -> Vec<(&str, u16)> {
    match serve {
        Serve::Variant(name) => vec![(name, Percentage::FULL.hundredths())],
        Serve::Split(shares) => {
            let mut end: u16 = 0;
            let full = Percentage::FULL.hundredths();
            let ends = shares.iter().map(|(name, share)| {
                end = end.saturating_add(share.hundredths()).min(full);
                (name.as_str(), end)
            });
            ends.collect()
        }
    }
}

/// `10% of {"tenant": {"equals": "acme"}}: "on"`
fn summary(rule: &FlagRule) -> String {
    let whom = rule.when.as_ref().map_or_else(|| "everybody".to_owned(), |when| condition(when).render());
    let share = rule.percentage.map_or_else(String::new, |share| format!("{}% of ", render::percent(share)));
    format!("{} for {share}{whom} at priority {}", serve(&rule.serve).render(), rule.priority)
}
