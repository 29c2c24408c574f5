//! Calls that library code guards by name: a dependency, or work that no request stands for.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use http::{Method, Response};
use smallvec::SmallVec;
use tidegate_core::Value;
use tidegate_core::idempotency::Outcome;
use tidegate_core::limit::{Decision, NextTry, Waiter};

use crate::Body;
use crate::breakers::CallResult;
use crate::builder::Tidegate;
use crate::context::Context;
use crate::exchange::Exchange;
use crate::layer::breaker::{self, InFlight};
use crate::layer::limit::{self, Held};
use crate::nesting::{self, Nest};
use crate::request;
use crate::respond::{Disclose, Refusal};
use crate::stats::{Ended, Gate};

/// How often a caller that waits for somebody else's call to end asks again: no time can be foretold.
const RELEASE_POLL: Duration = Duration::from_millis(10);

/// Why a guarded call gave no result.
///
/// *Blocked* and *failed* are different things: a blocked call was not made.
#[derive(Debug, thiserror::Error)]
pub enum Guarded<E> {
    /// A limit or a breaker said no. Nothing was called.
    #[error(transparent)]
    Blocked(Blocked),
    /// The call was made, and this is what it said.
    #[error("{0}")]
    Failed(#[source] E),
    /// The call was made and gave no answer within the resource's timeout; it was dropped. It may have
    /// taken effect.
    #[error("no answer within {after:?}")]
    TimedOut {
        /// The resource's timeout.
        after: Duration,
    },
}

/// A limit's or a breaker's no.
#[derive(Clone, Debug, thiserror::Error)]
#[error("resource `{resource}` is blocked: {} ({})", .refusal.name(), .refusal.rule().unwrap_or("no rule"))]
pub struct Blocked {
    resource: String,
    refusal: Refusal,
    version: Option<String>,
    disclose: Disclose,
}

impl Blocked {
    /// The reason.
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// The gate that said no; `None` where an attribute was missing.
    pub fn gate(&self) -> Option<Gate> {
        self.refusal.gate()
    }

    /// The rule that said no.
    pub fn rule(&self) -> Option<&str> {
        self.refusal.rule()
    }

    /// When the call may pass; `None` where time alone does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }

    /// The refusal as an answer for the service's own client: 429, 503 or 400, as a problem (RFC 9457).
    ///
    /// `outcome` says what it means for an idempotency record: [`Outcome::NotApplied`] where the handler
    /// had not begun anything before this call, else [`Outcome::Unknown`].
    pub fn respond(&self, outcome: Outcome) -> Response<Body> {
        let mut response = self.refusal.respond(self.version.as_deref(), self.disclose);
        response.extensions_mut().insert(outcome);
        response
    }
}

/// What the end of a call means to breakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Good,
    /// An answer with this status; whether it is a failure is the rule's word.
    Status(u16),
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// The connection broke, or whatever else went wrong.
    Reset,
    /// Nothing that the dependency did: neither success nor failure.
    Ignore,
}

impl Verdict {
    const fn result(self) -> Option<CallResult> {
        match self {
            Self::Good => Some(CallResult::Status(200)),
            Self::Status(status) => Some(CallResult::Status(status)),
            Self::Connect => Some(CallResult::Connect),
            Self::Timeout => Some(CallResult::Timeout),
            Self::Reset => Some(CallResult::Reset),
            Self::Ignore => None,
        }
    }

    const fn ended(self) -> Option<Ended> {
        match self {
            Self::Good | Self::Status(..500) => Some(Ended::Succeeded),
            Self::Ignore => None,
            _ => Some(Ended::Failed),
        }
    }
}

/// One call of a named resource. Made by [`Tidegate::resource`].
#[must_use = "nothing is called until `call`"]
pub struct ResourceCall<'a> {
    tidegate: &'a Tidegate,
    id: &'a str,
    attributes: SmallVec<[(&'a str, CompactString); 4]>,
    patience: Duration,
}

impl<'a> ResourceCall<'a> {
    pub(crate) fn new(tidegate: &'a Tidegate, id: &'a str) -> Self {
        Self { tidegate, id, attributes: SmallVec::new(), patience: Duration::ZERO }
    }

    /// The value of an attribute, by the name that the resource gives it. One that the rules do not
    /// declare is ignored, so that code may offer more than today's rules use.
    pub fn attribute(mut self, name: &'a str, value: impl AsRef<str>) -> Self {
        self.attributes.push((name, value.as_ref().into()));
        self
    }

    /// Waits for a limit's permit for so long at most, instead of being refused at once. A waiter holds
    /// no place: it is decided anew whenever it wakes.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes the call, if the resource's limits and breakers let it through. An `Err` is a failure to
    /// the breakers, as a broken connection is.
    ///
    /// Dropped half-way, a call is neither success nor failure, and its permits come back.
    ///
    /// # Errors
    /// [`Guarded::Blocked`] when it was not made, [`Guarded::Failed`] with its own error, and
    /// [`Guarded::TimedOut`].
    pub async fn call<T, E>(self, work: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, Guarded<E>> {
        self.call_judged(work, |result| if result.is_ok() { Verdict::Good } else { Verdict::Reset }).await
    }

    /// The same, where `judge` says what the result means to the breakers: a status, a timeout, an error
    /// that is the caller's own fault.
    pub async fn call_judged<T, E>(
        self,
        work: impl AsyncFnOnce() -> Result<T, E>,
        judge: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<T, Guarded<E>> {
        let nest = Nest::inner();
        let (exchange, permits) = match self.enter(&nest).await {
            Ok(Some(entered)) => entered,
            Ok(None) => return nest.around(work()).await.map_err(Guarded::Failed),
            Err(blocked) => {
                nesting::tell(true);
                return Err(Guarded::Blocked(blocked));
            }
        };
        let now = exchange.gates.env().now();
        let admission = match breaker::admit(&exchange, "", now) {
            Ok(admission) => admission,
            Err(open) => {
                nesting::tell(true);
                return Err(Guarded::Blocked(blocked(&exchange, breaker::refuse(&exchange, &open))));
            }
        };
        let flight = InFlight::begin(&exchange, admission, now);
        let timeout = exchange.resource().timeout;
        let ended = tokio::time::timeout(timeout, nest.around(work())).await;
        drop(permits);
        let Ok(result) = ended else {
            flight.finish(Some(CallResult::Timeout), Some(Ended::Failed));
            nesting::tell(false);
            return Err(Guarded::TimedOut { after: timeout });
        };
        let blocked_inside = result.is_err() && nest.last_was_blocked();
        let verdict = if blocked_inside { Verdict::Ignore } else { judge(&result) };
        flight.finish(verdict.result(), verdict.ended());
        nesting::tell(blocked_inside);
        result.map_err(Guarded::Failed)
    }

    /// Takes the attributes and the limits' permits. `None`: no rule knows the resource.
    async fn enter(&self, nest: &Nest) -> Result<Option<(Exchange, Option<Held>)>, Blocked> {
        let gates = self.tidegate.gates();
        let found = gates.in_force().and_then(|rules| Some((rules.plan.resource(self.id)?, rules)));
        let Some((resource, rules)) = found else {
            self.tidegate.note_unnamed(self.id);
            return Ok(None);
        };
        let named = &rules.plan.rules.resources[resource];
        let given: SmallVec<[(&str, Value<'_>); 4]> =
            self.attributes.iter().map(|(name, value)| (*name, Value::Text(value))).collect();
        let taken = request::take_named(named, &given[..]);
        let mut exchange = Exchange {
            gates: gates.clone(),
            rules: Arc::clone(&rules),
            resource,
            context: Context {
                request_id: nest.request_id().clone(),
                client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            },
            method: Method::default(),
            taken: request::Taken::default(),
            flags: None,
            path_key: None,
            cacheable: None,
        };
        exchange.taken = taken.map_err(|refusal| refused(&exchange, refusal))?;
        let permits = self.permits(&exchange).await.map_err(|refusal| refused(&exchange, refusal))?;
        Ok(Some((exchange, permits)))
    }

    /// Decides the limits, again and again while it is worth while to wait.
    async fn permits(&self, exchange: &Exchange) -> Result<Option<Held>, Refusal> {
        let env = exchange.gates.env();
        let waiter = Waiter::new(env.now(), self.patience);
        loop {
            let now = env.now();
            let decided = limit::charge(exchange, now).await?;
            let mut decision = Decision::NEVER;
            decision.answer = decided.answer();
            let pause = match waiter.next(&decision, now) {
                NextTry::Go(at) => {
                    sleep(at.since(now)).await;
                    return Ok(decided.held);
                }
                NextTry::At(at) => at.since(now),
                NextTry::OnRelease { give_up } => give_up.since(now).min(RELEASE_POLL),
                NextTry::GiveUp => match decided.refusal {
                    Some(refusal) => return Err(refusal),
                    None => return Ok(decided.held),
                },
            };
            sleep(pause).await;
        }
    }
}

async fn sleep(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}

fn refused(exchange: &Exchange, refusal: Refusal) -> Blocked {
    exchange.note(&refusal);
    blocked(exchange, refusal)
}

fn blocked(exchange: &Exchange, refusal: Refusal) -> Blocked {
    Blocked {
        resource: exchange.resource().id.clone(),
        refusal,
        version: exchange.rules.header.to_str().ok().map(str::to_owned),
        disclose: exchange.gates.settings().disclose,
    }
}
