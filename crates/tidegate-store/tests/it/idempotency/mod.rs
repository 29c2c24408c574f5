//! Idempotency records in every embedded store.

mod conformance;
mod crash;
mod races;
mod records;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use tempfile::TempDir;
use tidegate_core::idempotency::fingerprint::Request;
use tidegate_core::idempotency::record::{FirstTry, Owner, Policy, StoredResponse};
use tidegate_core::idempotency::transition::{Answer, ClaimAsk, Claimed, Held};
use tidegate_core::idempotency::{Fingerprint, RecordId};
use tidegate_core::rule::model::{CommitMode, FingerprintPart, OnUnknown};
use tidegate_store::IdempotencyStore;
use tidegate_store::sql::sqlite::{ClockShift, SqliteIdempotency, complete_in, open};
use tidegate_store::traits::{Fenced, StoreError};

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_hours(24);

/// A database file with the idempotency table and a business table without any constraint, so that
/// a second effect shows.
struct World {
    folder: TempDir,
    pool: SqlitePool,
    store: Arc<SqliteIdempotency>,
    shift: ClockShift,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shift = ClockShift::default();
        let (pool, store) = instance(&folder.path().join("test.db"), &shift).await;
        Self { folder, pool, store: Arc::new(store), shift }
    }

    /// Another instance on the same file.
    async fn another(&self) -> SqliteIdempotency {
        let path = self.folder.path().join("test.db");
        instance(&path, &self.shift).await.1
    }

    async fn payments(&self) -> i64 {
        payments(&self.pool).await
    }
}

async fn instance(path: &Path, shift: &ClockShift) -> (SqlitePool, SqliteIdempotency) {
    let pool = open(path).await.unwrap();
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS payments (attempt TEXT NOT NULL)")
        .execute(&pool)
        .await
        .unwrap();
    let store = SqliteIdempotency::open_with_clock(pool.clone(), shift.clone()).await.unwrap();
    (pool, store)
}

async fn payments(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(pool).await.unwrap()
}

fn id(key: &str) -> RecordId {
    RecordId::from_stored("charge", "/acme", key)
}

fn owner(number: u32) -> Owner {
    Owner(u128::from(number).to_be_bytes())
}

fn fingerprint(body: &str) -> Fingerprint {
    let attributes = serde_json::Map::new();
    let request =
        Request { method: "POST", path: "/pay", query: None, body: body.as_bytes(), attributes: &attributes };
    Fingerprint::of(&[FingerprintPart::Body], &request).unwrap()
}

fn ask(number: u32, commit: CommitMode, on_unknown: OnUnknown) -> ClaimAsk {
    ClaimAsk {
        owner: owner(number),
        fingerprint: fingerprint("1"),
        also: Fingerprint::default(),
        policy: Policy { commit, on_unknown, retention: RETENTION, window: None },
        lease: LEASE,
        max_execution: Duration::from_mins(5),
        first: FirstTry { version: 7, flags: "new-checkout=on".into() },
    }
}

/// By attempt `number`, with effects in the same transaction.
fn fenced(number: u32) -> ClaimAsk {
    ask(number, CommitMode::WithEffects, OnUnknown::Hold)
}

/// By attempt `number`, with effects elsewhere.
fn hold(number: u32) -> ClaimAsk {
    ask(number, CommitMode::AfterResponse, OnUnknown::Hold)
}

async fn claim(store: &dyn IdempotencyStore, key: &str, ask: &ClaimAsk) -> Claimed {
    store.claim(&id(key), ask).await.unwrap()
}

async fn held(store: &dyn IdempotencyStore, key: &str, ask: &ClaimAsk) -> Held {
    match claim(store, key, ask).await {
        Claimed::Held(held) => held,
        Claimed::Answer(answer) => panic!("not held: {answer:?}"),
    }
}

async fn answer(store: &dyn IdempotencyStore, key: &str, ask: &ClaimAsk) -> Answer {
    match claim(store, key, ask).await {
        Claimed::Held(held) => panic!("held: {held:?}"),
        Claimed::Answer(answer) => answer,
    }
}

fn response(body: &'static str) -> Arc<StoredResponse> {
    let headers = [("content-type", "text/plain")];
    Arc::new(StoredResponse::new(201, headers, Some(body.into())).unwrap())
}

/// The business write and the completion in one transaction. `Superseded` rolls both back.
async fn pay(pool: &SqlitePool, held: &Held, response: &StoredResponse) -> Result<Fenced, StoreError> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("INSERT INTO payments VALUES (?1)")
        .bind(held.fence().owner.to_string())
        .execute(&mut *tx)
        .await
        .unwrap();
    let fenced = complete_in(&mut tx, held, response).await?;
    match fenced {
        Fenced::Done => tx.commit().await.unwrap(),
        Fenced::Superseded => tx.rollback().await.unwrap(),
    }
    Ok(fenced)
}
