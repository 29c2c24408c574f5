//! `rollout.reload`: the same document loaded again changes nobody's answer. It is loaded by a running
//! node that finds its file rewritten, and by a second node that starts from nothing.

use super::{NEW_CHECKOUT, SUBJECTS, differences, hits, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Share, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const PERCENTAGE: Param<Share> = Param {
    name: "percentage",
    about: "the share that is on",
    default: Share::percent(10),
    low: Share::NONE,
    high: Share::ALL,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.reload",
    about: "the same document loaded again: nobody's answer changes",
    params: &[Spec::Count(SUBJECTS), Spec::Share(PERCENTAGE)],
    fits: None,
    run: |params, run| block_on(experiment(params, run)),
};

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (subjects, percentage) = (params.count(&SUBJECTS), params.share(&PERCENTAGE));
    run.steps(3);
    let text = rules(&[(NEW_CHECKOUT, percentage)]);
    let (node, _) = Node::on_manual_clock(&text).await?;
    let before = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let status = node.edit(&format!("# saved again\n{text}")).await?;
    let again = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let (other, _) = Node::on_manual_clock(&text).await?;
    let elsewhere = hits(&*other.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let same = |results: &[bool]| subjects - differences(&before, results);
    Ok(Report::of(vec![
        Row::new("same results after saving the file again")
            .tidegate(same(&again), Expectation::exactly(subjects)),
        Row::new("version in force after it").tidegate(status.version, Expectation::exactly(1_u64)),
        Row::new("same results on a node that starts anew")
            .tidegate(same(&elsewhere), Expectation::exactly(subjects)),
    ]))
}
