//! Every transition that a record may make.
//!
//! A claim, by what is found. The first line that fits decides; `*` fits anything. The test of this
//! module reads this very table and tries every combination against it.
//!
//! | state      | retention | lease | owner | fingerprint | takeover | answer            |
//! |------------|-----------|-------|-------|-------------|----------|-------------------|
//! | nothing    | *         | *     | *     | *           | *        | held: new         |
//! | PROCESSING | past      | over  | *     | *           | *        | held: expired     |
//! | SUCCEEDED  | past      | *     | *     | *           | *        | held: expired     |
//! | FAILED     | past      | *     | *     | *           | *        | held: expired     |
//! | RELEASED   | past      | *     | *     | *           | *        | held: expired     |
//! | RELEASED   | within    | *     | *     | *           | *        | held: released    |
//! | PROCESSING | *         | *     | own   | *           | *        | held: repeated    |
//! | *          | *         | *     | *     | unknown     | *        | not computed      |
//! | *          | *         | *     | *     | other       | *        | mismatch          |
//! | SUCCEEDED  | *         | *     | *     | *           | *        | replay            |
//! | FAILED     | *         | *     | *     | *           | *        | replay            |
//! | PROCESSING | *         | alive | *     | *           | *        | in progress       |
//! | PROCESSING | *         | over  | *     | *           | allowed  | held: taken over  |
//! | PROCESSING | *         | over  | *     | *           | hold     | outcome unknown   |
//!
//! *Retention* is past when [`Record::expires_at`] is. The *fingerprint* is unknown when the record
//! was claimed under fields that the call has not computed; it asks again with them. *Takeover* is
//! allowed by the policy that the record was claimed under.
//!
//! Every other transition needs the record's own [`Fence`] and `PROCESSING`: what comes late, or from
//! somebody else, changes nothing.

use std::sync::Arc;
use std::time::Duration;

use super::fingerprint::{Comparison, Fingerprint};
use super::id::RecordId;
use super::key::Key;
use super::record::{Fence, FirstTry, Owner, Policy, Record, Stage, StoredResponse};
use crate::Timestamp;
use crate::rule::model::{CommitMode, FingerprintPart};

/// What a call brings to a claim. A new record is made of it.
#[derive(Clone, Debug)]
pub struct ClaimAsk {
    /// The attempt's name; the same when it repeats a claim whose acknowledgement was lost.
    pub owner: Owner,
    /// Over the fields of the rule in force.
    pub fingerprint: Fingerprint,
    /// Over the fields that [`Answer::NotComputed`] asked for; empty at first.
    pub also: Fingerprint,
    /// The rule in force.
    pub policy: Policy,
    /// How long one claim or renewal holds.
    pub lease: Duration,
    /// How far renewals reach, from the claim.
    pub max_execution: Duration,
    /// What this try sees. Kept only if it is the first.
    pub first: FirstTry,
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// This attempt holds the record and may execute.
    Held(Held),
    /// Somebody holds it, or it is finished: do not execute.
    Answer(Answer),
}

/// Why a claim was not granted.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The key stands for another request.
    Mismatch {
        /// Which fields differ.
        fields: Vec<FingerprintPart>,
    },
    /// It was carried out: this is the result.
    Replay {
        /// The result.
        response: Arc<StoredResponse>,
        /// What the first try saw.
        first: FirstTry,
    },
    /// An attempt is running.
    InProgress {
        /// Its lease ends then, unless it renews.
        retry_after: Duration,
    },
    /// An attempt fell silent, and nobody knows what it did.
    OutcomeUnknown {
        /// The record stops to count then, unless an operator resolves it before.
        retry_after: Duration,
    },
    /// The record was claimed under other fields than the call computed. Compute these too, and
    /// claim again with them in [`ClaimAsk::also`].
    NotComputed {
        /// The missing fields.
        fields: Vec<FingerprintPart>,
    },
}

/// How a claim was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// There was no record.
    New,
    /// There was one, and it had expired.
    Expired,
    /// The attempt before released it.
    Released,
    /// It was this attempt's already.
    Repeated,
    /// The attempt before fell silent; its effects are fenced, or the rule accepts them twice.
    TakenOver,
}

/// "I hold it": the right to execute, complete, renew and release. Only [`claim`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    id: RecordId,
    fence: Fence,
    how: How,
    lease: Duration,
    attempt: u32,
    first: FirstTry,
    first_claimed_at: Timestamp,
    commit: CommitMode,
}

impl Held {
    /// Which record.
    pub fn id(&self) -> &RecordId {
        &self.id
    }

    /// The token and the owner.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How it came to be held.
    pub fn how(&self) -> How {
        self.how
    }

    /// How long one claim or renewal holds, from the moment that it was sent.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Which attempt at this intent, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What the first try saw: use it instead of what this one sees.
    pub fn first(&self) -> &FirstTry {
        &self.first
    }

    /// When to complete it: as the record says, which may differ from the rule in force.
    pub fn commit(&self) -> CommitMode {
        self.commit
    }

    /// A key for one step of the execution, to hand on to a dependency: the same in every attempt
    /// at this intent.
    pub fn key_for(&self, step: &str) -> Key {
        self.id.key_for(self.first_claimed_at, step)
    }
}

/// A claim that was granted, once the record in it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    record: Record,
    how: How,
    lease: Duration,
}

impl Grant {
    /// The record to store in place of the one that was found.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// How it was granted.
    pub fn how(&self) -> How {
        self.how
    }

    /// For stores: the record is durable now.
    pub fn stored(self, id: RecordId) -> (Held, Record) {
        let held = Held {
            id,
            fence: self.record.fence,
            how: self.how,
            lease: self.lease,
            attempt: self.record.attempts,
            first: self.record.first.clone(),
            first_claimed_at: self.record.first_claimed_at,
            commit: self.record.policy.commit,
        };
        (held, self.record)
    }
}

/// Decides a claim by the table of this module. An `Err` leaves the record as it is.
pub fn claim(found: Option<&Record>, ask: &ClaimAsk, now: Timestamp) -> Result<Grant, Answer> {
    let grant = |record, how| Ok(Grant { record, how, lease: ask.lease });
    let Some(found) = found else {
        return grant(fresh(ask, 1, now), How::New);
    };
    // At the end of u64 the token stands still, and the owner alone tells attempts apart.
    let token = found.fence.token.saturating_add(1);
    if found.has_expired(now) {
        return grant(fresh(ask, token, now), How::Expired);
    }
    if found.stage == Stage::Released {
        return grant(after_release(found, ask, token, now), How::Released);
    }
    if found.stage == Stage::Processing && found.fence.owner == ask.owner {
        let mut record = found.clone();
        record.lease_until = extended(found, ask.lease, now);
        return grant(record, How::Repeated);
    }
    match found.fingerprint.compare(&ask.fingerprint, &ask.also) {
        Comparison::NotComputed(fields) => return Err(Answer::NotComputed { fields }),
        Comparison::Differs(fields) => return Err(Answer::Mismatch { fields }),
        Comparison::Same => {}
    }
    if let Stage::Finished(response) = &found.stage {
        return Err(Answer::Replay { response: Arc::clone(response), first: found.first.clone() });
    }
    if found.is_leased(now) {
        return Err(Answer::InProgress { retry_after: found.lease_until.since(now) });
    }
    if !found.policy.may_take_over() {
        return Err(Answer::OutcomeUnknown { retry_after: found.expires_at().since(now) });
    }
    let mut record = attempt(found.clone(), ask, token, now);
    record.attempts = found.attempts.saturating_add(1);
    grant(record, How::TakenOver)
}

/// A new intent.
fn fresh(ask: &ClaimAsk, token: u64, now: Timestamp) -> Record {
    let record = Record {
        stage: Stage::Processing,
        fence: Fence { token, owner: ask.owner },
        fingerprint: ask.fingerprint.clone(),
        policy: ask.policy,
        first: ask.first.clone(),
        attempts: 1,
        first_claimed_at: now,
        claimed_at: now,
        execution_until: now,
        lease_until: now,
        changed_at: now,
    };
    attempt(record, ask, token, now)
}

/// Nothing came of the attempts before. The same request goes on with their intent, so that it sees
/// the same flags and hands on the same step keys; another request, or one after the window of a
/// derived key, is a new one.
fn after_release(found: &Record, ask: &ClaimAsk, token: u64, now: Timestamp) -> Record {
    let same = found.fingerprint.compare(&ask.fingerprint, &ask.also) == Comparison::Same;
    let in_window = found.policy.window.is_none_or(|window| now < found.first_claimed_at + window);
    let mut record = fresh(ask, token, now);
    if same && in_window {
        record.first = found.first.clone();
        record.first_claimed_at = found.first_claimed_at;
        record.attempts = found.attempts.saturating_add(1);
    }
    record
}

/// The next attempt at the intent of `record`.
fn attempt(mut record: Record, ask: &ClaimAsk, token: u64, now: Timestamp) -> Record {
    record.fence = Fence { token, owner: ask.owner };
    record.claimed_at = now;
    record.changed_at = now;
    record.execution_until = now + ask.max_execution;
    record.lease_until = (now + ask.lease).min(record.execution_until);
    record
}

/// The end of a lease that is renewed now: never past the execution's end, never earlier than it was.
fn extended(record: &Record, lease: Duration, now: Timestamp) -> Timestamp {
    (now + lease).min(record.execution_until).max(record.lease_until)
}

/// What became of a transition that ends an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// Store this record.
    Now(Box<Record>),
    /// It was made before, by this same attempt: an acknowledgement was lost. Nothing to store.
    Before,
    /// The record is not this attempt's any more. Nothing to store, and nothing may be made visible.
    Superseded,
}

/// Ends the attempt with a result.
pub fn complete(
    found: Option<&Record>,
    fence: Fence,
    response: &Arc<StoredResponse>,
    now: Timestamp,
) -> Ended {
    end(found, fence, Stage::Finished(Arc::clone(response)), now)
}

/// Ends the attempt without effect. The row and its token stay.
pub fn release(found: Option<&Record>, fence: Fence, now: Timestamp) -> Ended {
    end(found, fence, Stage::Released, now)
}

/// [`release`] for an attempt that never learned what became of its claim, knows no token, and will
/// not execute.
pub fn abandon(found: Option<&Record>, owner: Owner, now: Timestamp) -> Ended {
    match found {
        Some(record) if record.fence.owner == owner => release(found, record.fence, now),
        _ => Ended::Superseded,
    }
}

fn end(found: Option<&Record>, fence: Fence, stage: Stage, now: Timestamp) -> Ended {
    let Some(found) = found.filter(|record| record.fence == fence) else {
        return Ended::Superseded;
    };
    match (&found.stage, &stage) {
        (Stage::Processing, _) => Ended::Now(Box::new(Record {
            stage,
            lease_until: found.lease_until.min(now),
            changed_at: now,
            ..found.clone()
        })),
        (Stage::Finished(_), Stage::Finished(_)) | (Stage::Released, Stage::Released) => Ended::Before,
        _ => Ended::Superseded,
    }
}

/// What became of a renewal.
#[derive(Clone, Debug, PartialEq)]
pub enum Renewal {
    /// Store this record.
    Renewed(Box<Record>),
    /// The attempt has run for as long as it may. Nothing to store.
    Exhausted,
    /// The record is not this attempt's any more.
    Superseded,
}

/// Holds the record for another `lease`, but not beyond what the claim allowed.
///
/// A lease that ran out can be renewed while nobody took over: the record is then still this
/// attempt's.
pub fn renew(found: Option<&Record>, fence: Fence, lease: Duration, now: Timestamp) -> Renewal {
    match found {
        Some(record) if record.fence == fence && record.stage == Stage::Processing => {
            if now >= record.execution_until {
                return Renewal::Exhausted;
            }
            let mut record = record.clone();
            record.lease_until = extended(&record, lease, now);
            Renewal::Renewed(Box::new(record))
        }
        _ => Renewal::Superseded,
    }
}

/// What an operator found out about a silent attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It took effect: retries replay this.
    Happened(Arc<StoredResponse>),
    /// It took none: the next call executes.
    NotApplied,
}

/// What became of an operator's command.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    /// Store this record.
    Now(Box<Record>),
    /// This same command was carried out before.
    Before,
    /// An attempt still holds it: wait, or stop the executor and force a release.
    Leased {
        /// For so long.
        left: Duration,
    },
    /// There is no such record, or it is not what the operator saw any more: look again.
    Changed,
}

/// Settles a record whose outcome is unknown. `seen` is what the operator looked at, `by` a fresh
/// owner for the command, which shuts out the silent attempt for good.
pub fn resolve(
    found: Option<&Record>,
    seen: Fence,
    by: Owner,
    verdict: &Verdict,
    now: Timestamp,
) -> Resolved {
    match found {
        Some(record) if record.fence == seen && record.is_leased(now) => {
            Resolved::Leased { left: record.lease_until.since(now) }
        }
        _ => settle(found, seen, by, verdict, now),
    }
}

/// Releases a record even while it is leased: for an operator who knows that its executor is dead,
/// or accepts that the intent may be carried out twice.
pub fn force_release(found: Option<&Record>, seen: Fence, by: Owner, now: Timestamp) -> Resolved {
    settle(found, seen, by, &Verdict::NotApplied, now)
}

fn settle(found: Option<&Record>, seen: Fence, by: Owner, verdict: &Verdict, now: Timestamp) -> Resolved {
    if found.is_some_and(|record| record.fence.owner == by && record.stage != Stage::Processing) {
        return Resolved::Before;
    }
    let ended = match verdict {
        Verdict::Happened(response) => complete(found, seen, response, now),
        Verdict::NotApplied => release(found, seen, now),
    };
    match ended {
        Ended::Now(mut record) => {
            record.fence = Fence { token: seen.token.saturating_add(1), owner: by };
            Resolved::Now(record)
        }
        Ended::Before | Ended::Superseded => Resolved::Changed,
    }
}

#[cfg(test)]
mod tests;
