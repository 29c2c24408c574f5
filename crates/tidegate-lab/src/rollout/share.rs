//! `rollout.share`: how many a percentage hits, and that raising it only adds.

use super::{NEW_CHECKOUT, SUBJECTS, count, drawn, hits, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Share, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const LOW: Param<Share> = Param {
    name: "low",
    about: "the first percentage",
    default: Share::percent(10),
    low: Share::NONE,
    high: Share::ALL,
};
const HIGH: Param<Share> =
    Param { name: "high", about: "the second percentage", default: Share::percent(20), ..LOW };
const PARAMS: &[Spec] = &[Spec::Count(SUBJECTS), Spec::Share(LOW), Spec::Share(HIGH)];

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.share",
    about: "how many of the subjects a percentage hits, and who stays when it is raised",
    params: PARAMS,
    fits: Some(fits),
    run: |params, run| block_on(experiment(params, run)),
};

fn fits(params: &Params) -> Result<(), String> {
    let raised = params.share(&LOW) <= params.share(&HIGH);
    if raised { Ok(()) } else { Err("the percentage is raised: set low ≤ high".to_owned()) }
}

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (subjects, low, high) = (params.count(&SUBJECTS), params.share(&LOW), params.share(&HIGH));
    let known = params.are_default(PARAMS);
    run.steps(2);
    let (node, _) = Node::on_manual_clock(&rules(&[(NEW_CHECKOUT, low)])).await?;
    let before = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    node.edit(&rules(&[(NEW_CHECKOUT, high)])).await?;
    let after = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let lost = before.iter().zip(&after).filter(|(before, after)| **before && !**after).count();
    Ok(Report::of(vec![
        Row::new(format!("subjects hit at {low} %"))
            .tidegate(count(&before), drawn(known.then_some(10_066), subjects, low.ratio())),
        Row::new(format!("subjects hit at {high} %"))
            .tidegate(count(&after), drawn(known.then_some(19_977), subjects, high.ratio())),
        Row::new(format!("hit at {low} % and not at {high} %")).tidegate(lost, Expectation::exactly(0_u64)),
    ]))
}
