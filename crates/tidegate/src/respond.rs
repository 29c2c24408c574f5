//! Decisions become HTTP here, and in no other file.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;
use tidegate_core::time::ceil_secs;

use crate::Body;
use crate::stats::Gate;

/// The rule version that decided: `12; digest=3f2a9c1b2d4e`.
pub const TIDEGATE_VERSION: HeaderName = HeaderName::from_static("tidegate-version");
/// `true` on a replayed response.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// `omitted` on a replay whose body was too large to keep.
pub const TIDEGATE_BODY: HeaderName = HeaderName::from_static("tidegate-body");
/// `unrecorded` on a result that could not be stored yet.
pub const TIDEGATE_IDEMPOTENCY: HeaderName = HeaderName::from_static("tidegate-idempotency");

// Draft 10 of "RateLimit header fields for HTTP". A later draft may rename them: this is the one place.
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// How much an answer tells about the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disclose {
    /// `Tidegate-Version` on every answer; `rule`, `reason` and `version` in problems.
    #[default]
    Full,
    /// None of these: for public edges.
    Minimal,
}

/// The JSON of a problem.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: Cow<'static, str>,
    title: &'static str,
    status: u16,
    detail: Cow<'static, str>,
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    violated_policies: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    fields: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
}

/// Why a request was answered by Tidegate itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// 400: the request target is no path that can be matched and forwarded.
    PathInvalid {
        /// What is wrong with it.
        why: String,
    },
    /// 400: a `missing: reject` attribute is not there.
    AttributeMissing {
        /// Its name.
        attribute: String,
    },
    /// 400: the cost attribute is no integer from 1 to the rule's maximum.
    CostInvalid {
        /// The limit.
        rule: String,
        /// The attribute.
        attribute: String,
        /// The rule's maximum.
        max: u64,
    },
    /// 400: the idempotency key is required and not there.
    KeyMissing {
        /// The idempotency rule.
        rule: String,
        /// Where it is looked for.
        from: String,
    },
    /// 400: the idempotency key is malformed or was sent twice.
    KeyInvalid {
        /// The idempotency rule.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
    /// 400: the request's body broke off.
    BodyIncomplete,
    /// 413.
    BodyTooLarge {
        /// Bytes that may be sent.
        limit: u64,
    },
    /// 429.
    LimitDenied {
        /// The limits that denied.
        rules: Vec<String>,
        /// When the same call passes; `None`: never, because it costs more than the limit holds.
        retry_after: Option<Duration>,
    },
    /// 409: another attempt is at work.
    InProgress {
        /// The idempotency rule.
        rule: String,
        /// When its lease ends.
        retry_after: Duration,
    },
    /// 409: an attempt was at work and nobody knows how it ended.
    OutcomeUnknown {
        /// The idempotency rule.
        rule: String,
    },
    /// 409: another attempt took this one's place and has no result yet.
    Superseded {
        /// The idempotency rule.
        rule: String,
    },
    /// 422: the key was used for another request.
    KeyReused {
        /// The idempotency rule.
        rule: String,
        /// What differs.
        fields: Vec<String>,
    },
    /// 503: a breaker is open.
    BreakerOpen {
        /// The breaker.
        rule: String,
        /// When to try again, jittered.
        retry_after: Duration,
    },
    /// 503: a store that must answer does not.
    StoreUnavailable {
        /// The gate that needs it.
        gate: Gate,
        /// The rule that needs it.
        rule: String,
    },
    /// 502: no response from the upstream.
    UpstreamUnavailable {
        /// Whether a byte of the request was sent, so that it may have taken effect.
        sent: bool,
    },
    /// 504: no response from the upstream in time.
    UpstreamTimeout {
        /// Whether a byte of the request was sent, so that it may have taken effect.
        sent: bool,
    },
    /// 503: no rule version is in force yet.
    NotReady,
}

/// Clients that are told to come back and have no better time wait for so long.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);

/// The headers of most refusals: with these, the request's id, the version and those of limits.
const HEADERS: usize = 6;
/// Bytes that hold most problems.
const PROBLEM: usize = 512;

impl Refusal {
    /// The status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::PathInvalid { .. }
            | Self::AttributeMissing { .. }
            | Self::CostInvalid { .. }
            | Self::KeyMissing { .. }
            | Self::KeyInvalid { .. }
            | Self::BodyIncomplete => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::LimitDenied { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::InProgress { .. } | Self::OutcomeUnknown { .. } | Self::Superseded { .. } => {
                StatusCode::CONFLICT
            }
            Self::KeyReused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BreakerOpen { .. } | Self::StoreUnavailable { .. } | Self::NotReady => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::UpstreamUnavailable { .. } => StatusCode::BAD_GATEWAY,
            Self::UpstreamTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The last part of the problem's `type`, which is also the `reason` in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PathInvalid { .. } => "path-invalid",
            Self::AttributeMissing { .. } => "attribute-missing",
            Self::CostInvalid { .. } => "cost-invalid",
            Self::KeyMissing { .. } => "idempotency-key-missing",
            Self::KeyInvalid { .. } => "idempotency-key-invalid",
            Self::BodyIncomplete => "body-incomplete",
            Self::BodyTooLarge { .. } => "body-too-large",
            Self::LimitDenied { .. } => "quota-exceeded",
            Self::InProgress { .. } => "idempotency-in-progress",
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::Superseded { .. } => "superseded",
            Self::KeyReused { .. } => "idempotency-key-reused",
            Self::BreakerOpen { .. } => "breaker-open",
            Self::StoreUnavailable { .. } => "store-unavailable",
            Self::UpstreamUnavailable { .. } => "upstream-unavailable",
            Self::UpstreamTimeout { .. } => "upstream-timeout",
            Self::NotReady => "version-unavailable",
        }
    }

    /// The rule that refused, where one did.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::CostInvalid { rule, .. }
            | Self::KeyMissing { rule, .. }
            | Self::KeyInvalid { rule, .. }
            | Self::InProgress { rule, .. }
            | Self::OutcomeUnknown { rule }
            | Self::Superseded { rule }
            | Self::KeyReused { rule, .. }
            | Self::BreakerOpen { rule, .. }
            | Self::StoreUnavailable { rule, .. } => Some(rule),
            Self::LimitDenied { rules, .. } => rules.first().map(String::as_str),
            _ => None,
        }
    }

    /// The gate that refused; `None` where none did.
    pub fn gate(&self) -> Option<Gate> {
        match self {
            Self::LimitDenied { .. } | Self::CostInvalid { .. } => Some(Gate::Limit),
            Self::KeyMissing { .. }
            | Self::KeyInvalid { .. }
            | Self::InProgress { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Superseded { .. }
            | Self::KeyReused { .. } => Some(Gate::Idempotency),
            Self::StoreUnavailable { gate, .. } => Some(*gate),
            Self::BreakerOpen { .. } => Some(Gate::Breaker),
            _ => None,
        }
    }

    /// `Retry-After`, where trying again can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::LimitDenied { retry_after, .. } => *retry_after,
            Self::InProgress { retry_after, .. } | Self::BreakerOpen { retry_after, .. } => {
                Some(*retry_after)
            }
            Self::StoreUnavailable { .. } | Self::NotReady => Some(RETRY_DEFAULT),
            _ => None,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::PathInvalid { .. } => "The path is not valid",
            Self::AttributeMissing { .. } => "A required part of the request is missing",
            Self::CostInvalid { .. } => "The cost of the request is not valid",
            Self::KeyMissing { .. } => "An idempotency key is required",
            Self::KeyInvalid { .. } => "The idempotency key is not valid",
            Self::BodyIncomplete => "The body is not complete",
            Self::BodyTooLarge { .. } => "The body is too large",
            Self::LimitDenied { .. } => "Request cannot be satisfied as assigned quota has been exceeded",
            Self::InProgress { .. } => "A request with this idempotency key is in progress",
            Self::OutcomeUnknown { .. } => "The outcome of the first request is not known",
            Self::Superseded { .. } => "Another attempt took over",
            Self::KeyReused { .. } => "The idempotency key was used for another request",
            Self::BreakerOpen { .. } => "A dependency is not healthy",
            Self::StoreUnavailable { .. } => "A store does not answer",
            Self::UpstreamUnavailable { .. } => "The upstream did not answer",
            Self::UpstreamTimeout { .. } => "The upstream did not answer in time",
            Self::NotReady => "No rule version is in force",
        }
    }

    /// What happened and what to do about it, in words.
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::PathInvalid { why } | Self::KeyInvalid { why, .. } => format!("{why}.").into(),
            Self::AttributeMissing { attribute } => {
                format!("`{attribute}` is missing, null or not a single value; send one and try again.").into()
            }
            Self::CostInvalid { attribute, max, .. } => {
                format!("`{attribute}` must be an integer from 1 to {max}.").into()
            }
            Self::KeyMissing { from, .. } => {
                format!("Send one {from} of 1 to 255 visible ASCII characters, the same on every retry of one intent.").into()
            }
            Self::BodyIncomplete => "The body ended before it was complete. Send the request again.".into(),
            Self::BodyTooLarge { limit } => format!("At most {limit} bytes are accepted here.").into(),
            Self::LimitDenied { retry_after: Some(_), .. } => "Try again after Retry-After seconds.".into(),
            Self::LimitDenied { retry_after: None, .. } => {
                "This call costs more than the limit ever holds: it can never pass as it is.".into()
            }
            Self::InProgress { .. } => "Try again later with the same key to get its result.".into(),
            Self::OutcomeUnknown { .. } => {
                "It may or may not have taken effect, so it is not run again. An operator can resolve the key."
                    .into()
            }
            Self::Superseded { .. } => "Try again with the same key to get its result.".into(),
            Self::KeyReused { fields, .. } => format!(
                "These differ from the first request: {}. Use a new key for a new intent.",
                fields.join(", ")
            ).into(),
            Self::BreakerOpen { .. } => "Nothing was executed. Try again after Retry-After seconds.".into(),
            Self::StoreUnavailable { .. }
            | Self::UpstreamUnavailable { sent: false }
            | Self::UpstreamTimeout { sent: false } => "Nothing was executed. Try again.".into(),
            Self::UpstreamUnavailable { sent: true } | Self::UpstreamTimeout { sent: true } => {
                "Whether the request took effect is not known. If it had an idempotency key, retry with the same one."
                    .into()
            }
            Self::NotReady => "Try again.".into(),
        }
    }

    /// The problem as a response (RFC 9457).
    pub fn respond(&self, version: Option<&str>, disclose: Disclose) -> Response<Body> {
        self.respond_with(self.problem(version, disclose))
    }

    /// The same, with a `body` that [`Refusal::problem`] gave before.
    pub(crate) fn respond_with(&self, body: Bytes) -> Response<Body> {
        let mut response = Response::new(Body::full(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.reserve(HEADERS);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after() {
            headers.insert(RETRY_AFTER, retry_after(after));
        }
        response
    }

    /// The problem as JSON.
    pub(crate) fn problem(&self, version: Option<&str>, disclose: Disclose) -> Bytes {
        let full = disclose == Disclose::Full;
        let problem = Problem {
            kind: self.type_uri(),
            title: self.title(),
            status: self.status().as_u16(),
            detail: self.detail(),
            violated_policies: match self {
                Self::LimitDenied { rules, .. } => rules,
                _ => &[],
            },
            fields: match self {
                Self::KeyReused { fields, .. } => fields,
                _ => &[],
            },
            reason: full.then(|| self.name()),
            rule: self.rule().filter(|_| full),
            version: version.filter(|_| full),
        };
        let mut body = Vec::with_capacity(PROBLEM);
        // Strings and numbers always have a JSON form, and memory takes it.
        let _ = serde_json::to_writer(&mut body, &problem);
        body.into()
    }

    fn type_uri(&self) -> Cow<'static, str> {
        match self {
            // The one problem type of these that IANA has registered.
            Self::LimitDenied { .. } => {
                "https://iana.org/assignments/http-problem-types#quota-exceeded".into()
            }
            other => format!("urn:tidegate:problem:{}", other.name()).into(),
        }
    }
}

/// The problem of every denial by this limit alone that can pass later: it holds no number.
pub(crate) fn denial(rule: &str, version: Option<&str>, disclose: Disclose) -> Bytes {
    let refusal = Refusal::LimitDenied { rules: vec![rule.to_owned()], retry_after: Some(Duration::ZERO) };
    refusal.problem(version, disclose)
}

/// Whole seconds from 1, rounded up: a client that comes back then passes.
pub fn retry_after(after: Duration) -> HeaderValue {
    HeaderValue::from(ceil_secs(after).max(1))
}

/// `RateLimit-Policy` item for a limit: name, quota and, where there is one, the window in seconds.
pub(crate) fn policy_item(rule: &str, quota: u64, window: Option<Duration>) -> String {
    let mut item = String::new();
    push_string(&mut item, rule);
    let _ = write!(item, ";q={quota}");
    match window {
        Some(window) => {
            let _ = write!(item, ";w={}", ceil_secs(window));
        }
        None => item.push_str(";qu=\"concurrent-requests\""),
    }
    item
}

/// Adds one `RateLimit` item: what is left and, where that changes by time, when it is whole again.
pub(crate) fn push_limit_item(text: &mut String, rule: &str, remaining: u64, reset: Option<Duration>) {
    if !text.is_empty() {
        text.push_str(", ");
    }
    push_string(text, rule);
    let _ = write!(text, ";r={remaining}");
    if let Some(reset) = reset {
        let _ = write!(text, ";t={}", ceil_secs(reset));
    }
}

/// A structured-field string (RFC 9651 section 3.3.3).
fn push_string(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        if c == '"' || c == '\\' {
            text.push('\\');
        }
        text.push(if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    }
    text.push('"');
}

/// Appends the `RateLimit` fields after an upstream's own.
pub(crate) fn append_limits(headers: &mut HeaderMap, policies: String, limits: String) {
    let value = |text: String| HeaderValue::from_maybe_shared(Bytes::from(text));
    if let (Ok(policies), Ok(limits)) = (value(policies), value(limits)) {
        headers.append(RATELIMIT_POLICY, policies);
        headers.append(RATELIMIT, limits);
    }
}

/// Whether a header belongs to one answer only, and must not be kept for another.
pub(crate) fn of_one_answer(name: &HeaderName) -> bool {
    *name == RATELIMIT || *name == RATELIMIT_POLICY
}

#[cfg(test)]
mod tests;
