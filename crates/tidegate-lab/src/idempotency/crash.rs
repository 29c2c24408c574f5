//! `idempotency.crash`: a process that is killed, for real, after its business write and before its
//! mark. Another process retries once the lease is over by the database's clock.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use super::service::{Attempt, Service, at_once};
use super::{Database, KEY, connect, naive};
use crate::child::{ChildTask, WRITTEN, Way};
use crate::error::About as _;
use crate::experiment::Experiment;
use crate::node::block_on;
use crate::params::{Param, Params, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const LEASE: Param<Duration> = Param {
    name: "lease",
    about: "of the record",
    default: Duration::from_millis(500),
    low: Duration::from_millis(100),
    high: Duration::from_secs(10),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "idempotency.crash",
    about: "the process is killed after the business write and before the mark; another retries",
    params: &[Spec::Span(LEASE)],
    fits: None,
    run: experiment,
};

/// How often the retry looks whether the lease is over, and for how long at most after it.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let lease = params.span(&LEASE);
    run.steps(4);
    let apart = block_on(Database::new())?;
    kill_after_write(run, Way::Apart, &apart.path, lease)?;
    run.step();
    let naive = block_on(retry_apart(&apart.path, lease))?;
    run.step();
    let together = block_on(Database::new())?;
    kill_after_write(run, Way::OneTransaction, &together.path, lease)?;
    run.step();
    let (retried, later) = block_on(retry_in_one_transaction(&together.path, lease))?;
    run.step();
    let (naive_rows, rows) = (block_on(count(&apart.path))?, block_on(count(&together.path))?);
    let succeeded = Expectation::exactly(Attempt::Succeeded.name());
    Ok(Report::of(vec![
        Row::new("the retry after the lease")
            .naive(naive.name(), succeeded.clone())
            .tidegate(retried.name(), succeeded),
        Row::new("a later retry").tidegate(later.name(), Expectation::exactly(Attempt::Replayed.name())),
        Row::new("rows")
            .naive(naive_rows, Expectation::exactly(2_u64))
            .tidegate(rows, Expectation::exactly(1_u64)),
    ]))
}

/// Starts the child, and kills it once it has written.
fn kill_after_write(run: &Run<'_>, way: Way, database: &Path, lease: Duration) -> Result<(), LabError> {
    let task = ChildTask { way, database: database.to_owned(), lease };
    let mut command = run.command(&task)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .about("starting a child process")?;
    let out = child.stdout.take().ok_or("it has no output").about("the child process")?;
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let written = lines.any(|line| line.contains(WRITTEN));
    // On Unix this is SIGKILL.
    let killed = child.kill();
    child.wait().about("the child process")?;
    if !written {
        return Err(LabError::broken("the child process", "it ended before it had written"));
    }
    killed.about("killing the child process")
}

/// Tries until the lease is over.
async fn retry<T>(
    lease: Duration,
    mut attempt: impl AsyncFnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let tries = (lease + PATIENCE).as_millis() / LOOK.as_millis();
    for _ in 0..tries {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(LabError::broken("the retry", "the lease of the killed process never ended"))
}

async fn retry_apart(database: &Path, lease: Duration) -> Result<Attempt, LabError> {
    let (pool, _) = connect(database).await?;
    retry(lease, async || Ok(naive::claim(&pool, KEY, lease).await?.then_some(()))).await?;
    naive::write(&pool, "alice").await?;
    naive::mark(&pool, KEY).await?;
    Ok(Attempt::Succeeded)
}

async fn retry_in_one_transaction(database: &Path, lease: Duration) -> Result<(Attempt, Attempt), LabError> {
    let service = Service::start(connect(database).await?.0, lease).await?;
    let retried = retry(lease, async || {
        let attempt = service.attempt(at_once(), at_once()).await?;
        Ok((attempt != Attempt::Busy).then_some(attempt))
    })
    .await?;
    Ok((retried, service.attempt(at_once(), at_once()).await?))
}

async fn count(database: &Path) -> Result<u64, LabError> {
    let (pool, _) = connect(database).await?;
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM registrations")
        .fetch_one(&pool)
        .await
        .about("counting the registrations")?;
    Ok(count.unsigned_abs())
}

/// What the child does: it writes, says so, and works on until it is killed.
pub(crate) async fn child(task: &ChildTask) -> Result<(), LabError> {
    let (pool, _) = connect(&task.database).await?;
    match task.way {
        Way::Apart => {
            if !naive::claim(&pool, KEY, task.lease).await? {
                return Err(LabError::broken("the child's claim", "it was not granted"));
            }
            naive::write(&pool, "alice").await?;
            written().await;
        }
        Way::OneTransaction => {
            let service = Service::start(pool, task.lease).await?;
            service.attempt(at_once(), Arc::new(|| Box::pin(written()))).await?;
        }
    }
    Ok(())
}

/// Says so, and waits to be killed.
async fn written() {
    let mut out = std::io::stdout();
    // A parent that has gone does not hear it.
    let _ = writeln!(out, "{WRITTEN}").and_then(|()| out.flush());
    // Should the parent be gone, nobody waits for it for ever.
    tokio::time::sleep(PATIENCE).await;
}
