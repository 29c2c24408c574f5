//! Idempotency: every method of the store against the transition functions over a plain map.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::idempotency::fingerprint::Request;
use tidegate_core::idempotency::record::{FirstTry, Owner, Policy, Record, StoredResponse};
use tidegate_core::idempotency::transition::{
    self, Answer, ClaimAsk, Claimed, Ended, Held, Renewal, Resolved, Verdict,
};
use tidegate_core::idempotency::{Fingerprint, RecordId};
use tidegate_core::rule::model::{CommitMode, FingerprintPart, OnUnknown};

use super::Choices;
use crate::traits::{BoxFuture, Fenced, IdempotencyStore, ListAsk, MAX_LISTED, Renewed, Settled};

/// Every span of a trace is a multiple of this. A store whose clock goes on by itself may take less
/// than half of it for the whole trace and still agree.
const UNIT: Duration = Duration::from_secs(1000);
/// Different records of a trace.
const IDS: u64 = 6;
/// Attempts that are remembered and may come late.
const REMEMBERED: usize = 40;

/// Moves the store's time: a pretended clock by a jump, a real one by waiting.
pub type Advance<'a> = dyn Fn(Duration) -> BoxFuture<'static, ()> + Sync + 'a;

/// A store that answered differently from the core, or not at all.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, step {step}: {action}: the core says {expected}, the store {found}")]
pub struct Divergence {
    /// Of the trace.
    pub seed: u64,
    /// Counted from 0.
    pub step: u32,
    /// What was done.
    pub action: String,
    /// The core's answer.
    pub expected: String,
    /// The store's.
    pub found: String,
}

/// How often each answer was seen, so that a caller can check that a trace says something.
pub type Seen = HashMap<String, u32>;

/// Runs a trace of `steps` random actions against an empty `store`.
pub async fn run(
    store: &dyn IdempotencyStore,
    advance: &Advance<'_>,
    seed: u64,
    steps: u32,
) -> Result<Seen, Divergence> {
    let base = store.now().await.map_err(|error| Divergence {
        seed,
        step: 0,
        action: "now".to_owned(),
        expected: "a time".to_owned(),
        found: error.to_string(),
    })?;
    let mut trace = Trace {
        choices: Choices::new(seed),
        model: HashMap::new(),
        now: base,
        base,
        attempts: Vec::new(),
        owners: 0,
        responses: responses(),
        seen: Seen::new(),
    };
    for step in 0..steps {
        let Said { action, expected, found } = trace.step(store, advance).await;
        if expected != found {
            return Err(Divergence { seed, step, action, expected, found });
        }
        let kind =
            expected.split([' ', '(', '{', '"', '[']).find(|word| !word.is_empty()).unwrap_or_default();
        *trace.seen.entry(format!("{action}: {kind}")).or_default() += 1;
    }
    let all = trace.list(store).await;
    if all.expected != all.found {
        let Said { action, expected, found } = all;
        return Err(Divergence { seed, step: steps, action, expected, found });
    }
    Ok(trace.seen)
}

/// What was done, and what both sides said.
struct Said {
    action: String,
    expected: String,
    found: String,
}

fn said<T: fmt::Debug, E: fmt::Display>(action: &str, expected: T, found: Result<T, E>) -> Said {
    let found = found.map_or_else(|error| format!("error: {error}"), |found| format!("{found:?}"));
    Said { action: action.to_owned(), expected: format!("{expected:?}"), found }
}

struct Trace {
    choices: Choices,
    model: HashMap<RecordId, Record>,
    now: Timestamp,
    base: Timestamp,
    /// The same attempt as the core and the store see it.
    attempts: Vec<(Held, Held)>,
    owners: u64,
    responses: Vec<Arc<StoredResponse>>,
    seen: Seen,
}

impl Trace {
    async fn step(&mut self, store: &dyn IdempotencyStore, advance: &Advance<'_>) -> Said {
        match self.choices.below(100) {
            0..38 => self.claim(store).await,
            38..50 => self.renew(store).await,
            50..62 => self.complete(store).await,
            62..70 => self.release(store).await,
            70..74 => self.abandon(store).await,
            74..82 => self.settle(store).await,
            82..86 => self.read(store).await,
            86..89 => self.purge(store).await,
            89 => self.list(store).await,
            _ => {
                let by = self.units(1, 3);
                advance(by).await;
                self.now = self.now + by;
                said("advance", (), Ok::<_, String>(()))
            }
        }
    }

    async fn claim(&mut self, store: &dyn IdempotencyStore) -> Said {
        let id = self.id();
        // Now and then an attempt repeats itself.
        let owner = match self.attempt() {
            Some((held, _)) if self.choices.below(8) == 0 => held.fence().owner,
            _ => self.owner(),
        };
        let mut ask = self.ask(owner);
        let mut expected = self.claim_model(&id, &ask);
        let mut found = store.claim(&id, &ask).await;
        if let Claimed::Answer(Answer::NotComputed { fields }) = &expected {
            let same = matches!(&found, Ok(Claimed::Answer(Answer::NotComputed { fields: other })) if other == fields);
            if !same {
                return said("claim", format!("{expected:?}"), found.map(|found| format!("{found:?}")));
            }
            *self.seen.entry("claim: NotComputed".to_owned()).or_default() += 1;
            ask.also = fingerprint(fields, "1");
            expected = self.claim_model(&id, &ask);
            found = store.claim(&id, &ask).await;
        }
        let said = said("claim", summary(&expected), found.as_ref().map(summary));
        if let (Claimed::Held(ours), Ok(Claimed::Held(theirs))) = (expected, found) {
            if self.attempts.len() == REMEMBERED {
                self.attempts.remove(0);
            }
            self.attempts.push((ours, theirs));
        }
        said
    }

    fn claim_model(&mut self, id: &RecordId, ask: &ClaimAsk) -> Claimed {
        match transition::claim(self.model.get(id), ask, self.now) {
            Ok(grant) => {
                let (held, record) = grant.stored(id.clone());
                self.model.insert(id.clone(), record);
                Claimed::Held(held)
            }
            Err(answer) => Claimed::Answer(answer),
        }
    }

    async fn renew(&mut self, store: &dyn IdempotencyStore) -> Said {
        let Some((ours, theirs)) = self.attempt() else { return self.read(store).await };
        let found = self.model.get(ours.id());
        let expected = match transition::renew(found, ours.fence(), ours.lease(), self.now) {
            Renewal::Renewed(record) => {
                let left = record.lease_until.since(self.now);
                self.model.insert(ours.id().clone(), *record);
                Renewed::Held { left }
            }
            Renewal::Exhausted => Renewed::Exhausted,
            Renewal::Superseded => Renewed::Superseded,
        };
        let rounded = |renewed| match renewed {
            Renewed::Held { left } => Renewed::Held { left: round(left) },
            other => other,
        };
        said("renew", rounded(expected), store.renew(&theirs).await.map(rounded))
    }

    async fn complete(&mut self, store: &dyn IdempotencyStore) -> Said {
        let Some((ours, theirs)) = self.attempt() else { return self.read(store).await };
        let response = self.response();
        let ended = transition::complete(self.model.get(ours.id()), ours.fence(), &response, self.now);
        let expected = self.end(ours.id(), ended);
        said("complete", expected, store.complete(&theirs, &response).await)
    }

    async fn release(&mut self, store: &dyn IdempotencyStore) -> Said {
        let Some((ours, theirs)) = self.attempt() else { return self.read(store).await };
        let ended = transition::release(self.model.get(ours.id()), ours.fence(), self.now);
        let expected = self.end(ours.id(), ended);
        said("release", expected, store.release(&theirs).await)
    }

    async fn abandon(&mut self, store: &dyn IdempotencyStore) -> Said {
        let Some((ours, _)) = self.attempt() else { return self.read(store).await };
        let owner = ours.fence().owner;
        let ended = transition::abandon(self.model.get(ours.id()), owner, self.now);
        let expected = self.end(ours.id(), ended);
        said("abandon", expected, store.abandon(ours.id(), owner).await)
    }

    fn end(&mut self, id: &RecordId, ended: Ended) -> Fenced {
        match ended {
            Ended::Now(record) => {
                self.model.insert(id.clone(), *record);
                Fenced::Done
            }
            Ended::Before => Fenced::Done,
            Ended::Superseded => Fenced::Superseded,
        }
    }

    async fn settle(&mut self, store: &dyn IdempotencyStore) -> Said {
        let id = self.id();
        let by = self.owner();
        // Mostly what stands there, sometimes what an attempt remembers.
        let seen = match (self.model.get(&id).map(|record| record.fence), self.attempt()) {
            (Some(fence), _) if self.choices.below(4) > 0 => fence,
            (_, Some((held, _))) => held.fence(),
            _ => return self.read(store).await,
        };
        let verdict = match self.choices.below(3) {
            0 => Some(Verdict::NotApplied),
            1 => Some(Verdict::Happened(self.response())),
            _ => None,
        };
        let found = self.model.get(&id);
        let (resolved, settled) = match &verdict {
            Some(verdict) => (
                transition::resolve(found, seen, by, verdict, self.now),
                store.resolve(&id, seen, by, verdict).await,
            ),
            None => (
                transition::force_release(found, seen, by, self.now),
                store.force_release(&id, seen, by).await,
            ),
        };
        let expected = match resolved {
            Resolved::Now(record) => {
                self.model.insert(id, *record);
                Settled::Done
            }
            Resolved::Before => Settled::Done,
            Resolved::Leased { left } => Settled::Leased { left },
            Resolved::Changed => Settled::Changed,
        };
        let rounded = |settled| match settled {
            Settled::Leased { left } => Settled::Leased { left: round(left) },
            other => other,
        };
        said(
            if verdict.is_some() { "resolve" } else { "force release" },
            rounded(expected),
            settled.map(rounded),
        )
    }

    async fn read(&mut self, store: &dyn IdempotencyStore) -> Said {
        let id = self.id();
        let base = self.base;
        let expected = self.model.get(&id).map(|record| nominal(record.clone(), base));
        let found = store.read(&id).await.map(|shown| shown.map(|shown| nominal(shown.record, base)));
        said("read", expected, found)
    }

    async fn purge(&mut self, store: &dyn IdempotencyStore) -> Said {
        let before = self.model.len();
        self.model.retain(|_, record| !record.has_expired(self.now));
        said("purge", (before - self.model.len()) as u32, store.purge(IDS as u32 + 1).await)
    }

    async fn list(&mut self, store: &dyn IdempotencyStore) -> Said {
        let mut expected: Vec<_> =
            self.model.iter().map(|(id, record)| (id.clone(), record.stage.state(), record.fence)).collect();
        expected.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let ask = ListAsk { limit: MAX_LISTED, ..ListAsk::default() };
        let found = store.list(&ask).await;
        let found =
            found.map(|lines| lines.into_iter().map(|line| (line.id, line.state, line.fence)).collect());
        said("list", expected, found)
    }

    // ---- choices ---------------------------------------------------------------------------------

    fn id(&mut self) -> RecordId {
        RecordId::from_stored("charge", "/acme", &format!("k{}", self.choices.below(IDS)))
    }

    fn owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(u128::from(self.owners).to_be_bytes())
    }

    fn attempt(&mut self) -> Option<(Held, Held)> {
        if self.attempts.is_empty() { None } else { Some(self.choices.pick(&self.attempts).clone()) }
    }

    fn units(&mut self, from: u64, to: u64) -> Duration {
        UNIT * (from + self.choices.below(to - from + 1)) as u32
    }

    fn response(&mut self) -> Arc<StoredResponse> {
        Arc::clone(self.choices.pick(&self.responses))
    }

    fn ask(&mut self, owner: Owner) -> ClaimAsk {
        let parts = *self.choices.pick(&[
            &[FingerprintPart::Body][..],
            &[FingerprintPart::Body],
            &[FingerprintPart::Method, FingerprintPart::Body],
        ]);
        let body = if self.choices.below(6) == 0 { "2" } else { "1" };
        let window = if self.choices.below(3) == 0 { Some(self.units(1, 5)) } else { None };
        ClaimAsk {
            owner,
            fingerprint: fingerprint(parts, body),
            also: Fingerprint::default(),
            policy: Policy {
                commit: *self.choices.pick(&[CommitMode::AfterResponse, CommitMode::WithEffects]),
                on_unknown: *self.choices.pick(&[OnUnknown::Hold, OnUnknown::Retry]),
                retention: self.units(4, 9),
                window,
            },
            lease: self.units(1, 2),
            max_execution: self.units(1, 4),
            first: FirstTry { version: self.choices.below(9), flags: "beta=on".into() },
        }
    }
}

fn responses() -> Vec<Arc<StoredResponse>> {
    let headers = [("etag", "\"1\""), ("link", "</a>, </b>"), ("link", "</c>")];
    let results = [(200, Some(&b"\0\xff raw"[..])), (201, Some(b"")), (303, None), (404, Some(b"no"))];
    let stored = results
        .map(|(status, body)| StoredResponse::new(status, headers, body.map(bytes::Bytes::from_static)));
    stored.into_iter().flatten().map(Arc::new).collect()
}

fn fingerprint(parts: &[FingerprintPart], body: &str) -> Fingerprint {
    let attributes = Nothing;
    let request =
        Request { method: "POST", path: "/pay", query: None, body: body.as_bytes(), attributes: &attributes };
    Fingerprint::of(parts, &request).unwrap_or_default()
}

struct Nothing;

impl tidegate_core::Attributes for Nothing {
    fn get(&self, _: &str) -> Option<tidegate_core::Value<'_>> {
        None
    }
}

/// A claim's answer in a form that two clocks agree on.
fn summary(claimed: &Claimed) -> String {
    match claimed {
        Claimed::Held(held) => {
            let rest = (held.fence(), held.attempt(), held.first(), held.commit(), held.lease());
            format!("{:?} {rest:?}", held.how())
        }
        Claimed::Answer(Answer::InProgress { retry_after }) => {
            format!("InProgress {:?}", round(*retry_after))
        }
        Claimed::Answer(Answer::OutcomeUnknown { retry_after }) => {
            format!("OutcomeUnknown {:?}", round(*retry_after))
        }
        Claimed::Answer(Answer::Replay { response, first }) => {
            format!("Replay {response:?} {:?} {:?} {first:?}", response.headers_to_bytes(), response.body())
        }
        Claimed::Answer(other) => format!("{other:?}"),
    }
}

/// To the nearest unit.
fn round(span: Duration) -> Duration {
    UNIT * ((span + UNIT / 2).as_secs() / UNIT.as_secs()) as u32
}

/// With every time counted from `base` and rounded.
fn nominal(record: Record, base: Timestamp) -> Record {
    let at = |time: Timestamp| Timestamp::EPOCH + round(time.since(base));
    Record {
        first_claimed_at: at(record.first_claimed_at),
        claimed_at: at(record.claimed_at),
        execution_until: at(record.execution_until),
        lease_until: at(record.lease_until),
        changed_at: at(record.changed_at),
        ..record
    }
}
