//! Idempotency records in SQLite, in a file of their own or beside the business rows.

mod command;
mod reader;
mod row;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{Row as _, SqliteConnection, SqlitePool};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::RecordId;
use tidegate_core::idempotency::record::{Fence, Owner, StoredResponse};
use tidegate_core::idempotency::transition::{self, ClaimAsk, Claimed, Held, Verdict};

use super::migrate::recorded;
use super::{MigrateError, migrate};
use crate::rules::NewAuditEntry;
use crate::traits::{
    BoxFuture, Fenced, IdempotencyStore, ListAsk, Listed, MAX_LISTED, Renewed, Settled, Shown, StoreError,
};
use command::{Audit, Claim, End, EndHow, Purge, Renew, Settle};
use reader::Reader;
use row::{Fault, now_ms};
use writer::{Writer, store_error};

const STORE: &str = "SQLite";
const COMPONENT: &str = "idempotency";
const STEPS: &[&str] = &[include_str!("idempotency.sql")];

/// Why the table could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A schema step failed, or a newer Tidegate has been here.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A table of that name is there and is not ours.
    #[error(
        "the table tidegate_idempotency in this database is not Tidegate's ({difference}): rename or drop it, or name another database"
    )]
    Shape {
        /// The first difference found.
        difference: String,
    },
    /// SQLite refused a statement.
    #[error(
        "the idempotency table could not be looked at: {0}; check that the file is a SQLite database that may be written"
    )]
    Sql(#[from] sqlx::Error),
    /// A thread could not be started.
    #[error("the threads for SQLite could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Moves the store's clock ahead, so that tests need not wait for leases and retention to end.
///
/// [`complete_in`] does not know it: a record that is completed inside a caller's transaction
/// counts its retention from SQLite's real time.
#[derive(Clone, Debug, Default)]
pub struct ClockShift(Arc<AtomicU64>);

impl ClockShift {
    /// Moves the clock by whole milliseconds.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    fn millis(&self) -> i64 {
        i64::try_from(self.0.load(Ordering::SeqCst)).unwrap_or(i64::MAX)
    }

    fn apply(&self, now: i64) -> Timestamp {
        Timestamp::from_millis(u64::try_from(now.saturating_add(self.millis())).unwrap_or(0))
    }
}

/// An [`IdempotencyStore`] in SQLite.
pub struct SqliteIdempotency {
    pool: SqlitePool,
    reader: Reader,
    writer: Writer,
    shift: ClockShift,
}

impl SqliteIdempotency {
    /// Sets up the table in the pool's database and starts the reader and the writer, each of which opens
    /// one more connection with the pool's options.
    pub async fn open(pool: SqlitePool) -> Result<Self, SetupError> {
        Self::open_with_clock(pool, ClockShift::default()).await
    }

    /// The same with a clock that a test can move.
    pub async fn open_with_clock(pool: SqlitePool, shift: ClockShift) -> Result<Self, SetupError> {
        if recorded(&pool, COMPONENT).await?.is_none() {
            // A foreign table of that name would only show as a failing step.
            check_shape(&pool, Absent::IsFine).await?;
        }
        migrate(&pool, COMPONENT, STEPS).await?;
        check_shape(&pool, Absent::IsWrong).await?;
        let reader = Reader::start(pool.connect_options(), shift.clone())?;
        let writer = Writer::start(pool.connect_options(), shift.clone())?;
        Ok(Self { pool, reader, writer, shift })
    }

    /// An operator's [`IdempotencyStore::resolve`] (or, without a verdict, its
    /// [`IdempotencyStore::force_release`]) together with its entry in the audit trail of the same
    /// database: neither stands without the other. An answer other than [`Settled::Done`] changes and
    /// notes nothing, and a repeated command notes nothing again. `entry` is asked inside the
    /// transaction, with the record as it was then: what it says is what was changed.
    ///
    /// The trail's table must be there: open a [`super::SqliteRules`] on the same file before.
    pub async fn settle_audited(
        &self,
        id: &RecordId,
        seen: Fence,
        by: Owner,
        verdict: Option<&Verdict>,
        entry: impl Fn(&Shown) -> NewAuditEntry + Send + Sync + 'static,
    ) -> Result<Settled, StoreError> {
        let verdict = verdict.cloned();
        let audit: Option<Audit> = Some(Arc::new(entry));
        self.writer.submit(Settle { id: id.clone(), seen, by, verdict, audit }, || {}).await
    }

    async fn end(&self, id: &RecordId, how: EndHow) -> Result<Fenced, StoreError> {
        self.writer.submit(End { id: id.clone(), how }, || {}).await
    }

    async fn claim_now(&self, id: &RecordId, ask: &ClaimAsk) -> Result<Claimed, StoreError> {
        // Replays and refusals, the bulk under a storm of retries, need no write lock. A claim that
        // looks free here is decided by the writer.
        let (found, now) = self.reader.find(id).await?;
        if let Err(answer) = transition::claim(found.as_ref(), ask, now) {
            return Ok(Claimed::Answer(answer));
        }
        let mut guard = Abandon { writer: &self.writer, id, owner: ask.owner, armed: false };
        let command = Claim { id: id.clone(), ask: Arc::new(ask.clone()) };
        let claimed = self.writer.submit(command, || guard.armed = true).await;
        // What the caller hears of is the caller's. An unknown commit is left to the guard: the claim
        // may stand, and nobody will execute under it.
        guard.armed = matches!(claimed, Err(StoreError::CommitUnknown { .. }));
        claimed
    }
}

/// Releases a claim whose caller went away before it heard. The queue keeps the order: a claim by
/// the same owner that comes later is carried out later.
struct Abandon<'a> {
    writer: &'a Writer,
    id: &'a RecordId,
    owner: Owner,
    armed: bool,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.writer.post(End { id: self.id.clone(), how: EndHow::Abandon(self.owner) });
        }
    }
}

fn fault(fault: Fault) -> StoreError {
    match fault {
        Fault::Sql(error) => store_error(error),
        Fault::Damaged(error) => error,
    }
}

/// Completes the record inside the caller's own transaction, so that it and the business rows
/// commit together or not at all.
///
/// The transaction should have begun with `BEGIN IMMEDIATE`: a deferred one that has read may be
/// refused the write lock. On [`Fenced::Superseded`] nothing was updated and the caller **must roll
/// back**: another attempt holds or has finished the record.
pub async fn complete_in(
    conn: &mut SqliteConnection,
    held: &Held,
    response: &StoredResponse,
) -> Result<Fenced, StoreError> {
    let done = sqlx::query(concat!(
        "UPDATE tidegate_idempotency
         SET state = ?6, status = ?7, headers = ?8, body = ?9,
            changed_at = ",
        now_ms!(),
        ", lease_until = min(lease_until, ",
        now_ms!(),
        "), expires_at = CASE WHEN window_ms IS NULL THEN ",
        now_ms!(),
        " + retention_ms ELSE first_claimed_at + window_ms END
         WHERE operation = ?1 AND scope = ?2 AND key = ?3 AND token = ?4 AND owner = ?5
            AND state = 'PROCESSING'"
    ))
    .bind(held.id().operation())
    .bind(held.id().scope())
    .bind(held.id().key())
    .bind(i64::try_from(held.fence().token).unwrap_or(i64::MAX))
    .bind(held.fence().owner.to_string())
    .bind(response.state().as_str())
    .bind(i64::from(response.status()))
    .bind(response.headers_to_bytes())
    .bind(response.body().map(|body| &body[..]))
    .execute(conn)
    .await
    .map_err(store_error)?;
    Ok(if done.rows_affected() == 1 { Fenced::Done } else { Fenced::Superseded })
}

/// Claims the record inside the caller's own transaction, for `commit: one_transaction`: claim,
/// effects and completion become visible together. The transaction must have begun with
/// `BEGIN IMMEDIATE`.
pub async fn claim_in(
    conn: &mut SqliteConnection,
    id: &RecordId,
    ask: &ClaimAsk,
) -> Result<Claimed, StoreError> {
    command::claim(conn, id, ask, &ClockShift::default()).await.map_err(fault)
}

impl IdempotencyStore for SqliteIdempotency {
    fn claim<'a>(
        &'a self,
        id: &'a RecordId,
        ask: &'a ClaimAsk,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(self.claim_now(id, ask))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Renewed, StoreError>> {
        Box::pin(self.writer.submit(Renew(held.clone()), || {}))
    }

    fn complete<'a>(
        &'a self,
        held: &'a Held,
        response: &'a Arc<StoredResponse>,
    ) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        Box::pin(self.end(held.id(), EndHow::Complete(held.fence(), Arc::clone(response))))
    }

    fn release<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        Box::pin(self.end(held.id(), EndHow::Release(held.fence())))
    }

    fn abandon<'a>(&'a self, id: &'a RecordId, owner: Owner) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        Box::pin(self.end(id, EndHow::Abandon(owner)))
    }

    fn read<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<Shown>, StoreError>> {
        Box::pin(async move {
            let (record, now) = self.reader.find(id).await?;
            Ok(record.map(|record| Shown { record, now }))
        })
    }

    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
        verdict: &'a Verdict,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        let command = Settle { id: id.clone(), seen, by, verdict: Some(verdict.clone()), audit: None };
        Box::pin(self.writer.submit(command, || {}))
    }

    fn force_release<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        let command = Settle { id: id.clone(), seen, by, verdict: None, audit: None };
        Box::pin(self.writer.submit(command, || {}))
    }

    fn list<'a>(&'a self, ask: &'a ListAsk) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>> {
        Box::pin(async move {
            let after = ask.after.as_ref();
            let rows = sqlx::query(
                "SELECT operation, scope, key, state, token, owner, attempts, first_claimed_at, lease_until,
                    expires_at
                 FROM tidegate_idempotency
                 WHERE (?1 IS NULL OR (operation, scope, key) > (?1, ?2, ?3)) AND (?4 IS NULL OR state = ?4)
                 ORDER BY operation, scope, key LIMIT ?5",
            )
            .bind(after.map(RecordId::operation))
            .bind(after.map(RecordId::scope))
            .bind(after.map(RecordId::key))
            .bind(ask.state.map(tidegate_core::idempotency::State::as_str))
            .bind(i64::from(ask.limit.min(MAX_LISTED)))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
            // A damaged row must not hide the others from the operator who looks for it.
            Ok(rows.iter().filter_map(|row| row::listed(row).ok().flatten()).collect())
        })
    }

    fn purge(&self, batch: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(self.writer.submit(Purge { batch }, || {}))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move { row::now(&self.pool, &self.shift).await.map_err(store_error) })
    }
}

impl fmt::Debug for SqliteIdempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqliteIdempotency")
    }
}

// ---- the table's shape ---------------------------------------------------------------------------

enum Absent {
    IsFine,
    IsWrong,
}

/// Compares the table that is there with the one that the steps make: names, types and primary key.
async fn check_shape(pool: &SqlitePool, absent: Absent) -> Result<(), SetupError> {
    let columns = "SELECT name, type, pk FROM pragma_table_info('tidegate_idempotency')";
    let read = |rows: Vec<sqlx::sqlite::SqliteRow>| -> Result<BTreeMap<String, (String, i64)>, sqlx::Error> {
        rows.iter().map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)))).collect()
    };
    let found = read(sqlx::query(columns).fetch_all(pool).await?)?;
    if found.is_empty() && matches!(absent, Absent::IsFine) {
        return Ok(());
    }
    // What the steps make, asked from SQLite itself.
    let mut scratch = <SqliteConnection as sqlx::Connection>::connect("sqlite::memory:").await?;
    for step in STEPS {
        sqlx::raw_sql(*step).execute(&mut scratch).await?;
    }
    let expected = read(sqlx::query(columns).fetch_all(&mut scratch).await?)?;
    let missing = expected.iter().find(|(name, _)| !found.contains_key(*name));
    let other = found.iter().find(|(name, shape)| expected.get(*name) != Some(shape));
    let difference = match (missing, other) {
        (Some((name, _)), _) => format!("it has no column {name}"),
        (None, Some((name, _))) => format!("its column {name} is not as expected"),
        (None, None) => return Ok(()),
    };
    Err(SetupError::Shape { difference })
}

#[cfg(test)]
mod tests;
