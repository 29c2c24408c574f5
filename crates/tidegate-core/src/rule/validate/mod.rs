//! Drafts → faults and warnings: whatever needs more than one rule, or the deployment, to judge.

mod breaker;
mod cost;
mod flag;
mod idempotency;
mod limit;
mod resource;
pub(super) mod segment;
mod together;

use std::collections::BTreeMap;

use crate::document::diagnostic::quoted;
use crate::document::{At, Report, Span};

use super::load::Deployment;
use super::model::{Missing, RuleSet};
use super::parse::Drafts;
use super::parse::flag::FlagDraft;
use super::parse::idempotency::IdempotencyDraft;
use super::parse::resource::ResourceDraft;
use super::parse::values::Covered;
use super::positions::{Finding, Positions};

/// A check that runs on the rule set itself. When other faults were found it sees only the rules that
/// could be read, and must find nothing that a missing rule alone would cause.
pub(super) type Check = fn(&RuleSet, &Positions) -> Vec<Finding>;

/// Checks of the rule set itself: how large it and its conditions are, ties between resources,
/// contradictions between flag rules.
pub(super) const CHECKS: &[Check] =
    &[together::written_out, cost::conditions, together::ties, together::contradictions];

/// Most names that one message lists.
const MOST_NAMES: usize = 5;

/// Checks everything that was read.
pub(super) fn drafts(drafts: &Drafts, deployment: Deployment, report: &mut Report) {
    unique("resources", drafts.resources.iter().filter_map(|draft| draft.id.as_ref()), report);
    unique("limits", drafts.limits.iter().filter_map(|draft| draft.id.as_ref()), report);
    unique("idempotency rules", drafts.idempotency.iter().filter_map(|draft| draft.id.as_ref()), report);
    unique("breakers", drafts.breakers.iter().filter_map(|draft| draft.id.as_ref()), report);
    unique("segments", drafts.segments.iter().filter_map(|draft| draft.id.as_ref()), report);
    unique("flags", drafts.flags.iter().filter_map(|draft| draft.key.as_ref()), report);
    let index = Index::of(drafts);
    let mut segments = segment::Segments::of(drafts, report);
    for draft in &drafts.resources {
        resource::check(draft, &index, report);
    }
    for draft in &drafts.limits {
        limit::check(draft, &index, &mut segments, deployment, report);
    }
    for draft in &drafts.idempotency {
        idempotency::check(draft, &index, deployment, report);
    }
    idempotency::check_together(drafts, &index, report);
    for draft in &drafts.breakers {
        breaker::check(draft, &index, report);
    }
    for draft in &drafts.flags {
        flag::check(draft, &segments, report);
    }
}

fn unique<'d>(kinds: &str, ids: impl Iterator<Item = &'d At<String>>, report: &mut Report) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for id in ids {
        if let Some(first) = seen.get(id.value.as_str()) {
            let place = report.place(*first, id.span);
            report.fault(
                id.span,
                format!("two {kinds} are called {}; the first is at {place}", quoted(&id.value)),
                "rename or remove one of them",
            );
        } else {
            seen.insert(&id.value, id.span);
        }
    }
}

/// What can be referred to, by name; the first of two with one name.
struct Index<'d> {
    drafts: &'d Drafts,
    resources: BTreeMap<&'d str, &'d ResourceDraft>,
    flags: BTreeMap<&'d str, &'d FlagDraft>,
    /// The idempotency rules that list a resource, in document order.
    idempotent: BTreeMap<&'d str, Vec<&'d IdempotencyDraft>>,
    /// The idempotency rules of all resources.
    idempotent_all: Vec<&'d IdempotencyDraft>,
    /// For each attribute: how many resources whose attributes are all known declare it, and how many
    /// resources let it be missing. Answers questions about `"*"` without walking all resources.
    declared: BTreeMap<&'d str, Declared>,
    /// How many resources there are whose attributes are all known.
    whole_resources: usize,
}

/// How resources declare an attribute.
#[derive(Clone, Copy, Default)]
struct Declared {
    whole: usize,
    shared: usize,
}

impl<'d> Index<'d> {
    fn of(drafts: &'d Drafts) -> Self {
        let mut index = Self {
            drafts,
            resources: BTreeMap::new(),
            flags: BTreeMap::new(),
            idempotent: BTreeMap::new(),
            idempotent_all: Vec::new(),
            declared: BTreeMap::new(),
            whole_resources: 0,
        };
        for draft in &drafts.resources {
            if let Some(id) = &draft.id {
                index.resources.entry(&id.value).or_insert(draft);
            }
        }
        for resource in index.resources.values() {
            index.whole_resources += usize::from(resource.all_attributes);
            for attribute in &resource.attributes {
                let declared = index.declared.entry(&attribute.name.value).or_default();
                declared.whole += usize::from(resource.all_attributes);
                declared.shared += usize::from(attribute.missing.value == Some(Missing::Share));
            }
        }
        for draft in &drafts.flags {
            if let Some(key) = &draft.key {
                index.flags.entry(&key.value).or_insert(draft);
            }
        }
        for draft in &drafts.idempotency {
            match &draft.resources.value {
                Some(Covered::All) => index.idempotent_all.push(draft),
                Some(Covered::Listed(ids)) => {
                    for id in ids.values() {
                        index.idempotent.entry(id).or_default().push(draft);
                    }
                }
                None => {}
            }
        }
        index
    }

    /// The known resources among those that a rule covers.
    fn covered<'a>(
        &'a self,
        covered: &'a Covered,
    ) -> Box<dyn Iterator<Item = (&'a str, &'a ResourceDraft)> + 'a> {
        match covered {
            Covered::All => Box::new(self.resources.iter().map(|(id, draft)| (*id, *draft))),
            Covered::Listed(ids) => {
                Box::new(ids.values().filter_map(|id| {
                    self.resources.get_key_value(id.as_str()).map(|(id, draft)| (*id, *draft))
                }))
            }
        }
    }

    /// The first idempotency rule of a resource.
    fn idempotency_of(&self, resource: &str) -> Option<&'d IdempotencyDraft> {
        let listed = self.idempotent.get(resource).and_then(|rules| rules.first());
        listed.or(self.idempotent_all.first()).copied()
    }

    /// Reports listed resources that do not exist.
    fn check_covered(&self, covered: Option<&Covered>, report: &mut Report) {
        let Some(Covered::Listed(ids)) = covered else { return };
        for id in &ids.items {
            if !self.resources.contains_key(id.value.as_str()) && !self.drafts.unreadable.resources {
                unknown("resource", &id.value, id.span, self.resources.keys().copied(), "resources", report);
            }
        }
    }

    /// Reports an attribute that not every covered resource declares, or declares `missing: share`
    /// where the rule needs a value.
    fn check_attribute(
        &self,
        attribute: &str,
        span: Span,
        covered: Option<&Covered>,
        need: Need,
        report: &mut Report,
    ) {
        let Some(covered) = covered else { return };
        if let Covered::All = covered {
            let declared = self.declared.get(attribute).copied().unwrap_or_default();
            let enough = declared.whole == self.whole_resources && !self.resources.is_empty();
            if report.is_full() || (enough && (need == Need::Declared || declared.shared == 0)) {
                return;
            }
        }
        let mut lacking: Vec<&str> = Vec::new();
        let mut near: Option<&ResourceDraft> = None;
        let mut sharing: Vec<&str> = Vec::new();
        let mut any = false;
        for (id, resource) in self.covered(covered) {
            any = true;
            match resource.attribute(attribute) {
                Some(found) if need == Need::Value && found.missing.value == Some(Missing::Share) => {
                    if sharing.len() <= MOST_NAMES {
                        sharing.push(id);
                    }
                }
                None if resource.all_attributes => {
                    near.get_or_insert(resource);
                    if lacking.len() <= MOST_NAMES {
                        lacking.push(id);
                    }
                }
                Some(_) | None => {}
            }
        }
        if !lacking.is_empty() {
            let known =
                near.into_iter().flat_map(|resource| &resource.attributes).map(|a| a.name.value.as_str());
            let help = match report.nearest(attribute, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("declare it under `attributes` of {}", names(&lacking)),
            };
            let message =
                format!("the attribute {} is not declared by {}", quoted(attribute), names(&lacking));
            report.fault(span, message, help);
        }
        if !any && matches!(covered, Covered::All) && !self.drafts.unreadable.resources {
            let message =
                format!("the attribute {} is declared nowhere: there are no resources", quoted(attribute));
            report.fault(span, message, "add a resource that declares it");
        }
        if !sharing.is_empty() {
            let message = format!(
                "the attribute {} may be missing ({}), and a record cannot belong to nobody in particular",
                quoted(attribute),
                names(&sharing)
            );
            report.fault(
                span,
                message,
                format!("declare `{attribute}: {{ from: …, missing: reject }}` there"),
            );
        }
    }
}

/// Whether a rule can do with an attribute that a request lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Declared is enough.
    Declared,
    /// A request without it must have been refused.
    Value,
}

/// Reports a reference to nothing.
fn unknown<'c>(
    kind: &str,
    name: &str,
    span: Span,
    known: impl Iterator<Item = &'c str> + Clone,
    section: &str,
    report: &mut Report,
) {
    let help = match report.nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("add it under `{section}`, or remove this reference"),
    };
    report.fault(span, format!("there is no {kind} {}", quoted(name)), help);
}

/// Some names for a message.
fn names(all: &[&str]) -> String {
    let mut shown: Vec<String> = all.iter().take(MOST_NAMES).map(|name| quoted(name)).collect();
    if all.len() > MOST_NAMES {
        shown.push("others".to_owned());
    }
    shown.join(", ")
}
