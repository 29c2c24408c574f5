//! `rollout.random`: a subject who asks twice. The naive way draws for each request.

use super::{NEW_CHECKOUT, differences, drawn, hits, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Share, Spec};
use crate::random::Random;
use crate::{Expectation, LabError, Report, Row, Run};

const SUBJECTS: Param<u64> = Param {
    name: "subjects",
    about: "subjects, each of whom asks twice",
    default: 10_000,
    low: 1,
    high: 1_000_000,
};
const PERCENTAGE: Param<Share> = Param {
    name: "percentage",
    about: "the share that is on",
    default: Share::percent(10),
    low: Share::NONE,
    high: Share::ALL,
};
const SEED: Param<u64> =
    Param { name: "seed", about: "of the naive draws", default: 1, low: 0, high: u64::MAX };

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.random",
    about: "subjects whose answer changes when they ask twice",
    params: &[Spec::Count(SUBJECTS), Spec::Share(PERCENTAGE), Spec::Count(SEED)],
    fits: None,
    run: |params, run| block_on(experiment(params, run)),
};

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (subjects, percentage) = (params.count(&SUBJECTS), params.share(&PERCENTAGE));
    let mut random = Random::new(params.count(&SEED));
    run.steps(2);
    let mut draw = || -> Vec<bool> { (0..subjects).map(|_| random.hundredths() < percentage.0).collect() };
    let naive = differences(&draw(), &draw());
    run.step();
    let (node, _) = Node::on_manual_clock(&rules(&[(NEW_CHECKOUT, percentage)])).await?;
    let ask = || hits(&*node.plan()?, NEW_CHECKOUT, subjects);
    let changed = differences(&ask()?, &ask()?);
    run.step();
    let p = percentage.ratio();
    Ok(Report::of(vec![
        Row::new("subjects whose second answer differs")
            .naive(naive, drawn(None, subjects, 2.0 * p * (1.0 - p)))
            .tidegate(changed, Expectation::exactly(0_u64)),
    ])
    .note("the naive figure is that of independent draws, about 2 × p × (1 − p) of the subjects, within five standard deviations"))
}
