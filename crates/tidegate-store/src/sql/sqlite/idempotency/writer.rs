//! The one writer of this process.
//!
//! SQLite has one write lock for each database. Callers that fought for it would wait by polling,
//! and some would starve; here they stand in one bounded queue, and everything that waits while one
//! commit is on its way to the disk shares the next one. A caller hears only after the commit.

use std::sync::Arc;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::command::Command;
use super::row::Fault;
use super::{ClockShift, STORE};
use crate::traits::{BoxFuture, StoreError};

/// Commands that wait at most; callers beyond that wait to get in, in order.
const QUEUE: usize = 1024;
/// Commands in one transaction at most: bounds how long a commit keeps readers' snapshots and the
/// other processes waiting.
const MAX_BATCH: usize = 128;

/// The callers' end of the queue.
#[derive(Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Box<dyn Job>>,
}

impl Writer {
    /// Starts the writer's thread. It ends when the last `Writer` is gone and the queue is empty.
    pub(super) fn start(options: Arc<SqliteConnectOptions>, shift: ClockShift) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        // A thread of its own: callers may live on several runtimes, none of which outlives the store.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("tidegate-sqlite".to_owned()).spawn(move || {
            runtime.block_on(serve(jobs, &options, &shift));
        })?;
        Ok(Self { queue })
    }

    /// Carries out `command` and returns after its commit. `on_queued` is called at the moment from
    /// which the command may take effect even if the caller goes away.
    ///
    /// A commit of unknown outcome is settled by running the command once more.
    pub(super) async fn submit<C: Command>(
        &self,
        command: C,
        on_queued: impl FnOnce(),
    ) -> Result<C::Out, StoreError> {
        let closed = StoreError::Closed { store: STORE };
        let place = self.queue.reserve().await.map_err(|_| closed.clone())?;
        let (caller, answer) = oneshot::channel();
        on_queued();
        place.send(Task::queued(command.clone(), Some(caller)));
        match answer.await {
            Ok(Err(StoreError::CommitUnknown { .. })) => {}
            Ok(answer) => return answer,
            Err(_) => return Err(closed),
        }
        let (caller, answer) = oneshot::channel();
        self.queue.send(Task::queued(command, Some(caller))).await.map_err(|_| closed.clone())?;
        answer.await.unwrap_or(Err(closed))
    }

    /// Queues `command` if there is room, and does not wait for its answer.
    pub(super) fn post<C: Command>(&self, command: C) {
        if self.queue.try_send(Task::queued(command, None)).is_err() {
            tracing::warn!(
                "the SQLite writer's queue is full: an abandoned claim stays until its lease ends"
            );
        }
    }
}

/// A queued command, whatever it answers.
trait Job: Send {
    /// Runs it inside the open transaction. An error says that the transaction is lost.
    fn run<'a>(
        &'a mut self,
        conn: &'a mut SqliteConnection,
        shift: &'a ClockShift,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>>;

    /// Whether its caller is gone, so that it need not start.
    fn is_unwanted(&self) -> bool;

    /// Tells the caller, now that the transaction has ended.
    fn settle(self: Box<Self>, ended: Result<(), StoreError>);
}

/// Who waits for a command's answer.
type Caller<C> = oneshot::Sender<Result<<C as Command>::Out, StoreError>>;

struct Task<C: Command> {
    command: C,
    outcome: Option<Result<C::Out, StoreError>>,
    /// `None` for a command whose answer nobody waits for.
    caller: Option<Caller<C>>,
}

impl<C: Command> Task<C> {
    fn queued(command: C, caller: Option<Caller<C>>) -> Box<dyn Job> {
        Box::new(Self { command, outcome: None, caller })
    }
}

impl<C: Command> Job for Task<C> {
    fn run<'a>(
        &'a mut self,
        conn: &'a mut SqliteConnection,
        shift: &'a ClockShift,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            self.outcome = Some(match self.command.run(conn, shift).await {
                Ok(out) => Ok(out),
                Err(Fault::Damaged(error)) => Err(error),
                Err(Fault::Sql(error)) => return Err(error),
            });
            Ok(())
        })
    }

    fn is_unwanted(&self) -> bool {
        self.caller.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    fn settle(self: Box<Self>, ended: Result<(), StoreError>) {
        let closed = Err(StoreError::Closed { store: STORE });
        let answer = match ended {
            Ok(()) => self.outcome.unwrap_or(closed),
            Err(error) => Err(error),
        };
        if let Some(caller) = self.caller {
            // A caller that went away is told by the record.
            let _ = caller.send(answer);
        }
    }
}

async fn serve(mut jobs: mpsc::Receiver<Box<dyn Job>>, options: &SqliteConnectOptions, shift: &ClockShift) {
    let mut idle: Option<SqliteConnection> = None;
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while jobs.recv_many(&mut batch, MAX_BATCH).await > 0 {
        batch.retain(|job| !job.is_unwanted());
        if batch.is_empty() {
            continue;
        }
        let ended = match idle.take() {
            Some(conn) => commit(conn, &mut batch, shift).await,
            None => match options.connect().await {
                Ok(conn) => commit(conn, &mut batch, shift).await,
                Err(error) => Err((store_error(error), None)),
            },
        };
        let told = match ended {
            Ok(conn) => {
                idle = Some(conn);
                Ok(())
            }
            Err((error, conn)) => {
                idle = conn;
                tracing::warn!(%error, commands = batch.len(), "a SQLite write failed");
                Err(error)
            }
        };
        for job in batch.drain(..) {
            job.settle(told.clone());
        }
    }
    if let Some(conn) = idle {
        // The last words: SQLite checkpoints on a clean close, and recovers without one.
        let _ = conn.close().await;
    }
}

/// One transaction. Gives the connection back only when it is certain to be outside of one; dropping
/// it rolls back whatever was open.
async fn commit(
    mut conn: SqliteConnection,
    batch: &mut [Box<dyn Job>],
    shift: &ClockShift,
) -> Result<SqliteConnection, (StoreError, Option<SqliteConnection>)> {
    if let Err(error) = sqlx::query("BEGIN IMMEDIATE").execute(&mut conn).await {
        let error = store_error(error);
        let keep = matches!(error, StoreError::Busy { .. });
        return Err((error, keep.then_some(conn)));
    }
    for job in batch.iter_mut() {
        if let Err(error) = job.run(&mut conn, shift).await {
            return Err((store_error(error), None));
        }
    }
    match sqlx::query("COMMIT").execute(&mut conn).await {
        Ok(_) => Ok(conn),
        Err(error) => Err((StoreError::CommitUnknown { store: STORE, source: Arc::new(error) }, None)),
    }
}

/// Sorts what SQLite says by what a caller can do about it.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    /// Primary result codes, <https://www.sqlite.org/rescode.html>.
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const CORRUPT: i32 = 11;
    const NOT_A_DATABASE: i32 = 26;

    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    match code.map(|code| code & 0xff) {
        Some(BUSY | LOCKED) => StoreError::Busy { store: STORE, source: Arc::new(error) },
        Some(CORRUPT | NOT_A_DATABASE) => {
            StoreError::Corrupt { store: STORE, what: error.to_string().into() }
        }
        _ if matches!(error, sqlx::Error::PoolTimedOut) => {
            StoreError::Busy { store: STORE, source: Arc::new(error) }
        }
        _ if matches!(error, sqlx::Error::PoolClosed) => StoreError::Closed { store: STORE },
        _ => StoreError::Unavailable { store: STORE, source: Arc::new(error) },
    }
}

#[cfg(test)]
mod tests;
