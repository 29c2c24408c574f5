//! `limit.outage`: the Redis that instances share is paused while they are asked.
//!
//! The naive way asks it for each call and waits out the timeout each time. Tidegate's instances notice once, and
//! do what the rule says.

use std::time::Duration;

use http::StatusCode;
use tidegate_store::redis::Script;

use super::{TARGET, rules};
use crate::error::About as _;
use crate::experiment::Experiment;
use crate::node::{Node, Succeeds, block_on, post, send};
use crate::params::{Param, Params, Spec};
use crate::redis::Server;
use crate::{Expectation, LabError, Report, Row, Run};

const INSTANCES: Param<u64> =
    Param { name: "instances", about: "that share the limit", default: 4, low: 1, high: 16 };
const CALLS: Param<u64> = Param { name: "calls", about: "calls of each", default: 500, low: 1, high: 10_000 };
const LIMIT: Param<u64> =
    Param { name: "limit", about: "calls that may pass", default: 1_000, low: 1, high: 100_000 };
const TIMEOUT: Param<Duration> = Param {
    name: "timeout",
    about: "of a command to Redis",
    default: Duration::from_millis(50),
    low: Duration::from_millis(1),
    high: Duration::from_secs(5),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "limit.outage",
    about: "Redis is paused, and each instance goes on by the rule's policy",
    params: &[Spec::Count(INSTANCES), Spec::Count(CALLS), Spec::Count(LIMIT), Spec::Span(TIMEOUT)],
    fits: None,
    run: experiment,
};

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (instances, calls) = (params.count(&INSTANCES), params.count(&CALLS));
    let (limit, timeout) = (params.count(&LIMIT), params.span(&TIMEOUT));
    let all = instances * calls;
    let parts = (0..instances).map(|rank| limit / instances + u64::from(rank < limit % instances));
    let fallback: u64 = parts.map(|part| part.min(calls)).sum();
    run.steps(4);
    let mut rows = Vec::new();
    for (policy, expected) in [("fail_open", all), ("fail_closed", 0), ("local_fallback", fallback)] {
        let (passed, waited) = block_on(paused(instances, calls, limit, timeout, policy))?;
        rows.push(
            Row::new(format!("{policy}: calls that pass")).tidegate(passed, Expectation::exactly(expected)),
        );
        rows.push(
            Row::new(format!("{policy}: calls that wait for Redis"))
                .tidegate(waited, Expectation::exactly(instances)),
        );
        run.step();
    }
    let waited = block_on(by_hand(all, timeout))?;
    run.step();
    rows.push(Row::new("calls that wait out the timeout").naive(waited, Expectation::exactly(all)));
    Ok(Report::of(rows))
}

/// How many calls passed, and how many asked Redis and got no answer.
async fn paused(
    instances: u64,
    calls: u64,
    limit: u64,
    timeout: Duration,
    policy: &str,
) -> Result<(u64, u64), LabError> {
    let server = Server::start().await?;
    let rules = rules(&format!(
        "token_bucket: {{ capacity: {limit}, refill: 1/h }}, sharing: exact, on_store_failure: {policy}"
    ));
    let mut nodes = Vec::new();
    for instance in 0..instances {
        let fleet = server.fleet(format!("instance {instance}"), timeout)?;
        nodes.push(Node::in_fleet(&rules, fleet).await?);
    }
    for node in &nodes {
        // Now that all have come, each hears of all.
        know_all(node, instances).await?;
    }
    server.pause(true)?;
    let (mut passed, mut waited) = (0, 0);
    for node in &nodes {
        for _ in 0..calls {
            let answer = send(&node.gates, post(TARGET)?, &Succeeds).await;
            passed += u64::from(answer.status() == StatusCode::OK);
        }
        waited += unanswered(&node.gates.render_metrics())?;
    }
    server.pause(false)?;
    Ok((passed, waited))
}

/// Signs of life until the node knows how many there are, and asks the store; a slow machine may need more
/// than one.
async fn know_all(node: &Node, instances: u64) -> Result<(), LabError> {
    for _ in 0..1000 {
        node.gates.join_fleet().await;
        let status = node.gates.fleet_status();
        if status.is_some_and(|status| status.up && status.instances.map(u64::from) == Some(instances)) {
            return Ok(());
        }
    }
    Err(LabError::broken("the instances", "they did not hear of each other"))
}

/// Decisions that got no answer from the shared store.
fn unanswered(metrics: &str) -> Result<u64, LabError> {
    let count = metrics.lines().find(|line| {
        line.starts_with("tidegate_store_request_duration_seconds_count{store=\"limits\"")
            && line.contains("operation=\"decide\"")
            && line.contains("result=\"error\"")
    });
    let number = count.and_then(|line| line.rsplit(' ').next()).unwrap_or("0");
    number.parse().about("reading the metrics")
}

/// Calls that ask Redis without more ado: how many of them wait out the timeout.
async fn by_hand(calls: u64, timeout: Duration) -> Result<u64, LabError> {
    let server = Server::start().await?;
    let client = server.client(timeout)?;
    client.ping().await.about("asking Redis")?;
    server.pause(true)?;
    let mut waiting = Vec::new();
    for _ in 0..calls {
        let client = client.clone();
        waiting.push(tokio::spawn(async move {
            let script = Script::new("return redis.call('INCR', KEYS[1])");
            client.run::<_, &str>(&script, &["count"], &[]).await.is_err_and(|fault| fault.may_have_run())
        }));
    }
    let mut waited = 0;
    for call in waiting {
        waited += u64::from(call.await.about("a caller's task")?);
    }
    server.pause(false)?;
    Ok(waited)
}
