//! What a handler may do with its claim: complete the record inside its own transaction, so that the
//! business rows and the record commit together or not at all.
//!
//! How an attempt stands, seen from its claim:
//!
//! ```text
//!          commit() begins              COMMIT done, or the row says so
//!   open ──────────────────> committing ────────────────────────────────> committed
//!    ^                        │  │  │
//!    │ refused, rolled back   │  │  └─ 0 rows updated, rolled back ──────> superseded
//!    └────────────────────────┘  └─ nobody knows: cancelled, COMMIT broke, the row does not tell
//! ```
//!
//! The layer that runs the handler reads it once the handler has ended. What it finds wins over what the
//! handler returned, except while the claim is open.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use sqlx::{Sqlite, Transaction};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::record::Fence;
use tidegate_core::idempotency::transition::Held;
use tidegate_core::idempotency::{Key, RecordId, ResponseError, Stage, StoredResponse};
use tidegate_core::rule::model::Idempotency;
use tidegate_store::sql::sqlite;
use tidegate_store::traits::{Fenced, Shown, StoreError};
use tokio::sync::watch;

use crate::Body;
use crate::body::{BodyError, BoxError, Prefix};
use crate::exchange::Exchange;

/// How often the row is looked at for a commit that was left half-way, and how long the first pause is:
/// a tenth of a second or two together, in which any COMMIT that is under way ends.
const SETTLE_LOOKS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The right to carry out one intent, in the hands of the handler that does.
///
/// The layer puts it into the request's extensions wherever an idempotency rule guards the request and
/// the request has a key; [`Claim::of`] finds it. Clones are one claim.
#[derive(Clone)]
pub struct Claim(Arc<Shared>);

struct Shared {
    exchange: Arc<Exchange>,
    held: Held,
    /// The record is this attempt's before this time, by the process's clock.
    held_until: AtomicU64,
    superseded: watch::Sender<bool>,
    stand: Mutex<Stand>,
}

/// How the attempt stands.
#[derive(Clone)]
pub(crate) enum Stand {
    /// Nothing was committed.
    Open,
    /// A commit has begun, and nobody knows how it ended: the row decides.
    Committing,
    /// The record is complete with this.
    Committed(Arc<StoredResponse>),
    /// Another attempt has the record, and this one's transaction was rolled back.
    Superseded,
}

/// Says, on a response, which attempt's commit it came out of.
#[derive(Clone, Copy, PartialEq)]
struct CommittedAs(Fence);

/// Why a claim was not committed. Whatever the kind, the transaction is over, and a retry with the same
/// key is safe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Another attempt took over while this one ran. The business write was rolled back; the layer
    /// answers with the winner's result, or with 409 while it has none.
    #[error("another attempt took the record over: the transaction was rolled back")]
    Superseded,
    /// The claim was committed before, or the layer has completed the record since the handler ended.
    /// The transaction was rolled back.
    #[error(
        "the claim was used before: the transaction was rolled back; commit a claim once, before the handler returns"
    )]
    Spent,
    /// The record is not in the database that the transaction writes to. It was rolled back.
    #[error(
        "the record of this claim is not in the transaction's database: give Tidegate's builder the pool that the business rows are written with"
    )]
    OtherDatabase,
    /// The response's body broke before it was complete. The transaction was rolled back.
    #[error("the body of the response could not be read: {0}")]
    Body(BodyError),
    /// The response cannot be a result. The transaction was rolled back.
    #[error("the response cannot be kept: {0}")]
    Response(#[from] ResponseError),
    /// The record could not be completed. The transaction was rolled back.
    #[error("the record could not be completed, and the transaction was rolled back: {0}")]
    Store(StoreError),
    /// The database refused the COMMIT: it was busy, or a deferred constraint failed. The transaction
    /// was rolled back.
    #[error("the database refused the COMMIT, and the transaction was rolled back: {0}")]
    Refused(sqlx::Error),
    /// COMMIT broke, and the row does not tell what became of it. The record stays as it is, and the
    /// next try after its lease finds out.
    #[error("nobody knows whether the COMMIT took effect: {0}")]
    Unknown(sqlx::Error),
}

impl CommitError {
    /// What a client may be told: 409, 500 or 503. Where the record was taken over, or nobody knows how it
    /// stands, the layer answers from the record instead.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Superseded | Self::Spent => StatusCode::CONFLICT,
            Self::Response(_) | Self::OtherDatabase => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Claim {
    pub(crate) fn new(exchange: Arc<Exchange>, held: Held, held_until: Timestamp) -> Self {
        Self(Arc::new(Shared {
            exchange,
            held,
            held_until: AtomicU64::new(held_until.as_nanos()),
            superseded: watch::Sender::new(false),
            stand: Mutex::new(Stand::Open),
        }))
    }

    /// The claim of a request; `None` where no idempotency rule guards it, or it has no key.
    pub fn of(parts: &http::request::Parts) -> Option<Self> {
        parts.extensions.get().cloned()
    }

    /// A key for one step of the work, to hand on to a dependency: the same in every attempt at this
    /// intent, and another for each step and each intent.
    pub fn key_for(&self, step: &str) -> Key {
        self.0.held.key_for(step)
    }

    /// The fencing token: it grows with each attempt for as long as the record lives.
    pub fn token(&self) -> u64 {
        self.0.held.fence().token
    }

    /// Which attempt at this intent it is, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.held.attempt()
    }

    /// Which record is held.
    pub fn id(&self) -> &RecordId {
        self.0.held.id()
    }

    /// How long the record is surely still this attempt's: counted from when the last renewal that
    /// succeeded was sent. Zero says: begin nothing new. The record decides all the same.
    pub fn time_left(&self) -> Duration {
        let until = Timestamp::from_nanos(self.0.held_until.load(Ordering::Acquire));
        until.since(self.0.exchange.gates.env().now())
    }

    /// Whether the record is known to be another attempt's. Renewals and the commit tell; `false` only
    /// means that nobody has told yet.
    pub fn is_superseded(&self) -> bool {
        *self.0.superseded.borrow()
    }

    /// Waits until [`Claim::is_superseded`]. To be raced against work that can be given up.
    pub async fn superseded(&self) {
        let mut told = self.0.superseded.subscribe();
        // The sender lives as long as `self`.
        let _ = told.wait_for(|superseded| *superseded).await;
    }

    /// Completes the record with `response` inside `tx`, and commits.
    ///
    /// Neither the business rows nor the record are there without the other. The transaction must be on
    /// the database that holds the records, and should have begun with `BEGIN IMMEDIATE` (a deferred one
    /// that has read may be refused the write lock). The body is read whole, up to the rule's
    /// `max_response`; a longer one is passed on to this client and not kept. What retries get is the
    /// status, the rule's `replay_headers` and these very bytes; return the response that comes back.
    ///
    /// # Errors
    /// [`CommitError`]. It never leaves the transaction open. Dropped half-way, the row decides.
    pub async fn commit<B>(
        self,
        mut tx: Transaction<'_, Sqlite>,
        response: Response<B>,
    ) -> Result<Response<Body>, CommitError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = response.into_parts();
        let rule = self.rule();
        let body = Body::stream(body).collect_prefix(rule.max_response).await.map_err(CommitError::Body)?;
        let stored = Arc::new(keep(head.status, &head.headers, &body, rule)?);
        self.begin()?;
        match sqlite::complete_in(&mut tx, &self.0.held, &stored).await {
            Ok(Fenced::Done) => {}
            Ok(Fenced::Superseded) => {
                roll_back(tx).await;
                return Err(self.lost().await);
            }
            Err(error) => {
                roll_back(tx).await;
                self.stands(Stand::Open);
                return Err(CommitError::Store(error));
            }
        }
        match tx.commit().await {
            Ok(()) => self.stands(Stand::Committed(stored)),
            Err(error) => self.after_failed_commit(error).await?,
        }
        head.extensions.insert(CommittedAs(self.0.held.fence()));
        Ok(Response::from_parts(head, body.into_body()))
    }

    /// How the attempt stands, after looks at the row if a commit was left half-way: it may be under way
    /// still.
    pub(crate) async fn settle(&self) -> Stand {
        let mut pause = FIRST_PAUSE;
        for look in 0..SETTLE_LOOKS {
            if !matches!(self.stand(), Stand::Committing) {
                break;
            }
            if look > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            if let Some(stand) = self.look().await {
                self.stands(stand);
            }
        }
        self.stand()
    }

    /// Whether this is the response that the commit gave back.
    pub(crate) fn made(&self, response: &Response<Body>) -> bool {
        response.extensions().get() == Some(&CommittedAs(self.0.held.fence()))
    }

    /// A renewal succeeded.
    pub(crate) fn holds_until(&self, until: Timestamp) {
        self.0.held_until.store(until.as_nanos(), Ordering::Release);
    }

    /// A renewal found the record not to be this attempt's. While a commit is under way, that may be the
    /// commit's own doing.
    pub(crate) fn lost_by_renewal(&self) {
        if matches!(*self.0.stand.lock(), Stand::Open) {
            self.0.superseded.send_replace(true);
        }
    }

    fn rule(&self) -> &Idempotency {
        let exchange = &self.0.exchange;
        let index = exchange.plan().idempotency.as_ref().map_or(0, |plan| plan.rule);
        &exchange.rules.plan.rules.idempotency[index]
    }

    fn stand(&self) -> Stand {
        self.0.stand.lock().clone()
    }

    fn stands(&self, stand: Stand) {
        if matches!(stand, Stand::Superseded) {
            self.0.superseded.send_replace(true);
        }
        *self.0.stand.lock() = stand;
    }

    fn begin(&self) -> Result<(), CommitError> {
        let mut stand = self.0.stand.lock();
        match *stand {
            Stand::Open => {
                *stand = Stand::Committing;
                Ok(())
            }
            Stand::Superseded => Err(CommitError::Superseded),
            Stand::Committing | Stand::Committed(_) => Err(CommitError::Spent),
        }
    }

    /// No row was updated, and the transaction is rolled back: why?
    async fn lost(&self) -> CommitError {
        match self.read().await {
            Ok(Some(shown)) if shown.record.fence == self.0.held.fence() => {
                self.stands(Stand::Open);
                match shown.record.stage {
                    Stage::Processing => CommitError::OtherDatabase,
                    Stage::Finished(_) | Stage::Released => CommitError::Spent,
                }
            }
            _ => {
                self.stands(Stand::Superseded);
                CommitError::Superseded
            }
        }
    }

    /// SQLite names two kinds of failed COMMIT that surely took no effect; after any other the row
    /// decides.
    async fn after_failed_commit(&self, error: sqlx::Error) -> Result<(), CommitError> {
        if is_refusal(&error) {
            self.stands(Stand::Open);
            return Err(CommitError::Refused(error));
        }
        tracing::error!(%error, "a COMMIT broke; the row decides");
        match self.look().await {
            Some(stand @ Stand::Committed(_)) => {
                self.stands(stand);
                Ok(())
            }
            Some(stand) => {
                self.stands(stand);
                Err(CommitError::Superseded)
            }
            None => Err(CommitError::Unknown(error)),
        }
    }

    /// What the row says of a commit; `None` when it does not tell.
    async fn look(&self) -> Option<Stand> {
        let shown = self.read().await.ok()??;
        let ours = shown.record.fence == self.0.held.fence();
        match shown.record.stage {
            Stage::Finished(stored) if ours => Some(Stand::Committed(stored)),
            // It may still come, or have been rolled back.
            _ if ours => None,
            _ => Some(Stand::Superseded),
        }
    }

    async fn read(&self) -> Result<Option<Shown>, StoreError> {
        self.0.exchange.gates.records().read(self.0.held.id()).await
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("id", self.id())
            .field("fence", &self.0.held.fence())
            .finish_non_exhaustive()
    }
}

/// What is kept of a response: a body as far as it was read whole.
pub(crate) fn keep(
    status: StatusCode,
    headers: &http::HeaderMap,
    body: &Prefix,
    rule: &Idempotency,
) -> Result<StoredResponse, ResponseError> {
    let kept = match body {
        Prefix::Whole(bytes) => Some(bytes.clone()),
        Prefix::Longer { .. } => None,
    };
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    StoredResponse::keep(status.as_u16(), headers, kept, &rule.replay_headers)
}

async fn roll_back(tx: Transaction<'_, Sqlite>) {
    if let Err(error) = tx.rollback().await {
        // The connection rolls back when it is closed, at the latest.
        tracing::warn!(%error, "a transaction was not rolled back in order");
    }
}

/// `SQLITE_BUSY` (5), `SQLITE_LOCKED` (6) and `SQLITE_CONSTRAINT` (19), which a deferred foreign key
/// gives: the transaction is still open then, and is rolled back. (sqlite.org/rescode.html; the low byte
/// is the primary code.)
fn is_refusal(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<u32>().ok());
    matches!(code.map(|code| code & 0xff), Some(5 | 6 | 19))
}
