//! What the idempotency gate would say: the record is read and nothing is claimed.

use bytes::Bytes;
use http::request::Parts;
use tidegate_core::idempotency::{RecordId, transition};
use tidegate_store::traits::{Shown, StoreError};

use super::Asked;
use crate::exchange::Exchange;
use crate::respond::Refusal;

/// What would come of a claim.
pub(crate) struct Peeked {
    pub(crate) id: RecordId,
    /// The record that is there, with the store's time.
    pub(crate) found: Option<Shown>,
    /// How it would be granted, or why not.
    pub(crate) claim: Result<transition::How, transition::Answer>,
}

/// Why there is no answer.
pub(crate) enum Unanswered {
    /// The request is refused before the store is asked.
    Refused(Refusal),
    /// The store does not answer.
    Store(StoreError),
}

/// What the gate would find. `None`: the request has no key, and the rule does not require one.
pub(crate) async fn peek(
    exchange: &Exchange,
    parts: &Parts,
    body: &Bytes,
) -> Result<Option<Peeked>, Unanswered> {
    let Some(asked) = Asked::new(exchange, parts, body).map_err(Unanswered::Refused)? else {
        return Ok(None);
    };
    let found = exchange.gates.records().read(&asked.id).await.map_err(Unanswered::Store)?;
    let mut ask = asked.claim(exchange);
    let now = found.as_ref().map_or_else(|| exchange.gates.env().now(), |shown| shown.now);
    let record = found.as_ref().map(|shown| &shown.record);
    let mut claim = transition::claim(record, &ask, now);
    if let Err(transition::Answer::NotComputed { fields }) = &claim {
        ask.also = Asked::fingerprint(exchange, parts, body, fields);
        claim = transition::claim(record, &ask, now);
    }
    let claim = claim.map(|grant| grant.how());
    Ok(Some(Peeked { id: asked.id, found, claim }))
}
