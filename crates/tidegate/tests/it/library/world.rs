//! A service behind the gates, with a SQLite database of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use sqlx::SqlitePool;
use tempfile::TempDir;
use tidegate::env::Env;
use tidegate::store::{self, IdempotencyBackend};
use tidegate::{Body, Claim, Tidegate, source};
use tidegate_store::sql::sqlite::{self, ClockShift, SqliteIdempotency};
use tokio::sync::{Semaphore, mpsc};
use tower::{Layer as _, ServiceExt as _};

/// Long enough for a machine that does much else; reached only when a test fails.
pub(super) const DEADLINE: Duration = Duration::from_mins(1);
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// Two operations on one table. Leases end only when a test moves the clock, and are never renewed.
pub(super) const RULES: &str = "
apiVersion: tidegate/v1
resources:
  - id: register
    match: { methods: [POST], path: /registrations }
    attributes: { tenant: { from: header.x-tenant, missing: reject } }
  - id: refund
    match: { methods: [POST], path: /refunds }
    attributes: { tenant: { from: header.x-tenant, missing: reject } }
idempotency:
  - id: register-once
    resources: [register]
    scope: [tenant]
    key: { from: header.idempotency-key, required: true }
    commit: with_effects
    lease: 30s
    max_execution: 30s
  - id: refund-once
    resources: [refund]
    scope: [tenant]
    key: { from: header.idempotency-key, required: true }
    lease: 30s
    max_execution: 30s
";

/// The gates and the database.
pub(super) struct World {
    pub(super) tidegate: Tidegate,
    pub(super) db: SqlitePool,
    pub(super) records: Arc<SqliteIdempotency>,
    /// The store's clock.
    pub(super) shift: ClockShift,
    /// Lives as long as the database in it.
    directory: Option<TempDir>,
}

impl World {
    pub(super) async fn new(rules: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let mut world = Self::at(&directory.path().join("service.db"), rules).await;
        world.directory = Some(directory);
        world
    }

    pub(super) async fn at(path: &Path, rules: &str) -> Self {
        let db = sqlite::open(path).await.unwrap();
        sqlx::query("CREATE TABLE IF NOT EXISTS registrations (address TEXT)").execute(&db).await.unwrap();
        let shift = ClockShift::default();
        let records = Arc::new(SqliteIdempotency::open_with_clock(db.clone(), shift.clone()).await.unwrap());
        let tidegate = Tidegate::builder()
            .rules(source::text("rules.yaml", rules))
            .idempotency(store::opened(records.clone(), IdempotencyBackend::Sqlite))
            .start()
            .await
            .unwrap();
        Self { tidegate, db, records, shift, directory: None }
    }

    /// One more instance on the same records, with a clock of its own.
    pub(super) async fn instance(&self, env: Env) -> Tidegate {
        Tidegate::builder()
            .rules(source::text("rules.yaml", RULES))
            .idempotency(store::opened(self.records.clone(), IdempotencyBackend::Sqlite))
            .env(env)
            .start()
            .await
            .unwrap()
    }

    pub(super) async fn rows(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM registrations").fetch_one(&self.db).await.unwrap()
    }

    /// Sends a request through the layer to `handler`.
    pub(super) async fn send<H>(&self, handler: &H, request: Request<Body>) -> Answer
    where
        H: AsyncHandler,
    {
        send(&self.tidegate, handler, request).await
    }

    pub(super) fn metric(&self, line: &str) -> bool {
        self.tidegate.gates().render_metrics().lines().any(|found| found == line)
    }
}

/// A handler that tests share between requests.
pub(super) trait AsyncHandler: Clone + Send + Sync + 'static {
    fn handle(self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

impl<F, R> AsyncHandler for F
where
    F: Fn(Request<Body>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send,
{
    fn handle(self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send {
        self(request)
    }
}

pub(super) async fn send<H: AsyncHandler>(
    tidegate: &Tidegate,
    handler: &H,
    request: Request<Body>,
) -> Answer {
    let handler = handler.clone();
    let inner = tower::service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, std::convert::Infallible>(handler.handle(request).await) }
    });
    let response = tidegate.layer().layer(inner).oneshot(request).await.unwrap();
    Answer::of(response).await
}

/// What a client gets.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// As text, as far as it is.
    pub(super) body: String,
    pub(super) bytes: Bytes,
}

impl Answer {
    pub(super) async fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let bytes = body.collect(1 << 24).await.unwrap();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
        }
    }

    pub(super) fn replayed(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }
}

pub(super) fn post(path: &str, key: &str, body: &str) -> Request<Body> {
    Request::post(path)
        .header("x-tenant", "acme")
        .header("idempotency-key", key)
        .body(Body::from(body.to_owned()))
        .unwrap()
}

pub(super) fn register(key: &str) -> Request<Body> {
    post("/registrations", key, "ann@example.com")
}

pub(super) fn answer(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = status;
    response
}

/// Writes the business row, and completes the claim with it.
#[derive(Clone)]
pub(super) struct Registrar {
    pub(super) db: SqlitePool,
    /// Executions begun.
    pub(super) begun: Arc<AtomicU32>,
    /// Told of each execution's number as it begins.
    pub(super) started: mpsc::UnboundedSender<u32>,
    /// What an execution waits for before it writes; `None`: nothing.
    pub(super) go: Option<Arc<Semaphore>>,
}

impl Registrar {
    pub(super) fn new(world: &World) -> (Self, mpsc::UnboundedReceiver<u32>) {
        let (started, begun) = mpsc::unbounded_channel();
        (Self { db: world.db.clone(), begun: Arc::default(), started, go: None }, begun)
    }

    /// Its executions wait for a permit.
    pub(super) fn waiting(mut self) -> (Self, Arc<Semaphore>) {
        let go = Arc::new(Semaphore::new(0));
        self.go = Some(Arc::clone(&go));
        (self, go)
    }

    pub(super) fn count(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }
}

impl AsyncHandler for Registrar {
    async fn handle(self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let claim = Claim::of(&parts).unwrap();
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let _ = self.started.send(number);
        if let Some(go) = &self.go {
            go.acquire().await.unwrap().forget();
        }
        let address = body.collect(1024).await.unwrap();
        let mut tx = self.db.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query("INSERT INTO registrations (address) VALUES (?1)")
            .bind(&address[..])
            .execute(&mut *tx)
            .await
            .unwrap();
        let made = answer(StatusCode::CREATED, &format!("attempt {}", claim.attempt()));
        match claim.commit(tx, made).await {
            Ok(response) => response,
            Err(error) => answer(error.status(), &error.to_string()),
        }
    }
}
