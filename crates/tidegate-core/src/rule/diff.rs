//! What changes, and for whom, when one rule set takes the place of another, and what becomes of the
//! state that was kept under the old one.
//!
//! The same functions that word a change here decide what the gates carry over: [`state_effect`] and
//! [`algorithm_effect`] for counters, [`breaker_effect`] for breakers.

mod breaker;
mod flag;
mod idempotency;
mod limit;
mod resource;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

use super::RuleSet;

pub use self::breaker::{BreakerCarry, breaker_effect};
pub use self::limit::{Carry, FreshReason, algorithm_effect, state_effect};

/// The part of a rule document that a change lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Section {
    /// `resources`.
    Resource,
    /// `limits`.
    Limit,
    /// `idempotency`.
    Idempotency,
    /// `breakers`.
    Breaker,
    /// `segments`.
    Segment,
    /// `flags`.
    Flag,
}

impl Section {
    /// What one entry of it is called.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Limit => "limit",
            Self::Idempotency => "idempotency",
            Self::Breaker => "breaker",
            Self::Segment => "segment",
            Self::Flag => "flag",
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it lies.
    pub section: Section,
    /// The id (or key) of the entry.
    pub id: String,
    /// What was done.
    pub what: What,
    /// For whom, and what they will see; a sentence without its full stop.
    pub detail: Option<String>,
    /// What becomes of the state.
    pub effect: StateEffect,
    /// How closely to look at it.
    pub severity: Severity,
}

/// What was done to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// One field has another value; values are spelled as documents spell them.
    Changed {
        /// The field's name, or a short path such as `rule ramp percentage`.
        field: String,
        /// The value so far.
        old: String,
        /// The value from now on.
        new: String,
    },
}

/// What becomes of the state that an entry has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateEffect {
    /// The change touches no state.
    None,
    /// It is carried over: counters keep what was used, records what they were claimed under, breakers
    /// their state and window.
    Keeps,
    /// Counters start empty.
    Fresh {
        /// Why, in the order in which the reasons are looked for.
        why: Vec<FreshReason>,
    },
    /// A breaker keeps its state (an open one stays open), and its window starts empty.
    WindowFresh,
    /// Breakers start with empty windows, in the state of the one that was furthest from closed.
    Inherited,
    /// Idempotency records are no longer found: a retry of an earlier request executes again.
    Forgets {
        /// The operation that they were made under.
        operation: String,
    },
    /// The entry is gone, and its state with it.
    Dropped,
}

/// How closely to look at a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// To be read.
    Info,
    /// State or protection is lost.
    Warning,
}

/// All changes from `old` to `new`, section by section; within one, what is still there first, in the
/// new order, then what was removed, then what was added.
///
/// An entry that is the same in both is not mentioned, wherever it stands.
pub fn diff(old: &RuleSet, new: &RuleSet) -> Vec<Change> {
    let mut changes = Changes::default();
    resource::diff(old, new, &mut changes);
    limit::diff(old, new, &mut changes);
    idempotency::diff(old, new, &mut changes);
    breaker::diff(old, new, &mut changes);
    flag::segments(old, new, &mut changes);
    flag::diff(old, new, &mut changes);
    changes.0
}

impl fmt::Display for Change {
    /// `limit pay-per-channel: limit 1000 → 800 per 1s; counters keep what was used`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.section.noun(), self.id)?;
        match &self.what {
            What::Added => f.write_str("added")?,
            What::Removed => f.write_str("removed")?,
            What::Changed { field, old, new } => write!(f, "{field} {old} → {new}")?,
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        match &self.effect {
            StateEffect::None => Ok(()),
            StateEffect::Keeps => match self.section {
                Section::Limit => f.write_str("; counters keep what was used"),
                Section::Idempotency => f.write_str("; records keep what they were claimed under"),
                Section::Breaker => f.write_str("; state and window are kept"),
                Section::Resource | Section::Segment | Section::Flag => f.write_str("; state is kept"),
            },
            StateEffect::Fresh { why } => {
                f.write_str("; counters start fresh: ")?;
                why.iter()
                    .enumerate()
                    .try_for_each(|(index, why)| write!(f, "{}{why}", if index == 0 { "" } else { ", and " }))
            }
            StateEffect::WindowFresh => f.write_str("; the state is kept, the window starts empty"),
            StateEffect::Inherited => f.write_str(
                "; its breakers start with empty windows, in the state of the one that was furthest from closed",
            ),
            StateEffect::Forgets { operation } => write!(
                f,
                "; records made under operation {operation} are forgotten: a retry of an earlier request executes again"
            ),
            StateEffect::Dropped => match self.section {
                Section::Limit => f.write_str("; its counters are dropped"),
                Section::Breaker => f.write_str("; an open one stops refusing"),
                _ => f.write_str("; its state is dropped"),
            },
        }
    }
}

/// The list under construction.
#[derive(Default)]
struct Changes(Vec<Change>);

/// An entry while its changes are collected.
struct Entry<'a> {
    section: Section,
    id: &'a str,
    changes: &'a mut Changes,
}

impl Changes {
    fn entry<'a>(&'a mut self, section: Section, id: &'a str) -> Entry<'a> {
        Entry { section, id, changes: self }
    }
}

impl Entry<'_> {
    fn push(&mut self, what: What, detail: Option<String>, effect: StateEffect, severity: Severity) {
        let (section, id) = (self.section, self.id.to_owned());
        self.changes.0.push(Change { section, id, what, detail, effect, severity });
    }

    /// Notes a field whose text differs. Gives the change for being made more precise.
    fn field(&mut self, field: &str, old: &str, new: &str, effect: StateEffect) -> Option<&mut Change> {
        if old == new {
            return None;
        }
        let what = What::Changed { field: field.to_owned(), old: old.to_owned(), new: new.to_owned() };
        self.push(what, None, effect, Severity::Info);
        self.changes.0.last_mut()
    }
}

impl Change {
    fn detail(&mut self, detail: impl Into<String>) -> &mut Self {
        self.detail = Some(detail.into());
        self
    }

    fn warn(&mut self) -> &mut Self {
        self.severity = Severity::Warning;
        self
    }
}

/// Entries by name: those in both, in the new order; those only in `old`; those only in `new`.
struct Pairs<'a, T> {
    both: Vec<(&'a T, &'a T)>,
    removed: Vec<&'a T>,
    added: Vec<&'a T>,
}

fn pairs<'a, T>(old: &'a [T], new: &'a [T], name: impl Fn(&T) -> &str) -> Pairs<'a, T> {
    let index =
        |items: &'a [T]| -> HashMap<&'a str, &'a T> { items.iter().map(|item| (name(item), item)).collect() };
    let (before, after) = (index(old), index(new));
    Pairs {
        both: new.iter().filter_map(|item| Some((*before.get(name(item))?, item))).collect(),
        removed: old.iter().filter(|item| !after.contains_key(name(item))).collect(),
        added: new.iter().filter(|item| !before.contains_key(name(item))).collect(),
    }
}

/// `a, b, c`, or `none`.
fn names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
