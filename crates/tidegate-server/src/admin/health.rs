//! The probes: is it alive, is it ready, what does it count.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::Subject;
use super::problem::Problem;
use super::view::{Document, time};

/// The `OpenMetrics` text format, as its specification registers it.
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// That this can be read is all that it says.
pub(super) async fn livez() -> &'static str {
    "alive\n"
}

/// Whether clients should come: rules are in force and no shutdown has begun. A source of rules that
/// is away is told and is no reason to send clients away: what is in force stays in force.
pub(super) async fn readyz(State(subject): State<Subject>) -> Result<Document, Problem> {
    if subject.is_draining() {
        return Err(Problem::unavailable("draining: a shutdown has begun"));
    }
    let (in_force, status) = (subject.in_force()?, subject.rules()?.status());
    Ok(Document(json!({
        "status": "ready",
        "version": in_force.version.to_string(),
        "stale_since": {
            "file": status.file_stale_since.map(time),
            "store": status.store_stale_since.map(time),
        },
    })))
}

/// All metrics.
pub(super) async fn metrics(State(subject): State<Subject>) -> Response {
    if let Ok(rules) = subject.rules() {
        rules.measure();
    }
    ([(CONTENT_TYPE, OPENMETRICS)], subject.gates().render_metrics()).into_response()
}
