//! Breakers: what changes, and what they remember.

use super::{Changes, Section, Severity, StateEffect, What, pairs};
use crate::breaker::Policy;
use crate::rule::RuleSet;
use crate::rule::model::{Breaker, FailureKind, Fallback, FallbackBody, Trip};
use crate::rule::render;

/// What becomes of a breaker under new rules. The breakers of a process do as this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerCarry {
    /// The rule is the same: the breaker is not touched at all.
    Untouched,
    /// It keeps its state, so that an open one stays open, and its results.
    Keep,
    /// It keeps its state. Its window starts empty, because results were judged or kept by other
    /// measures: another window, other failures, another threshold for "slow".
    KeepState,
    /// Other things have breakers of their own now. Their windows start empty, and each starts in the
    /// state of the one so far that was furthest from closed: nothing closes in silence.
    Rekeyed,
}

/// What becomes of a breaker that is replaced by another with the same id.
pub fn breaker_effect(old: &Breaker, new: &Breaker) -> BreakerCarry {
    if old == new {
        BreakerCarry::Untouched
    } else if old.per_upstream_host != new.per_upstream_host {
        BreakerCarry::Rekeyed
    } else if Policy::new(old).counts_like(&Policy::new(new)) {
        BreakerCarry::Keep
    } else {
        BreakerCarry::KeepState
    }
}

pub(super) fn diff(old: &RuleSet, new: &RuleSet, changes: &mut Changes) {
    let pairs = pairs(&old.breakers, &new.breakers, |breaker| &breaker.id);
    for (before, after) in pairs.both {
        changed(before, after, changes);
    }
    for breaker in pairs.removed {
        let detail =
            format!("calls of {} are no longer guarded by it", render::resources(&breaker.resources));
        let mut entry = changes.entry(Section::Breaker, &breaker.id);
        entry.push(What::Removed, Some(detail), StateEffect::Dropped, Severity::Warning);
    }
    for breaker in pairs.added {
        let detail =
            format!("calls of {} are guarded, and it starts closed", render::resources(&breaker.resources));
        let mut entry = changes.entry(Section::Breaker, &breaker.id);
        entry.push(What::Added, Some(detail), StateEffect::None, Severity::Info);
    }
}

fn changed(old: &Breaker, new: &Breaker, changes: &mut Changes) {
    let effect = match breaker_effect(old, new) {
        BreakerCarry::Untouched => return,
        BreakerCarry::Keep => StateEffect::Keeps,
        BreakerCarry::KeepState => StateEffect::WindowFresh,
        BreakerCarry::Rekeyed => StateEffect::Inherited,
    };
    let from = changes.0.len();
    let mut entry = changes.entry(Section::Breaker, &new.id);
    let mut field = |name: &str, text: &dyn Fn(&Breaker) -> String| {
        entry.field(name, &text(old), &text(new), effect.clone());
    };
    field("resources", &|breaker| render::resources(&breaker.resources));
    field("key", &|breaker| if breaker.per_upstream_host { "upstream_host" } else { "none" }.to_owned());
    field("failure", &|breaker| join(&breaker.failure, |kind: &FailureKind| render::failure(*kind)));
    field("trip", &|breaker| join(&breaker.trip, trip));
    field("min_requests", &|breaker| breaker.min_requests.to_string());
    field("window", &|breaker| render::duration(breaker.window));
    field("open_for", &|breaker| render::duration(breaker.open_for));
    field("max_open", &|breaker| render::duration(breaker.max_open));
    field("half_open probes", &|breaker| breaker.half_open.probes.to_string());
    field("half_open probe_timeout", &|breaker| render::duration(breaker.half_open.probe_timeout));
    field("fallback", &|breaker| match breaker.fallback.as_slice() {
        [] => "none".to_owned(),
        some => join(some, fallback),
    });
    if effect == StateEffect::Inherited {
        for change in &mut changes.0[from..] {
            change.warn();
        }
    }
}

fn join<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn trip(trip: &Trip) -> String {
    match trip {
        Trip::SlowRatio { slower_than, at_least } => {
            format!("{}% slower than {}", render::percent(*at_least), render::duration(*slower_than))
        }
        Trip::ErrorRatio { at_least } => format!("{}% errors", render::percent(*at_least)),
        Trip::ErrorCount { at_least } => format!("{at_least} errors"),
    }
}

fn fallback(fallback: &Fallback) -> String {
    match fallback {
        Fallback::Cache { ttl } => format!("cache for {}", render::duration(*ttl)),
        Fallback::Respond { status, body } => match body {
            FallbackBody::Empty => format!("respond {status}"),
            FallbackBody::Json(value) => format!("respond {status} {value}"),
            FallbackBody::Text(text) => format!("respond {status} {}", crate::rule::json::quote(text)),
        },
    }
}
