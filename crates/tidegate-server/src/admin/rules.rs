//! `/v1/rules`: what is in force, where it came from, and what was not taken.

use axum::extract::State;
use serde_json::{Value, json};
use tidegate::rules::{LoadResult, LoadSource, Refused};
use tidegate_core::rule::version::canonical;

use super::Subject;
use super::problem::Problem;
use super::view::{Document, digest, time};

pub(super) async fn show(State(subject): State<Subject>) -> Result<Document, Problem> {
    let (in_force, status) = (subject.in_force()?, subject.rules()?.status());
    let text = canonical(&in_force.plan.rules);
    // Numbers in conditions keep a spelling that YAML reads and strict JSON may not (`0123`): such a
    // document is given as text.
    let rules = serde_json::from_str(&text).unwrap_or(Value::String(text));
    let loads = LoadSource::ALL.into_iter().flat_map(|source| {
        let loads = &status.loads;
        LoadResult::ALL.into_iter().map(move |result| {
            json!({ "source": source.as_str(), "result": result.as_str(), "count": loads.get(source, result) })
        })
    });
    Ok(Document(json!({
        "version": in_force.version.number,
        "digest": in_force.version.digest.to_string(),
        "in_force_since": time(status.loaded_at),
        "source": status.path.display().to_string(),
        "warnings": status.warnings,
        "refusal": status.refusal.as_ref().map(refused),
        "drift": status.drift.map(|drift| {
            json!({ "version": drift.version, "file_digest": digest(drift.file_digest) })
        }),
        "unusable": status.unusable.as_ref().map(|unusable| json!({
            "version": unusable.version,
            "damaged": unusable.damaged,
            "refusal": refused(&unusable.refused),
        })),
        "stale_since": {
            "file": status.file_stale_since.map(time),
            "store": status.store_stale_since.map(time),
        },
        "pending": status.pending,
        "loads": loads.collect::<Vec<_>>(),
        "rules": rules,
    })))
}

fn refused(refused: &Refused) -> Value {
    json!({ "at": time(refused.at), "faults": refused.faults, "rendered": refused.rendered })
}
