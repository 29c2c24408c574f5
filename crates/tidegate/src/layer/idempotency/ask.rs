//! What a request asks the idempotency gate: which record, and what must be equal on a retry.

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use tidegate_core::idempotency::fingerprint::{self, Fingerprint, PartError};
use tidegate_core::idempotency::transition::ClaimAsk;
use tidegate_core::idempotency::{FirstTry, Key, KeyError, Owner, Policy, RecordId, Scope};
use tidegate_core::rule::model::{AttributeSource, FingerprintPart, Idempotency, KeySource};
use tidegate_core::rule::render;

use super::rule;
use crate::exchange::Exchange;
use crate::gates::InForce;
use crate::request::{Origin, take_one};
use crate::respond::Refusal;

/// What the head of a request says about its key.
pub(crate) enum Keyed {
    /// There is none, and the rule does not ask for one: the gate lets it pass, body unread.
    No,
    /// This one.
    Yes(Key),
    /// It is in the body, or made of parts of it.
    InBody,
}

impl Keyed {
    /// Looks for the key before the body is read: a client that must mend its key need not send one.
    pub(crate) fn of_head(exchange: &Exchange, parts: &Parts) -> Result<Self, Refusal> {
        let rule = rule(exchange);
        let KeySource::Attribute { from, required } = &rule.key else { return Ok(Self::InBody) };
        if matches!(from, AttributeSource::Body(_)) {
            return Ok(Self::InBody);
        }
        let key = named_key(rule, from, *required, exchange, parts, None)?;
        Ok(key.map_or(Self::No, Self::Yes))
    }
}

/// The part of the path that the rule of `resource` takes its key from.
pub(crate) fn path_key(
    rules: &InForce,
    resource: usize,
    path: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Option<String> {
    let plan = rules.plan.resources[resource].idempotency.as_ref()?;
    match &rules.plan.rules.idempotency[plan.rule].key {
        KeySource::Attribute { from: AttributeSource::Path(name), .. } => path(name),
        _ => None,
    }
}

/// The question, computed once for all tries of one request.
pub(crate) struct Asked {
    /// Which record.
    pub(crate) id: RecordId,
    fingerprint: Fingerprint,
    /// The same for each try, so that a repeated claim recognises itself.
    owner: Owner,
}

impl Asked {
    /// Of a request with its whole body. `None`: it has no key and the rule does not require one.
    pub(crate) fn new(exchange: &Exchange, parts: &Parts, body: &Bytes) -> Result<Option<Self>, Refusal> {
        Self::keyed(Keyed::of_head(exchange, parts)?, exchange, parts, body)
    }

    /// The same when the head has been looked at.
    pub(crate) fn keyed(
        keyed: Keyed,
        exchange: &Exchange,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Option<Self>, Refusal> {
        let rule = rule(exchange);
        let key = match keyed {
            Keyed::No => None,
            Keyed::Yes(key) => Some(key),
            Keyed::InBody => key_in_body(rule, exchange, parts, body)?,
        };
        let Some(key) = key else { return Ok(None) };
        let plan = exchange.plan().idempotency.as_ref();
        let mut scope = Vec::new();
        for &index in plan.map_or(&[][..], |plan| &plan.scope) {
            let attribute = &exchange.resource().attributes[index].from;
            let missing = || Refusal::AttributeMissing { attribute: render::source(attribute) };
            scope.push(exchange.taken.text(index).ok_or_else(missing)?);
        }
        let id = RecordId::new(&rule.operation, &Scope::of(scope), &key);
        let fingerprint = compute(exchange, parts, body, &rule.fingerprint)
            .map_err(|error| Refusal::AttributeMissing { attribute: error.to_string() })?;
        Ok(Some(Self { id, fingerprint, owner: Owner(exchange.gates.env().nonce()) }))
    }

    /// The claim under the rule in force.
    pub(super) fn claim(&self, exchange: &Exchange) -> ClaimAsk {
        let rule = rule(exchange);
        let window = match &rule.key {
            KeySource::Derived { window, .. } => Some(*window),
            KeySource::Attribute { .. } => None,
        };
        let flags = exchange.flags.as_ref().and_then(|flags| flags.to_str().ok()).unwrap_or_default();
        ClaimAsk {
            owner: self.owner,
            fingerprint: self.fingerprint.clone(),
            also: Fingerprint::default(),
            policy: Policy {
                commit: rule.commit,
                on_unknown: rule.on_unknown,
                retention: rule.retention,
                window,
            },
            lease: rule.lease,
            max_execution: rule.max_execution,
            first: FirstTry { version: exchange.rules.version.number, flags: flags.into() },
        }
    }

    /// The fields that a record of an older rule compares. One that cannot be computed is left out, and
    /// the claim is then answered by 422: it differs.
    pub(super) fn fingerprint(
        exchange: &Exchange,
        parts: &Parts,
        body: &Bytes,
        fields: &[FingerprintPart],
    ) -> Fingerprint {
        compute(exchange, parts, body, fields).unwrap_or_default()
    }
}

fn key_in_body(
    rule: &Idempotency,
    exchange: &Exchange,
    parts: &Parts,
    body: &Bytes,
) -> Result<Option<Key>, Refusal> {
    match &rule.key {
        KeySource::Attribute { from, required } => {
            named_key(rule, from, *required, exchange, parts, Some(body))
        }
        KeySource::Derived { parts: fields, .. } => {
            with_request(exchange, parts, body, |request| fingerprint::derive_key(fields, request))
                .map(Some)
                .map_err(|error| Refusal::AttributeMissing { attribute: part_name(&error) })
        }
    }
}

/// The key that a client has chosen.
fn named_key(
    rule: &Idempotency,
    from: &AttributeSource,
    required: bool,
    exchange: &Exchange,
    parts: &Parts,
    body: Option<&Bytes>,
) -> Result<Option<Key>, Refusal> {
    let found = match from {
        AttributeSource::Header(name) => header_key(&parts.headers, name),
        other => text_of(exchange, other, parts, body).map(|text| Key::from_text(&text)).transpose(),
    };
    match found {
        Ok(None) if required => {
            Err(Refusal::KeyMissing { rule: rule.id.clone(), from: render::source(from) })
        }
        Ok(key) => Ok(key),
        Err(error) => Err(Refusal::KeyInvalid { rule: rule.id.clone(), why: error.to_string() }),
    }
}

/// A key that stands elsewhere than in a header.
fn text_of(
    exchange: &Exchange,
    from: &AttributeSource,
    parts: &Parts,
    body: Option<&Bytes>,
) -> Option<String> {
    let json = body.and_then(|body| serde_json::from_slice(body).ok());
    let origin = Origin {
        parts,
        path: &|_| exchange.path_key.clone(),
        client: exchange.context.client,
        ipv6_prefix: exchange.gates.settings().ipv6_prefix,
        body: json.as_ref(),
    };
    take_one(from, &origin).and_then(|scalar| Some(scalar.text()?.to_owned()))
}

fn header_key(headers: &HeaderMap, name: &str) -> Result<Option<Key>, KeyError> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    if values.is_empty() { Ok(None) } else { Key::parse_header(&values).map(Some) }
}

fn compute(
    exchange: &Exchange,
    parts: &Parts,
    body: &Bytes,
    fields: &[FingerprintPart],
) -> Result<Fingerprint, PartError> {
    with_request(exchange, parts, body, |request| Fingerprint::of(fields, request))
}

fn with_request<T>(
    exchange: &Exchange,
    parts: &Parts,
    body: &Bytes,
    compute: impl FnOnce(&fingerprint::Request<'_>) -> T,
) -> T {
    let attributes = exchange.taken.named(exchange.resource());
    compute(&fingerprint::Request {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        body,
        attributes: &attributes,
    })
}

fn part_name(error: &PartError) -> String {
    match error {
        PartError::Absent { part } | PartError::Compound { part } => fingerprint::label(part),
        other => other.to_string(),
    }
}
