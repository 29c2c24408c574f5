//! Limits: what changes, and whether counters survive it.

use std::fmt;
use std::time::Duration;

use super::{Changes, Entry, Section, StateEffect, What, names, pairs};
use crate::rule::RuleSet;
use crate::rule::diff::Severity;
use crate::rule::model::{
    AfterStoreLoss, Algorithm, Cost, Limit, LimitOverride, Mode, OnStoreFailure, Sharing,
};
use crate::rule::render;
use crate::rule::version::{algorithm_fields, condition};

/// What becomes of a limit's counters under new rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carry {
    /// They go on: windows keep "used", buckets their debt, queues their places, concurrency its holders.
    Keep,
    /// They start empty.
    Fresh {
        /// At least one reason.
        why: Vec<FreshReason>,
    },
}

/// Why counters cannot be carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreshReason {
    /// Another algorithm counts.
    Algorithm {
        /// Its name so far.
        old: &'static str,
        /// Its name from now on.
        new: &'static str,
    },
    /// Counts of windows of one length say nothing about windows of another.
    Window {
        /// Its length so far.
        old: Duration,
        /// Its length from now on.
        new: Duration,
    },
    /// Counters are kept for other things.
    Key {
        /// The key so far.
        old: Vec<String>,
        /// The key from now on.
        new: Vec<String>,
    },
    /// Counters live elsewhere.
    Sharing {
        /// Where they lived.
        old: Sharing,
        /// Where they live from now on.
        new: Sharing,
    },
}

impl fmt::Display for FreshReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm { old, new } => write!(f, "the algorithm changed from {old} to {new}"),
            Self::Window { old, new } => {
                write!(f, "the window changed from {} to {}", render::duration(*old), render::duration(*new))
            }
            Self::Key { old, new } => write!(f, "the key changed from {} to {}", names(old), names(new)),
            Self::Sharing { old, new } => {
                write!(f, "the sharing changed from {} to {}", sharing(*old), sharing(*new))
            }
        }
    }
}

/// What becomes of the counters of a limit that is replaced by another with the same id.
///
/// A new algorithm, window, key or sharing starts fresh; everything else keeps. Keys under an override
/// follow [`algorithm_effect`] with the numbers that they were and will be under.
pub fn state_effect(old: &Limit, new: &Limit) -> Carry {
    let mut why = match algorithm_effect(&old.algorithm, &new.algorithm) {
        Carry::Keep => Vec::new(),
        Carry::Fresh { why } => why,
    };
    if old.key != new.key {
        why.push(FreshReason::Key { old: old.key.clone(), new: new.key.clone() });
    }
    if old.sharing != new.sharing {
        why.push(FreshReason::Sharing { old: old.sharing, new: new.sharing });
    }
    if why.is_empty() { Carry::Keep } else { Carry::Fresh { why } }
}

/// What becomes of one counter that was filled under `old` and is now judged by `new`.
pub fn algorithm_effect(old: &Algorithm, new: &Algorithm) -> Carry {
    if old.name() != new.name() {
        return Carry::Fresh { why: vec![FreshReason::Algorithm { old: old.name(), new: new.name() }] };
    }
    match (window(old), window(new)) {
        (Some(old), Some(new)) if old != new => Carry::Fresh { why: vec![FreshReason::Window { old, new }] },
        _ => Carry::Keep,
    }
}

fn window(algorithm: &Algorithm) -> Option<Duration> {
    match algorithm {
        Algorithm::FixedWindow { window, .. }
        | Algorithm::SlidingLog { window, .. }
        | Algorithm::SlidingWindow { window, .. } => Some(*window),
        Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } | Algorithm::Concurrency { .. } => None,
    }
}

pub(super) fn diff(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let pairs = pairs(&old.limits, &new.limits, |limit| &limit.id);
    for (before, after) in pairs.both {
        changed(before, after, &mut changes.entry(Section::Limit, &after.id));
    }
    for limit in pairs.removed {
        let detail = format!("{} no longer limited by it", covered(limit));
        let severity = if limit.mode == Mode::Enforce { Severity::Warning } else { Severity::Info };
        let mut entry = changes.entry(Section::Limit, &limit.id);
        entry.push(What::Removed, Some(detail), StateEffect::Dropped, severity);
    }
    for limit in pairs.added {
        let verb = match limit.mode {
            Mode::Enforce => "now refused beyond",
            Mode::Shadow => "counted, but not refused, beyond",
            Mode::Off => "not limited yet by",
        };
        let detail = format!("{} {verb} {}", covered(limit), numbers(&limit.algorithm));
        changes.entry(Section::Limit, &limit.id).push(
            What::Added,
            Some(detail),
            StateEffect::None,
            Severity::Info,
        );
    }
}

fn covered(limit: &Limit) -> String {
    let key = if limit.key.is_empty() { String::new() } else { format!(" by {}", names(&limit.key)) };
    format!("calls of {}{key} are", render::resources(&limit.resources))
}

fn changed(old: &Limit, new: &Limit, entry: &mut Entry<'_>) {
    let carry = match state_effect(old, new) {
        Carry::Keep => StateEffect::Keeps,
        Carry::Fresh { why } => StateEffect::Fresh { why },
    };
    let fresh = matches!(carry, StateEffect::Fresh { .. });
    let from = entry.changes.0.len();
    fields(&old.algorithm, &new.algorithm, &carry, entry);
    entry.field("key", &names(&old.key), &names(&new.key), carry.clone());
    entry.field("sharing", sharing(old.sharing), sharing(new.sharing), carry.clone());
    let overrides = |limit: &Limit| match limit.overrides.as_slice() {
        [] => "none".to_owned(),
        some => some.iter().map(override_text).collect::<Vec<_>>().join("; "),
    };
    if let Some(change) = entry.field("overrides", &overrides(old), &overrides(new), carry)
        && !fresh
    {
        change.detail("a key whose window is another one now starts fresh");
    }
    if fresh {
        for change in &mut entry.changes.0[from..] {
            change.warn();
        }
    }

    if let Some(change) = entry.field("mode", mode(old.mode), mode(new.mode), StateEffect::Keeps) {
        change.detail(match new.mode {
            Mode::Enforce => "it refuses from now on",
            Mode::Shadow => "it no longer refuses, and counts on",
            Mode::Off => "it neither refuses nor counts",
        });
        if old.mode == Mode::Enforce {
            change.warn();
        }
    }
    let (before, after) = (render::resources(&old.resources), render::resources(&new.resources));
    entry.field("resources", &before, &after, StateEffect::Keeps);
    entry.field("cost", &cost(&old.cost), &cost(&new.cost), StateEffect::Keeps);
    let (before, after) = (on_failure(old.on_store_failure), on_failure(new.on_store_failure));
    entry.field("on_store_failure", before, after, StateEffect::None);
    let (before, after) = (after_loss(old.after_store_loss), after_loss(new.after_store_loss));
    entry.field("after_store_loss", before, after, StateEffect::None);
    let text = |text: &Option<String>| text.as_deref().map_or("none".to_owned(), crate::rule::json::quote);
    entry.field("description", &text(&old.description), &text(&new.description), StateEffect::None);
    entry.field("owner", &text(&old.owner), &text(&new.owner), StateEffect::None);
}

/// The numbers of the algorithm, one by one where it is still the same.
fn fields(old: &Algorithm, new: &Algorithm, carry: &StateEffect, entry: &mut Entry<'_>) {
    let mut field = |name: &str, old: String, new: String| {
        entry.field(name, &old, &new, carry.clone());
    };
    match (old, new) {
        (
            Algorithm::TokenBucket { capacity: old_capacity, refill: old_refill },
            Algorithm::TokenBucket { capacity, refill },
        ) => {
            field("capacity", old_capacity.to_string(), capacity.to_string());
            field("refill", render::rate(*old_refill), render::rate(*refill));
        }
        (
            Algorithm::FixedWindow { limit: old_limit, window: old_window },
            Algorithm::FixedWindow { limit, window },
        )
        | (
            Algorithm::SlidingLog { limit: old_limit, window: old_window },
            Algorithm::SlidingLog { limit, window },
        )
        | (
            Algorithm::SlidingWindow { limit: old_limit, window: old_window },
            Algorithm::SlidingWindow { limit, window },
        ) => {
            if old_limit != limit {
                // The window is part of what a limit means.
                field("limit", old_limit.to_string(), format!("{limit} per {}", render::duration(*window)));
            }
            field("window", render::duration(*old_window), render::duration(*window));
        }
        (
            Algorithm::LeakyBucket { rate: old_rate, queue: old_queue },
            Algorithm::LeakyBucket { rate, queue },
        ) => {
            field("rate", render::rate(*old_rate), render::rate(*rate));
            field("queue", old_queue.to_string(), queue.to_string());
        }
        (Algorithm::Concurrency { max: old_max }, Algorithm::Concurrency { max }) => {
            field("max", old_max.to_string(), max.to_string());
        }
        _ => field("algorithm", numbers(old), numbers(new)),
    }
}

/// `token_bucket {"capacity": 20, "refill": "10/s"}`
fn numbers(algorithm: &Algorithm) -> String {
    format!("{} {}", algorithm.name(), algorithm_fields(algorithm).render())
}

fn override_text(other: &LimitOverride) -> String {
    format!("{} when {}", numbers(&other.algorithm), condition(&other.when).render())
}

fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Fixed(cost) => cost.to_string(),
        Cost::Attribute { from, default, max } => format!("{from} (default {default}, at most {max})"),
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

fn sharing(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Local => "local",
        Sharing::Exact => "exact",
        Sharing::Leased => "leased",
    }
}

fn on_failure(policy: Option<OnStoreFailure>) -> &'static str {
    match policy {
        None => "none",
        Some(OnStoreFailure::FailOpen) => "fail_open",
        Some(OnStoreFailure::FailClosed) => "fail_closed",
        Some(OnStoreFailure::LocalFallback) => "local_fallback",
    }
}

fn after_loss(after: AfterStoreLoss) -> &'static str {
    match after {
        AfterStoreLoss::Fresh => "fresh",
        AfterStoreLoss::Exhausted => "exhausted",
    }
}
