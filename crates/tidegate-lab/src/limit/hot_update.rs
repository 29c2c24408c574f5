//! `limit.hot-update`: rules that change, well and badly, in the middle of a window.
//!
//! The rule file is rewritten under a running node: the rule service loads, refuses or publishes it,
//! and the calls go through [`tidegate::pipeline`] with the clock standing still.

use super::{passes, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const CALLS: Param<u64> =
    Param { name: "calls", about: "calls in one window", default: 1_500, low: 1, high: 100_000 };
const LIMIT: Param<u64> =
    Param { name: "limit", about: "the first limit", default: 1_000, low: 1, high: 100_000 };
const CHANGED: Param<u64> =
    Param { name: "changed", about: "the second limit", default: 800, low: 1, high: 100_000 };
const BAD_AFTER: Param<u64> =
    Param {
        name: "bad-after", about: "calls before the rule with −5", default: 300, low: 0, high: 100_000
    };
const CHANGE_AFTER: Param<u64> = Param {
    name: "change-after",
    about: "calls before the second limit",
    default: 600,
    low: 0,
    high: 100_000,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "limit.hot-update",
    about: "a bad rule and then a lower limit, in the middle of a window",
    params: &[
        Spec::Count(CALLS),
        Spec::Count(LIMIT),
        Spec::Count(CHANGED),
        Spec::Count(BAD_AFTER),
        Spec::Count(CHANGE_AFTER),
    ],
    fits: Some(fits),
    run: |params, run| block_on(experiment(params, run)),
};

fn window(limit: &str) -> String {
    rules(&format!("fixed_window: {{ limit: {limit}, window: 1h }}"))
}

fn fits(params: &Params) -> Result<(), String> {
    let (bad_after, change_after) = (params.count(&BAD_AFTER), params.count(&CHANGE_AFTER));
    if bad_after > change_after || change_after > params.count(&CALLS) {
        return Err("the bad rule comes first, then the second limit, both before the last call: set bad-after ≤ change-after ≤ calls".to_owned());
    }
    Ok(())
}

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (calls, limit, changed) = (params.count(&CALLS), params.count(&LIMIT), params.count(&CHANGED));
    let (bad_after, change_after) = (params.count(&BAD_AFTER), params.count(&CHANGE_AFTER));
    let used = change_after.min(limit);
    let expected = used + (calls - change_after).min(changed.saturating_sub(used));

    run.steps(3);
    let (node, _clock) = Node::on_manual_clock(&window(&limit.to_string())).await?;
    let mut passed = burst(&node, bad_after).await?;
    run.step();
    let refused = node.edit(&window("-5")).await?;
    passed += burst(&node, change_after - bad_after).await?;
    run.step();
    let accepted = node.edit(&window(&changed.to_string())).await?;
    passed += burst(&node, calls - change_after).await?;
    run.step();

    let faults = refused.refusal.as_ref().map_or(0, |refusal| refusal.faults);
    let next = if changed == limit { 1 } else { 2 };
    let report = Report::of(vec![
        Row::new("version in force after the rule with −5")
            .tidegate(refused.version, Expectation::exactly(1_u64)),
        Row::new("faults reported for it").tidegate(faults, Expectation::exactly(1_u64)),
        Row::new("version in force after the second limit")
            .tidegate(accepted.version, Expectation::exactly(next as u64)),
        Row::new("calls that pass in all").tidegate(passed, Expectation::exactly(expected)),
    ]);
    Ok(match node.refused(&refused) {
        Some(line) => report.note(format!("refused: {line}")),
        None => report,
    })
}

async fn burst(node: &Node, calls: u64) -> Result<u64, LabError> {
    let mut passed = 0;
    for _ in 0..calls {
        passed += u64::from(passes(&node.gates).await?);
    }
    Ok(passed)
}
