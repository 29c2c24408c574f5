//! A sign-up service with a database of its own: a limit for each tenant, each intent carried out once in
//! the transaction of its business row, and a breaker around a dependency.
//!
//! ```text
//! cargo run -p tidegate --example registrations
//! curl -i -d ann@example.com -H 'x-tenant: acme' -H 'idempotency-key: 1' localhost:3000/registrations
//! ```
//! Say the `curl` again, and it is a replay; with another address, 422; six times a second, 429.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use sqlx::SqlitePool;
use tidegate::{Claim, CommitError, Guarded, Outcome, Tidegate, source, store};

const RULES: &str = include_str!("registrations.yaml");

/// What the handlers share.
#[derive(Clone)]
pub struct App {
    /// The gates.
    pub tidegate: Tidegate,
    /// The business rows, and beside them the idempotency records.
    pub db: SqlitePool,
    /// The dependency.
    pub checker: Arc<Checker>,
}

/// Stands for a remote service that knows which addresses take mail.
#[derive(Default)]
pub struct Checker {
    /// Whether it fails each call.
    pub down: AtomicBool,
}

/// The checker gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("the address checker does not answer")]
pub struct CheckError;

impl Checker {
    /// Whether an address takes mail. `key` lets the checker recognise a repeated question.
    async fn check(&self, address: &str, _key: &str) -> Result<bool, CheckError> {
        tokio::task::yield_now().await;
        if self.down.load(Ordering::Relaxed) { Err(CheckError) } else { Ok(address.contains('@')) }
    }
}

impl App {
    /// Opens the database and brings the rules in force.
    pub async fn start(database: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let db = tidegate_store::sql::sqlite::open(database).await?;
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS registrations (id INTEGER PRIMARY KEY, tenant TEXT, address TEXT)",
        )
        .execute(&db)
        .await?;
        let tidegate = Tidegate::builder()
            .rules(source::text("registrations.yaml", RULES))
            .idempotency(store::sqlite(db.clone()))
            .start()
            .await?;
        Ok(Self { tidegate, db, checker: Arc::default() })
    }

    /// The service behind the gates.
    pub fn router(self) -> Router {
        let gates = self.tidegate.layer();
        Router::new().route("/registrations", post(register)).route_layer(gates).with_state(self)
    }
}

async fn register(
    State(app): State<App>,
    Extension(claim): Extension<Claim>,
    address: String,
) -> Result<Response, Failure> {
    let key = claim.key_for("check");
    let takes_mail = app
        .tidegate
        .resource("address-check")
        .call(async || app.checker.check(&address, key.as_str()).await)
        .await?;
    if !takes_mail {
        // A final answer: kept, and given again to each retry.
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, "this address takes no mail").into_response());
    }
    let mut tx = app.db.begin_with("BEGIN IMMEDIATE").await?;
    let id: i64 =
        sqlx::query_scalar("INSERT INTO registrations (tenant, address) VALUES (?1, ?2) RETURNING id")
            .bind(claim.id().scope())
            .bind(&address)
            .fetch_one(&mut *tx)
            .await?;
    let answer = (StatusCode::CREATED, Json(serde_json::json!({ "id": id, "address": address })));
    // Consumes both: neither row is there without the other.
    Ok(claim.commit(tx, answer.into_response()).await?.into_response())
}

/// Why there is no registration.
enum Failure {
    Check(Guarded<CheckError>),
    Database(sqlx::Error),
    Commit(CommitError),
}

impl From<Guarded<CheckError>> for Failure {
    fn from(error: Guarded<CheckError>) -> Self {
        Self::Check(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        // Asking changes nothing, and an open transaction rolls back: the key is free for a retry.
        let not_applied = Extension(Outcome::NotApplied);
        match self {
            Self::Check(Guarded::Blocked(blocked)) => blocked.respond(Outcome::NotApplied).into_response(),
            Self::Check(error) => (StatusCode::BAD_GATEWAY, not_applied, error.to_string()).into_response(),
            Self::Database(error) => {
                (StatusCode::SERVICE_UNAVAILABLE, not_applied, error.to_string()).into_response()
            }
            // The layer knows more than the handler here: the record decides.
            Self::Commit(error) => (error.status(), error.to_string()).into_response(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = App::start(Path::new("registrations.db")).await?;
    let tidegate = app.tidegate.clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let stopped = async {
        // Without a signal handler it runs until it is killed, which loses nothing either.
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app.router()).with_graceful_shutdown(stopped).await?;
    tidegate.shutdown(std::time::Duration::from_secs(10)).await;
    Ok(())
}
