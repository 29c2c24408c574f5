//! Records as rows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::record::{
    Fence, FirstTry, Owner, Policy, Record, Stage, State, StoredResponse,
};
use tidegate_core::idempotency::{Fingerprint, RecordId};
use tidegate_core::rule::model::{CommitMode, OnUnknown};

use super::{ClockShift, STORE};
use crate::traits::{Listed, StoreError};

/// SQLite's own time in milliseconds.
macro_rules! now_ms {
    () => {
        "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)"
    };
}
pub(super) use now_ms;

/// Spans are stored up to this (584 years), so that no sum of a time and a span leaves SQLite's
/// integers.
const MAX_MS: u64 = u64::MAX / 1_000_000;

/// Why a statement gave no result.
pub(super) enum Fault {
    /// SQLite refused: the transaction is lost.
    Sql(sqlx::Error),
    /// This record cannot be read: others can.
    Damaged(StoreError),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        match error {
            // What a row holds is not what its columns may hold.
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                Self::Damaged(corrupt(error.to_string()))
            }
            error => Self::Sql(error),
        }
    }
}

fn corrupt(what: impl Into<Arc<str>>) -> StoreError {
    StoreError::Corrupt { store: STORE, what: what.into() }
}

/// SQLite's time.
pub(super) async fn now(
    conn: impl sqlx::SqliteExecutor<'_>,
    shift: &ClockShift,
) -> Result<Timestamp, sqlx::Error> {
    let now: i64 = sqlx::query_scalar(concat!("SELECT ", now_ms!())).fetch_one(conn).await?;
    Ok(shift.apply(now))
}

/// What [`record`] reads, of the records that are joined as `r`.
macro_rules! columns {
    () => {
        concat!(
            now_ms!(),
            " AS now, r.state, r.token, r.owner, r.fingerprint, r.commit_mode, r.on_unknown, r.retention_ms,
            r.window_ms, r.rules_version, r.flags, r.attempts, r.first_claimed_at, r.claimed_at,
            r.execution_until, r.lease_until, r.changed_at, r.status, r.headers, r.body"
        )
    };
}
pub(super) use columns;

/// A record, if it is there, and SQLite's time.
pub(super) type Found = (Option<Record>, Timestamp);

/// The record and SQLite's time, in one statement.
pub(super) async fn find(
    conn: impl sqlx::SqliteExecutor<'_>,
    id: &RecordId,
    shift: &ClockShift,
) -> Result<Found, Fault> {
    let row = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM (SELECT 1) LEFT JOIN tidegate_idempotency AS r
            ON r.operation = ?1 AND r.scope = ?2 AND r.key = ?3"
    ))
    .bind(id.operation())
    .bind(id.scope())
    .bind(id.key())
    .fetch_one(conn)
    .await?;
    record(&row, id, shift)
}

/// What a row of [`columns`] says.
pub(super) fn record(row: &SqliteRow, id: &RecordId, shift: &ClockShift) -> Result<Found, Fault> {
    let now = shift.apply(row.try_get("now")?);
    let Some(state) = row.try_get::<Option<&str>, _>("state")? else { return Ok((None, now)) };
    match decode(row, state)? {
        Some(record) => Ok((Some(record), now)),
        None => Err(Fault::Damaged(corrupt(format!("{id}: a column holds what no Tidegate writes")))),
    }
}

/// `None` when a value has none of the forms that [`put`] writes.
fn decode(row: &SqliteRow, state: &str) -> Result<Option<Record>, sqlx::Error> {
    let time = |column: &str| row.try_get::<i64, _>(column).map(timestamp);
    let stage = match State::parse(state) {
        Some(State::Processing) => Some(Stage::Processing),
        Some(State::Released) => Some(Stage::Released),
        Some(State::Succeeded | State::Failed) => {
            let status = u16::try_from(row.try_get::<i64, _>("status")?).unwrap_or(0);
            let body: Option<Vec<u8>> = row.try_get("body")?;
            StoredResponse::from_stored(status, row.try_get("headers")?, body.map(Bytes::from))
                .map(|response| Stage::Finished(Arc::new(response)))
        }
        None => None,
    };
    let policy = policy(row)?;
    let fence = fence(row)?;
    let fingerprint = Fingerprint::from_bytes(row.try_get("fingerprint")?);
    let (Some(stage), Some(policy), Some(fence), Some(fingerprint)) = (stage, policy, fence, fingerprint)
    else {
        return Ok(None);
    };
    Ok(Some(Record {
        stage,
        fence,
        fingerprint,
        policy,
        first: FirstTry {
            version: unsigned(row.try_get("rules_version")?),
            flags: row.try_get::<&str, _>("flags")?.into(),
        },
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        first_claimed_at: time("first_claimed_at")?,
        claimed_at: time("claimed_at")?,
        execution_until: time("execution_until")?,
        lease_until: time("lease_until")?,
        changed_at: time("changed_at")?,
    }))
}

fn policy(row: &SqliteRow) -> Result<Option<Policy>, sqlx::Error> {
    let commit = match row.try_get("commit_mode")? {
        "after_response" => CommitMode::AfterResponse,
        "with_effects" => CommitMode::WithEffects,
        "one_transaction" => CommitMode::OneTransaction,
        _ => return Ok(None),
    };
    let on_unknown = match row.try_get("on_unknown")? {
        "hold" => OnUnknown::Hold,
        "retry" => OnUnknown::Retry,
        _ => return Ok(None),
    };
    let retention = span(row.try_get("retention_ms")?);
    let window = row.try_get::<Option<i64>, _>("window_ms")?.map(span);
    Ok(Some(Policy { commit, on_unknown, retention, window }))
}

fn fence(row: &SqliteRow) -> Result<Option<Fence>, sqlx::Error> {
    let token = unsigned(row.try_get("token")?);
    Ok(Owner::parse(row.try_get("owner")?).map(|owner| Fence { token, owner }))
}

/// Writes the record over whatever was there. Only inside the transaction that found it.
pub(super) async fn put(
    conn: &mut SqliteConnection,
    id: &RecordId,
    record: &Record,
) -> Result<(), sqlx::Error> {
    let response = match &record.stage {
        Stage::Finished(response) => Some(response),
        Stage::Processing | Stage::Released => None,
    };
    sqlx::query(
        "INSERT INTO tidegate_idempotency
            (operation, scope, key, state, token, owner, fingerprint, commit_mode, on_unknown, retention_ms,
             window_ms, rules_version, flags, attempts, first_claimed_at, claimed_at, execution_until,
             lease_until, changed_at, expires_at, status, headers, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
             ?21, ?22, ?23)
         ON CONFLICT (operation, scope, key) DO UPDATE SET
            state = ?4, token = ?5, owner = ?6, fingerprint = ?7, commit_mode = ?8, on_unknown = ?9,
            retention_ms = ?10, window_ms = ?11, rules_version = ?12, flags = ?13, attempts = ?14,
            first_claimed_at = ?15, claimed_at = ?16, execution_until = ?17, lease_until = ?18,
            changed_at = ?19, expires_at = ?20, status = ?21, headers = ?22, body = ?23",
    )
    .bind(id.operation())
    .bind(id.scope())
    .bind(id.key())
    .bind(record.stage.state().as_str())
    .bind(signed(record.fence.token))
    .bind(record.fence.owner.to_string())
    .bind(record.fingerprint.to_bytes())
    .bind(match record.policy.commit {
        CommitMode::AfterResponse => "after_response",
        CommitMode::WithEffects => "with_effects",
        CommitMode::OneTransaction => "one_transaction",
    })
    .bind(match record.policy.on_unknown {
        OnUnknown::Hold => "hold",
        OnUnknown::Retry => "retry",
    })
    .bind(millis(record.policy.retention))
    .bind(record.policy.window.map(millis))
    .bind(signed(record.first.version))
    .bind(&*record.first.flags)
    .bind(i64::from(record.attempts))
    .bind(end(record.first_claimed_at))
    .bind(end(record.claimed_at))
    .bind(end(record.execution_until))
    .bind(end(record.lease_until))
    .bind(end(record.changed_at))
    .bind(end(record.expires_at()))
    .bind(response.map(|response| i64::from(response.status())))
    .bind(response.map(|response| response.headers_to_bytes()))
    .bind(response.and_then(|response| response.body()).map(|body| &body[..]))
    .execute(conn)
    .await?;
    Ok(())
}

/// A line of a listing; `None` when the row is damaged.
pub(super) fn listed(row: &SqliteRow) -> Result<Option<Listed>, sqlx::Error> {
    let id = RecordId::from_stored(row.try_get("operation")?, row.try_get("scope")?, row.try_get("key")?);
    let (Some(state), Some(fence)) = (State::parse(row.try_get("state")?), fence(row)?) else {
        return Ok(None);
    };
    Ok(Some(Listed {
        id,
        state,
        fence,
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        first_claimed_at: timestamp(row.try_get("first_claimed_at")?),
        lease_until: timestamp(row.try_get("lease_until")?),
        expires_at: timestamp(row.try_get("expires_at")?),
    }))
}

fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(unsigned(millis))
}

/// Rounded up: a lease must not end in the store before it ends for its holder's neighbours.
fn end(time: Timestamp) -> i64 {
    signed(time.as_nanos().div_ceil(1_000_000))
}

fn span(millis: i64) -> Duration {
    Duration::from_millis(unsigned(millis))
}

/// Rounded up, and cut at [`MAX_MS`].
fn millis(span: Duration) -> i64 {
    signed(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(MAX_MS).min(MAX_MS))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
