//! Idempotency, on a SQLite file of its own for each run.
//!
//! `concurrent`, `replay` and `failures` send requests through [`tidegate::pipeline`], whose records are
//! in that file; the business is a handler that writes a row in `registrations`. `lease` and `crash`
//! are a service with [`tidegate::Tidegate`] inside, whose handler commits the claim in its own
//! transaction.

pub(crate) mod concurrent;
pub(crate) mod crash;
pub(crate) mod failures;
pub(crate) mod lease;
pub(crate) mod naive;
pub(crate) mod replay;
pub(crate) mod service;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use sqlx::{SqliteConnection, SqlitePool};
use tempfile::TempDir;
use tidegate::call::Call;
use tidegate::env::Env;
use tidegate::{Body, Gates, respond};
use tidegate_core::idempotency::{Key, RecordId, Scope, State};
use tidegate_store::sql::sqlite::{SqliteIdempotency, open};
use tidegate_store::traits::IdempotencyStore;

use crate::LabError;
use crate::error::About as _;
use crate::node::{Node, send};

const TARGET: &str = "/registrations";
const OPERATION: &str = "register";
const TENANT: &str = "lab";
const KEY: &str = "order-1";
/// Answers are a line.
const MAX_ANSWER: u64 = 1 << 16;

/// The rules of the experiments that go through the pipeline.
const RULES: &str = "apiVersion: tidegate/v1
resources:
  - id: registrations
    match: { methods: [POST], path: /registrations }
    attributes: { tenant: { from: header.x-tenant, missing: reject } }
idempotency:
  - id: register-once
    resources: [registrations]
    operation: register
    scope: [tenant]
    key: { from: header.idempotency-key, required: true }
";

/// The business's database, with the records beside its rows.
struct Database {
    pool: SqlitePool,
    records: Arc<SqliteIdempotency>,
    path: PathBuf,
    _folder: TempDir,
}

impl Database {
    async fn new() -> Result<Self, LabError> {
        let folder = tempfile::tempdir().about("making a folder for the database")?;
        let path = folder.path().join("business.db");
        let (pool, records) = connect(&path).await?;
        Ok(Self { pool, records: Arc::new(records), path, _folder: folder })
    }

    /// How many rows the business has.
    async fn rows(&self) -> Result<u64, LabError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM registrations")
            .fetch_one(&self.pool)
            .await
            .about("counting the registrations")?;
        Ok(count.unsigned_abs())
    }

    /// A node in front of the business, with the records of this database.
    async fn node(&self) -> Result<Node, LabError> {
        Node::start(RULES, Env::system(), Arc::clone(&self.records) as Arc<dyn IdempotencyStore>).await
    }

    /// Where the record of `key` stands.
    async fn state(&self, key: &str) -> Result<&'static str, LabError> {
        let shown = self.records.read(&record(key)?).await.about("reading a record")?;
        Ok(shown.map_or("none", |shown| State::as_str(shown.record.stage.state())))
    }
}

/// Opens the database, and makes the business's table without any constraint, so that a second effect
/// shows.
async fn connect(path: &Path) -> Result<(SqlitePool, SqliteIdempotency), LabError> {
    let pool = open(path).await.about("opening the database")?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS registrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        .execute(&pool)
        .await
        .about("making the table of registrations")?;
    naive::create(&pool).await?;
    let records = SqliteIdempotency::open(pool.clone()).await.about("opening the records")?;
    Ok((pool, records))
}

/// The business: one row.
async fn register(conn: &mut SqliteConnection, name: &str) -> Result<(), LabError> {
    let insert = sqlx::query("INSERT INTO registrations (name) VALUES (?1)").bind(name).execute(conn).await;
    insert.map(|_| ()).about("writing a registration")
}

/// What the business says when it has registered somebody.
fn registered(name: &str) -> String {
    format!("registration for {name}")
}

fn record(key: &str) -> Result<RecordId, LabError> {
    Ok(RecordId::new(OPERATION, &Scope::of([TENANT]), &Key::from_text(key).about("a key")?))
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    status: StatusCode,
    replayed: bool,
    body: Bytes,
}

/// Asks for a registration of `name` under `key`.
async fn ask<C: Call>(gates: &Gates, key: &str, name: &str, call: &C) -> Result<Told, LabError> {
    let request = Request::post(TARGET)
        .header("x-tenant", TENANT)
        .header("idempotency-key", key)
        .body(Body::full(name.to_owned()))
        .about("making a request")?;
    let response: Response<Body> = send(gates, request, call).await;
    let (head, body) = response.into_parts();
    let replayed = head.headers.contains_key(&respond::IDEMPOTENT_REPLAYED);
    Ok(Told {
        status: head.status,
        replayed,
        body: body.collect(MAX_ANSWER).await.about("reading an answer")?,
    })
}

/// A business's answer.
fn answer(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    response
}
