//! The one writer of this process.
//!
//! SQLite has one write lock for each database. Callers that fought for it would wait by polling,
//! and some would starve; here they stand in one bounded queue, and everything that waits while one
//! commit is on its way to the disk shares the next one. A caller hears only after the commit.

use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::command::Command;
use super::row::Fault;
use super::{ClockShift, STORE};
use crate::traits::{BoxFuture, StoreError};

/// Commands that wait at most; callers beyond that wait to get in, in order.
const QUEUE: usize = 1024;
/// Commands that nobody waits for, kept at most until they are carried out. Each gives up a claim that
/// was in the queue, so there are more only if the database refuses for long.
const MAX_POSTED: usize = 16 * QUEUE;
/// How often they may fail in a row for another reason than a lock, before they are given up: they must
/// not take everything else with them for ever.
const POSTED_TRIES: u32 = 10;
/// The pause before posted commands are tried again.
const POSTED_AGAIN: Duration = Duration::from_secs(1);
/// How long one try for the write lock waits; the next follows at once, until the database's busy timeout
/// is over. SQLite's own waiting looks again after 100 ms only, and somebody who looks that seldom is never
/// lucky beside a process that writes one batch after the other.
const LOCK_TRY: Duration = Duration::from_millis(10);
/// The pause between two tries: SQLite does not always wait before it says that it is busy.
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Commands in one transaction at most: bounds how long a commit keeps readers' snapshots and the
/// other processes waiting.
const MAX_BATCH: usize = 128;

/// The callers' end of the queue.
#[derive(Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Box<dyn Job>>,
    /// Has room when the queue has none.
    posted: mpsc::UnboundedSender<Box<dyn Job>>,
}

impl Writer {
    /// Starts the writer's thread. It ends when the last `Writer` is gone and the queue is empty.
    pub(super) fn start(options: Arc<SqliteConnectOptions>, shift: ClockShift) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (posted, posts) = mpsc::unbounded_channel();
        // A thread of its own: callers may live on several runtimes, none of which outlives the store.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("tidegate-sqlite".to_owned()).spawn(move || {
            let inbox = Inbox { jobs, posts, first: Vec::new(), failures: 0 };
            runtime.block_on(serve(inbox, &options, &shift));
        })?;
        Ok(Self { queue, posted })
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

    /// Has `command` carried out without waiting for its answer, and again until it is.
    ///
    /// It comes before all that is queued later. What it is to undo must be running already, or have no
    /// caller any more.
    pub(super) fn post<C: Command>(&self, command: C) {
        // Fails only when the writer has died, and with it everything that it could have done.
        let _ = self.posted.send(Task::queued(command, None));
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

    /// Whether it was posted: nobody waits for its answer, and it must be carried out.
    fn is_posted(&self) -> bool;

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

    fn is_posted(&self) -> bool {
        self.caller.is_none()
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

/// What waits for the writer.
struct Inbox {
    jobs: mpsc::Receiver<Box<dyn Job>>,
    posts: mpsc::UnboundedReceiver<Box<dyn Job>>,
    /// Posted commands, in front of which nothing else is carried out.
    first: Vec<Box<dyn Job>>,
    /// How often they have failed.
    failures: u32,
}

impl Inbox {
    /// Waits for commands and fills `batch`; false when nothing more is to come.
    ///
    /// What a caller has posted comes before what the same caller queues later. Else the release of a
    /// claim whose fate was unknown could hit the repeated claim, under which the caller executes.
    async fn fill(&mut self, batch: &mut Vec<Box<dyn Job>>) -> bool {
        let mut jobs = Vec::new();
        tokio::select! {
            queued = self.jobs.recv_many(&mut jobs, MAX_BATCH) => {
                if queued == 0 && self.first.is_empty() && self.posts.is_empty() {
                    return false;
                }
            }
            Some(post) = self.posts.recv() => self.first.push(post),
            () = tokio::time::sleep(POSTED_AGAIN), if !self.first.is_empty() => {}
        }
        // After the jobs have been received, so that whatever was posted before them is here.
        while let Ok(post) = self.posts.try_recv() {
            self.first.push(post);
        }
        batch.append(&mut self.first);
        batch.extend(jobs.into_iter().filter(|job| !job.is_unwanted()));
        true
    }

    /// Keeps the posted ones of a transaction that has failed.
    fn keep(&mut self, batch: &mut Vec<Box<dyn Job>>, error: &StoreError) {
        // When the process ends, there is no other time.
        if self.jobs.is_closed() {
            return;
        }
        self.first.extend(batch.extract_if(.., |job| job.is_posted()));
        self.failures += u32::from(!matches!(error, StoreError::Busy { .. }) && !self.first.is_empty());
        let room = if self.failures < POSTED_TRIES { MAX_POSTED } else { 0 };
        let excess = self.first.len().saturating_sub(room);
        if excess > 0 {
            tracing::warn!(excess, "abandoned claims stay until their leases end");
            self.first.drain(..excess);
        }
    }
}

/// The writer's connection.
struct Own {
    conn: SqliteConnection,
    /// How long it waits for another process's write.
    patience: Duration,
}

impl Own {
    /// Connects, and takes over the waiting from SQLite.
    async fn connect(options: &SqliteConnectOptions) -> Result<Self, sqlx::Error> {
        let mut conn = options.connect().await?;
        let patience: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&mut conn).await?;
        let patience = Duration::from_millis(patience.unsigned_abs());
        let set = format!("PRAGMA busy_timeout = {}", patience.min(LOCK_TRY).as_millis());
        sqlx::query(sqlx::AssertSqlSafe(set)).execute(&mut conn).await?;
        Ok(Self { conn, patience })
    }

    /// Opens a transaction that may write.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let since = Instant::now();
        loop {
            match sqlx::query("BEGIN IMMEDIATE").execute(&mut self.conn).await.map_err(store_error) {
                Err(StoreError::Busy { .. }) if since.elapsed() < self.patience => {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                begun => return begun.map(drop),
            }
        }
    }
}

async fn serve(mut inbox: Inbox, options: &SqliteConnectOptions, shift: &ClockShift) {
    let mut idle: Option<Own> = None;
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while inbox.fill(&mut batch).await {
        if batch.is_empty() {
            continue;
        }
        let ended = match idle.take() {
            Some(own) => commit(own, &mut batch, shift).await,
            None => match Own::connect(options).await {
                Ok(own) => commit(own, &mut batch, shift).await,
                Err(error) => Err((store_error(error), None)),
            },
        };
        let told = match ended {
            Ok(own) => {
                idle = Some(own);
                inbox.failures = 0;
                Ok(())
            }
            Err((error, own)) => {
                idle = own;
                tracing::warn!(%error, commands = batch.len(), "a SQLite write failed");
                inbox.keep(&mut batch, &error);
                Err(error)
            }
        };
        for job in batch.drain(..) {
            job.settle(told.clone());
        }
    }
    if let Some(own) = idle {
        // The last words: SQLite checkpoints on a clean close, and recovers without one.
        let _ = own.conn.close().await;
    }
}

/// One transaction. Gives the connection back only when it is certain to be outside of one; dropping
/// it rolls back whatever was open.
async fn commit(
    mut own: Own,
    batch: &mut [Box<dyn Job>],
    shift: &ClockShift,
) -> Result<Own, (StoreError, Option<Own>)> {
    if let Err(error) = own.begin().await {
        let keep = matches!(error, StoreError::Busy { .. });
        return Err((error, keep.then_some(own)));
    }
    for job in batch.iter_mut() {
        if let Err(error) = job.run(&mut own.conn, shift).await {
            return Err((store_error(error), None));
        }
    }
    match sqlx::query("COMMIT").execute(&mut own.conn).await {
        Ok(_) => Ok(own),
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
