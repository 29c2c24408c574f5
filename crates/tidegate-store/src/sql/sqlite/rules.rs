//! Rule versions in SQLite.
//!
//! Every write is one `BEGIN IMMEDIATE` transaction: it waits for other writers instead of failing
//! half-way, and a crash leaves all of it or nothing.

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row as _, SqlitePool};
use tidegate_core::Timestamp;

use super::write::Write;
use super::{MigrateError, migrate};
use crate::rules::{
    AuditEntry, AuditKind, BoxFuture, FileNote, FileState, MAX_DETAIL, MAX_LISTED, NewAuditEntry, Origin,
    Publish, PublishError, RuleStore, RuleStoreError, Sha256, SourceText, StoredVersion, VersionHead,
    bounded,
};

/// Schema steps of the component `rules`. Append only: a step that was released never changes.
const STEPS: &[&str] = &["
CREATE TABLE tidegate_rule_versions (
    number INTEGER PRIMARY KEY NOT NULL CHECK (number >= 1),
    publish_id BLOB NOT NULL UNIQUE CHECK (length(publish_id) = 16),
    parent INTEGER,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    canonical TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    node TEXT NOT NULL,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('file', 'rollback', 'request')),
    origin_path TEXT,
    origin_content BLOB,
    origin_version INTEGER
) STRICT;
CREATE TABLE tidegate_rule_sources (
    number INTEGER NOT NULL REFERENCES tidegate_rule_versions (number),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (number, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE tidegate_audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    at INTEGER NOT NULL,
    node TEXT NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER,
    digest BLOB,
    who TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE TABLE tidegate_rule_files (
    node TEXT NOT NULL,
    path TEXT NOT NULL,
    accepted BLOB,
    refused BLOB,
    drift INTEGER,
    PRIMARY KEY (node, path)
) STRICT, WITHOUT ROWID;
"];

/// Milliseconds since the UTC epoch by SQLite's clock: one expression, so that every row agrees.
const NOW: &str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";
/// All of a version but its texts.
const HEAD: &str = "number, parent, digest, published_at, node, author, reason, origin, origin_path, \
                    origin_content, origin_version";

/// The rule store in a SQLite database, which several processes of one machine may share.
#[derive(Clone, Debug)]
pub struct SqliteRules {
    pool: SqlitePool,
}

impl SqliteRules {
    /// Makes the tables or brings them up to date.
    pub async fn new(pool: SqlitePool) -> Result<Self, RuleStoreError> {
        migrate(&pool, "rules", STEPS).await.map_err(|error| match error {
            MigrateError::Newer { found, known, .. } => RuleStoreError::Newer { found, known },
            MigrateError::Sql { source, .. } => store_error(source),
        })?;
        Ok(Self { pool })
    }

    async fn find(&self, number: Option<u64>) -> Result<Option<StoredVersion>, RuleStoreError> {
        let mut conn = self.pool.acquire().await.map_err(store_error)?;
        match number {
            Some(number) => version(&mut conn, "WHERE number = ?1", Some(signed(number))).await,
            None => version(&mut conn, "ORDER BY number DESC LIMIT 1", None).await,
        }
    }

    async fn publish_now(&self, publish: Publish) -> Result<StoredVersion, PublishError> {
        publish.check()?;
        let mut tx = Write::begin(&self.pool).await.map_err(store_error)?;
        if let Some(number) = published_as(&mut tx, &publish).await? {
            let seen = version(&mut tx, "WHERE number = ?1", Some(signed(number))).await?;
            let seen = seen.ok_or_else(|| damaged(format!("version {number} is gone")))?;
            tx.rollback().await.map_err(store_error)?;
            return if seen.digest == publish.digest {
                Ok(seen)
            } else {
                Err(PublishError::IdReused { number })
            };
        }
        let latest = latest_number(&mut tx).await?;
        if latest != publish.expected {
            tx.rollback().await.map_err(store_error)?;
            return Err(PublishError::Conflict { expected: publish.expected, latest });
        }
        let number = latest.unwrap_or(0) + 1;
        let published_at = insert_version(&mut tx, &publish, number, latest).await.map_err(store_error)?;
        insert_audit(&mut tx, &publish.entry(number)).await?;
        if let Origin::File { node, path, content } = &publish.origin {
            let mut state = file_state(&mut tx, node, path).await?;
            state.take(FileNote::Accepted(*content));
            set_file_state(&mut tx, node, path, state).await?;
        }
        tx.commit().await.map_err(store_error)?;
        Ok(StoredVersion {
            number,
            digest: publish.digest,
            canonical: publish.canonical,
            source: publish.source,
            published_at: timestamp(published_at),
            author: publish.author,
            reason: publish.reason,
            parent: latest,
            origin: publish.origin,
        })
    }
}

impl RuleStore for SqliteRules {
    fn latest_number(&self) -> BoxFuture<'_, Result<Option<u64>, RuleStoreError>> {
        Box::pin(async {
            let mut conn = self.pool.acquire().await.map_err(store_error)?;
            latest_number(&mut conn).await
        })
    }

    fn latest(&self) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>> {
        Box::pin(self.find(None))
    }

    fn get(&self, number: u64) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>> {
        Box::pin(self.find(Some(number)))
    }

    fn history(&self, limit: usize) -> BoxFuture<'_, Result<Vec<VersionHead>, RuleStoreError>> {
        Box::pin(async move {
            let sql = format!("SELECT {HEAD} FROM tidegate_rule_versions ORDER BY number DESC LIMIT ?1");
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(row_limit(limit)).fetch_all(&self.pool);
            rows.await.map_err(store_error)?.iter().map(head).collect()
        })
    }

    fn publish(&self, publish: Publish) -> BoxFuture<'_, Result<StoredVersion, PublishError>> {
        Box::pin(self.publish_now(publish))
    }

    fn file_state<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<FileState, RuleStoreError>> {
        Box::pin(async move {
            let mut conn = self.pool.acquire().await.map_err(store_error)?;
            file_state(&mut conn, node, path).await
        })
    }

    fn note_file<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
        note: FileNote,
        entry: NewAuditEntry,
    ) -> BoxFuture<'a, Result<bool, RuleStoreError>> {
        Box::pin(async move {
            let mut tx = Write::begin(&self.pool).await.map_err(store_error)?;
            let mut state = file_state(&mut tx, node, path).await?;
            if !state.take(note) {
                tx.rollback().await.map_err(store_error)?;
                return Ok(false);
            }
            set_file_state(&mut tx, node, path, state).await?;
            insert_audit(&mut tx, &entry).await?;
            tx.commit().await.map_err(store_error)?;
            Ok(true)
        })
    }

    fn audit(&self, entry: NewAuditEntry) -> BoxFuture<'_, Result<u64, RuleStoreError>> {
        Box::pin(async move {
            let mut tx = Write::begin(&self.pool).await.map_err(store_error)?;
            let id = insert_audit(&mut tx, &entry).await?;
            tx.commit().await.map_err(store_error)?;
            Ok(id)
        })
    }

    fn audit_log(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> BoxFuture<'_, Result<Vec<AuditEntry>, RuleStoreError>> {
        Box::pin(async move {
            let rows = sqlx::query(
                "SELECT id, at, node, kind, version, digest, who, detail FROM tidegate_audit
                 WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
            )
            .bind(before.map_or(i64::MAX, signed))
            .bind(row_limit(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
            rows.iter().map(audit_entry).collect()
        })
    }
}

// ---- statements ------------------------------------------------------------------------------------

async fn latest_number(conn: &mut SqliteConnection) -> Result<Option<u64>, RuleStoreError> {
    let number: Option<i64> = sqlx::query_scalar("SELECT max(number) FROM tidegate_rule_versions")
        .fetch_one(conn)
        .await
        .map_err(store_error)?;
    number.map(unsigned).transpose()
}

async fn published_as(conn: &mut SqliteConnection, publish: &Publish) -> Result<Option<u64>, RuleStoreError> {
    let number: Option<i64> =
        sqlx::query_scalar("SELECT number FROM tidegate_rule_versions WHERE publish_id = ?1")
            .bind(publish.id.0.as_slice())
            .fetch_optional(conn)
            .await
            .map_err(store_error)?;
    number.map(unsigned).transpose()
}

async fn version(
    conn: &mut SqliteConnection,
    which: &'static str,
    number: Option<i64>,
) -> Result<Option<StoredVersion>, RuleStoreError> {
    let sql = format!("SELECT {HEAD}, canonical FROM tidegate_rule_versions {which}");
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql));
    if let Some(number) = number {
        query = query.bind(number);
    }
    let Some(row) = query.fetch_optional(&mut *conn).await.map_err(store_error)? else { return Ok(None) };
    let head = head(&row)?;
    // A version's rows never change, so a second statement sees the same version.
    let source: Vec<(String, String)> =
        sqlx::query_as("SELECT name, text FROM tidegate_rule_sources WHERE number = ?1 ORDER BY position")
            .bind(signed(head.number))
            .fetch_all(conn)
            .await
            .map_err(store_error)?;
    Ok(Some(StoredVersion {
        number: head.number,
        digest: head.digest,
        canonical: row.try_get("canonical").map_err(store_error)?,
        source: source.into_iter().map(|(name, text)| SourceText { name, text }).collect(),
        published_at: head.published_at,
        author: head.author,
        reason: head.reason,
        parent: head.parent,
        origin: head.origin,
    }))
}

async fn insert_version(
    conn: &mut SqliteConnection,
    publish: &Publish,
    number: u64,
    parent: Option<u64>,
) -> Result<i64, sqlx::Error> {
    let (origin, path, content, of) = match &publish.origin {
        Origin::File { path, content, .. } => ("file", Some(path), Some(content.as_slice()), None),
        Origin::Rollback { of } => ("rollback", None, None, Some(signed(*of))),
        Origin::Request => ("request", None, None, None),
    };
    // The node of a file's version is the node that watches the file.
    let node = match &publish.origin {
        Origin::File { node, .. } => node,
        Origin::Rollback { .. } | Origin::Request => &publish.node,
    };
    let sql = format!(
        "INSERT INTO tidegate_rule_versions
         (number, publish_id, parent, digest, canonical, published_at, node, author, reason, origin,
          origin_path, origin_content, origin_version)
         VALUES (?1, ?2, ?3, ?4, ?5, {NOW}, ?6, ?7, ?8, ?9, ?10, ?11, ?12) RETURNING published_at"
    );
    let published_at = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(signed(number))
        .bind(publish.id.0.as_slice())
        .bind(parent.map(signed))
        .bind(publish.digest.as_slice())
        .bind(&publish.canonical)
        .bind(node)
        .bind(&publish.author)
        .bind(&publish.reason)
        .bind(origin)
        .bind(path)
        .bind(content)
        .bind(of)
        .fetch_one(&mut *conn)
        .await?;
    for (position, source) in (0_i64..).zip(&publish.source) {
        sqlx::query(
            "INSERT INTO tidegate_rule_sources (number, position, name, text) VALUES (?1, ?2, ?3, ?4)",
        )
        .bind(signed(number))
        .bind(position)
        .bind(&source.name)
        .bind(&source.text)
        .execute(&mut *conn)
        .await?;
    }
    Ok(published_at)
}

async fn insert_audit(conn: &mut SqliteConnection, entry: &NewAuditEntry) -> Result<u64, RuleStoreError> {
    unsigned(append_audit(conn, entry).await.map_err(store_error)?)
}

/// Appends to the audit trail inside the caller's transaction; gives the entry's id.
pub(super) async fn append_audit(
    conn: &mut SqliteConnection,
    entry: &NewAuditEntry,
) -> Result<i64, sqlx::Error> {
    let sql = format!(
        "INSERT INTO tidegate_audit (at, node, kind, version, digest, who, detail)
         VALUES ({NOW}, ?1, ?2, ?3, ?4, ?5, ?6) RETURNING id"
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(&entry.node)
        .bind(entry.kind.as_str())
        .bind(entry.version.map(signed))
        .bind(entry.digest.as_ref().map(Sha256::as_slice))
        .bind(&entry.who)
        .bind(bounded(&entry.detail, MAX_DETAIL))
        .fetch_one(conn)
        .await
}

async fn file_state(
    conn: &mut SqliteConnection,
    node: &str,
    path: &str,
) -> Result<FileState, RuleStoreError> {
    let row =
        sqlx::query("SELECT accepted, refused, drift FROM tidegate_rule_files WHERE node = ?1 AND path = ?2")
            .bind(node)
            .bind(path)
            .fetch_optional(conn)
            .await
            .map_err(store_error)?;
    let Some(row) = row else { return Ok(FileState::default()) };
    Ok(FileState {
        accepted: sha256_or_null(&row, "accepted")?,
        refused: sha256_or_null(&row, "refused")?,
        drift: number_or_null(&row, "drift")?,
    })
}

async fn set_file_state(
    conn: &mut SqliteConnection,
    node: &str,
    path: &str,
    state: FileState,
) -> Result<(), RuleStoreError> {
    sqlx::query(
        "INSERT INTO tidegate_rule_files (node, path, accepted, refused, drift) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (node, path) DO UPDATE
         SET accepted = excluded.accepted, refused = excluded.refused, drift = excluded.drift",
    )
    .bind(node)
    .bind(path)
    .bind(state.accepted.as_ref().map(Sha256::as_slice))
    .bind(state.refused.as_ref().map(Sha256::as_slice))
    .bind(state.drift.map(signed))
    .execute(conn)
    .await
    .map_err(store_error)?;
    Ok(())
}

// ---- rows ------------------------------------------------------------------------------------------

fn head(row: &SqliteRow) -> Result<VersionHead, RuleStoreError> {
    let number = unsigned(row.try_get("number").map_err(store_error)?)?;
    let origin: String = row.try_get("origin").map_err(store_error)?;
    let incomplete = || damaged(format!("the origin of version {number} is incomplete"));
    let origin = match origin.as_str() {
        "file" => Origin::File {
            node: row.try_get("node").map_err(store_error)?,
            path: row.try_get::<Option<_>, _>("origin_path").map_err(store_error)?.ok_or_else(incomplete)?,
            content: sha256_or_null(row, "origin_content")?.ok_or_else(incomplete)?,
        },
        "rollback" => Origin::Rollback { of: number_or_null(row, "origin_version")?.ok_or_else(incomplete)? },
        "request" => Origin::Request,
        other => return Err(damaged(format!("version {number} has the origin {other:?}"))),
    };
    Ok(VersionHead {
        number,
        digest: sha256_or_null(row, "digest")?
            .ok_or_else(|| damaged(format!("version {number} has no digest")))?,
        published_at: timestamp(row.try_get("published_at").map_err(store_error)?),
        author: row.try_get("author").map_err(store_error)?,
        reason: row.try_get("reason").map_err(store_error)?,
        parent: number_or_null(row, "parent")?,
        origin,
    })
}

fn audit_entry(row: &SqliteRow) -> Result<AuditEntry, RuleStoreError> {
    let kind: String = row.try_get("kind").map_err(store_error)?;
    Ok(AuditEntry {
        id: unsigned(row.try_get("id").map_err(store_error)?)?,
        at: timestamp(row.try_get("at").map_err(store_error)?),
        entry: NewAuditEntry {
            node: row.try_get("node").map_err(store_error)?,
            kind: AuditKind::parse(&kind)
                .ok_or_else(|| damaged(format!("an audit entry has the kind {kind:?}")))?,
            version: number_or_null(row, "version")?,
            digest: sha256_or_null(row, "digest")?,
            who: row.try_get("who").map_err(store_error)?,
            detail: row.try_get("detail").map_err(store_error)?,
        },
    })
}

fn sha256_or_null(row: &SqliteRow, column: &'static str) -> Result<Option<Sha256>, RuleStoreError> {
    let bytes: Option<Vec<u8>> = row.try_get(column).map_err(store_error)?;
    let exact = |bytes: Vec<u8>| {
        let length = bytes.len();
        Sha256::try_from(bytes).map_err(|_| damaged(format!("a {column} of {length} bytes")))
    };
    bytes.map(exact).transpose()
}

fn number_or_null(row: &SqliteRow, column: &'static str) -> Result<Option<u64>, RuleStoreError> {
    let number: Option<i64> = row.try_get(column).map_err(store_error)?;
    number.map(unsigned).transpose()
}

/// Past the largest integer of SQLite no number was ever given, so that one stands for all of them.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> Result<u64, RuleStoreError> {
    u64::try_from(number).map_err(|_| damaged(format!("the number {number}")))
}

fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_LISTED)).unwrap_or(i64::MAX)
}

// ---- errors ----------------------------------------------------------------------------------------

fn damaged(detail: String) -> RuleStoreError {
    RuleStoreError::Damaged { detail }
}

/// SQLite's result codes (sqlite.org/rescode.html); the low byte is the primary code.
fn store_error(error: sqlx::Error) -> RuleStoreError {
    let code = match &error {
        sqlx::Error::Database(database) => database.code().and_then(|code| code.parse::<u32>().ok()),
        sqlx::Error::PoolTimedOut => return RuleStoreError::Busy,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
            return damaged(error.to_string());
        }
        _ => None,
    };
    match code.map(|code| code & 0xff) {
        Some(5 | 6) => RuleStoreError::Busy,
        Some(8) => RuleStoreError::ReadOnly,
        Some(11 | 26) => damaged(error.to_string()),
        Some(13) => RuleStoreError::Full,
        _ => RuleStoreError::Unavailable(Box::new(error)),
    }
}
