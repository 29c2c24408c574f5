//! Errors as problem details (RFC 9457).

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// An answer that says what is wrong, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    retry: bool,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry: false }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The router adds `Allow`.
    pub(super) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "the Allow header lists the methods of this path")
    }

    pub(super) fn not_ready() -> Self {
        Self::unavailable("no rule version is in force yet; try again")
    }

    /// 503 with a `Retry-After` of one second.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let problem = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = (self.status, problem.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.retry {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
