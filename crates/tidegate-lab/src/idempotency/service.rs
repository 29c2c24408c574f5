//! A service that has Tidegate inside: its handler writes its row and commits the claim in the same
//! transaction (`commit: with_effects`, [`tidegate::Claim::commit`]).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use sqlx::SqlitePool;
use tidegate::call::{Call, CallError};
use tidegate::{Body, Claim, CommitError, Tidegate, source, store};

use super::{KEY, Told, answer, ask, register, registered};
use crate::LabError;
use crate::error::About as _;

/// How an attempt at the registration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It executed, and its transaction committed.
    Succeeded,
    /// It executed, its completion updated 0 rows, and its transaction rolled back.
    RolledBack,
    /// Another attempt is at work.
    Busy,
    /// It got the first result.
    Replayed,
}

impl Attempt {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::RolledBack => "0 rows updated, rolled back",
            Self::Busy => "refused: at work",
            Self::Replayed => "replayed",
        }
    }
}

/// What a handler does besides.
pub(super) type Pause = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Nothing.
pub(super) fn at_once() -> Pause {
    Arc::new(|| Box::pin(std::future::ready(())))
}

/// One instance of the service.
pub(super) struct Service {
    tidegate: Tidegate,
    pool: SqlitePool,
}

impl Service {
    /// With renewal off: `max_execution` is the lease.
    pub(super) async fn start(pool: SqlitePool, lease: Duration) -> Result<Self, LabError> {
        let lease = lease.as_millis();
        let rules = format!(
            "{}    commit: with_effects
    lease: {lease}ms
    max_execution: {lease}ms
",
            super::RULES
        );
        let tidegate = Tidegate::builder()
            .rules(source::text("rules.yaml", rules))
            .idempotency(store::sqlite(pool.clone()))
            .start()
            .await
            .about("starting the service")?;
        Ok(Self { tidegate, pool })
    }

    /// One try of a client, whose handler pauses before its transaction and before its commit.
    pub(super) async fn attempt(&self, work: Pause, written: Pause) -> Result<Attempt, LabError> {
        let ended = Arc::new(Mutex::new(None));
        let handler = Handler { pool: self.pool.clone(), work, written, ended: Arc::clone(&ended) };
        let told = ask(self.tidegate.gates(), KEY, "alice", &handler).await?;
        // What the handler saw comes first: the client of a superseded attempt hears of the winner.
        let executed = ended.lock().take();
        match executed {
            Some(ended) => ended,
            None => match told {
                Told { replayed: true, .. } => Ok(Attempt::Replayed),
                Told { status: StatusCode::CONFLICT, .. } => Ok(Attempt::Busy),
                Told { status, .. } => Err(LabError::broken("the service", format!("it answered {status}"))),
            },
        }
    }
}

/// The handler, for one try.
#[derive(Clone)]
struct Handler {
    pool: SqlitePool,
    work: Pause,
    written: Pause,
    ended: Arc<Mutex<Option<Result<Attempt, LabError>>>>,
}

impl Handler {
    /// The answer of the commit, if there is one.
    async fn handle(&self, claim: Claim) -> Result<Option<Response<Body>>, LabError> {
        (self.work)().await;
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.about("beginning a transaction")?;
        register(&mut tx, "alice").await?;
        (self.written)().await;
        match claim.commit(tx, answer(StatusCode::CREATED, registered("alice"))).await {
            Ok(response) => Ok(Some(response)),
            Err(CommitError::Superseded) => Ok(None),
            Err(other) => Err(LabError::broken("committing the claim", other)),
        }
    }
}

impl Call for Handler {
    async fn call(&self, request: Request<Body>, _timeout: Duration) -> Result<Response<Body>, CallError> {
        let (parts, _) = request.into_parts();
        let handled = match Claim::of(&parts) {
            Some(claim) => self.handle(claim).await,
            None => Err(LabError::broken("the service", "a guarded request came without its claim")),
        };
        let failed = || answer(StatusCode::INTERNAL_SERVER_ERROR, "failed".to_owned());
        let (attempt, response) = match handled {
            Ok(Some(response)) => (Ok(Attempt::Succeeded), response),
            Ok(None) => (Ok(Attempt::RolledBack), failed()),
            Err(error) => (Err(error), failed()),
        };
        *self.ended.lock() = Some(attempt);
        Ok(response)
    }

    fn host(&self) -> &'static str {
        "business"
    }
}
