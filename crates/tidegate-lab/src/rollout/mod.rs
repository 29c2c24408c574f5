//! Rollout: rules are put in force by the rule service, and each subject is evaluated on the plan in
//! force by the very function that the pipeline's rollout layer calls
//! ([`tidegate_core::rollout::Flags::evaluate_at`]).

pub(crate) mod propagation;
pub(crate) mod random;
pub(crate) mod refused;
pub(crate) mod reload;
pub(crate) mod rollback;
pub(crate) mod salt;
pub(crate) mod share;

use std::fmt::Write as _;

use tidegate_core::Value;
use tidegate_core::rule::compile::Plan;

use crate::error::About as _;
use crate::params::{Param, Share};
use crate::{Expectation, LabError};

/// The two flags of all rollout experiments.
const NEW_CHECKOUT: &str = "new-checkout";
const DARK_MODE: &str = "dark-mode";

const SUBJECTS: Param<u64> =
    Param { name: "subjects", about: "subjects u0, u1, …", default: 100_000, low: 1, high: 1_000_000 };

/// A document with flags at these percentages.
fn rules(flags: &[(&str, Share)]) -> String {
    let mut text = "apiVersion: tidegate/v1\nflags:\n".to_owned();
    for (flag, share) in flags {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  - {{ key: {flag}, default: \"off\", rules: [{{ id: ramp, priority: 10, percentage: {share}, serve: \"on\" }}] }}"
        );
    }
    text
}

fn subject(number: u64) -> String {
    format!("u{number}")
}

/// Who is on: one entry for each of the subjects.
fn hits(plan: &Plan, flag: &str, subjects: u64) -> Result<Vec<bool>, LabError> {
    let index =
        plan.flags.index(flag).ok_or_else(|| LabError::broken("the rules", format!("no flag {flag}")))?;
    let nothing: &[(&str, Value<'_>)] = &[];
    let on = |number| {
        let evaluation = plan.flags.evaluate_at(index, Some(&subject(number)), nothing);
        evaluation.map(|evaluation| evaluation.variant == "on").about("evaluating a flag")
    };
    (0..subjects).map(on).collect()
}

fn count(hits: &[bool]) -> u64 {
    hits.iter().filter(|hit| **hit).count() as u64
}

/// How many places hold different results.
fn differences(a: &[bool], b: &[bool]) -> u64 {
    a.iter().zip(b).filter(|(a, b)| a != b).count() as u64
}

/// The known figure where the parameters are the defaults; else what so many independent draws at
/// `ratio` come to, five standard deviations each way.
fn drawn(known: Option<u64>, draws: u64, ratio: f64) -> Expectation {
    if let Some(known) = known {
        return Expectation::exactly(known);
    }
    let mean = draws as f64 * ratio;
    let reach = 5.0 * (mean * (1.0 - ratio)).sqrt() + 1.0;
    let high = ((mean + reach).ceil() as u64).min(draws);
    Expectation::between((mean - reach).max(0.0).floor() as u64, high)
}
