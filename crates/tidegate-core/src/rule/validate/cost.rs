//! Conditions that would cost too much: nested too deeply, or too many tests once their segments are
//! written out. The evaluator itself says so, which keeps the bounds in one place.

use crate::document::{Severity, Span};
use crate::rollout::condition::{Compiled, ConditionError, Segments};
use crate::rule::model::{Condition, RuleSet};
use crate::rule::positions::{Finding, Positions};

/// Reports segments, flag rules and limits with such conditions.
pub(super) fn conditions(rules: &RuleSet, positions: &Positions) -> Vec<Finding> {
    let mut found = Vec::new();
    let segments = Segments::compile(&rules.segments).unwrap_or_else(|errors| {
        for (segment, error) in &errors {
            found.extend(finding(error, positions.segment(segment)));
        }
        Segments::default()
    });
    let too_costly = |condition: &Condition, span: Option<Span>| {
        Compiled::new(condition, &segments).err().and_then(|error| finding(&error, span))
    };
    for flag in &rules.flags {
        for rule in &flag.rules {
            let when = rule.when.as_ref();
            found.extend(when.and_then(|when| too_costly(when, positions.flag_rule(&flag.key, &rule.id))));
        }
    }
    for limit in &rules.limits {
        for one in &limit.overrides {
            found.extend(too_costly(&one.when, positions.limit(&limit.id)));
        }
    }
    found
}

/// Only what is too much. Everything else was reported where it stands, or is a consequence of that.
fn finding(error: &ConditionError, span: Option<Span>) -> Option<Finding> {
    if !matches!(error, ConditionError::TooDeep | ConditionError::TooManyTests) {
        return None;
    }
    Some(Finding { severity: Severity::Fault, span: span?, message: error.problem(), help: error.help() })
}
