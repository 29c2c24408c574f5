//! `idempotency.lease`: an attempt that works on after its lease, and one that took over. Time is real
//! here: leases are judged by the database's clock.

use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use tokio::sync::watch;

use super::service::{Attempt, Pause, Service, at_once};
use super::{Database, KEY, connect, naive};
use crate::experiment::Experiment;
use crate::node::block_on;
use crate::params::{Param, Params, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const LEASE: Param<Duration> = Param {
    name: "lease",
    about: "of the record; renewal is off",
    default: Duration::from_millis(500),
    low: Duration::from_millis(100),
    high: Duration::from_secs(10),
};
const WORK: Param<Duration> = Param {
    name: "work",
    about: "how long A works",
    default: Duration::from_millis(1_500),
    low: Duration::from_millis(100),
    high: Duration::from_secs(30),
};
const RETRY: Param<Duration> = Param {
    name: "retry",
    about: "when B tries, from A's claim",
    default: Duration::from_millis(700),
    low: Duration::from_millis(1),
    high: Duration::from_secs(30),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "idempotency.lease",
    about: "A works on after its lease is over, and B has taken over",
    params: &[Spec::Span(LEASE), Spec::Span(WORK), Spec::Span(RETRY)],
    fits: Some(fits),
    run: |params, run| block_on(experiment(params, run)),
};

fn fits(params: &Params) -> Result<(), String> {
    let Times { lease, work, retry } = Times::of(params);
    let in_order = lease < retry && retry < work;
    if in_order {
        Ok(())
    } else {
        Err("B comes after A's lease and before A is done: set lease < retry < work".to_owned())
    }
}

async fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let times = Times::of(params);
    run.steps(2);
    let apart = Database::new().await?;
    // The two ways have a database each, so that they can run at the same time.
    let together = Database::new().await?;
    let ((naive_a, naive_b), (a, b)) =
        tokio::try_join!(committed_apart(&apart.pool, times), one_transaction(&together, times))?;
    run.step();
    let (naive_rows, rows) = (apart.rows().await?, together.rows().await?);
    run.step();
    let succeeded = Expectation::exactly(Attempt::Succeeded.name());
    Ok(Report::of(vec![
        Row::new("A")
            .naive(naive_a.name(), succeeded.clone())
            .tidegate(a.name(), Expectation::exactly(Attempt::RolledBack.name())),
        Row::new("B").naive(naive_b.name(), succeeded.clone()).tidegate(b.name(), succeeded),
        Row::new("rows")
            .naive(naive_rows, Expectation::exactly(2_u64))
            .tidegate(rows, Expectation::exactly(1_u64)),
    ]))
}

#[derive(Clone, Copy)]
struct Times {
    lease: Duration,
    work: Duration,
    retry: Duration,
}

impl Times {
    fn of(params: &Params) -> Self {
        Self { lease: params.span(&LEASE), work: params.span(&WORK), retry: params.span(&RETRY) }
    }
}

async fn committed_apart(pool: &SqlitePool, times: Times) -> Result<(Attempt, Attempt), LabError> {
    if !naive::claim(pool, KEY, times.lease).await? {
        return Ok((Attempt::Busy, Attempt::Busy));
    }
    let (b_done, b_is_done) = watch::channel(false);
    let a = async {
        works(times.work, b_is_done).await;
        naive::write(pool, "alice").await?;
        naive::mark(pool, KEY).await?;
        Ok(Attempt::Succeeded)
    };
    let b = async {
        tokio::time::sleep(times.retry).await;
        let attempt = if naive::claim(pool, KEY, times.lease).await? {
            naive::write(pool, "alice").await?;
            naive::mark(pool, KEY).await?;
            Attempt::Succeeded
        } else {
            Attempt::Busy
        };
        // A may have given up waiting.
        let _ = b_done.send(true);
        Ok(attempt)
    };
    tokio::try_join!(a, b)
}

async fn one_transaction(database: &Database, times: Times) -> Result<(Attempt, Attempt), LabError> {
    let (first, second) = (instance(database, times).await?, instance(database, times).await?);
    let (b_done, b_is_done) = watch::channel(false);
    let (claimed, a_has_claimed) = watch::channel(false);
    let claimed = Arc::new(claimed);
    let a_works: Pause = Arc::new(move || {
        let (claimed, b_is_done) = (Arc::clone(&claimed), b_is_done.clone());
        Box::pin(async move {
            // Whether B still waits for it shows in B's result.
            let _ = claimed.send(true);
            works(times.work, b_is_done).await;
        })
    });
    let a = first.attempt(a_works, at_once());
    let b = async {
        let mut a_has_claimed = a_has_claimed;
        let _ = a_has_claimed.wait_for(|claimed| *claimed).await;
        tokio::time::sleep(times.retry).await;
        let attempt = second.attempt(at_once(), at_once()).await;
        let _ = b_done.send(true);
        attempt
    };
    tokio::try_join!(a, b)
}

async fn instance(database: &Database, times: Times) -> Result<Service, LabError> {
    Service::start(connect(&database.path).await?.0, times.lease).await
}

/// A's work. It ends no earlier than B, so that a machine that stands still for a second shows the same.
async fn works(work: Duration, mut b_is_done: watch::Receiver<bool>) {
    tokio::time::sleep(work).await;
    // An error is B's, and comes out there.
    let _ = b_is_done.wait_for(|done| *done).await;
}
