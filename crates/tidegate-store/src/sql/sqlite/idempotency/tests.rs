use super::*;
use crate::sql::sqlite::{OpenError, open};

async fn refused(statements: &'static str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    sqlx::raw_sql(statements).execute(&pool).await.unwrap();
    SqliteIdempotency::open(pool).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_foreign_table_is_named() {
    let message = refused("CREATE TABLE tidegate_idempotency (id INTEGER PRIMARY KEY, note TEXT)").await;
    assert!(message.contains("not Tidegate's (it has no column attempts)"), "{message}");
    // Ours by name and record, but changed by somebody.
    let message = refused(concat!(
        include_str!("../idempotency.sql"),
        "CREATE TABLE tidegate_schema (component TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL) STRICT;
         INSERT INTO tidegate_schema VALUES ('idempotency', 1);
         ALTER TABLE tidegate_idempotency ADD COLUMN extra TEXT"
    ))
    .await;
    assert!(message.contains("its column extra is not as expected"), "{message}");
    let message = refused("CREATE VIEW tidegate_idempotency AS SELECT 1 AS operation").await;
    assert!(message.contains("not Tidegate's"), "{message}");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let message = refused(
        "CREATE TABLE tidegate_schema (component TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL) STRICT;
         INSERT INTO tidegate_schema VALUES ('idempotency', 9);
         CREATE TABLE tidegate_idempotency (something_new TEXT)",
    )
    .await;
    assert!(message.contains("idempotency schema is version 9, and this program knows up to 1"), "{message}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "These are notes, long enough to be taken for a header. ".repeat(40)).unwrap();
    let error = open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::NotADatabase { .. }));
    assert!(error.to_string().contains("notes.txt: is not a SQLite database"), "{error}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("These are notes"));
}

#[tokio::test]
async fn opening_twice_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    let first = SqliteIdempotency::open(pool.clone()).await.unwrap();
    let second = SqliteIdempotency::open(pool).await.unwrap();
    assert!(first.now().await.unwrap() <= second.now().await.unwrap());
}

#[tokio::test]
async fn a_damaged_row_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    let store = SqliteIdempotency::open(pool.clone()).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO tidegate_idempotency (operation, scope, key, state, token, owner, fingerprint,
            commit_mode, on_unknown, retention_ms, rules_version, flags, attempts, first_claimed_at,
            claimed_at, execution_until, lease_until, changed_at, expires_at)
         VALUES ('charge', '/acme', 'bad', 'PROCESSING', 1, 'not hexadecimal digits, but 32..', x'01',
            'after_response', 'hold', 0, 0, '', 1, 0, 0, 0, 0, 0, 9000000000000)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let error = store.read(&RecordId::from_stored("charge", "/acme", "bad")).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("key \"bad\""), "{error}");
    assert_eq!(store.list(&ListAsk { limit: 10, ..ListAsk::default() }).await.unwrap(), []);
}
