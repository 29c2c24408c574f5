//! Where each rule stands, for checks that run on the finished rule set.

use std::collections::BTreeMap;

use crate::document::{Severity, Span};

use super::parse::Drafts;

/// Where the rules of a load stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    sources: Vec<String>,
    spans: BTreeMap<Place, Span>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Resource(String),
    Match(String),
    Limit(String),
    Idempotency(String),
    Breaker(String),
    Segment(String),
    Flag(String),
    FlagRule(String, String),
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Fault or warning.
    pub severity: Severity,
    /// Where, from [`Positions`].
    pub span: Span,
    /// What is wrong, in one line.
    pub message: String,
    /// A way to mend it, in one line.
    pub help: String,
}

impl Positions {
    /// The id of a resource.
    pub fn resource(&self, id: &str) -> Option<Span> {
        self.span(&Place::Resource(id.to_owned()))
    }

    /// The path pattern of a resource.
    pub fn resource_match(&self, id: &str) -> Option<Span> {
        self.span(&Place::Match(id.to_owned()))
    }

    /// The id of a limit.
    pub fn limit(&self, id: &str) -> Option<Span> {
        self.span(&Place::Limit(id.to_owned()))
    }

    /// The id of an idempotency rule.
    pub fn idempotency(&self, id: &str) -> Option<Span> {
        self.span(&Place::Idempotency(id.to_owned()))
    }

    /// The id of a breaker.
    pub fn breaker(&self, id: &str) -> Option<Span> {
        self.span(&Place::Breaker(id.to_owned()))
    }

    /// The id of a segment.
    pub fn segment(&self, id: &str) -> Option<Span> {
        self.span(&Place::Segment(id.to_owned()))
    }

    /// The key of a flag.
    pub fn flag(&self, key: &str) -> Option<Span> {
        self.span(&Place::Flag(key.to_owned()))
    }

    /// The id of a rule of a flag.
    pub fn flag_rule(&self, key: &str, rule: &str) -> Option<Span> {
        self.span(&Place::FlagRule(key.to_owned(), rule.to_owned()))
    }

    /// `FILE:LINE:COL`.
    pub fn show(&self, span: Span) -> String {
        let source = self.sources.get(span.source as usize).map_or("", String::as_str);
        format!("{source}:{}:{}", span.line, span.column)
    }

    fn span(&self, place: &Place) -> Option<Span> {
        self.spans.get(place).copied()
    }

    /// The places of everything that has a name; the first of two with one name.
    pub(super) fn of(drafts: &Drafts, sources: Vec<String>) -> Self {
        let mut found = Self { sources, spans: BTreeMap::new() };
        let mut add = |place: Place, span: Span| {
            found.spans.entry(place).or_insert(span);
        };
        for resource in &drafts.resources {
            let Some(id) = &resource.id else { continue };
            add(Place::Resource(id.value.clone()), id.span);
            if let Some(matcher) = &resource.matcher.value {
                add(Place::Match(id.value.clone()), matcher.path.span);
            }
        }
        for id in drafts.limits.iter().filter_map(|limit| limit.id.as_ref()) {
            add(Place::Limit(id.value.clone()), id.span);
        }
        for id in drafts.idempotency.iter().filter_map(|rule| rule.id.as_ref()) {
            add(Place::Idempotency(id.value.clone()), id.span);
        }
        for id in drafts.breakers.iter().filter_map(|breaker| breaker.id.as_ref()) {
            add(Place::Breaker(id.value.clone()), id.span);
        }
        for id in drafts.segments.iter().filter_map(|segment| segment.id.as_ref()) {
            add(Place::Segment(id.value.clone()), id.span);
        }
        for flag in &drafts.flags {
            let Some(key) = &flag.key else { continue };
            add(Place::Flag(key.value.clone()), key.span);
            for rule in flag.rules.value.iter().flat_map(|rules| &rules.items) {
                if let Some(id) = &rule.value.id {
                    add(Place::FlagRule(key.value.clone(), id.value.clone()), id.span);
                }
            }
        }
        found
    }
}
