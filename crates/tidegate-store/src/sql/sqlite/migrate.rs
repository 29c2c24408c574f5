//! Schema steps, versioned for each component, so that a team's own database can hold the
//! idempotency table alone.

use sqlx::{SqliteConnection, SqlitePool};

use super::write::Write;

/// Why a schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A newer Tidegate has been here.
    #[error(
        "the database's {component} schema is version {found}, and this program knows up to {known}: run the newer Tidegate, or name another database"
    )]
    Newer {
        /// Which tables.
        component: &'static str,
        /// What stands there.
        found: i64,
        /// What this program knows.
        known: i64,
    },
    /// A statement failed.
    #[error("the {component} schema could not be set up: {source}")]
    Sql {
        /// Which tables.
        component: &'static str,
        /// What SQLite said.
        source: sqlx::Error,
    },
}

/// Runs those of `steps` that have not been run, in one immediate transaction. Safe when several
/// instances start at once.
pub async fn migrate(
    pool: &SqlitePool,
    component: &'static str,
    steps: &'static [&'static str],
) -> Result<(), MigrateError> {
    let sql = |source| MigrateError::Sql { component, source };
    let mut tx = Write::begin(pool).await.map_err(sql)?;
    let found = version(&mut tx, component).await.map_err(sql)?;
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(MigrateError::Newer { component, found, known });
    }
    for step in steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
        sqlx::raw_sql(*step).execute(&mut *tx).await.map_err(sql)?;
    }
    sqlx::query(
        "INSERT INTO tidegate_schema (component, version) VALUES (?1, ?2)
         ON CONFLICT (component) DO UPDATE SET version = excluded.version",
    )
    .bind(component)
    .bind(known)
    .execute(&mut *tx)
    .await
    .map_err(sql)?;
    tx.commit().await.map_err(sql)
}

async fn version(conn: &mut SqliteConnection, component: &str) -> Result<i64, sqlx::Error> {
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS tidegate_schema
         (component TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL) STRICT",
    )
    .execute(&mut *conn)
    .await?;
    let row: Option<i64> = sqlx::query_scalar("SELECT version FROM tidegate_schema WHERE component = ?1")
        .bind(component)
        .fetch_optional(conn)
        .await?;
    Ok(row.unwrap_or(0))
}

/// Whether any component was ever set up in the database.
pub(super) async fn is_ours(pool: &SqlitePool) -> Result<bool, sqlx::Error> {
    let tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tidegate_schema'";
    Ok(sqlx::query_scalar::<_, i64>(tables).fetch_one(pool).await? > 0)
}

/// Whether there are tables and none of them is ours.
pub(super) async fn is_taken(pool: &SqlitePool) -> Result<bool, sqlx::Error> {
    let others = "SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'";
    Ok(!is_ours(pool).await? && sqlx::query_scalar::<_, i64>(others).fetch_one(pool).await? > 0)
}

/// The version of a component that stands in the database; `None` when it was never set up.
pub(super) async fn recorded(pool: &SqlitePool, component: &str) -> Result<Option<i64>, sqlx::Error> {
    if !is_ours(pool).await? {
        return Ok(None);
    }
    sqlx::query_scalar("SELECT version FROM tidegate_schema WHERE component = ?1")
        .bind(component)
        .fetch_optional(pool)
        .await
}
