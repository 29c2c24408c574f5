//! What a backend must bring.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::idempotency::record::{Fence, Owner, Record, State, StoredResponse};
use tidegate_core::idempotency::transition::{ClaimAsk, Claimed, Held, Verdict};
use tidegate_core::idempotency::{Fingerprint, RecordId};

/// A future behind a pointer, so that the traits can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a store gave no answer. Whatever the kind, nothing may be executed on the strength of it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or refuses. Nothing was changed.
    #[error("the {store} store is not available: {source}")]
    Unavailable {
        /// Which backend.
        store: &'static str,
        /// What it said.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// Other writers held it for longer than the configured wait. Nothing was changed; a later try
    /// may succeed.
    #[error("the {store} store is busy: {source}; look for a long write transaction in another process")]
    Busy {
        /// Which backend.
        store: &'static str,
        /// What it said.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The commit failed in a way that does not tell whether it happened. Repeating the same call
    /// settles it: each recognises its own earlier success.
    #[error("the {store} store did not say whether it committed: {source}; repeat the call to find out")]
    CommitUnknown {
        /// Which backend.
        store: &'static str,
        /// What it said.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// What is stored cannot be understood.
    #[error("the {store} store holds a damaged record: {what}; release or delete the row by hand")]
    Corrupt {
        /// Which backend.
        store: &'static str,
        /// Which record, and what is wrong with it.
        what: Arc<str>,
    },
    /// A bounded store is at its bound. Nothing was changed.
    #[error("the {store} store is full ({limit}): raise its limit, shorten the retention, or use SQLite")]
    Full {
        /// Which backend.
        store: &'static str,
        /// The bound that was reached.
        limit: Arc<str>,
    },
    /// It was closed, because the process shuts down or its writer died.
    #[error("the {store} store is closed")]
    Closed {
        /// Which backend.
        store: &'static str,
    },
}

/// Whether a statement that needs the record reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// It did, now or in an earlier try of the same attempt.
    Done,
    /// The record is not this attempt's any more: undo what hangs on it.
    Superseded,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// Held for so long from the moment that the renewal was sent.
    Held {
        /// At most the rule's lease; less near the end of `max_execution`.
        left: Duration,
    },
    /// `max_execution` is over: stop renewing.
    Exhausted,
    /// Somebody else holds it, or it is finished.
    Superseded,
}

/// What became of an operator's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Carried out.
    Done,
    /// An attempt still holds the record.
    Leased {
        /// For so long.
        left: Duration,
    },
    /// There is no such record, or it has changed since it was read: read it again.
    Changed,
}

/// A record, and the store's time at which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The record.
    pub record: Record,
    /// The store's time.
    pub now: Timestamp,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which record.
    pub id: RecordId,
    /// Where it stands.
    pub state: State,
    /// Who holds it, or held it last.
    pub fence: Fence,
    /// Claims of this intent so far.
    pub attempts: u32,
    /// When this intent was first claimed.
    pub first_claimed_at: Timestamp,
    /// When the latest attempt's lease ends or ended.
    pub lease_until: Timestamp,
    /// When it stops to count.
    pub expires_at: Timestamp,
}

/// Which records to list: at most [`MAX_LISTED`], in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListAsk {
    /// Those after this one; none for the first page.
    pub after: Option<RecordId>,
    /// Only those in this state.
    pub state: Option<State>,
    /// At most so many.
    pub limit: u32,
}

/// Records in one page of a listing at most.
pub const MAX_LISTED: u32 = 1000;
/// Rows that one purge deletes at most: its transaction holds up the claims behind it.
pub const MAX_PURGED: u32 = 1000;

/// Keeps idempotency records.
///
/// Each method is one atomic step, decided by [`tidegate_core::idempotency::transition`] at the
/// store's own time; callers bring no clock. A future that is dropped leaves no transaction open.
/// When it is a claim's, and the claim is granted all the same, the store releases it again.
pub trait IdempotencyStore: Send + Sync {
    /// Claims the record. A repeated claim by the same owner is granted again.
    fn claim<'a>(&'a self, id: &'a RecordId, ask: &'a ClaimAsk)
    -> BoxFuture<'a, Result<Claimed, StoreError>>;

    /// Holds the record for another lease.
    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Renewed, StoreError>>;

    /// Ends the attempt with a result.
    fn complete<'a>(
        &'a self,
        held: &'a Held,
        response: &'a Arc<StoredResponse>,
    ) -> BoxFuture<'a, Result<Fenced, StoreError>>;

    /// Ends the attempt without effect. The row and its token stay.
    fn release<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Fenced, StoreError>>;

    /// The same for an attempt that got an error for its claim, and will not execute.
    fn abandon<'a>(&'a self, id: &'a RecordId, owner: Owner) -> BoxFuture<'a, Result<Fenced, StoreError>>;

    /// The record, expired or not; for waiters and operators.
    fn read<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<Shown>, StoreError>>;

    /// Settles a record whose outcome is unknown, by an operator who saw it as `seen`. `by` is a
    /// fresh owner, the same when the command is repeated.
    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
        verdict: &'a Verdict,
    ) -> BoxFuture<'a, Result<Settled, StoreError>>;

    /// Releases a record even while it is leased, by an operator who saw it as `seen`.
    fn force_release<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
    ) -> BoxFuture<'a, Result<Settled, StoreError>>;

    /// A page of records.
    fn list<'a>(&'a self, ask: &'a ListAsk) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>>;

    /// Deletes at most `batch` (and at most [`MAX_PURGED`]) expired records, and says how many. Call
    /// it again, after a pause, while it says `batch`.
    fn purge(&self, batch: u32) -> BoxFuture<'_, Result<u32, StoreError>>;

    /// The store's time.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>>;
}

/// What a record weighs in a store that is bounded in bytes: its parts, and a flat sum for the rest.
pub(crate) fn weight(id: &RecordId, record: &Record) -> usize {
    /// The fixed-size fields, the map entries and their pointers.
    const FLAT: usize = 512;
    let id = 2 * (id.operation().len() + id.scope().len() + id.key().len());
    let response = match &record.stage {
        tidegate_core::idempotency::Stage::Finished(response) => response.size(),
        _ => 0,
    };
    FLAT + id + Fingerprint::to_bytes(&record.fingerprint).len() + record.first.flags.len() + response
}
