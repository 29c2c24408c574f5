//! `idempotency.concurrent`: many calls with one key at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sqlx::SqlitePool;
use tidegate::Body;
use tidegate::call::{Call, CallError};
use tokio::sync::watch;

use super::{Database, KEY, answer, ask, register, registered};
use crate::experiment::Experiment;
use crate::node::block_on;
use crate::params::{Param, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const CALLS: Param<u64> = Param { name: "calls", about: "calls at once", default: 20, low: 1, high: 1_000 };
const WORK: Param<Duration> = Param {
    name: "work",
    about: "how long one execution takes",
    default: Duration::from_millis(300),
    low: Duration::ZERO,
    high: Duration::from_secs(10),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "idempotency.concurrent",
    about: "concurrent calls with one key: one executes, the others hear that it is at work",
    params: &[Spec::Count(CALLS), Spec::Span(WORK)],
    fits: None,
    run: |params, run| block_on(experiment(params.count(&CALLS), params.span(&WORK), run)),
};

/// How long the work waits for the other calls to be answered, on top of what it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Works for a while, and registers.
#[derive(Clone)]
struct Slow {
    pool: SqlitePool,
    work: Duration,
    executed: Arc<AtomicU64>,
    /// Turns true when all other calls are answered: on a slow machine they may take longer than the
    /// work, and would then find the result rather than somebody at work.
    others_answered: watch::Receiver<bool>,
}

impl Call for Slow {
    async fn call(&self, _request: Request<Body>, _timeout: Duration) -> Result<Response<Body>, CallError> {
        self.executed.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.work).await;
        let mut others = self.others_answered.clone();
        let _ = tokio::time::timeout(PATIENCE, others.wait_for(|answered| *answered)).await;
        let Ok(mut conn) = self.pool.acquire().await else {
            return Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, "no connection".to_owned()));
        };
        Ok(match register(&mut conn, "alice").await {
            Ok(()) => answer(StatusCode::CREATED, registered("alice")),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        })
    }

    fn host(&self) -> &'static str {
        "business"
    }
}

async fn experiment(calls: u64, work: Duration, run: &mut Run<'_>) -> Result<Report, LabError> {
    run.steps(calls);
    let database = Database::new().await?;
    let node = Arc::new(database.node().await?);
    let (answered, others_answered) = watch::channel(calls == 1);
    let executed = Arc::new(AtomicU64::new(0));
    let business =
        Slow { pool: database.pool.clone(), work, executed: Arc::clone(&executed), others_answered };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..calls {
        let (node, business) = (Arc::clone(&node), business.clone());
        tasks.spawn(async move { ask(&node.gates, KEY, "alice", &business).await });
    }
    let (mut created, mut refused, mut other) = (0_u64, 0_u64, 0_u64);
    while let Some(told) = tasks.join_next().await {
        let told = told.map_err(|error| LabError::broken("a call", error))??;
        match told.status {
            StatusCode::CREATED if !told.replayed => created += 1,
            StatusCode::CONFLICT => refused += 1,
            _ => other += 1,
        }
        if created + refused + other == calls - 1 {
            // Nobody listens any more when the work is over already.
            let _ = answered.send(true);
        }
        run.step();
    }
    Ok(Report::of(vec![
        Row::new("executions").tidegate(executed.load(Ordering::SeqCst), Expectation::exactly(1_u64)),
        Row::new("answers 201, not replayed").tidegate(created, Expectation::exactly(1_u64)),
        Row::new("answers 409").tidegate(refused, Expectation::exactly(calls - 1)),
        Row::new("other answers").tidegate(other, Expectation::exactly(0_u64)),
        Row::new("rows").tidegate(database.rows().await?, Expectation::exactly(1_u64)),
    ]))
}
