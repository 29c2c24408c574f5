//! Idempotency stands at the business entry: a key means one intent, and one intent is run once.
//!
//! Each try is a task of its own, so that a client that goes away cancels neither a claim half-way nor
//! an execution: its retry gets the replay. The breaker's permit is reserved before the claim, and
//! comes back with every answer that makes no call.

mod ask;
mod execute;
mod peek;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tidegate_core::idempotency::transition::{self, ClaimAsk, Claimed};
use tidegate_core::idempotency::{Answer, fingerprint};
use tidegate_core::rule::model::{Idempotency, InProgress};
use tidegate_store::traits::StoreError;

use crate::Body;
use crate::call::Call;
use crate::event::{IdempotencyAnswered, IdempotencyOutcome, StoreFailed};
use crate::exchange::Exchange;
use crate::layer::limit::Held;
use crate::respond::Refusal;
use crate::stats::Gate;

pub(crate) use ask::{Asked, Keyed, path_key};
pub(crate) use peek::{Peeked, Unanswered, peek};

/// How often a waiter asks the store when nobody in this process told it of an end.
const POLL: Duration = Duration::from_millis(100);
/// How often one claim is repeated when the store did not say whether it committed.
const CLAIM_TRIES: usize = 3;

/// One guarded request.
pub(crate) struct Guarded<C> {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) asked: Asked,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) call: C,
    /// Held until the execution and its answer are done.
    pub(crate) permits: Option<Arc<Held>>,
}

/// What one try came to.
enum Step {
    /// An answer for the client.
    Done(Response<Body>),
    /// Another attempt is at work.
    Busy { retry_after: Duration },
}

/// Answers the request: by executing it, by replaying its first result, or by refusing.
pub(crate) async fn guard<C: Call>(guarded: Guarded<C>) -> Response<Body> {
    let guarded = Arc::new(guarded);
    let exchange = Arc::clone(&guarded.exchange);
    let env = exchange.gates.env();
    let wait = match rule(&exchange).in_progress {
        InProgress::Reject => Duration::ZERO,
        InProgress::Wait(wait) => wait,
    };
    let give_up = env.now() + wait;
    loop {
        let ended = exchange.gates.completed(&guarded.asked.id).notified();
        tokio::pin!(ended);
        // Registered before the try, so that an end between the two is not missed.
        ended.as_mut().enable();
        let running = exchange.gates.running();
        let this = Arc::clone(&guarded);
        let step = tokio::spawn(async move {
            let step = this.step().await;
            drop(running);
            step
        });
        let retry_after = match step.await {
            Ok(Step::Done(response)) => return response,
            Ok(Step::Busy { retry_after }) => retry_after,
            // The handler panicked: whoever runs us sees that as it would without us. Nobody knows what
            // took effect, so the record stays as it is.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                return exchange.refused(&Refusal::StoreUnavailable {
                    gate: Gate::Idempotency,
                    rule: rule(&exchange).id.clone(),
                });
            }
        };
        let left = give_up.since(env.now());
        if left.is_zero() {
            IdempotencyAnswered { exchange: &exchange, outcome: IdempotencyOutcome::InProgress }.emit();
            return exchange.refused(&Refusal::InProgress { rule: rule(&exchange).id.clone(), retry_after });
        }
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep(left.min(POLL)) => {}
        }
    }
}

fn rule(exchange: &Exchange) -> &Idempotency {
    let index = exchange.plan().idempotency.as_ref().map_or(0, |plan| plan.rule);
    &exchange.rules.plan.rules.idempotency[index]
}

impl<C: Call> Guarded<C> {
    async fn step(&self) -> Step {
        let exchange = &self.exchange;
        let admission = match super::breaker::admit(exchange, self.call.host(), exchange.gates.env().now()) {
            Ok(admission) => admission,
            Err(open) => return self.look(&open).await,
        };
        let mut ask = self.asked.claim(exchange);
        let sent = exchange.gates.env().now();
        match self.claim(&mut ask).await {
            Err(error) => self.unavailable(&ask, &error),
            Ok(Claimed::Answer(answer)) => self.answer(answer),
            Ok(Claimed::Held(held)) => {
                let execution = execute::Execution { guarded: self, held, claim_sent: sent };
                Step::Done(execution.run(admission).await)
            }
        }
    }

    /// Claims; computes the fields that an older rule's record compares; repeats a claim whose commit
    /// is uncertain, which recognises its own earlier success.
    async fn claim(&self, ask: &mut ClaimAsk) -> Result<Claimed, StoreError> {
        let store = self.exchange.gates.records();
        let mut tries = CLAIM_TRIES;
        loop {
            let answer = match store.claim(&self.asked.id, ask).await {
                Err(StoreError::CommitUnknown { .. }) if tries > 1 => {
                    tries -= 1;
                    continue;
                }
                Ok(Claimed::Answer(Answer::NotComputed { fields }))
                    if ask.also == fingerprint::Fingerprint::default() =>
                {
                    ask.also = Asked::fingerprint(&self.exchange, &self.parts, &self.body, &fields);
                    continue;
                }
                answer => answer,
            };
            return answer;
        }
    }

    /// While the dependency is not called: replays, 409 and 422 are still answered, and nothing is
    /// claimed.
    async fn look(&self, open: &super::breaker::Open) -> Step {
        let exchange = &self.exchange;
        match self.answer_now().await {
            Ok(None) => Step::Done(super::breaker::answer(exchange, open)),
            Ok(Some(answer)) => self.answer(answer),
            Err(error) => {
                StoreFailed { exchange, error: &error }.emit();
                Step::Done(self.refuse_store())
            }
        }
    }

    /// What a claim would be answered, without making one; `None`: it would be granted.
    async fn answer_now(&self) -> Result<Option<Answer>, StoreError> {
        let exchange = &self.exchange;
        let Some(shown) = exchange.gates.records().read(&self.asked.id).await? else { return Ok(None) };
        let mut ask = self.asked.claim(exchange);
        let mut answer = transition::claim(Some(&shown.record), &ask, shown.now);
        if let Err(Answer::NotComputed { fields }) = &answer {
            ask.also = Asked::fingerprint(exchange, &self.parts, &self.body, fields);
            answer = transition::claim(Some(&shown.record), &ask, shown.now);
        }
        Ok(answer.err())
    }

    fn answer(&self, answer: Answer) -> Step {
        let exchange = &self.exchange;
        let rule = rule(exchange).id.clone();
        let (outcome, response) = match answer {
            Answer::InProgress { retry_after } => return Step::Busy { retry_after },
            Answer::Replay { response, .. } => (IdempotencyOutcome::Replayed, execute::replay(&response)),
            Answer::Mismatch { fields } => {
                let fields = fields.iter().map(fingerprint::label).collect();
                (IdempotencyOutcome::Mismatch, exchange.refused(&Refusal::KeyReused { rule, fields }))
            }
            Answer::OutcomeUnknown { .. } => {
                (IdempotencyOutcome::Unknown, exchange.refused(&Refusal::OutcomeUnknown { rule }))
            }
            // It still asks for fields: nothing can be said, nothing is run.
            Answer::NotComputed { .. } => (
                IdempotencyOutcome::Unknown,
                exchange.refused(&Refusal::StoreUnavailable { gate: Gate::Idempotency, rule }),
            ),
        };
        IdempotencyAnswered { exchange, outcome }.emit();
        Step::Done(response)
    }

    /// Nothing is executed. If the claim was stored all the same, it is given up, so that the key does
    /// not wait for its lease.
    fn unavailable(&self, ask: &ClaimAsk, error: &StoreError) -> Step {
        StoreFailed { exchange: &self.exchange, error }.emit();
        if matches!(error, StoreError::CommitUnknown { .. }) {
            let late = execute::Late::Abandon(self.asked.id.clone(), ask.owner);
            late.store(self.exchange.gates.clone(), ask.lease);
        }
        Step::Done(self.refuse_store())
    }

    fn refuse_store(&self) -> Response<Body> {
        self.exchange.refused(&Refusal::StoreUnavailable {
            gate: Gate::Idempotency,
            rule: rule(&self.exchange).id.clone(),
        })
    }
}
