//! The naive way, for real: a table of requests whose claim, effect and mark are committed apart. The
//! claim itself is right, with a lease by the database's clock; what it lacks is a token, and one
//! transaction for effect and mark.

use std::time::Duration;

use sqlx::SqlitePool;

use crate::LabError;
use crate::error::About as _;

pub(super) async fn create(pool: &SqlitePool) -> Result<(), LabError> {
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS naive_requests (
            key TEXT PRIMARY KEY, state TEXT NOT NULL, lease_until INTEGER NOT NULL)",
    )
    .execute(pool)
    .await
    .map(|_| ())
    .about("making the naive table")
}

/// Whether the caller may execute: nobody is at work, or whoever was has lost the lease.
pub(super) async fn claim(pool: &SqlitePool, key: &str, lease: Duration) -> Result<bool, LabError> {
    let claimed = sqlx::query(
        "INSERT INTO naive_requests VALUES (?1, 'PROCESSING', CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?2)
         ON CONFLICT (key) DO UPDATE SET lease_until = excluded.lease_until
            WHERE state = 'PROCESSING' AND lease_until <= excluded.lease_until - ?2",
    )
    .bind(key)
    .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
    .execute(pool)
    .await
    .about("the naive claim")?;
    Ok(claimed.rows_affected() == 1)
}

/// The business write, committed on its own.
pub(super) async fn write(pool: &SqlitePool, name: &str) -> Result<(), LabError> {
    let mut conn = pool.acquire().await.about("taking a connection")?;
    super::register(&mut conn, name).await
}

/// The mark, committed on its own. Nobody looks whose request it is by now.
pub(super) async fn mark(pool: &SqlitePool, key: &str) -> Result<(), LabError> {
    sqlx::query("UPDATE naive_requests SET state = 'DONE' WHERE key = ?1")
        .bind(key)
        .execute(pool)
        .await
        .map(|_| ())
        .about("the naive mark")
}
