use super::*;
use crate::sql::sqlite::{SqliteIdempotency, open};

const BAD: usize = 5;

/// Batches of every size find each record in its place, and what is damaged or missing is nobody else's.
#[tokio::test]
async fn a_batch_answers_each_caller_with_its_own_record() {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    SqliteIdempotency::open(pool.clone()).await.unwrap();
    for (key, owner) in (0..40).map(|n| (n, if n == BAD { "?" } else { "0" })) {
        sqlx::query(
            "INSERT INTO tidegate_idempotency (operation, scope, key, state, token, owner, fingerprint,
                commit_mode, on_unknown, retention_ms, rules_version, flags, attempts, first_claimed_at,
                claimed_at, execution_until, lease_until, changed_at, expires_at)
             VALUES ('charge', 'a' || char(0) || 'b', ?1, 'RELEASED', ?2 + 1, ?3, ?4, 'after_response', 'hold', 0, 0, '',
                1, 0, 0, 0, 0, 0, 9000000000000)",
        )
        .bind(key.to_string())
        .bind(i64::try_from(key).unwrap())
        .bind(owner.repeat(32))
        .bind(tidegate_core::idempotency::Fingerprint::default().to_bytes())
        .execute(&pool)
        .await
        .unwrap();
    }
    let shift = ClockShift::default();
    let statements = SIZES.map(|size| Arc::from(statement(size)));
    let mut conn = pool.connect_options().connect().await.unwrap();
    for size in [1, 2, 4, 5, 16, 17, 40, MAX_BATCH] {
        let batch: Vec<Ask> = (0..size)
            .map(|n| Ask {
                id: RecordId::from_stored("charge", "a\0b", &n.to_string()),
                caller: oneshot::channel().0,
            })
            .collect();
        let (kept, found) = find_all(conn, &batch, &statements, &shift).await.unwrap();
        conn = kept;
        let mut places: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
        places.sort_unstable();
        assert_eq!(places, (0..size).collect::<Vec<_>>());
        for (at, found) in found {
            match found {
                Ok((Some(record), _)) => assert_eq!(record.fence.token, at as u64 + 1),
                Ok((None, now)) => {
                    assert!(at >= 40, "{at} is there");
                    assert!(now > tidegate_core::Timestamp::from_secs(1_700_000_000));
                }
                Err(error) => {
                    assert!(at == BAD && matches!(error, StoreError::Corrupt { .. }), "{at}: {error}");
                }
            }
        }
    }
}

/// The primary key's index is what a batch is found by, however large the table.
#[tokio::test]
async fn a_batch_scans_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    SqliteIdempotency::open(pool.clone()).await.unwrap();
    for size in SIZES {
        let explain = format!("EXPLAIN QUERY PLAN {}", statement(size));
        let rows = sqlx::query(AssertSqlSafe(explain)).fetch_all(&pool).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get::<String, _>("detail")).collect();
        assert!(
            plan.iter().any(|step| step.starts_with("SEARCH r USING INDEX") && step.contains("key=?")),
            "{plan:?}"
        );
    }
}

/// Whoever waits in a batch that fails is told so, whoever went away disturbs nobody, and the next batch is
/// read by another connection.
#[tokio::test]
async fn an_error_reaches_every_waiter_and_ends_with_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    SqliteIdempotency::open(pool.clone()).await.unwrap();
    let reader = Arc::new(Reader::start(pool.connect_options(), ClockShift::default()).unwrap());
    let find = |key: usize| {
        let reader = Arc::clone(&reader);
        tokio::spawn(
            async move { reader.find(&RecordId::from_stored("charge", "a", &key.to_string())).await },
        )
    };
    let rename = async |from: &str, to: &str| {
        let statement = format!("ALTER TABLE {from} RENAME TO {to}");
        sqlx::query(AssertSqlSafe(statement)).execute(&pool).await.unwrap();
    };
    for _ in 0..3 {
        rename("tidegate_idempotency", "away").await;
        let waiting: Vec<_> = (0..3 * MAX_BATCH).map(find).collect();
        for (at, caller) in waiting.iter().enumerate() {
            if at.is_multiple_of(3) {
                caller.abort();
            }
        }
        for (at, caller) in waiting.into_iter().enumerate() {
            match caller.await {
                Ok(Err(error)) => assert!(!matches!(error, StoreError::Closed { .. }), "{at}: {error}"),
                Ok(Ok(_)) => panic!("{at}: found in a table that is away"),
                Err(gone) => assert!(gone.is_cancelled() && at.is_multiple_of(3)),
            }
        }
        rename("away", "tidegate_idempotency").await;
        for caller in (0..3 * MAX_BATCH).map(find).collect::<Vec<_>>() {
            assert!(matches!(caller.await.unwrap(), Ok((None, _))));
        }
    }
}
