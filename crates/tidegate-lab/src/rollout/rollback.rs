//! `rollout.rollback`: old rules are published again as a new version, and give every subject the old
//! answer. The rule store publishes, the rule service swaps.

use super::{NEW_CHECKOUT, SUBJECTS, differences, drawn, hits, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Share, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const FROM: Param<Share> = Param {
    name: "from",
    about: "the percentage of version 1",
    default: Share::percent(10),
    low: Share::NONE,
    high: Share::ALL,
};
const TO: Param<Share> =
    Param { name: "to", about: "the percentage of version 2", default: Share::percent(50), ..FROM };
const PARAMS: &[Spec] = &[Spec::Count(SUBJECTS), Spec::Share(FROM), Spec::Share(TO)];

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.rollback",
    about: "a percentage is raised and rolled back: every subject gets the old answer",
    params: PARAMS,
    fits: Some(fits),
    run: |params, run| block_on(experiment(params, run)),
};

fn fits(params: &Params) -> Result<(), String> {
    let differ = params.share(&FROM) != params.share(&TO);
    if differ { Ok(()) } else { Err("the second version differs from the first: set from ≠ to".to_owned()) }
}

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (subjects, from, to) = (params.count(&SUBJECTS), params.share(&FROM), params.share(&TO));
    let known = params.are_default(PARAMS);
    run.steps(3);
    let (node, _) = Node::on_manual_clock(&rules(&[(NEW_CHECKOUT, from)])).await?;
    let first = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    node.edit(&rules(&[(NEW_CHECKOUT, to)])).await?;
    let second = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let status = node.roll_back_to(1).await?;
    let third = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let moved = f64::from(from.0.abs_diff(to.0)) / 10_000.0;
    Ok(Report::of(vec![
        Row::new(format!("results that {from} % → {to} % changes"))
            .tidegate(differences(&first, &second), drawn(known.then_some(39_935), subjects, moved)),
        Row::new("version in force after the rollback").tidegate(status.version, Expectation::exactly(3_u64)),
        Row::new("results as in version 1 after it")
            .tidegate(subjects - differences(&first, &third), Expectation::exactly(subjects)),
    ]))
}
