//! The whole stack in one function, outermost gate first. The order is part of the contract.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Request, Response};
use tidegate_core::rule::route::Matched;
use tidegate_store::memory::limits::Permits;

use crate::Body;
use crate::body::BodyError;
use crate::breakers::Admission;
use crate::call::{Call, CallError, CallErrorKind};
use crate::context::{Context, X_REQUEST_ID, request_id};
use crate::event::{CallFailed, IdempotencyAnswered, IdempotencyOutcome, Refused};
use crate::exchange::{Exchange, strip};
use crate::gates::{Gates, InForce};
use crate::layer::idempotency::{Asked, Guarded};
use crate::layer::{breaker, idempotency, limit, rollout};
use crate::request::{self, Origin};
use crate::respond::{self, Refusal, TIDEGATE_VERSION};
use crate::stats::Ended;

/// Limit for the upstream call of a request that no resource matches.
const UNMATCHED_TIMEOUT: Duration = Duration::from_secs(30);
/// An upstream says how an execution ended.
pub(crate) const TIDEGATE_OUTCOME: &str = "tidegate-outcome";

/// Takes a request through the gates to `call`, and its answer back.
///
/// `client` is the address after trusted hops. A request that no resource matches goes to `call` with
/// its path normalised and nothing else decided.
pub async fn handle<C: Call>(
    gates: &Gates,
    request: Request<Body>,
    client: IpAddr,
    call: &C,
) -> Response<Body> {
    let started = gates.env().now();
    let Some(rules) = gates.in_force() else {
        return Refusal::NotReady.respond(None, gates.settings().disclose);
    };
    let (mut parts, body) = request.into_parts();
    let context = Context { request_id: request_id(&parts.headers, || gates.env().nonce()), client };
    let method = parts.method.clone();
    strip(&mut parts.headers);

    let entry = Entry { gates, rules: &rules, context: &context };
    let (resource, mut response) = entry.route(parts, body, call).await;

    let headers = response.headers_mut();
    headers.insert(X_REQUEST_ID, context.request_id);
    if gates.settings().disclose == respond::Disclose::Full {
        headers.insert(TIDEGATE_VERSION, rules.header.clone());
    }
    let durations = resource.map_or(gates.unmatched(), |index| &rules.resources[index].durations);
    durations.observe(&method, response.status().as_u16(), gates.env().now().since(started));
    response
}

/// A request at the door, with the rules that it will keep.
struct Entry<'a> {
    gates: &'a Gates,
    rules: &'a Arc<InForce>,
    context: &'a Context,
}

impl Entry<'_> {
    /// Names the resource, and walks it through its gates.
    async fn route<C: Call>(
        &self,
        mut parts: Parts,
        body: Body,
        call: &C,
    ) -> (Option<usize>, Response<Body>) {
        if let Err(refusal) = request::normalise_target(&mut parts, self.gates.settings().encoded_slash) {
            return (None, self.refuse("", &refusal));
        }
        // What the pattern captures points into the path, which outlives the request's own copy.
        let uri = parts.uri.clone();
        let matched = {
            let host = request::host(&parts);
            self.rules.plan.routes.find(host.as_deref(), parts.method.as_str(), uri.path())
        };
        let Some(Matched { resource, params }) = matched else {
            parts.headers.insert(X_REQUEST_ID, self.context.request_id.clone());
            let result = call.call(Request::from_parts(parts, body), UNMATCHED_TIMEOUT).await;
            return (None, self.unmatched_answer(result));
        };
        let id = &self.rules.plan.rules.resources[resource].id;
        let path = |name: &str| params.get(name).map(ToOwned::to_owned);
        match self.enter(resource, &parts, body, &path).await {
            Err(refusal) => (Some(resource), self.refuse(id, &refusal)),
            Ok((exchange, body)) => (Some(resource), walk(exchange, parts, body, call).await),
        }
    }

    /// Takes the attributes, reading the body first only where one stands in it, and labels.
    async fn enter(
        &self,
        resource: usize,
        parts: &Parts,
        body: Body,
        path: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<(Exchange, Body), Refusal> {
        let plan = &self.rules.plan.resources[resource];
        let (json, body) = if plan.attributes_in_body {
            let bytes = read(body, self.gates.settings().max_body).await?;
            (serde_json::from_slice(&bytes).ok(), Body::full(bytes))
        } else {
            (None, body)
        };
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
            cacheable: breaker::cacheable(self.rules, resource, parts, &taken),
            taken,
            flags,
        };
        Ok((exchange, body))
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
async fn walk<C: Call>(exchange: Exchange, parts: Parts, body: Body, call: &C) -> Response<Body> {
    let now = exchange.gates.env().now();
    // Limit first: it is the only gate that can refuse without touching a database.
    let decided = match limit::decide(&exchange.rules, exchange.resource, &exchange.taken, now) {
        Ok(decided) => decided,
        Err(refusal) => return exchange.refused(&refusal),
    };
    let mut response = if let Some(refusal) = &decided.refusal {
        exchange.refused(refusal)
    } else {
        if !decided.wait.is_zero() {
            tokio::time::sleep(decided.wait).await;
        }
        let permits = decided.permits.map(Arc::new);
        protected(exchange.into(), parts, body, permits, call).await
    };
    if !decided.policies.is_empty() {
        respond::append_limits(response.headers_mut(), &decided.policies, &decided.limits);
    }
    response
}

/// Idempotency at the business entry, the breaker around the call.
async fn protected<C: Call>(
    exchange: Arc<Exchange>,
    parts: Parts,
    body: Body,
    permits: Option<Arc<Permits>>,
    call: &C,
) -> Response<Body> {
    let body = if exchange.plan().idempotency.is_some() {
        // Whatever the fingerprint needs now, a record of an older rule may need the body.
        let bytes = match read(body, exchange.gates.settings().max_body).await {
            Ok(bytes) => bytes,
            Err(refusal) => return exchange.refused(&refusal),
        };
        match Asked::new(&exchange, &parts, &bytes) {
            Err(refusal) => {
                IdempotencyAnswered { exchange: &exchange, outcome: IdempotencyOutcome::Invalid }.emit();
                return exchange.refused(&refusal);
            }
            Ok(Some(asked)) => {
                let call = call.clone();
                return idempotency::guard(Guarded { exchange, asked, parts, body: bytes, call, permits })
                    .await;
            }
            Ok(None) => Body::full(bytes),
        }
    } else {
        body
    };
    let response = match breaker::admit(&exchange, call.host()) {
        Err(open) => breaker::answer(&exchange, &open),
        Ok(admission) => {
            let mut request = Request::from_parts(parts, body);
            exchange.label(request.headers_mut());
            let result = self::call(&exchange, admission, request, call).await;
            answer(&exchange, result)
        }
    };
    with_permits(response, permits)
}

/// Makes the call, and tells the breakers how it ended.
pub(crate) async fn call<C: Call>(
    exchange: &Exchange,
    admission: Option<Admission>,
    request: Request<Body>,
    call: &C,
) -> Result<Response<Body>, CallError> {
    let env = exchange.gates.env();
    let running = exchange.runtime().stats.start();
    let started = env.now();
    let result = call.call(request, exchange.resource().timeout).await;
    let now = env.now();
    let elapsed = now.since(started);
    match &result {
        Ok(response) if !response.status().is_server_error() => {
            running.finish(Ended::Succeeded, elapsed, now);
        }
        // The client broke off: the call says nothing about the dependency.
        Err(error) if error.kind == CallErrorKind::RequestBody => drop(running),
        _ => running.finish(Ended::Failed, elapsed, now),
    }
    breaker::record(exchange, admission, &result, elapsed);
    result.map(|response| breaker::remember(exchange, response))
}

/// What the client gets for the result of a call.
pub(crate) fn answer(exchange: &Exchange, result: Result<Response<Body>, CallError>) -> Response<Body> {
    match result {
        Ok(response) => clean(response),
        Err(error) => exchange.refused(&failed(&error, &exchange.context.request_id)),
    }
}

/// Concurrency permits come back when the last byte of the answer is out.
pub(crate) fn with_permits(response: Response<Body>, permits: Option<Arc<Permits>>) -> Response<Body> {
    match permits {
        Some(permits) if !permits.is_empty() => response.map(|body| body.guarded(permits)),
        _ => response,
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
        CallErrorKind::Timeout => Refusal::UpstreamTimeout,
        CallErrorKind::RequestBody => Refusal::BodyIncomplete,
        _ => Refusal::UpstreamUnavailable,
    }
}

async fn read(body: Body, limit: u64) -> Result<Bytes, Refusal> {
    body.collect(limit).await.map_err(|error| match error {
        BodyError::TooLarge { limit } => Refusal::BodyTooLarge { limit },
        BodyError::Broken(_) => Refusal::BodyIncomplete,
    })
}
