//! Limits: all go through the pipeline, with rules in force by the rule service. Local ones run on an injected
//! clock, shared ones on a real Redis and its clock.

pub(crate) mod boundary;
pub(crate) mod hot_update;
pub(crate) mod local_race;
pub(crate) mod outage;
pub(crate) mod shared_race;
pub(crate) mod skew;

use http::StatusCode;
use tidegate::Gates;

use crate::LabError;
use crate::node::{self, Succeeds, post};

/// Where the limited calls go.
const TARGET: &str = "/pay";

/// A document with one limit, whose algorithm is `algorithm`.
fn rules(algorithm: &str) -> String {
    format!(
        "apiVersion: tidegate/v1
resources:
  - {{ id: pay, match: {{ methods: [POST], path: \"{TARGET}\" }} }}
limits:
  - {{ id: pay-limit, resources: [pay], {algorithm} }}
"
    )
}

/// Makes one call; whether it passed.
async fn passes(gates: &Gates) -> Result<bool, LabError> {
    let response = node::send(gates, post(TARGET)?, &Succeeds).await;
    match response.status() {
        StatusCode::OK => Ok(true),
        StatusCode::TOO_MANY_REQUESTS => Ok(false),
        other => Err(LabError::broken("a limited call", format!("it was answered by {other}"))),
    }
}
