//! `rollout.propagation`: two nodes, one of which learns of a new version late, and subjects whose calls
//! alternate between them. Both are Tidegate nodes on injected clocks; the naive part is that nothing
//! keeps them together.

use std::time::Duration;

use super::{NEW_CHECKOUT, drawn, hits, rules};
use crate::experiment::Experiment;
use crate::node::{Node, START, block_on};
use crate::params::{Param, Params, Share, Spec};
use crate::{LabError, Report, Row, Run};

const SUBJECTS: Param<u64> =
    Param { name: "subjects", about: "subjects u0, u1, …", default: 10_000, low: 1, high: 200_000 };
const FROM: Param<Share> = Param {
    name: "from",
    about: "the old percentage",
    default: Share::percent(10),
    low: Share::NONE,
    high: Share::ALL,
};
const TO: Param<Share> =
    Param { name: "to", about: "the new percentage", default: Share::percent(50), ..FROM };
const LATE: Param<Duration> = Param {
    name: "late",
    about: "how long the second node still runs the old version",
    default: Duration::from_secs(30),
    low: Duration::ZERO,
    high: Duration::from_mins(1),
};
const PARAMS: &[Spec] = &[Spec::Count(SUBJECTS), Spec::Share(FROM), Spec::Share(TO), Spec::Span(LATE)];

/// Calls of each subject, and the time between two.
const CALLS: u32 = 6;
const BETWEEN: Duration = Duration::from_secs(10);

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.propagation",
    about: "a node that is late with a new version, and subjects who meet both nodes in turn",
    params: PARAMS,
    fits: None,
    run: |params, run| block_on(experiment(params, run)),
};

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (subjects, from, to) = (params.count(&SUBJECTS), params.share(&FROM), params.share(&TO));
    let late = params.span(&LATE);
    run.steps(u64::from(CALLS));
    let old = rules(&[(NEW_CHECKOUT, from)]);
    let new = rules(&[(NEW_CHECKOUT, to)]);
    let nodes = [Node::on_manual_clock(&old).await?, Node::on_manual_clock(&old).await?];
    nodes[0].0.edit(&new).await?;
    let mut last: Option<Vec<bool>> = None;
    let mut changes = vec![0_u32; subjects as usize];
    for call in 0..CALLS {
        let (node, _) = &nodes[call as usize % nodes.len()];
        if nodes[1].0.gates.env().now().since(START) >= late {
            nodes[1].0.edit(&new).await?;
        }
        let answers = hits(&*node.plan()?, NEW_CHECKOUT, subjects)?;
        if let Some(last) = &last {
            for (count, (a, b)) in changes.iter_mut().zip(last.iter().zip(&answers)) {
                *count += u32::from(a != b);
            }
        }
        last = Some(answers);
        for (_, clock) in &nodes {
            clock.advance(BETWEEN);
        }
        run.step();
    }
    let flipped = changes.iter().filter(|count| **count > 1).count() as u64;
    let total: u64 = changes.iter().map(|count| u64::from(*count)).sum();
    let known = params.are_default(PARAMS);
    // The second node answers every other call, and the first of them that it answers by the new
    // version ends the changing.
    let old_answers = (0..CALLS).filter(|call| call % 2 == 1 && BETWEEN * *call < late).count() as u64;
    let moved = f64::from(from.0.abs_diff(to.0)) / 10_000.0;
    let some = if old_answers > 0 { moved } else { 0.0 };
    let last_is_old = old_answers == u64::from(CALLS / 2);
    let each = (2 * old_answers).saturating_sub(u64::from(last_is_old));
    Ok(Report::of(vec![
        Row::new("subjects that flip back and forth").naive(flipped, drawn(known.then_some(3_961), subjects, some)),
        Row::new("changes of an answer").naive(total, scaled(known.then_some(7_922), subjects, moved, each)),
    ])
    .note("a pinned version and a publish with `activate_at`, which hold the nodes together, are not part of this release: Tidegate's column comes with them"))
}

/// What `drawn` says, each draw counted `each` times.
fn scaled(known: Option<u64>, draws: u64, ratio: f64, each: u64) -> crate::Expectation {
    use crate::{Expectation, Figure};
    match drawn(known, draws, ratio) {
        Expectation::Between(Figure::Count(low), Figure::Count(high)) => {
            Expectation::between(low * each, high * each)
        }
        other => other,
    }
}
