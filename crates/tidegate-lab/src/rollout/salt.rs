//! `rollout.salt`: two flags hit independent subjects. The naive way hashes the subject alone, so that
//! every flag hits the same ones.

use tidegate_core::rollout::bucket::bucket;

use super::{DARK_MODE, NEW_CHECKOUT, SUBJECTS, count, drawn, hits, rules, subject};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Share, Spec};
use crate::{LabError, Report, Row, Run};

const PERCENTAGE: Param<Share> = Param {
    name: "percentage",
    about: "the share that each flag hits",
    default: Share::percent(10),
    low: Share::NONE,
    high: Share::ALL,
};
const PARAMS: &[Spec] = &[Spec::Count(SUBJECTS), Spec::Share(PERCENTAGE)];

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.salt",
    about: "how many subjects two flags at the same percentage both hit",
    params: PARAMS,
    fits: None,
    run: |params, run| block_on(experiment(params, run)),
};

/// What is hashed is `:u0`, whichever flag asks.
fn naive(_flag: &str, number: u64, percentage: Share) -> bool {
    bucket("", &subject(number)) < percentage.0
}

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (subjects, percentage) = (params.count(&SUBJECTS), params.share(&PERCENTAGE));
    let known = params.are_default(PARAMS);
    run.steps(3);
    let both_naive =
        |number: &u64| [NEW_CHECKOUT, DARK_MODE].iter().all(|flag| naive(flag, *number, percentage));
    let in_common = (0..subjects).filter(both_naive).count();
    run.step();
    let (node, _) =
        Node::on_manual_clock(&rules(&[(NEW_CHECKOUT, percentage), (DARK_MODE, percentage)])).await?;
    let checkout = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
    run.step();
    let dark = hits(&*node.plan()?, DARK_MODE, subjects)?;
    run.step();
    let both: Vec<bool> = checkout.iter().zip(&dark).map(|(a, b)| *a && *b).collect();
    let ratio = percentage.ratio();
    Ok(Report::of(vec![
        Row::new(format!("subjects that both flags hit at {percentage} %"))
            .naive(in_common, drawn(known.then_some(10_085), subjects, ratio))
            .tidegate(count(&both), drawn(known.then_some(1_027), subjects, ratio * ratio)),
    ]))
}
