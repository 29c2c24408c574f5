//! `limit.skew`: a limit over instances of which one has most of the traffic.
//!
//! The naive way gives each instance an equal part and runs it through the same pipeline. Tidegate's instances
//! share the limit on a real Redis.

use std::time::Duration;

use tidegate::Gates;

use super::{passes, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Spec};
use crate::redis::Server;
use crate::{Expectation, LabError, Report, Row, Run};

const LIMIT: Param<u64> =
    Param { name: "limit", about: "calls that may pass", default: 1_000, low: 4, high: 100_000 };
const CALLS: Param<u64> =
    Param { name: "calls", about: "calls in all", default: 2_000, low: 10, high: 100_000 };

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "limit.skew",
    about: "one of four instances gets 70 % of the calls",
    params: &[Spec::Count(LIMIT), Spec::Count(CALLS)],
    fits: None,
    run: experiment,
};

/// Percent of the calls, for each instance.
const SPLIT: [u64; 4] = [70, 10, 10, 10];
/// Longer than any stall of the machine: nothing is to fail here.
const PATIENCE: Duration = Duration::from_secs(20);

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (limit, calls) = (params.count(&LIMIT), params.count(&CALLS));
    let split = SPLIT.map(|percent| calls * percent / 100);
    let part = limit / SPLIT.len() as u64;
    let by_hand: u64 = split.iter().map(|calls| part.min(*calls)).sum();
    run.steps(2);
    let naive = block_on(divided(part, split))?;
    run.step();
    let passed = block_on(shared(limit, split))?;
    run.step();
    let exact = limit.min(split.iter().sum());
    Ok(Report::of(vec![
        Row::new("calls that pass")
            .naive(naive.iter().sum::<u64>(), Expectation::exactly(by_hand))
            .tidegate(passed.iter().sum::<u64>(), Expectation::exactly(exact)),
        Row::new("calls that the busy instance refuses while there is room")
            .naive(split[0] - naive[0], Expectation::exactly(split[0].saturating_sub(part)))
            .tidegate(refused_early(limit, split, &passed), Expectation::exactly(0_u64)),
    ]))
}

/// What the busy instance refused although less than the limit had passed in all.
fn refused_early(limit: u64, split: [u64; 4], passed: &[u64; 4]) -> u64 {
    let all: u64 = passed.iter().sum();
    if all < limit { split[0] - passed[0] } else { 0 }
}

async fn divided(part: u64, split: [u64; 4]) -> Result<[u64; 4], LabError> {
    let rules = rules(&format!("token_bucket: {{ capacity: {part}, refill: 1/h }}"));
    let mut nodes = Vec::new();
    for _ in split {
        nodes.push(Node::on_manual_clock(&rules).await?.0);
    }
    in_turn(&nodes, split).await
}

async fn shared(limit: u64, split: [u64; 4]) -> Result<[u64; 4], LabError> {
    let server = Server::start().await?;
    let rules = rules(&format!(
        "token_bucket: {{ capacity: {limit}, refill: 1/h }}, sharing: exact, on_store_failure: fail_closed"
    ));
    let mut nodes = Vec::new();
    for instance in 0..split.len() {
        nodes.push(Node::in_fleet(&rules, server.fleet(format!("instance {instance}"), PATIENCE)?).await?);
    }
    in_turn(&nodes, split).await
}

/// Spreads the calls as they would come: of each ten, seven to the busy instance. How many of each passed.
async fn in_turn(nodes: &[Node], split: [u64; 4]) -> Result<[u64; 4], LabError> {
    let (mut left, mut passed) = (split, [0; 4]);
    while left.iter().any(|left| *left > 0) {
        for (at, percent) in SPLIT.iter().enumerate() {
            for _ in 0..(percent / 10).min(left[at]) {
                left[at] -= 1;
                passed[at] += u64::from(passes(gates(nodes, at)).await?);
            }
        }
    }
    Ok(passed)
}

fn gates(nodes: &[Node], at: usize) -> &Gates {
    &nodes[at].gates
}
