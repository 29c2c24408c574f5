//! A rule set with one of everything, for tests.

use std::time::Duration;

use super::RuleSet;
use super::model::*;

pub(super) fn text(text: &str) -> String {
    text.to_owned()
}

pub(super) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

pub(super) fn share(hundredths: u16) -> Percentage {
    Percentage::from_hundredths(hundredths).unwrap()
}

pub(super) fn is(name: &str, test: Test) -> Condition {
    Condition::Attribute { name: text(name), test }
}

pub(super) fn scalar(value: &str, kind: ScalarKind) -> Scalar {
    Scalar { text: text(value), kind }
}

/// One of everything.
pub(super) fn everything() -> RuleSet {
    RuleSet {
        resources: vec![
            Resource {
                id: text("pay"),
                matcher: Some(Match {
                    hosts: texts(&["api.example.com"]),
                    methods: texts(&["POST"]),
                    path: vec![PathSegment::Literal(text("orders")), PathSegment::Param(text("order"))],
                }),
                timeout: Duration::from_secs(3),
                attributes: vec![
                    Attribute {
                        name: text("tenant"),
                        from: AttributeSource::Header(text("x-tenant")),
                        missing: Missing::Reject,
                    },
                    Attribute { name: text("ip"), from: AttributeSource::ClientIp, missing: Missing::Share },
                ],
                subject: Some(text("tenant")),
                flags: texts(&["new-checkout"]),
            },
            Resource {
                id: text("account"),
                matcher: None,
                timeout: Duration::from_secs(30),
                attributes: vec![],
                subject: None,
                flags: vec![],
            },
        ],
        limits: vec![Limit {
            id: text("pay-per-tenant"),
            description: Some(text("a \"quoted\"\nline\u{2028}")),
            owner: None,
            mode: Mode::Off,
            resources: Resources::All,
            key: texts(&["tenant"]),
            algorithm: Algorithm::TokenBucket {
                capacity: 20,
                refill: Rate { count: 5, per: Duration::from_secs(10) },
            },
            cost: Cost::Attribute { from: text("weight"), default: 1, max: 100 },
            overrides: vec![LimitOverride {
                when: is("tenant", Test::Equals(scalar("app", ScalarKind::String))),
                algorithm: Algorithm::TokenBucket {
                    capacity: 200,
                    refill: Rate { count: 100, per: Duration::from_secs(1) },
                },
            }],
            sharing: Sharing::Leased,
            on_store_failure: Some(OnStoreFailure::LocalFallback),
            after_store_loss: AfterStoreLoss::Exhausted,
        }],
        idempotency: vec![Idempotency {
            id: text("pay-once"),
            resources: Resources::Listed(texts(&["pay"])),
            operation: text("charge"),
            scope: texts(&["tenant"]),
            key: KeySource::Derived {
                parts: vec![
                    FingerprintPart::Attribute(text("tenant")),
                    FingerprintPart::BodyPointer(text("/sku")),
                ],
                window: Duration::from_secs(10),
            },
            fingerprint: vec![FingerprintPart::Method, FingerprintPart::Path, FingerprintPart::Body],
            commit: CommitMode::AfterResponse,
            on_unknown: OnUnknown::Retry,
            lease: Duration::from_secs(30),
            max_execution: Duration::from_mins(5),
            retention: Duration::from_hours(24),
            in_progress: InProgress::Wait(Duration::from_millis(1_500)),
            max_response: 1 << 20,
            replay_headers: texts(&["etag"]),
        }],
        breakers: vec![Breaker {
            id: text("account-slow"),
            resources: Resources::Listed(texts(&["account"])),
            per_upstream_host: true,
            failure: vec![FailureKind::Connect, FailureKind::ServerError, FailureKind::Status(429)],
            trip: vec![
                Trip::SlowRatio { slower_than: Duration::from_millis(250), at_least: share(5_000) },
                Trip::ErrorRatio { at_least: share(29) },
                Trip::ErrorCount { at_least: 200 },
            ],
            min_requests: 20,
            window: Duration::from_secs(10),
            open_for: Duration::from_secs(5),
            max_open: Duration::from_mins(1),
            half_open: HalfOpen { probes: 1, probe_timeout: Duration::from_secs(10) },
            fallback: vec![
                Fallback::Cache { ttl: Duration::from_mins(5) },
                Fallback::Respond {
                    status: 503,
                    body: FallbackBody::Json(serde_json::from_str("{\"b\": 1.10, \"a\": [null]}").unwrap()),
                },
                Fallback::Respond { status: 503, body: FallbackBody::Text(text("busy")) },
                Fallback::Respond { status: 503, body: FallbackBody::Empty },
            ],
        }],
        segments: vec![Segment {
            id: text("staff"),
            when: is("email", Test::EndsWith(text("@example.com"))),
        }],
        flags: vec![Flag {
            key: text("new-checkout"),
            variants: vec![(text("on"), true.into()), (text("off"), false.into())],
            default: text("off"),
            sticky: Sticky::Session,
            rules: vec![
                FlagRule {
                    id: text("ramp"),
                    priority: -10,
                    when: Some(Condition::Segment(text("staff"))),
                    percentage: Some(share(115)),
                    serve: Serve::Variant(text("on")),
                },
                FlagRule {
                    id: text("split"),
                    priority: -20,
                    when: None,
                    percentage: None,
                    serve: Serve::Split(vec![(text("off"), share(3_333)), (text("on"), share(6_667))]),
                },
            ],
        }],
    }
}
