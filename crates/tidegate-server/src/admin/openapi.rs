//! `/openapi.json`: every operation, with what it takes and what it answers.

use axum::response::IntoResponse;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

/// Written by hand; tests hold it against the router and against real answers.
const DOCUMENT: &str = include_str!("openapi.json");

/// The document, with this program's version in it.
pub(super) fn document() -> String {
    DOCUMENT.replace("@VERSION@", env!("CARGO_PKG_VERSION"))
}

pub(super) async fn show() -> impl IntoResponse {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document())
}
