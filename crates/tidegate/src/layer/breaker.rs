//! Breaker is the innermost gate: it lets a call through to the dependency, learns from its result,
//! and answers in its place while the dependency is not healthy.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use tidegate_core::breaker::{Answer, degrade};
use tidegate_core::rule::model::FallbackBody;

use crate::Body;
use crate::breakers::{Admission, CallResult};
use crate::call::{CallError, CallErrorKind};
use crate::event::{self, BreakerRecorded, BreakerRefused, FallbackGiven};
use crate::exchange::Exchange;
use crate::respond::{self, Refusal};

/// Why the dependency would not be called.
pub(crate) struct Open {
    rule: usize,
    retry_after: Duration,
}

/// A permit of every breaker that guards the resource, or of none. Dropped without a result it is a
/// call that was not made: no verdict.
pub(crate) fn admit(exchange: &Exchange, host: &str) -> Result<Option<Admission>, Open> {
    let plan = exchange.plan();
    if plan.breakers.is_empty() {
        return Ok(None);
    }
    let env = exchange.gates.env();
    match exchange.rules.breakers.admit(&plan.breakers, host, env.now(), env.random()) {
        Ok(admission) => Ok(Some(admission)),
        Err(refusal) => {
            event::transitions(&exchange.gates, &refusal.transitions);
            Err(Open { rule: refusal.rule, retry_after: refusal.retry_after })
        }
    }
}

/// Records how a call ended.
pub(crate) fn record(
    exchange: &Exchange,
    admission: Option<Admission>,
    result: &Result<Response<Body>, CallError>,
    elapsed: Duration,
) {
    let Some(admission) = admission else { return };
    let result = match result {
        Ok(response) => CallResult::Status(response.status().as_u16()),
        Err(error) => match error.kind {
            CallErrorKind::Connect => CallResult::Connect,
            CallErrorKind::Timeout => CallResult::Timeout,
            CallErrorKind::Reset => CallResult::Reset,
            // The client's fault says nothing about the dependency: dropped, no verdict.
            CallErrorKind::RequestBody => return,
        },
    };
    let env = exchange.gates.env();
    let recorded = admission.record(result, elapsed, env.now(), env.random());
    BreakerRecorded { exchange, recorded: &recorded }.emit();
}

/// Answers in place of a call: the last good answer, then the configured one, then 503.
pub(crate) fn answer(exchange: &Exchange, open: &Open) -> Response<Body> {
    BreakerRefused { exchange, rule: open.rule, retry_after: open.retry_after }.emit();
    let rule = &exchange.rules.plan.rules.breakers[open.rule];
    let cached = exchange.cache_key.as_ref().and_then(|key| {
        exchange.gates.cache().get(key, exchange.gates.env().now())
    });
    let age = cached.as_ref().map(|hit| hit.age);
    for layer in degrade::layers(&rule.fallback, age) {
        FallbackGiven { exchange, rule: &rule.id, layer: layer.name() }.emit();
        return match (layer, cached) {
            (Answer::Cached { .. }, Some(hit)) => hit.respond(),
            (Answer::Respond { status, body }, _) => fixed(status, body, open.retry_after),
            _ => break,
        };
    }
    exchange.refuse(&Refusal::BreakerOpen { rule: rule.id.clone(), retry_after: open.retry_after })
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
