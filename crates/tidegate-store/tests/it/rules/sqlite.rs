//! What only a database can do: outlive the process, be killed, be foreign, newer or read-only.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tidegate_store::rules::{
    AuditKind, FileNote, NewAuditEntry, Origin, Publish, PublishError, RuleStore as _, RuleStoreError,
};
use tidegate_store::sql::sqlite::{OpenError, SqliteRules, open};

use super::conformance::assert_history;
use super::{publish, sqlite};

/// Names the database of a child that publishes until it is killed.
const CHILD: &str = "TIDEGATE_TEST_PUBLISH_INTO";

#[tokio::test]
async fn a_restart_goes_on_from_the_last_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    for number in 1..=3_u64 {
        let pool = open(&path).await.unwrap();
        let store = SqliteRules::new(pool.clone()).await.unwrap();
        let seen = store.latest_number().await.unwrap();
        assert_eq!(seen, (number > 1).then(|| number - 1));
        let version = store.publish(publish(u128::from(number), seen, &number.to_string())).await.unwrap();
        assert_eq!(version.number, number);
        pool.close().await;
    }
    assert_history(&sqlite(&path).await, 3).await;
}

/// Not a test by itself: the child of the one below, which does nothing when it is run alone.
#[tokio::test]
async fn child_that_publishes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = sqlite(Path::new(&path)).await;
    let mut seen = store.latest_number().await.unwrap();
    loop {
        let next = seen.unwrap_or(0) + 1;
        let mut content = [0; 32];
        content[..8].copy_from_slice(&next.to_be_bytes());
        let origin = Origin::File { node: "n".to_owned(), path: "/r".to_owned(), content };
        // Large enough that a transaction spans many pages.
        let text = format!("{next} {}", "x".repeat(100_000));
        let request = Publish { origin, ..publish(u128::from(next), seen, &text) };
        seen = Some(store.publish(request).await.unwrap().number);
    }
}

#[tokio::test]
async fn a_kill_during_publish_leaves_a_whole_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    let mut count = 0;
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rules::sqlite::child_that_publishes_until_it_is_killed", "--test-threads=1"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let watching = wait_for_number(&path, count + 3 + round).await;
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        drop(watching);

        let pool = open(&path).await.unwrap();
        let whole: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&pool).await.unwrap();
        assert_eq!(whole, "ok");
        let store = SqliteRules::new(pool).await.unwrap();
        let latest = store.latest_number().await.unwrap().unwrap();
        assert!(latest >= count + 3, "{latest}");
        count = latest;
        assert_history(&store, count).await;
        // The memory of the file was written in the same transaction as the version.
        let accepted = store.file_state("n", "/r").await.unwrap().accepted.unwrap();
        assert_eq!(accepted[..8], count.to_be_bytes());
    }
}

/// Waits until the child has published `number`; the pool stays open so that the kill finds readers.
async fn wait_for_number(path: &Path, number: u64) -> SqliteRules {
    let wait = async {
        let store = sqlite(path).await;
        while store.latest_number().await.unwrap().unwrap_or(0) < number {
            tokio::task::yield_now().await;
        }
        store
    };
    tokio::time::timeout(Duration::from_mins(1), wait).await.expect("the child publishes")
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    let pool = open(&path).await.unwrap();
    SqliteRules::new(pool.clone()).await.unwrap();
    let newer = "UPDATE tidegate_schema SET version = 99 WHERE component = 'rules'";
    sqlx::query(newer).execute(&pool).await.unwrap();
    let error = SqliteRules::new(pool).await.unwrap_err();
    assert!(matches!(error, RuleStoreError::Newer { found: 99, known: 1 }), "{error:?}");
    assert!(error.to_string().contains("run the newer Tidegate"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to have a header of a hundred bytes\n".repeat(20))
        .unwrap();
    let below_a_file = text.join("tidegate.db");
    let folder = dir.path().to_path_buf();
    for path in [&text, &below_a_file, &folder] as [&PathBuf; 3] {
        let error = open(path).await.unwrap_err();
        let is_there = *path == text;
        assert_eq!(error.is_refusal(), is_there, "trying again is of no use: {error:?}");
        assert_eq!(matches!(error, OpenError::NotADatabase { .. }), is_there, "{error:?}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    assert!(std::fs::read_to_string(text).unwrap().starts_with("not a database"), "it was left alone");
}

#[tokio::test]
async fn a_read_only_database_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    let writable = sqlite(&path).await;
    let one = writable.publish(publish(1, None, "one")).await.unwrap();
    let options = SqliteConnectOptions::new().filename(&path).read_only(true);
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let error = SqliteRules::new(pool).await.unwrap_err();
    assert!(matches!(error, RuleStoreError::ReadOnly), "{error:?}");
    assert!(error.to_string().contains("write permission"), "{error}");
    assert_eq!(writable.latest().await.unwrap(), Some(one));
}

async fn query_only(conn: &mut SqliteConnection, on: bool) -> Result<(), sqlx::Error> {
    let pragma = if on { "PRAGMA query_only = true" } else { "PRAGMA query_only = false" };
    sqlx::query(pragma).execute(conn).await.map(|_| ())
}

#[tokio::test]
async fn a_database_that_becomes_read_only_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    drop(sqlite(&path).await);
    // The setting is a connection's, and the pool may replace a connection: each gets it when it is taken.
    let read_only = Arc::new(AtomicBool::new(false));
    let (taken, made) = (Arc::clone(&read_only), Arc::clone(&read_only));
    let pool = SqlitePoolOptions::new()
        .before_acquire(move |conn, _| {
            let on = taken.load(Ordering::SeqCst);
            Box::pin(async move { query_only(conn, on).await.map(|()| true) })
        })
        .after_connect(move |conn, _| {
            let on = made.load(Ordering::SeqCst);
            Box::pin(query_only(conn, on))
        })
        .connect_with(SqliteConnectOptions::new().filename(&path))
        .await
        .unwrap();
    let store = SqliteRules::new(pool).await.unwrap();
    let one = store.publish(publish(1, None, "one")).await.unwrap();
    read_only.store(true, Ordering::SeqCst);
    let error = store.publish(publish(2, Some(1), "two")).await.unwrap_err();
    assert!(matches!(error, PublishError::Store(RuleStoreError::ReadOnly)), "{error:?}");
    let note = store
        .note_file(
            "n",
            "/r",
            FileNote::Refused([1; 32]),
            NewAuditEntry {
                node: "n".to_owned(),
                kind: AuditKind::Refused,
                version: None,
                digest: None,
                who: "n".to_owned(),
                detail: String::new(),
            },
        )
        .await;
    assert!(matches!(note, Err(RuleStoreError::ReadOnly)), "{note:?}");
    assert_eq!(store.latest().await.unwrap(), Some(one));
    assert_eq!(store.audit_log(9, None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_reported_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    let pool = open(&path).await.unwrap();
    let store = SqliteRules::new(pool.clone()).await.unwrap();
    let origin = Origin::File { node: "n".to_owned(), path: "/r".to_owned(), content: [1; 32] };
    store.publish(Publish { origin, ..publish(1, None, "one") }).await.unwrap();
    sqlx::query("UPDATE tidegate_rule_versions SET origin_content = x'00'").execute(&pool).await.unwrap();
    let error = store.latest().await.unwrap_err();
    assert!(matches!(error, RuleStoreError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("origin_content of 1 bytes"), "{error}");
}

#[tokio::test]
async fn a_write_that_sqlite_broke_off_does_not_keep_later_ones_out() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("tidegate.db")).await.unwrap();
    let store = SqliteRules::new(pool.clone()).await.unwrap();
    // As a full disk does it: the statement fails, and SQLite has ended the transaction by itself.
    for table in ["tidegate_rule_versions", "tidegate_audit"] {
        let full = format!(
            "CREATE TRIGGER full_{table} BEFORE INSERT ON {table} BEGIN SELECT RAISE(ROLLBACK, 'full'); END"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(full)).execute(&pool).await.unwrap();
    }
    let entry = |detail: &str| NewAuditEntry {
        node: "n".to_owned(),
        kind: AuditKind::Refused,
        version: None,
        digest: None,
        who: "n".to_owned(),
        detail: detail.to_owned(),
    };
    // More often than the pool has connections.
    for _ in 0..8 {
        store.publish(publish(1, None, "one")).await.unwrap_err();
        store.audit(entry("a")).await.unwrap_err();
        store.note_file("n", "/r", FileNote::Refused([1; 32]), entry("b")).await.unwrap_err();
    }
    sqlx::raw_sql("DROP TRIGGER full_tidegate_rule_versions; DROP TRIGGER full_tidegate_audit")
        .execute(&pool)
        .await
        .unwrap();
    for number in 1..=8 {
        let seen = (number > 1).then(|| number - 1);
        let version = store.publish(publish(u128::from(number), seen, &number.to_string())).await.unwrap();
        assert_eq!(version.number, number);
        store.audit(entry("c")).await.unwrap();
    }
}
