//! A service that writes its rows and completes the record in one transaction (`commit: with_effects`).

use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::{Sqlite, Transaction};
use tidegate::env::Env;
use tidegate_core::idempotency::fingerprint::Request;
use tidegate_core::idempotency::{
    Answer, ClaimAsk, Claimed, Fingerprint, FirstTry, Held, Owner, Policy, StoredResponse,
};
use tidegate_core::rule::model::Idempotency;
use tidegate_store::sql::sqlite::{SqliteIdempotency, complete_in};
use tidegate_store::traits::{Fenced, IdempotencyStore as _};

use super::{KEY, TARGET, record, register, registered};
use crate::LabError;
use crate::error::About as _;
use crate::node::load;

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

/// The service's own view of one database.
pub(super) struct Service {
    pool: SqlitePool,
    records: SqliteIdempotency,
    rule: Idempotency,
}

/// A registration that is written and not yet committed.
pub(super) struct Written {
    tx: Transaction<'static, Sqlite>,
    held: Held,
}

impl Service {
    /// With renewal off: `max_execution` is the lease.
    pub(super) fn new(
        pool: SqlitePool,
        records: SqliteIdempotency,
        lease: Duration,
    ) -> Result<Self, LabError> {
        let lease = lease.as_millis();
        let rules = format!(
            "apiVersion: tidegate/v1
resources:
  - id: registrations
    attributes: {{ tenant: {{ from: header.x-tenant, missing: reject }} }}
idempotency:
  - id: register-once
    resources: [registrations]
    operation: register
    scope: [tenant]
    key: {{ from: header.idempotency-key, required: true }}
    commit: with_effects
    lease: {lease}ms
    max_execution: {lease}ms
"
        );
        let rule = load(&rules)?.rules.idempotency.into_iter().next();
        let rule = rule.ok_or("there is none").about("the idempotency rule")?;
        Ok(Self { pool, records, rule })
    }

    /// Claims the record; `Err` inside says why this attempt does not execute.
    pub(super) async fn claim(&self) -> Result<Result<Held, Attempt>, LabError> {
        let rule = &self.rule;
        let nothing = serde_json::Map::new();
        let request =
            Request { method: "POST", path: TARGET, query: None, body: b"alice", attributes: &nothing };
        let ask = ClaimAsk {
            owner: Owner(Env::system().nonce()),
            fingerprint: Fingerprint::of(&rule.fingerprint, &request).about("the fingerprint")?,
            also: Fingerprint::default(),
            policy: Policy {
                commit: rule.commit,
                on_unknown: rule.on_unknown,
                retention: rule.retention,
                window: None,
            },
            lease: rule.lease,
            max_execution: rule.max_execution,
            first: FirstTry { version: 1, flags: "".into() },
        };
        match self.records.claim(&record(KEY)?, &ask).await.about("claiming the record")? {
            Claimed::Held(held) => Ok(Ok(held)),
            Claimed::Answer(Answer::Replay { .. }) => Ok(Err(Attempt::Replayed)),
            Claimed::Answer(Answer::InProgress { .. }) => Ok(Err(Attempt::Busy)),
            Claimed::Answer(other) => {
                Err(LabError::broken("claiming the record", format!("it said {other:?}")))
            }
        }
    }

    /// The business write, in a transaction that is still open.
    pub(super) async fn write(&self, held: Held) -> Result<Written, LabError> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.about("beginning a transaction")?;
        register(&mut tx, "alice").await?;
        Ok(Written { tx, held })
    }

    /// Completes the record in that transaction. 0 rows updated: the row goes too.
    pub(super) async fn finish(&self, written: Written) -> Result<Attempt, LabError> {
        let Written { mut tx, held } = written;
        let headers: [(&str, &str); 0] = [];
        let response =
            StoredResponse::new(201, headers, Some(registered("alice").into())).about("a response")?;
        match complete_in(&mut tx, &held, &response).await.about("completing the record")? {
            Fenced::Done => {
                tx.commit().await.about("committing")?;
                Ok(Attempt::Succeeded)
            }
            Fenced::Superseded => {
                tx.rollback().await.about("rolling back")?;
                Ok(Attempt::RolledBack)
            }
        }
    }

    /// A whole attempt without any pause.
    pub(super) async fn attempt(&self) -> Result<Attempt, LabError> {
        match self.claim().await? {
            Ok(held) => self.finish(self.write(held).await?).await,
            Err(attempt) => Ok(attempt),
        }
    }
}
