//! `idempotency.failures`: what is released and what is recorded. The downstream service is a socket
//! that accepts and never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use sqlx::SqlitePool;
use tidegate::Body;
use tidegate::call::{Call, CallError};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::{Database, KEY, answer, ask, register, registered};
use crate::error::About as _;
use crate::experiment::Experiment;
use crate::node::block_on;
use crate::params::{Param, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const TIMEOUT: Param<Duration> = Param {
    name: "timeout",
    about: "how long the downstream call may take",
    default: Duration::from_millis(100),
    low: Duration::from_millis(1),
    high: Duration::from_secs(10),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "idempotency.failures",
    about: "a try that was not applied is released and runs again; a refusal is recorded and replayed",
    params: &[Spec::Span(TIMEOUT)],
    fits: None,
    run: |params, run| block_on(experiment(params.span(&TIMEOUT), run)),
};

/// Registers, having looked somebody up downstream.
#[derive(Clone)]
struct Registers {
    pool: SqlitePool,
    downstream: std::net::SocketAddr,
    timeout: Duration,
    downstream_is_needed: Arc<AtomicBool>,
    executed: Arc<AtomicU64>,
}

/// What the business says of one try.
enum Tried {
    Registered,
    BadArgument,
    /// The transaction rolled back, and nothing else had been asked to change anything.
    NotApplied,
}

impl Registers {
    async fn register(&self, name: &str) -> Result<Tried, LabError> {
        if name.is_empty() {
            return Ok(Tried::BadArgument);
        }
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.about("beginning a transaction")?;
        register(&mut tx, name).await?;
        if self.downstream_is_needed.load(Ordering::SeqCst) && self.look_up().await.is_none() {
            tx.rollback().await.about("rolling back")?;
            return Ok(Tried::NotApplied);
        }
        tx.commit().await.about("committing")?;
        Ok(Tried::Registered)
    }

    /// Reads, and changes nothing there.
    async fn look_up(&self) -> Option<u8> {
        let answer = async { TcpStream::connect(self.downstream).await?.read_u8().await };
        tokio::time::timeout(self.timeout, answer).await.ok()?.ok()
    }
}

impl Call for Registers {
    async fn call(&self, request: Request<Body>, _timeout: Duration) -> Result<Response<Body>, CallError> {
        self.executed.fetch_add(1, Ordering::SeqCst);
        let name = request.into_body().collect(super::MAX_ANSWER).await.unwrap_or_default();
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok(match self.register(&name).await {
            Ok(Tried::Registered) => answer(StatusCode::CREATED, registered(&name)),
            Ok(Tried::BadArgument) => answer(StatusCode::BAD_REQUEST, "whose registration?".to_owned()),
            Ok(Tried::NotApplied) => {
                let mut response =
                    answer(StatusCode::GATEWAY_TIMEOUT, "downstream did not answer".to_owned());
                response.headers_mut().insert("tidegate-outcome", HeaderValue::from_static("retryable"));
                response
            }
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        })
    }

    fn host(&self) -> &'static str {
        "business"
    }
}

async fn experiment(timeout: Duration, run: &mut Run<'_>) -> Result<Report, LabError> {
    run.steps(4);
    let database = Database::new().await?;
    let node = database.node().await?;
    // The system accepts for it; nobody ever reads or writes.
    let silent = TcpListener::bind("127.0.0.1:0").await.about("listening")?;
    let business = Registers {
        pool: database.pool.clone(),
        downstream: silent.local_addr().about("listening")?,
        timeout,
        downstream_is_needed: Arc::new(AtomicBool::new(true)),
        executed: Arc::default(),
    };
    let status = |told: &super::Told| u64::from(told.status.as_u16());

    let timed_out = ask(&node.gates, KEY, "alice", &business).await?;
    let (released, none) = (database.state(KEY).await?, database.rows().await?);
    run.step();
    business.downstream_is_needed.store(false, Ordering::SeqCst);
    let retried = ask(&node.gates, KEY, "alice", &business).await?;
    let one = database.rows().await?;
    run.step();

    let before = business.executed.load(Ordering::SeqCst);
    let refused = ask(&node.gates, "order-2", "", &business).await?;
    let recorded = database.state("order-2").await?;
    run.step();
    let replayed = ask(&node.gates, "order-2", "", &business).await?;
    let executed = business.executed.load(Ordering::SeqCst) - before;
    run.step();

    Ok(Report::of(vec![
        Row::new("downstream times out: status").tidegate(status(&timed_out), Expectation::exactly(504_u64)),
        Row::new("  the record").tidegate(released, Expectation::exactly("RELEASED")),
        Row::new("  rows").tidegate(none, Expectation::exactly(0_u64)),
        Row::new("retry: status").tidegate(status(&retried), Expectation::exactly(201_u64)),
        Row::new("  replayed").tidegate(yes_no(retried.replayed), Expectation::exactly("no")),
        Row::new("  rows").tidegate(one, Expectation::exactly(1_u64)),
        Row::new("bad argument: status").tidegate(status(&refused), Expectation::exactly(400_u64)),
        Row::new("  the record").tidegate(recorded, Expectation::exactly("FAILED")),
        Row::new("retry: status").tidegate(status(&replayed), Expectation::exactly(400_u64)),
        Row::new("  replayed").tidegate(yes_no(replayed.replayed), Expectation::exactly("yes")),
        Row::new("  executions of the two").tidegate(executed, Expectation::exactly(1_u64)),
        Row::new("  rows of it").tidegate(database.rows().await? - one, Expectation::exactly(0_u64)),
    ]))
}

const fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
