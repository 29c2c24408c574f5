//! What the writer can be told to do: find, let the core decide, put.

use std::sync::Arc;

use sqlx::SqliteConnection;
use tidegate_core::idempotency::RecordId;
use tidegate_core::idempotency::record::{Fence, Owner, StoredResponse};
use tidegate_core::idempotency::transition::{
    self, ClaimAsk, Claimed, Ended, Held, Renewal, Resolved, Verdict,
};

use super::ClockShift;
use super::row::{Fault, find, now_ms, put};
use crate::rules::NewAuditEntry;
use crate::sql::sqlite::rules::append_audit;
use crate::traits::{Fenced, MAX_PURGED, Renewed, Settled, Shown};

/// One step inside a write transaction. Repeating it after an unknown commit gives the same answer.
pub(super) trait Command: Clone + Send + Sync + 'static {
    /// What it answers.
    type Out: Send + 'static;

    /// Carries it out.
    fn run(
        &self,
        conn: &mut SqliteConnection,
        shift: &ClockShift,
    ) -> impl Future<Output = Result<Self::Out, Fault>> + Send;
}

#[derive(Clone)]
pub(super) struct Claim {
    pub(super) id: RecordId,
    pub(super) ask: Arc<ClaimAsk>,
}

impl Command for Claim {
    type Out = Claimed;

    async fn run(&self, conn: &mut SqliteConnection, shift: &ClockShift) -> Result<Claimed, Fault> {
        claim(conn, &self.id, &self.ask, shift).await
    }
}

pub(super) async fn claim(
    conn: &mut SqliteConnection,
    id: &RecordId,
    ask: &ClaimAsk,
    shift: &ClockShift,
) -> Result<Claimed, Fault> {
    let (found, now) = find(&mut *conn, id, shift).await?;
    match transition::claim(found.as_ref(), ask, now) {
        Ok(grant) => {
            let (held, record) = grant.stored(id.clone());
            put(conn, id, &record).await?;
            Ok(Claimed::Held(held))
        }
        Err(answer) => Ok(Claimed::Answer(answer)),
    }
}

#[derive(Clone)]
pub(super) struct Renew(pub(super) Held);

impl Command for Renew {
    type Out = Renewed;

    async fn run(&self, conn: &mut SqliteConnection, shift: &ClockShift) -> Result<Renewed, Fault> {
        let (found, now) = find(&mut *conn, self.0.id(), shift).await?;
        match transition::renew(found.as_ref(), self.0.fence(), self.0.lease(), now) {
            Renewal::Renewed(record) => {
                put(conn, self.0.id(), &record).await?;
                Ok(Renewed::Held { left: record.lease_until.since(now) })
            }
            Renewal::Exhausted => Ok(Renewed::Exhausted),
            Renewal::Superseded => Ok(Renewed::Superseded),
        }
    }
}

#[derive(Clone)]
pub(super) struct End {
    pub(super) id: RecordId,
    pub(super) how: EndHow,
}

#[derive(Clone)]
pub(super) enum EndHow {
    Complete(Fence, Arc<StoredResponse>),
    Release(Fence),
    Abandon(Owner),
}

impl Command for End {
    type Out = Fenced;

    async fn run(&self, conn: &mut SqliteConnection, shift: &ClockShift) -> Result<Fenced, Fault> {
        let (found, now) = find(&mut *conn, &self.id, shift).await?;
        let ended = match &self.how {
            EndHow::Complete(fence, response) => transition::complete(found.as_ref(), *fence, response, now),
            EndHow::Release(fence) => transition::release(found.as_ref(), *fence, now),
            EndHow::Abandon(owner) => transition::abandon(found.as_ref(), *owner, now),
        };
        match ended {
            Ended::Now(record) => {
                put(conn, &self.id, &record).await?;
                Ok(Fenced::Done)
            }
            Ended::Before => Ok(Fenced::Done),
            Ended::Superseded => Ok(Fenced::Superseded),
        }
    }
}

#[derive(Clone)]
pub(super) struct Settle {
    pub(super) id: RecordId,
    pub(super) seen: Fence,
    pub(super) by: Owner,
    /// `None` releases a leased record too.
    pub(super) verdict: Option<Verdict>,
    /// Written together with the change, and only with it.
    pub(super) audit: Option<Audit>,
}

/// Says what the trail keeps of a change, from the record that is changed.
pub(super) type Audit = Arc<dyn Fn(&Shown) -> NewAuditEntry + Send + Sync>;

impl Command for Settle {
    type Out = Settled;

    async fn run(&self, conn: &mut SqliteConnection, shift: &ClockShift) -> Result<Settled, Fault> {
        let (found, now) = find(&mut *conn, &self.id, shift).await?;
        let resolved = match &self.verdict {
            Some(verdict) => transition::resolve(found.as_ref(), self.seen, self.by, verdict, now),
            None => transition::force_release(found.as_ref(), self.seen, self.by, now),
        };
        match resolved {
            Resolved::Now(record) => {
                put(conn, &self.id, &record).await?;
                if let Some((audit, record)) = self.audit.as_ref().zip(found) {
                    append_audit(conn, &audit(&Shown { record, now })).await?;
                }
                Ok(Settled::Done)
            }
            Resolved::Before => Ok(Settled::Done),
            Resolved::Leased { left } => Ok(Settled::Leased { left }),
            Resolved::Changed => Ok(Settled::Changed),
        }
    }
}

#[derive(Clone)]
pub(super) struct Purge {
    pub(super) batch: u32,
}

impl Command for Purge {
    type Out = u32;

    async fn run(&self, conn: &mut SqliteConnection, shift: &ClockShift) -> Result<u32, Fault> {
        // The test stands twice: a row found by the inner query may have been claimed again where
        // the two do not see one snapshot. SQLite's do; the statement is the same for every backend.
        let done = sqlx::query(concat!(
            "DELETE FROM tidegate_idempotency
             WHERE rowid IN (
                SELECT rowid FROM tidegate_idempotency
                WHERE expires_at <= ",
            now_ms!(),
            " + ?1 AND (state <> 'PROCESSING' OR lease_until <= ",
            now_ms!(),
            " + ?1)
                ORDER BY expires_at LIMIT ?2)
             AND expires_at <= ",
            now_ms!(),
            " + ?1 AND (state <> 'PROCESSING' OR lease_until <= ",
            now_ms!(),
            " + ?1)"
        ))
        .bind(shift.millis())
        .bind(i64::from(self.batch.min(MAX_PURGED)))
        .execute(conn)
        .await?;
        Ok(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX))
    }
}
