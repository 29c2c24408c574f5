//! `limit.shared-race`: many instances, one counter on a real Redis.
//!
//! The naive way asks Redis for the count, pauses for 100 µs as a busy process would, and counts. Tidegate's
//! instances send their calls through [`tidegate::pipeline`], each with rules, gates and a connection of
//! its own.

use std::time::Duration;

use tidegate_store::redis::{Redis, Script, Value};

use super::{passes, rules};
use crate::error::About as _;
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Spec};
use crate::redis::Server;
use crate::{Expectation, Figure, LabError, Report, Row, Run};

const INSTANCES: Param<u64> =
    Param { name: "instances", about: "that share the limit", default: 16, low: 1, high: 64 };
const CALLS: Param<u64> = Param { name: "calls", about: "calls of each", default: 125, low: 1, high: 10_000 };
const LIMIT: Param<u64> =
    Param { name: "limit", about: "calls that may pass", default: 1_000, low: 1, high: 100_000 };
const PAUSE: Param<Duration> = Param {
    name: "pause",
    about: "the naive way's pause between looking and counting",
    default: Duration::from_micros(100),
    low: Duration::ZERO,
    high: Duration::from_millis(10),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "limit.shared-race",
    about: "instances that race for one limit on one Redis",
    params: &[Spec::Count(INSTANCES), Spec::Count(CALLS), Spec::Count(LIMIT), Spec::Span(PAUSE)],
    fits: None,
    run: experiment,
};

/// Longer than any stall of the machine: nothing is to fail here.
const PATIENCE: Duration = Duration::from_secs(20);

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (instances, calls) = (params.count(&INSTANCES), params.count(&CALLS));
    let (limit, pause) = (params.count(&LIMIT), params.span(&PAUSE));
    let exact = limit.min(instances * calls);
    run.steps(2);
    let naive = block_on(by_hand(instances, calls, limit, pause))?;
    run.step();
    let passed = block_on(tidegate(instances, calls, limit))?;
    run.step();
    Ok(Report::of(vec![
        Row::new("exact: calls that pass")
            .naive(naive, Expectation::Race(Figure::Count(limit)))
            .tidegate(passed, Expectation::exactly(exact)),
    ]))
}

async fn tidegate(instances: u64, calls: u64, limit: u64) -> Result<u64, LabError> {
    let server = Server::start().await?;
    let rules = rules(&format!(
        "token_bucket: {{ capacity: {limit}, refill: 1/h }}, sharing: exact, on_store_failure: fail_closed"
    ));
    let mut nodes = Vec::new();
    for instance in 0..instances {
        nodes.push(Node::in_fleet(&rules, server.fleet(format!("instance {instance}"), PATIENCE)?).await?);
    }
    let workers = nodes.iter().map(|node| {
        let gates = node.gates.clone();
        tokio::spawn(async move {
            let mut passed = 0_u64;
            for _ in 0..calls {
                passed += u64::from(passes(&gates).await?);
            }
            Ok(passed)
        })
    });
    sum(workers.collect()).await
}

async fn by_hand(instances: u64, calls: u64, limit: u64, pause: Duration) -> Result<u64, LabError> {
    let server = Server::start().await?;
    let mut workers = Vec::new();
    for _ in 0..instances {
        let client = server.client(PATIENCE)?;
        workers.push(tokio::spawn(async move {
            let (get, incr) = (
                Script::new("return tonumber(redis.call('GET', KEYS[1]) or 0)"),
                Script::new("return redis.call('INCR', KEYS[1])"),
            );
            let mut passed = 0;
            for _ in 0..calls {
                if number(&client, &get).await? < limit {
                    tokio::time::sleep(pause).await;
                    number(&client, &incr).await?;
                    passed += 1;
                }
            }
            Ok(passed)
        }));
    }
    sum(workers).await
}

async fn number(client: &Redis, script: &Script) -> Result<u64, LabError> {
    match client.run::<_, &str>(script, &["count"], &[]).await.about("asking Redis")? {
        Value::Int(number) => u64::try_from(number).about("counting on Redis"),
        _ => Err(LabError::broken("counting on Redis", "it gave no number")),
    }
}

async fn sum(workers: Vec<tokio::task::JoinHandle<Result<u64, LabError>>>) -> Result<u64, LabError> {
    let mut sum = 0;
    for worker in workers {
        sum += worker.await.about("a caller's task")??;
    }
    Ok(sum)
}
