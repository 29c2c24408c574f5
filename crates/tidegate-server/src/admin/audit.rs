//! `/v1/audit`: what was done to the rules, by whom, newest first.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::json;
use tidegate_store::rules::{AuditEntry, MAX_LISTED};

use super::Subject;
use super::problem::Problem;
use super::view::{Document, digest, time};

/// Entries of one page unless the caller says.
const DEFAULT_LIMIT: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    limit: Option<usize>,
    before: Option<u64>,
}

pub(super) async fn show(
    State(subject): State<Subject>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Document, Problem> {
    let Query(page) = page.map_err(|error| Problem::bad_request(error.body_text()))?;
    let limit = page.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LISTED).contains(&limit) {
        return Err(Problem::bad_request(format!("limit is an integer from 1 to {MAX_LISTED}")));
    }
    let entries = subject
        .store()
        .audit_log(limit, page.before)
        .await
        .map_err(|error| Problem::unavailable(error.to_string()))?;
    // A short page is the last one.
    let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.id);
    let shown = entries.iter().map(|AuditEntry { id, at, entry }| {
        json!({
            "id": id,
            "at": time(*at),
            "kind": entry.kind.as_str(),
            "version": entry.version,
            "digest": entry.digest.map(digest),
            "node": entry.node,
            "who": entry.who,
            "detail": entry.detail,
        })
    });
    Ok(Document(json!({ "entries": shown.collect::<Vec<_>>(), "next_before": next })))
}
