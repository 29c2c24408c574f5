//! Values as the administration's documents have them: times in RFC 3339, spans in seconds.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use tidegate::breakers::Status;
use tidegate::explain::FlagSays;
use tidegate_core::Timestamp;
use tidegate_core::rule::model::{Breaker, Trip};
use tidegate_core::rule::version::{Digest, Version};

/// A document as an answer.
pub(super) struct Document(pub(super) Value);

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (StatusCode::OK, json, self.0.to_string()).into_response()
    }
}

/// A time, in RFC 3339 with milliseconds.
pub(super) fn time(at: Timestamp) -> Value {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).map_or(Value::Null, |at| format!("{at:.3}").into())
}

/// A span, in seconds.
pub(super) fn seconds(span: Duration) -> Value {
    json!(span.as_secs_f64())
}

/// A digest, in hexadecimal.
pub(super) fn digest(bytes: [u8; 32]) -> Value {
    Digest::from_bytes(bytes).to_string().into()
}

pub(super) fn version(version: Version) -> Value {
    json!({ "number": version.number, "digest": version.digest.to_string() })
}

/// What a breaker is doing.
pub(super) fn breaker(rule: &Breaker, host: Option<&str>, status: &Status) -> Value {
    let mut thresholds: Vec<Duration> = rule.trip.iter().filter_map(slower_than).collect();
    thresholds.sort_unstable();
    thresholds.dedup();
    let slow = thresholds.iter().zip(&status.tally.slow);
    let slow = slow.map(|(than, calls)| json!({ "slower_than_seconds": seconds(*than), "calls": calls }));
    let probes = status
        .probes
        .map(|(succeeded, out, needed)| json!({ "succeeded": succeeded, "out": out, "needed": needed }));
    json!({
        "rule": rule.id,
        "host": host,
        "state": status.state.name(),
        "next_probe_seconds": status.next_probe.map(seconds),
        "trips": status.trips,
        "generation": status.generation,
        "probes": probes,
        "window": {
            "seconds": seconds(rule.window),
            "calls": status.tally.calls,
            "failures": status.tally.failures,
            "slow": slow.collect::<Vec<_>>(),
        },
    })
}

fn slower_than(trip: &Trip) -> Option<Duration> {
    match trip {
        Trip::SlowRatio { slower_than, .. } => Some(*slower_than),
        _ => None,
    }
}

/// What a flag says, and why.
pub(super) fn flag(says: &FlagSays) -> Value {
    let rules = says.rules.iter().map(
        |rule| json!({ "rule": rule.rule, "priority": rule.priority, "outcome": rule.outcome.to_string() }),
    );
    let (result, error) = match &says.result {
        Ok(result) => {
            let result = json!({
                "variant": result.variant,
                "value": result.value,
                "reason": result.reason.name(),
                "rule": result.rule,
                "bucket": result.bucket,
                "split_bucket": result.split_bucket,
            });
            (result, Value::Null)
        }
        Err(error) => (Value::Null, json!({ "code": error.code(), "message": error.to_string() })),
    };
    json!({ "flag": says.flag, "result": result, "error": error, "rules": rules.collect::<Vec<_>>() })
}
