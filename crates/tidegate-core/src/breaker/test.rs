//! What the tests of this module share.

use std::time::Duration;

use crate::rule::model::{Breaker, FailureKind, HalfOpen, Percentage, Resources, Trip};

/// The documented defaults, with `error_ratio: { at_least: 50% }`.
pub(super) fn rule() -> Breaker {
    Breaker {
        id: "bank".into(),
        resources: Resources::All,
        per_upstream_host: false,
        failure: vec![
            FailureKind::Connect,
            FailureKind::Timeout,
            FailureKind::Reset,
            FailureKind::ServerError,
        ],
        trip: vec![Trip::ErrorRatio { at_least: percent(5_000) }],
        min_requests: 20,
        window: Duration::from_secs(10),
        open_for: Duration::from_secs(5),
        max_open: Duration::from_mins(1),
        half_open: HalfOpen { probes: 1, probe_timeout: Duration::from_secs(10) },
        fallback: vec![],
    }
}

pub(super) fn percent(hundredths: u16) -> Percentage {
    Percentage::from_hundredths(hundredths).unwrap()
}
