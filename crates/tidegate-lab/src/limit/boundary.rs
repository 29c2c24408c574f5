//! `limit.boundary`: what passes around the boundary of a window.
//!
//! The naive way is a fixed window by hand. Tidegate's calls go through [`tidegate::pipeline`] with the
//! clock injected, one node for each algorithm.

use std::collections::HashMap;
use std::time::Duration;

use super::{passes, rules};
use crate::experiment::Experiment;
use crate::node::{Node, START, block_on};
use crate::params::{Param, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const LIMIT: Param<u64> = Param { name: "limit", about: "calls a second", default: 100, low: 1, high: 5_000 };
const CALLS: Param<u64> =
    Param { name: "calls", about: "calls at each of the two moments", default: 100, low: 1, high: 5_000 };

/// The two moments, in milliseconds from the beginning of a window of one second.
const MOMENTS: [u64; 2] = [990, 1000];
const WINDOW: u64 = 1000;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "limit.boundary",
    about: "one burst at 990 ms and one at 1000 ms, against a limit for each second",
    params: &[Spec::Count(LIMIT), Spec::Count(CALLS)],
    fits: None,
    run: |params, run| block_on(experiment(params.count(&LIMIT), params.count(&CALLS), run)),
};

async fn experiment(limit: u64, calls: u64, run: &mut Run<'_>) -> Result<Report, LabError> {
    run.steps(4);
    let by_hand = naive(limit, calls);
    run.step();
    let mut rows = Vec::new();
    let twice = 2 * calls.min(limit);
    let second = (limit - calls.min(limit) + limit * (MOMENTS[1] - MOMENTS[0]) / WINDOW).min(limit);
    let bucket = calls.min(limit) + calls.min(second);
    for (name, algorithm, expected) in [
        ("fixed window", format!("fixed_window: {{ limit: {limit}, window: 1s }}"), twice),
        ("sliding log", format!("sliding_log: {{ limit: {limit}, window: 1s }}"), limit.min(2 * calls)),
        ("token bucket", format!("token_bucket: {{ capacity: {limit}, refill: {limit}/s }}"), bucket),
    ] {
        let passed = tidegate(&rules(&algorithm), calls).await?;
        for (what, naive, figure) in [
            ("calls that pass", by_hand.len() as u64, passed.len() as u64),
            ("most in any second", most_in_a_window(&by_hand), most_in_a_window(&passed)),
        ] {
            let row = Row::new(format!("{name}: {what}"));
            let row = row.naive(naive, Expectation::exactly(twice));
            rows.push(row.tidegate(figure, Expectation::exactly(expected)));
        }
        run.step();
    }
    rows.push(
        Row::new("warnings about the fixed window at load")
            .tidegate(warnings(limit).await?, Expectation::exactly(1_u64)),
    );
    Ok(Report::of(rows).note("a fixed window promises its limit in each aligned window, and so up to twice that in any; loading warns where the resource has an idempotency rule"))
}

/// When each admitted call was made, in milliseconds.
type Passed = Vec<u64>;

/// A counter for each second, by hand.
fn naive(limit: u64, calls: u64) -> Passed {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut passed = Vec::new();
    for at in MOMENTS {
        for _ in 0..calls {
            let count = counts.entry(at / WINDOW).or_default();
            if *count < limit {
                *count += 1;
                passed.push(at);
            }
        }
    }
    passed
}

async fn tidegate(rules: &str, calls: u64) -> Result<Passed, LabError> {
    let (node, clock) = Node::on_manual_clock(rules).await?;
    let mut passed = Vec::new();
    for at in MOMENTS {
        let now = node.gates.env().now().since(START);
        clock.advance(Duration::from_millis(at).saturating_sub(now));
        for _ in 0..calls {
            if passes(&node.gates).await? {
                passed.push(at);
            }
        }
    }
    Ok(passed)
}

/// The most calls of any span of one second.
fn most_in_a_window(passed: &[u64]) -> u64 {
    let from = |start: &u64| passed.iter().filter(|at| (*start..start + WINDOW).contains(at)).count();
    MOMENTS.iter().map(from).max().unwrap_or(0) as u64
}

/// How often loading warns that a fixed window lets twice its limit pass.
async fn warnings(limit: u64) -> Result<u64, LabError> {
    let rules = format!(
        "apiVersion: tidegate/v1
resources:
  - id: pay
    match: {{ methods: [POST], path: /pay }}
    attributes: {{ user: {{ from: header.x-user, missing: reject }} }}
limits:
  - {{ id: pay-limit, resources: [pay], fixed_window: {{ limit: {limit}, window: 1s }} }}
idempotency:
  - {{ id: pay-once, resources: [pay], scope: [user], key: {{ from: header.idempotency-key, required: true }} }}
"
    );
    let (node, _) = Node::on_manual_clock(&rules).await?;
    let twice = |warning: &&String| warning.contains("up to twice its limit");
    Ok(node.status().warnings.iter().filter(twice).count() as u64)
}
