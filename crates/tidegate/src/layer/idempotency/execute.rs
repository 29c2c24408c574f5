//! Executes a held record's request: renews the lease while it runs, and stores how it ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode, response};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::transition::{Held, How};
use tidegate_core::idempotency::{Answer, Outcome, Owner, RecordId, StoredResponse};
use tidegate_core::rule::model::CommitMode;
use tidegate_store::traits::{Fenced, Renewed, StoreError};

use super::{Guarded, rule};
use crate::Body;
use crate::body::Prefix;
use crate::breakers::Admission;
use crate::call::{Call, CallError};
use crate::context::write_hex;
use crate::event::{IdempotencyAnswered, IdempotencyOutcome, StoreFailed};
use crate::exchange::TIDEGATE_FLAGS;
use crate::gates::Gates;
use crate::pipeline::{self, TIDEGATE_OUTCOME};
use crate::respond::{IDEMPOTENT_REPLAYED, Refusal, TIDEGATE_BODY, TIDEGATE_IDEMPOTENCY};
use crate::tx::{self, Claim, Stand};

const TIDEGATE_FENCE: HeaderName = HeaderName::from_static("tidegate-fence");
const TIDEGATE_OWNER: HeaderName = HeaderName::from_static("tidegate-owner");
const TIDEGATE_OPERATION: HeaderName = HeaderName::from_static("tidegate-operation");
const TIDEGATE_SCOPE: HeaderName = HeaderName::from_static("tidegate-scope");
const TIDEGATE_KEY: HeaderName = HeaderName::from_static("tidegate-key");
const TIDEGATE_ATTEMPT: HeaderName = HeaderName::from_static("tidegate-attempt");

/// A lease is renewed this many times before it would end.
const RENEWALS_A_LEASE: u32 = 3;
/// First pause before storing is tried again; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The right to run one request, and its running.
pub(super) struct Execution<'a, C> {
    pub(super) guarded: &'a Guarded<C>,
    pub(super) held: Held,
    /// When the claim was sent: the lease is counted from here, not from its answer.
    pub(super) claim_sent: Timestamp,
}

/// How the call ended.
enum Ended {
    Final(response::Parts, Prefix),
    /// The handler completed the record itself; it returned this, or nothing.
    Committed(Arc<StoredResponse>, Option<Response<Body>>),
    /// The handler or upstream found another attempt in its place, and rolled back.
    Superseded,
    /// Nobody knows what became of the handler's commit, the handler neither.
    InDoubt,
    /// Not applied, or nobody knows.
    Other(Outcome, Result<Response<Body>, CallError>),
}

impl<C: Call> Execution<'_, C> {
    pub(super) async fn run(self, admission: Option<Admission<'_>>) -> Response<Body> {
        let exchange = &*self.guarded.exchange;
        let outcome = match self.held.how() {
            How::TakenOver => IdempotencyOutcome::Takeover,
            _ => IdempotencyOutcome::Executed,
        };
        IdempotencyAnswered { exchange, outcome }.emit();
        let held_until = self.claim_sent + self.held.lease();
        let claim = Claim::new(Arc::clone(&self.guarded.exchange), self.held.clone(), held_until);
        let ended = tokio::select! {
            biased;
            ended = self.call(admission, &claim) => ended,
            never = self.keep_lease(&claim, held_until) => match never {},
        };
        let response = match ended {
            Ended::Final(parts, body) => {
                if parts.status.is_success() && self.held.commit() == CommitMode::WithEffects {
                    IdempotencyAnswered { exchange, outcome: IdempotencyOutcome::CommitMissing }.emit();
                }
                self.complete(parts, body).await
            }
            Ended::Committed(_, Some(response)) => pipeline::answer(exchange, Ok(response)),
            Ended::Committed(stored, None) => replay(&stored),
            Ended::Superseded => self.superseded().await,
            Ended::InDoubt => {
                self.give_back(Outcome::Unknown).await;
                exchange.refused(&Refusal::OutcomeUnknown { rule: rule(exchange).id.clone() })
            }
            Ended::Other(outcome, result) => {
                self.give_back(outcome).await;
                pipeline::answer(exchange, result)
            }
        };
        exchange.gates.completed(&self.guarded.asked.id).notify_waiters();
        pipeline::with_permits(response, self.guarded.permits.clone())
    }

    /// Makes the call and reads its answer, as far as it may be kept.
    async fn call(&self, admission: Option<Admission<'_>>, claim: &Claim) -> Ended {
        let exchange = &*self.guarded.exchange;
        let mut request =
            Request::from_parts(self.guarded.parts.clone(), Body::full(self.guarded.body.clone()));
        // What comes after a switch of protocols can neither be recorded nor replayed.
        request.headers_mut().remove(UPGRADE);
        request.headers_mut().remove(CONNECTION);
        exchange.label(request.headers_mut());
        self.fence(request.headers_mut());
        request.extensions_mut().insert(claim.clone());
        let now = exchange.gates.env().now();
        let result = pipeline::call(exchange, admission, request, &self.guarded.call, now).await;
        match claim.settle().await {
            Stand::Open => {}
            Stand::Committing => return Ended::InDoubt,
            Stand::Committed(stored) => {
                return Ended::Committed(stored, result.ok().filter(|response| claim.made(response)));
            }
            Stand::Superseded => return Ended::Superseded,
        }
        if result.as_ref().is_ok_and(|response| says(response, "superseded")) {
            return Ended::Superseded;
        }
        let outcome = match &result {
            Ok(response) => outcome_of(response),
            Err(error) => Outcome::of_failure(error.sent),
        };
        match (outcome, result) {
            (Outcome::Final, Ok(response)) => {
                let (parts, body) = response.into_parts();
                match body.collect_prefix(rule(exchange).max_response).await {
                    Ok(body) => Ended::Final(parts, body),
                    Err(error) => Ended::Other(Outcome::Unknown, Err(CallError::broken(&error))),
                }
            }
            (outcome, result) => Ended::Other(outcome, result),
        }
    }

    /// What lets an upstream tell this attempt from any other.
    fn fence(&self, headers: &mut HeaderMap) {
        let id = self.held.id();
        let fence = self.held.fence();
        let first = self.held.first();
        let mut owner = [0; 32];
        write_hex(&fence.owner.0, &mut owner);
        let owner = std::str::from_utf8(&owner).unwrap_or_default();
        headers.insert(TIDEGATE_FENCE, HeaderValue::from(fence.token));
        headers.insert(TIDEGATE_ATTEMPT, HeaderValue::from(self.held.attempt()));
        for (name, value) in [
            (TIDEGATE_OWNER, owner),
            (TIDEGATE_OPERATION, id.operation()),
            (TIDEGATE_SCOPE, id.scope()),
            (TIDEGATE_KEY, id.key()),
            // One intent has one set of labels, whatever the rules became between its tries.
            (TIDEGATE_FLAGS, &*first.flags),
        ] {
            match HeaderValue::from_str(value) {
                Ok(value) if !value.is_empty() => headers.insert(name, value),
                _ => headers.remove(name),
            };
        }
    }

    /// Renews the lease for as long as it is polled. What the store then says of a completion decides;
    /// a renewal that came too late is no reason to stop a call that may have taken effect.
    async fn keep_lease(&self, claim: &Claim, mut held_until: Timestamp) -> Infallible {
        let exchange = &*self.guarded.exchange;
        loop {
            let left = held_until.since(exchange.gates.env().now());
            tokio::time::sleep(left.min(self.held.lease()) / RENEWALS_A_LEASE).await;
            let sent = exchange.gates.env().now();
            match exchange.gates.records().renew(&self.held).await {
                Ok(Renewed::Held { left }) => {
                    held_until = sent + left;
                    claim.holds_until(held_until);
                }
                Ok(renewed @ (Renewed::Exhausted | Renewed::Superseded)) => {
                    if renewed == Renewed::Superseded {
                        claim.lost_by_renewal();
                    }
                    return std::future::pending().await;
                }
                Err(error) => {
                    StoreFailed { exchange, error: &error }.emit();
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
    }

    /// Stores the result before the first byte goes to the client.
    async fn complete(&self, parts: response::Parts, body: Prefix) -> Response<Body> {
        let exchange = &*self.guarded.exchange;
        let rule = rule(exchange);
        let stored = match tx::keep(parts.status, &parts.headers, &body, rule) {
            Ok(stored) => Arc::new(stored),
            Err(error) => {
                self.give_back(Outcome::Unknown).await;
                return pipeline::answer(exchange, Err(CallError::broken(&error)));
            }
        };
        let mut response = pipeline::answer(exchange, Ok(Response::from_parts(parts, body.into_body())));
        match exchange.gates.records().complete(&self.held, &stored).await {
            Ok(Fenced::Done) => response,
            Ok(Fenced::Superseded) => self.superseded().await,
            Err(error) => {
                StoreFailed { exchange, error: &error }.emit();
                IdempotencyAnswered { exchange, outcome: IdempotencyOutcome::Unrecorded }.emit();
                self.complete_later(stored);
                response.headers_mut().insert(TIDEGATE_IDEMPOTENCY, HeaderValue::from_static("unrecorded"));
                response
            }
        }
    }

    fn complete_later(&self, stored: Arc<StoredResponse>) {
        let exchange = &self.guarded.exchange;
        let span = rule(exchange).max_execution;
        Late::Complete(self.held.clone(), stored).store(exchange.gates.clone(), span);
    }

    /// Another attempt took the record: its result counts.
    async fn superseded(&self) -> Response<Body> {
        let exchange = &*self.guarded.exchange;
        IdempotencyAnswered { exchange, outcome: IdempotencyOutcome::Superseded }.emit();
        // The key may stand for another request by now, whose result is none of this client's business.
        match self.guarded.answer_now().await {
            Ok(Some(Answer::Replay { response: winner, .. })) => replay(&winner),
            _ => exchange.refused(&Refusal::Superseded { rule: rule(exchange).id.clone() }),
        }
    }

    /// Not applied: released. Unknown: the record stays as it is, and the table decides when the lease
    /// is over.
    async fn give_back(&self, outcome: Outcome) {
        let exchange = &*self.guarded.exchange;
        if outcome != Outcome::NotApplied {
            IdempotencyAnswered { exchange, outcome: IdempotencyOutcome::Unknown }.emit();
            return;
        }
        IdempotencyAnswered { exchange, outcome: IdempotencyOutcome::Released }.emit();
        if let Err(error) = exchange.gates.records().release(&self.held).await {
            StoreFailed { exchange, error: &error }.emit();
            Late::Release(self.held.clone()).store(exchange.gates.clone(), rule(exchange).lease);
        }
    }
}

/// A handler's or an upstream's own word is believed; else the status decides.
fn outcome_of(response: &Response<Body>) -> Outcome {
    if let Some(said) = response.extensions().get::<Outcome>() {
        return *said;
    }
    if says(response, "retryable") {
        return Outcome::NotApplied;
    }
    Outcome::of_status(response.status().as_u16())
}

fn says(response: &Response<Body>, outcome: &str) -> bool {
    response.headers().get(TIDEGATE_OUTCOME).is_some_and(|said| said == outcome)
}

/// What the store could not be told yet.
pub(super) enum Late {
    Complete(Held, Arc<StoredResponse>),
    Release(Held),
    /// A claim that may have been stored, by an attempt that will not execute.
    Abandon(RecordId, Owner),
}

impl Late {
    /// Tries in the background until the store answers or `span` is over.
    pub(super) fn store(self, gates: Gates, span: Duration) {
        let running = gates.running();
        tokio::spawn(async move {
            let give_up = gates.env().now() + span;
            let mut pause = FIRST_PAUSE;
            while let Err(error) = self.attempt(&gates).await {
                if gates.env().now() >= give_up {
                    tracing::error!(%error, "the idempotency store was not told how an execution ended");
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
            gates.completed(self.id()).notify_waiters();
            drop(running);
        });
    }

    async fn attempt(&self, gates: &Gates) -> Result<Fenced, StoreError> {
        match self {
            Self::Complete(held, stored) => gates.records().complete(held, stored).await,
            Self::Release(held) => gates.records().release(held).await,
            Self::Abandon(id, owner) => gates.records().abandon(id, *owner).await,
        }
    }

    fn id(&self) -> &RecordId {
        match self {
            Self::Complete(held, _) | Self::Release(held) => held.id(),
            Self::Abandon(id, _) => id,
        }
    }
}

/// A stored result as an answer.
pub(super) fn replay(stored: &StoredResponse) -> Response<Body> {
    let body = stored.body().cloned().map_or_else(Body::empty, Body::from);
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(stored.status()).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    for (name, value) in stored.headers() {
        // Both were headers when they were stored.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    if stored.body().is_none() {
        headers.insert(TIDEGATE_BODY, HeaderValue::from_static("omitted"));
    }
    response
}
