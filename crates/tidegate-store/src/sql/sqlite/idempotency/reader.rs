//! The one reader of this process.
//!
//! A read of its own for each request costs more in handing it from thread to thread than SQLite takes
//! to find the row. Here everything that waits is found by one statement, and while that runs, the next
//! ones gather.

use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, SqliteConnection};
use tidegate_core::idempotency::RecordId;
use tokio::sync::{mpsc, oneshot};

use super::row::{Fault, Found, columns, find, now_ms, record};
use super::writer::store_error;
use super::{ClockShift, STORE, fault};
use crate::traits::StoreError;

/// Reads that wait at most; callers beyond that wait to get in, in order.
const QUEUE: usize = 1024;
/// Records that one statement finds at most.
const MAX_BATCH: usize = 64;
/// How many records the statements find: a batch takes the smallest that holds it, so that few
/// statements are prepared.
const SIZES: [usize; 3] = [4, 16, MAX_BATCH];

struct Ask {
    id: RecordId,
    caller: oneshot::Sender<Result<Found, StoreError>>,
}

/// The callers' end of the queue.
pub(super) struct Reader(mpsc::Sender<Ask>);

impl Reader {
    /// Starts the reader's thread. It ends when the `Reader` is gone and the queue is empty.
    pub(super) fn start(options: Arc<SqliteConnectOptions>, shift: ClockShift) -> std::io::Result<Self> {
        let (queue, asks) = mpsc::channel(QUEUE);
        // A thread of its own: callers may live on several runtimes, none of which outlives the store.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("tidegate-read".to_owned()).spawn(move || {
            runtime.block_on(serve(asks, &options, &shift));
        })?;
        Ok(Self(queue))
    }

    /// The record as it is now, or was after this call began.
    pub(super) async fn find(&self, id: &RecordId) -> Result<Found, StoreError> {
        let closed = |()| StoreError::Closed { store: STORE };
        let (caller, answer) = oneshot::channel();
        self.0.send(Ask { id: id.clone(), caller }).await.map_err(|_| closed(()))?;
        answer.await.unwrap_or_else(|_| Err(closed(())))
    }
}

async fn serve(mut asks: mpsc::Receiver<Ask>, options: &SqliteConnectOptions, shift: &ClockShift) {
    let statements = SIZES.map(|size| Arc::from(statement(size)));
    let mut idle: Option<SqliteConnection> = None;
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while asks.recv_many(&mut batch, MAX_BATCH).await > 0 {
        // Whoever went away needs no answer.
        batch.retain(|ask| !ask.caller.is_closed());
        let found = match idle.take() {
            Some(conn) => find_all(conn, &batch, &statements, shift).await,
            None => match options.connect().await {
                Ok(conn) => find_all(conn, &batch, &statements, shift).await,
                Err(error) => Err(error),
            },
        };
        match found {
            Ok((conn, found)) => {
                idle = Some(conn);
                let mut asks: Vec<Option<Ask>> = batch.drain(..).map(Some).collect();
                for (at, found) in found {
                    if let Some(ask) = asks.get_mut(at).and_then(Option::take) {
                        // A caller that went away meanwhile needs none either.
                        let _ = ask.caller.send(found);
                    }
                }
            }
            // The connection is given up: whatever is wrong may be wrong with it.
            Err(error) => {
                let error = store_error(error);
                for ask in batch.drain(..) {
                    let _ = ask.caller.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Answers, with the places of those who asked.
type Answers = Vec<(usize, Result<Found, StoreError>)>;

/// Finds a whole batch in one snapshot, which is younger than any of its callers' asking.
async fn find_all(
    mut conn: SqliteConnection,
    batch: &[Ask],
    statements: &[Arc<str>; SIZES.len()],
    shift: &ClockShift,
) -> Result<(SqliteConnection, Answers), sqlx::Error> {
    let answer = |found: Result<Found, Fault>| match found {
        Err(Fault::Sql(error)) => Err(error),
        found => Ok(found.map_err(fault)),
    };
    let mut answers = Vec::with_capacity(batch.len());
    if let [only] = batch {
        answers.push((0, answer(find(&mut conn, &only.id, shift).await)?));
        return Ok((conn, answers));
    }
    let Some((size, statement)) = SIZES.into_iter().zip(statements).find(|(size, _)| batch.len() <= *size)
    else {
        return Ok((conn, answers));
    };
    let mut query = sqlx::query(AssertSqlSafe(Arc::clone(statement)));
    for ask in batch {
        query = query.bind(ask.id.operation()).bind(ask.id.scope()).bind(ask.id.key());
    }
    for _ in batch.len()..size {
        // No record has these.
        query = query.bind(None::<&str>).bind(None::<&str>).bind(None::<&str>);
    }
    for row in query.fetch_all(&mut conn).await? {
        let at = usize::try_from(row.try_get::<i64, _>("at")?).unwrap_or(usize::MAX);
        if let Some(ask) = batch.get(at) {
            answers.push((at, answer(record(&row, &ask.id, shift))?));
        }
    }
    Ok((conn, answers))
}

/// A statement that finds `size` records. It is made of nothing but places for values.
fn statement(size: usize) -> String {
    let mut text = String::from("WITH asked (at, operation, scope, key) AS (VALUES ");
    for at in 0..size {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}({at}, ?, ?, ?)");
    }
    text.push_str(") SELECT asked.at, ");
    text.push_str(columns!());
    text.push_str(
        " FROM asked LEFT JOIN tidegate_idempotency AS r
            ON r.operation = asked.operation AND r.scope = asked.scope AND r.key = asked.key",
    );
    text
}

#[cfg(test)]
mod tests;
