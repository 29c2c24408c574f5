//! Breaker is the innermost gate: it lets a call through to the dependency, learns from its result,
//! and answers in its place while the dependency is not healthy.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};
use tidegate_core::Timestamp;
use tidegate_core::breaker::{Answer, degrade};
use tidegate_core::rule::model::{Fallback, FallbackBody};

use crate::Body;
use crate::breakers::{Admission, CallResult};
use crate::cache;
use crate::call::{CallError, CallErrorKind};
use crate::event::{self, BreakerCancelled, BreakerRecorded, BreakerRefused, FallbackGiven};
use crate::exchange::{Cacheable, Exchange, NoVerdict};
use crate::gates::InForce;
use crate::request::{self, Taken};
use crate::respond::{self, Refusal};
use crate::stats::{Ended, Gate, Running};

/// Why the dependency would not be called.
pub(crate) struct Open {
    rule: usize,
    retry_after: Duration,
}

/// A permit of every breaker that guards the resource, or of none. Dropped without a result it is a
/// call that was not made: no verdict.
pub(crate) fn admit<'a>(
    exchange: &'a Exchange,
    host: &str,
    now: Timestamp,
) -> Result<Option<Admission<'a>>, Open> {
    let plan = exchange.plan();
    if plan.breakers.is_empty() {
        return Ok(None);
    }
    let env = exchange.gates.env();
    match exchange.rules.breakers.admit(&plan.breakers, host, now, env.random()) {
        Ok(mut admission) => {
            // Told now: the admission may come back without a result.
            event::transitions(&exchange.gates, &admission.take_transitions());
            Ok(Some(admission))
        }
        Err(refusal) => {
            event::transitions(&exchange.gates, &refusal.transitions);
            Err(Open { rule: refusal.rule, retry_after: refusal.retry_after })
        }
    }
}

/// A call on its way. Dropped without an end, it was cancelled: neither a success nor a failure, unless
/// the cancellation came at its timeout.
pub(crate) struct InFlight<'a> {
    exchange: &'a Exchange,
    admission: Option<Admission<'a>>,
    running: Option<Running<'a>>,
    started: Timestamp,
}

impl<'a> InFlight<'a> {
    /// The call begins at `started`.
    pub(crate) fn begin(
        exchange: &'a Exchange,
        admission: Option<Admission<'a>>,
        started: Timestamp,
    ) -> Self {
        Self { exchange, admission, running: Some(exchange.runtime().stats.start()), started }
    }

    /// The call is over. Without a result it says nothing to breakers, without an end nothing to the
    /// statistics.
    pub(crate) fn finish(mut self, result: Option<CallResult>, ended: Option<Ended>) {
        let env = self.exchange.gates.env();
        let now = env.now();
        let elapsed = now.since(self.started);
        if let (Some(ended), Some(running)) = (ended, self.running.take()) {
            running.finish(ended, elapsed, now);
        }
        let Some(admission) = self.admission.take() else { return };
        match result {
            Some(result) => {
                let recorded = admission.record(result, elapsed, now, env.random());
                BreakerRecorded { exchange: self.exchange, recorded: &recorded }.emit();
            }
            None => BreakerCancelled { exchange: self.exchange }.emit(),
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(admission) = self.admission.take() else { return };
        let env = self.exchange.gates.env();
        let now = env.now();
        let timeout = self.exchange.resource().timeout;
        let recorded = admission.cancelled(now.since(self.started), timeout, now, env.random());
        BreakerRecorded { exchange: self.exchange, recorded: &recorded }.emit();
        if recorded.results.is_empty() {
            BreakerCancelled { exchange: self.exchange }.emit();
        }
    }
}

/// What the result of a request's call means to breakers and statistics.
pub(crate) fn judge(result: &Result<Response<Body>, CallError>) -> (Option<CallResult>, Option<Ended>) {
    match result {
        // A guard inside said no: neither the dependency's success nor its failure.
        Ok(response) if response.extensions().get::<NoVerdict>().is_some() => (None, None),
        Ok(response) => {
            let status = response.status();
            let ended = if status.is_server_error() { Ended::Failed } else { Ended::Succeeded };
            (Some(CallResult::Status(status.as_u16())), Some(ended))
        }
        Err(error) => {
            let result = match error.kind {
                CallErrorKind::Connect => CallResult::Connect,
                CallErrorKind::Timeout => CallResult::Timeout,
                CallErrorKind::Reset => CallResult::Reset,
                // The client broke off: the call says nothing about the dependency.
                CallErrorKind::RequestBody => return (None, None),
            };
            (Some(result), Some(Ended::Failed))
        }
    }
}

/// The refusal of a call that nothing answers in place of.
pub(crate) fn refuse(exchange: &Exchange, open: &Open) -> Refusal {
    BreakerRefused { exchange, rule: open.rule, retry_after: open.retry_after }.emit();
    let rule = exchange.rules.plan.rules.breakers[open.rule].id.clone();
    let refusal = Refusal::BreakerOpen { rule, retry_after: open.retry_after };
    exchange.note(&refusal);
    refusal
}

/// Answers in place of a call: the last good answer, then the configured one, then 503.
pub(crate) fn answer(exchange: &Exchange, open: &Open) -> Response<Body> {
    BreakerRefused { exchange, rule: open.rule, retry_after: open.retry_after }.emit();
    let rule = &exchange.rules.plan.rules.breakers[open.rule];
    let now = exchange.gates.env().now();
    let mut cached = exchange
        .cacheable
        .as_ref()
        .and_then(|request| exchange.gates.cache().get(&request.key, &request.headers, now));
    for layer in degrade::layers(&rule.fallback, cached.as_ref().map(cache::Hit::age)) {
        let response = match layer {
            Answer::Cached { ttl, .. } => cached.take().map(|hit| hit.respond(ttl)),
            Answer::Respond { status, body, .. } => Some(fixed(status, body, open.retry_after)),
            Answer::FailFast => None,
        };
        if let Some(response) = response {
            FallbackGiven { exchange, rule: &rule.id, layer: layer.name() }.emit();
            exchange.runtime().stats.block(Gate::Breaker, &rule.id.as_str().into());
            return response;
        }
    }
    exchange.refused(&Refusal::BreakerOpen { rule: rule.id.clone(), retry_after: open.retry_after })
}

/// What the cache is asked with, if a fallback of the resource's breakers names it.
pub(crate) fn cacheable(rules: &InForce, resource: usize, parts: &Parts, taken: &Taken) -> Option<Cacheable> {
    let plan = &rules.plan.resources[resource];
    let mut breakers = plan.breakers.iter().map(|&rule| &rules.plan.rules.breakers[rule]);
    if !breakers.any(|rule| rule.fallback.iter().any(|layer| matches!(layer, Fallback::Cache { .. }))) {
        return None;
    }
    let named = &rules.plan.rules.resources[resource];
    let host = request::host(parts).unwrap_or_default();
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let subject = plan.subject.and_then(|index| taken.text(index));
    let names = named.attributes.iter().map(|attribute| attribute.name.as_str());
    let key = cache::Key::request(&named.id, &parts.method, &host, target, subject, names.zip(taken.texts()));
    Some(Cacheable { key, headers: parts.headers.clone() })
}

/// Keeps a good answer while it goes to the client.
pub(crate) fn remember(exchange: &Exchange, response: Response<Body>) -> Response<Body> {
    let Some(request) = &exchange.cacheable else { return response };
    let (head, body) = response.into_parts();
    let has_subject = exchange.plan().subject.is_some_and(|index| exchange.taken.text(index).is_some());
    let Ok(storable) = cache::examine(&exchange.method, &request.headers, has_subject, &head) else {
        return Response::from_parts(head, body);
    };
    let (gates, key, kept_head) = (exchange.gates.clone(), request.key.clone(), head.clone());
    let most = gates.cache().most_body();
    let body = body.observed(most, move |bytes| {
        // Refused only for its size, of which the next answer tells as much.
        let _ = gates.cache().put(key, storable, &kept_head, bytes, gates.env().now());
    });
    Response::from_parts(head, body)
}

fn fixed(status: u16, body: &FallbackBody, retry_after: Duration) -> Response<Body> {
    let (content_type, body) = match body {
        FallbackBody::Empty => (None, Body::empty()),
        FallbackBody::Json(value) => (Some("application/json"), Body::full(value.to_string())),
        FallbackBody::Text(text) => (Some("text/plain; charset=utf-8"), Body::full(text.clone())),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    if let Some(content_type) = content_type {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, respond::retry_after(retry_after));
    }
    response
}
