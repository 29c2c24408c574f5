//! `POST /v1/explain`: a described request, and what each gate would say to it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::explain::{
    AttributeTaken, BreakerSays, Explained, IdempotencyAnswer, IdempotencySays, LimitSays, Question, Verdict,
    explain,
};
use tidegate::gates::InForce;
use tidegate::request::Scalar;
use tidegate::respond::Refusal;
use tidegate_core::idempotency::transition::How;
use tidegate_core::rule::model::Mode;

use super::Subject;
use super::problem::Problem;
use super::view::{self, Document, seconds, time};
use crate::gateway;

/// A request as somebody describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    #[serde(default = "get")]
    method: String,
    host: Option<String>,
    path: String,
    query: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, OneOrMany>,
    /// Text as it is; any other JSON as its own text.
    body: Option<Value>,
    client_ip: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn get() -> String {
    "GET".to_owned()
}

pub(super) async fn ask(
    State(subject): State<Subject>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Document, Problem> {
    let body = body.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    // What a web page can send without asking its browser first is never JSON.
    if !is_json(headers.get(CONTENT_TYPE)) {
        let detail = "send the described request as application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let invalid = |error| Problem::bad_request(format!("the described request: {error}"));
    // An object first: serde would take a list for the fields in their order.
    let described: serde_json::Map<String, Value> = serde_json::from_slice(&body).map_err(invalid)?;
    let described: Described = serde_json::from_value(described.into()).map_err(invalid)?;
    let client = described.client_ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let question = Question { request: described.request()?, client, hosts: subject.hosts().to_vec() };
    let in_force = subject.in_force()?;
    let explained = explain(subject.gates(), question).await.ok_or_else(Problem::not_ready)?;
    Ok(Document(json!({
        "version": view::version(explained.version),
        "target": explained.target,
        "verdict": verdict(&explained.verdict),
        "resource": explained.resource.as_ref().map(|resource| show(resource, &in_force)),
    })))
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    let essence = content_type.and_then(|value| value.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

impl Described {
    fn request(self) -> Result<Request<Bytes>, Problem> {
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|_| Problem::bad_request(format!("method: {:?} is no method", self.method)))?;
        let path = &self.path;
        if !path.starts_with('/') || path.contains(['?', '#']) {
            return Err(Problem::bad_request("path: begins with /; what follows a ? is `query`"));
        }
        let target = match &self.query {
            Some(query) => format!("{path}?{query}"),
            None => path.clone(),
        };
        let target = PathAndQuery::try_from(target).map_err(|error| {
            Problem::bad_request(format!("path and query: {error}; percent-encode what is no URI character"))
        })?;
        let body = match self.body {
            None | Some(Value::Null) => Bytes::new(),
            Some(Value::String(text)) => text.into(),
            Some(json) => json.to_string().into(),
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(target);
        for (name, values) in self.headers {
            let values = match values {
                OneOrMany::One(value) => vec![value],
                OneOrMany::Many(values) => values,
            };
            for value in values {
                add(request.headers_mut(), &name, &value)?;
            }
        }
        if let Some(host) = &self.host {
            if request.headers().contains_key(HOST) {
                return Err(Problem::bad_request("host: it is given twice, here and in `headers`"));
            }
            add(request.headers_mut(), HOST.as_str(), host)?;
        }
        check_framing(request.headers())?;
        if !request.headers().contains_key(HOST) {
            // Only HTTP/1.0 may do without.
            *request.version_mut() = Version::HTTP_10;
        }
        // What the gateway refuses before any gate is nothing that a gate could be asked about.
        gateway::normalise(&mut request)
            .map_err(|refusal| Problem::bad_request(format!("the described request: {refusal}")))?;
        Ok(request)
    }
}

/// How long a body is must be told in a way that the gateway reads (RFC 9112, 6). The number itself may
/// differ from the described body's: JSON is described by its meaning, not by its bytes.
fn check_framing(headers: &HeaderMap) -> Result<(), Problem> {
    let is_length = |value: &HeaderValue| {
        let digits = value.as_bytes();
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(first) = lengths.next()
        && !(is_length(first) && lengths.all(|other| other == first))
    {
        return Err(Problem::bad_request(
            "headers: Content-Length is no number; leave it out, `body` tells it",
        ));
    }
    if let Some(last) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        let coding = last.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
        if !coding.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            let detail =
                "headers: Transfer-Encoding does not end with chunked; leave it out, `body` is whole";
            return Err(Problem::bad_request(detail));
        }
    }
    Ok(())
}

fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Problem> {
    let invalid = || Problem::bad_request(format!("headers: {name:?} or its value is not valid in HTTP"));
    let header = HeaderName::try_from(name).map_err(|_| invalid())?;
    headers.append(header, HeaderValue::try_from(value).map_err(|_| invalid())?);
    Ok(())
}

// ---- what was said -------------------------------------------------------------------------------

fn verdict(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Unmatched => json!({ "answer": "pass" }),
        Verdict::Called { wait } => json!({ "answer": "call", "wait_seconds": seconds(*wait) }),
        Verdict::Replayed { status } => json!({ "answer": "replay", "status": status }),
        Verdict::Waits { at_most } => json!({ "answer": "wait", "at_most_seconds": seconds(*at_most) }),
        Verdict::Fallback { rule, layer, status } => {
            json!({ "answer": "fallback", "rule": rule, "layer": layer, "status": status })
        }
        Verdict::Refused(refusal) => {
            let mut document = refused(refusal);
            document["answer"] = "refuse".into();
            document
        }
        // A kind of answer that this document has no word for yet.
        _ => json!({ "answer": "other" }),
    }
}

fn refused(refusal: &Refusal) -> Value {
    json!({
        "status": refusal.status().as_u16(),
        "reason": refusal.name(),
        "gate": refusal.gate().map(tidegate::stats::Gate::name),
        "rule": refusal.rule(),
        "detail": refusal.detail(),
        "retry_after_seconds": refusal.retry_after().map(seconds),
    })
}

fn show(explained: &Explained, in_force: &InForce) -> Value {
    json!({
        "id": explained.id,
        "attributes": explained.attributes.iter().map(attribute).collect::<Vec<_>>(),
        "subject": explained.subject,
        "flags": explained.flags.iter().map(view::flag).collect::<Vec<_>>(),
        "limits": explained.limits.iter().map(limit).collect::<Vec<_>>(),
        "idempotency": explained.idempotency.as_ref().map(idempotency),
        "breakers": explained.breakers.iter().filter_map(|says| breaker(says, in_force)).collect::<Vec<_>>(),
    })
}

fn attribute(taken: &AttributeTaken) -> Value {
    let (kind, value) = match &taken.value {
        None => ("absent", Value::Null),
        Some(Scalar::Text(text)) => ("text", text.as_str().into()),
        Some(Scalar::Number(text)) => {
            ("number", serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()))
        }
        Some(Scalar::Bool(value)) => ("boolean", (*value).into()),
        Some(Scalar::Compound) => ("compound", Value::Null),
    };
    json!({
        "name": taken.name,
        "from": taken.from,
        "kind": kind,
        "value": value,
        "required": taken.required,
    })
}

fn limit(says: &LimitSays) -> Value {
    let decision = &says.decision;
    let key = says.key.iter().map(|(name, value)| json!({ "attribute": name, "value": value }));
    json!({
        "rule": says.rule,
        "mode": match says.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        },
        "algorithm": says.algorithm,
        "key": key.collect::<Vec<_>>(),
        "overridden_by": says.overridden_by,
        "cost": says.cost,
        "would_admit": decision.admitted(),
        "limit": decision.limit,
        "remaining": decision.remaining,
        "wait_seconds": seconds(decision.wait()),
        "retry_after_seconds": decision.retry_after().map(seconds),
        "shares_overflow": says.overflow,
    })
}

fn idempotency(says: &IdempotencySays) -> Value {
    let record = says
        .record
        .as_ref()
        .map(|id| json!({ "operation": id.operation(), "scope": id.scope(), "key": id.key() }));
    let found = says.found.as_ref().map(|found| {
        json!({
            "state": found.state.as_str(),
            "token": found.token,
            "attempts": found.attempts,
            "version": found.version,
            "first_claimed_at": time(found.first_claimed_at),
            "lease_until": time(found.lease_until),
            "expires_at": time(found.expires_at),
            "status": found.status,
        })
    });
    let answer = match &says.answer {
        IdempotencyAnswer::Unguarded => json!({ "answer": "unguarded" }),
        IdempotencyAnswer::Execute(how) => json!({ "answer": "execute", "because": because(*how) }),
        IdempotencyAnswer::Replay { status } => json!({ "answer": "replay", "status": status }),
        IdempotencyAnswer::Wait { at_most } => {
            json!({ "answer": "wait", "at_most_seconds": seconds(*at_most) })
        }
        IdempotencyAnswer::StoreFailed { error } => json!({ "answer": "store_failed", "detail": error }),
        IdempotencyAnswer::Refuse(refusal) => {
            let mut document = refused(refusal);
            document["answer"] = "refuse".into();
            document
        }
        _ => json!({ "answer": "other" }),
    };
    json!({ "rule": says.rule, "record": record, "found": found, "says": answer })
}

fn because(how: How) -> &'static str {
    match how {
        How::New => "there is no record",
        How::Expired => "the record has expired",
        How::Released => "the attempt before released it",
        How::Repeated => "this attempt holds it",
        How::TakenOver => "the attempt before fell silent, and may be taken over",
    }
}

fn breaker(says: &BreakerSays, in_force: &InForce) -> Option<Value> {
    let rule = in_force.plan.rules.breakers.iter().find(|rule| rule.id == says.rule)?;
    let mut document = view::breaker(rule, says.host.as_deref(), &says.status);
    document["would_admit"] = says.refuses_for.is_none().into();
    document["refuses_for_seconds"] = says.refuses_for.map_or(Value::Null, seconds);
    Some(document)
}
