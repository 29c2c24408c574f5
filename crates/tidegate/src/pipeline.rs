//! The whole stack in one function, outermost gate first. The order is part of the contract.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Request, Response};
use tidegate_core::Timestamp;
use tidegate_core::rule::route::Matched;

use crate::Body;
use crate::body::BodyError;
use crate::breakers::Admission;
use crate::call::{Call, CallError, CallErrorKind, OneHost, Switched};
use crate::context::{Context, X_REQUEST_ID, request_id};
use crate::event::{CallFailed, IdempotencyAnswered, IdempotencyOutcome, Refused};
use crate::exchange::{Exchange, strip};
use crate::gates::{Gates, InForce};
use crate::layer::breaker::InFlight;
use crate::layer::idempotency::{Asked, Guarded, Keyed};
use crate::layer::limit::Held;
use crate::layer::{breaker, idempotency, limit, rollout};
use crate::request::{self, Origin};
use crate::respond::{self, Refusal, TIDEGATE_VERSION};

/// An upstream says how an execution ended.
pub(crate) const TIDEGATE_OUTCOME: &str = "tidegate-outcome";

/// Takes a request through the gates to `call`, and its answer back.
///
/// `client` is the address after trusted hops. A request that no resource matches goes to `call` with
/// its path normalised and nothing else decided.
pub fn handle<C: Call>(
    gates: &Gates,
    request: Request<Body>,
    client: IpAddr,
    call: &C,
) -> impl Future<Output = Response<Body>> + Send {
    let (parts, body) = request.into_parts();
    walk_in(gates, Inbound { parts, body }, client, call)
}

async fn walk_in<C: Call>(gates: &Gates, mut inbound: Inbound, client: IpAddr, call: &C) -> Response<Body> {
    let started = gates.env().now();
    let Some(rules) = gates.in_force() else {
        return Refusal::NotReady.respond(None, gates.settings().disclose);
    };
    let headers = &mut inbound.parts.headers;
    let context = Context { request_id: request_id(headers, || gates.env().nonce()), client };
    let method = inbound.parts.method.clone();
    strip(headers);

    let entry = Entry { gates, rules: &rules, context: &context, started };
    let (resource, mut response) = entry.route(&mut inbound, call).await;

    let headers = response.headers_mut();
    headers.insert(X_REQUEST_ID, context.request_id);
    if gates.settings().disclose == respond::Disclose::Full {
        headers.insert(TIDEGATE_VERSION, rules.header.clone());
    }
    let durations = resource.map_or(gates.unmatched(), |index| &rules.resources[index].durations);
    durations.observe(&method, response.status().as_u16(), gates.env().now().since(started));
    response
}

/// The request on its way in. It is lent from gate to gate: handed on by value it would be copied into
/// the state of each of them.
struct Inbound {
    parts: Parts,
    body: Body,
}

impl Inbound {
    /// The request itself, for its last step; leaves an empty one behind.
    fn take(&mut self) -> Request<Body> {
        let (parts, body) = Request::new(Body::empty()).into_parts();
        let inbound = std::mem::replace(self, Self { parts, body });
        Request::from_parts(inbound.parts, inbound.body)
    }
}

/// A request at the door, with the rules that it will keep.
struct Entry<'a> {
    gates: &'a Gates,
    rules: &'a Arc<InForce>,
    context: &'a Context,
    started: Timestamp,
}

impl Entry<'_> {
    /// Names the resource, and walks it through its gates.
    async fn route<C: Call>(&self, inbound: &mut Inbound, call: &C) -> (Option<usize>, Response<Body>) {
        let slashes = self.gates.settings().encoded_slash;
        if let Err(refusal) = request::normalise_target(&mut inbound.parts, slashes) {
            return (None, self.refuse("", &refusal));
        }
        // What a pattern captures borrows the request, so who is to be told is looked up apart.
        if self.rules.reads_told && self.reads_told(&inbound.parts) {
            call.tell(&mut inbound.parts.headers);
        }
        let entered = {
            let parts = &inbound.parts;
            let host = request::host(parts);
            match self.rules.plan.routes.find(host.as_deref(), parts.method.as_str(), parts.uri.path()) {
                None => None,
                Some(Matched { resource, params }) => {
                    let path = |name: &str| params.get(name).map(ToOwned::to_owned);
                    Some((resource, self.enter(resource, parts, &mut inbound.body, &path).await))
                }
            }
        };
        match entered {
            None => {
                call.tell(&mut inbound.parts.headers);
                inbound.parts.headers.insert(X_REQUEST_ID, self.context.request_id.clone());
                let result = call.call(inbound.take(), call.unmatched_timeout()).await;
                (None, self.unmatched_answer(result))
            }
            Some((resource, Err(refusal))) => {
                let id = &self.rules.plan.rules.resources[resource].id;
                (Some(resource), self.refuse(id, &refusal))
            }
            Some((resource, Ok(exchange))) => {
                // Only reading a body takes time.
                let late = exchange.plan().attributes_in_body;
                let now = if late { self.gates.env().now() } else { self.started };
                (Some(resource), walk(&exchange, inbound, call, now).await)
            }
        }
    }

    /// Whether the resource of this request reads what [`Call::tell`] writes before it goes on.
    fn reads_told(&self, parts: &Parts) -> bool {
        let host = request::host(parts);
        let found = self.rules.plan.routes.find(host.as_deref(), parts.method.as_str(), parts.uri.path());
        found.is_some_and(|found| self.rules.resources[found.resource].reads_told)
    }

    /// Takes the attributes, reading the body first only where one stands in it, and labels.
    async fn enter(
        &self,
        resource: usize,
        parts: &Parts,
        body: &mut Body,
        path: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<Arc<Exchange>, Refusal> {
        let plan = &self.rules.plan.resources[resource];
        let mut json = None;
        if plan.attributes_in_body {
            let bytes = read(body, self.gates.settings().max_body).await?;
            json = serde_json::from_slice(&bytes).ok();
            *body = Body::full(bytes);
        }
        let origin = Origin {
            parts,
            path,
            client: self.context.client,
            ipv6_prefix: self.gates.settings().ipv6_prefix,
            body: json.as_ref(),
        };
        let taken = request::take(&self.rules.plan.rules.resources[resource], &origin)?;
        let flags = rollout::label(self.rules, resource, &taken);
        let exchange = Exchange {
            gates: self.gates.clone(),
            rules: Arc::clone(self.rules),
            resource,
            context: self.context.clone(),
            method: parts.method.clone(),
            path_key: idempotency::path_key(self.rules, resource, path),
            cacheable: breaker::cacheable(self.rules, resource, parts, &taken),
            taken,
            flags,
        };
        Ok(Arc::new(exchange))
    }

    fn refuse(&self, resource: &str, refusal: &Refusal) -> Response<Body> {
        Refused { resource, refusal, request_id: &self.context.request_id }.emit();
        refusal.respond(self.rules.header.to_str().ok(), self.gates.settings().disclose)
    }

    fn unmatched_answer(&self, result: Result<Response<Body>, CallError>) -> Response<Body> {
        result.map_or_else(|error| self.refuse("", &failed(&error, &self.context.request_id)), clean)
    }
}

/// The gates of one resource, outermost first.
async fn walk<C: Call>(
    exchange: &Arc<Exchange>,
    inbound: &mut Inbound,
    call: &C,
    now: Timestamp,
) -> Response<Body> {
    // Limit first: it is the only gate that can refuse without touching a database.
    let decided = match limit::charge(exchange, now).await {
        Ok(decided) => decided,
        Err(refusal) => return exchange.refused(&refusal),
    };
    let mut response = if let Some(refusal) = decided.refusal {
        exchange.refused(&refusal)
    } else {
        if !decided.wait.is_zero() {
            tokio::time::sleep(decided.wait).await;
        }
        let permits = decided.held.filter(|held| !held.is_empty()).map(Arc::new);
        if !exchange.runtime().reads_told {
            call.tell(&mut inbound.parts.headers);
        }
        if exchange.plan().idempotency.is_some() {
            // On the heap, so that requests without an idempotency rule do not carry its state.
            Box::pin(once(exchange, inbound, permits, call)).await
        } else {
            // Likewise: a request that is refused carries no call.
            Box::pin(unguarded(exchange, inbound, permits, call)).await
        }
    };
    if !decided.policies.is_empty() {
        respond::append_limits(response.headers_mut(), decided.policies, decided.limits);
    }
    response
}

/// Idempotency at the business entry.
async fn once<C: Call>(
    exchange: &Arc<Exchange>,
    inbound: &mut Inbound,
    permits: Option<Arc<Held>>,
    call: &C,
) -> Response<Body> {
    let invalid = |refusal: &Refusal| {
        IdempotencyAnswered { exchange, outcome: IdempotencyOutcome::Invalid }.emit();
        exchange.refused(refusal)
    };
    let keyed = match Keyed::of_head(exchange, &inbound.parts) {
        Ok(Keyed::No) => return unguarded(exchange, inbound, permits, call).await,
        Ok(keyed) => keyed,
        Err(refusal) => return invalid(&refusal),
    };
    // Whatever the fingerprint needs now, a record of an older rule may need the body.
    let body = match read(&mut inbound.body, exchange.gates.settings().max_body).await {
        Ok(body) => body,
        Err(refusal) => return exchange.refused(&refusal),
    };
    match Asked::keyed(keyed, exchange, &inbound.parts, &body) {
        Err(refusal) => invalid(&refusal),
        Ok(None) => {
            inbound.body = Body::full(body);
            unguarded(exchange, inbound, permits, call).await
        }
        Ok(Some(asked)) => {
            let (exchange, call) = (Arc::clone(exchange), call.clone());
            let parts = inbound.take().into_parts().0;
            idempotency::guard(Guarded { exchange, asked, parts, body, call, permits }).await
        }
    }
}

/// The breaker around the call.
async fn unguarded<C: Call>(
    exchange: &Exchange,
    inbound: &mut Inbound,
    permits: Option<Arc<Held>>,
    call: &C,
) -> Response<Body> {
    let now = exchange.gates.env().now();
    let response = match breaker::admit(exchange, call.host(), now) {
        Err(open) => breaker::answer(exchange, &open),
        Ok(admission) => {
            exchange.label(&mut inbound.parts.headers);
            let result = self::call(exchange, admission, inbound.take(), call, now).await;
            answer(exchange, result)
        }
    };
    with_permits(response, permits)
}

/// Makes the call, which begins `now`, and tells the breakers how it ended.
pub(crate) async fn call<C: Call>(
    exchange: &Exchange,
    admission: Option<Admission<'_>>,
    mut request: Request<Body>,
    call: &C,
    now: Timestamp,
) -> Result<Response<Body>, CallError> {
    let rules = &exchange.rules.plan.rules.breakers;
    if exchange.plan().breakers.iter().any(|&rule| rules[rule].per_upstream_host) {
        request.extensions_mut().insert(OneHost);
    }
    let flight = InFlight::begin(exchange, admission, now);
    let result = call.call(request, exchange.resource().timeout).await;
    let (verdict, ended) = breaker::judge(&result);
    flight.finish(verdict, ended);
    result.map(|response| breaker::remember(exchange, response))
}

/// What the client gets for the result of a call.
pub(crate) fn answer(exchange: &Exchange, result: Result<Response<Body>, CallError>) -> Response<Body> {
    match result {
        Ok(response) => clean(response),
        Err(error) => exchange.refused(&failed(&error, &exchange.context.request_id)),
    }
}

/// Concurrency permits come back when the last byte of the answer is out, or, where it switches
/// protocols, when the stream has ended.
pub(crate) fn with_permits(response: Response<Body>, permits: Option<Arc<Held>>) -> Response<Body> {
    match permits {
        Some(permits) => {
            if let Some(switched) = response.extensions().get::<Switched>() {
                switched.hold(permits.clone());
            }
            response.map(|body| body.guarded(permits))
        }
        None => response,
    }
}

/// An upstream's word to Tidegate is not for the client, nor may it speak as Tidegate.
fn clean(mut response: Response<Body>) -> Response<Body> {
    strip(response.headers_mut());
    response
}

fn failed(error: &CallError, request_id: &HeaderValue) -> Refusal {
    CallFailed { error, request_id }.emit();
    match error.kind {
        CallErrorKind::Timeout => Refusal::UpstreamTimeout { sent: error.sent },
        CallErrorKind::RequestBody => Refusal::BodyIncomplete,
        _ => Refusal::UpstreamUnavailable { sent: error.sent },
    }
}

async fn read(body: &mut Body, limit: u64) -> Result<Bytes, Refusal> {
    std::mem::take(body).collect(limit).await.map_err(|error| match error {
        BodyError::TooLarge { limit } => Refusal::BodyTooLarge { limit },
        BodyError::Broken(_) => Refusal::BodyIncomplete,
    })
}

#[cfg(test)]
mod tests;
