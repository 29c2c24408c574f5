//! Breakers: rules come out of YAML text through the gateway's loader, and calls go through
//! [`tidegate::breakers::Breakers`], which the pipeline's breaker layer asks and tells; the clock and
//! the random numbers are injected.

pub(crate) mod false_recovery;
pub(crate) mod retry_storm;
pub(crate) mod slow;
pub(crate) mod small_sample;
pub(crate) mod volume;

use std::time::Duration;

use tidegate::breakers::{BreakerVersion, Breakers, CallResult, Kind};
use tidegate_core::Timestamp;

use crate::LabError;
use crate::error::About as _;
use crate::node::{START, load};
use crate::params::Param;
use crate::random::Random;

/// One dependency, one host.
const HOST: &str = "bank";
/// How long an unremarkable call takes.
const QUICK: Duration = Duration::from_millis(10);

const SEED: Param<u64> = Param { name: "seed", about: "of the jitter", default: 1, low: 0, high: u64::MAX };

/// One breaker with these trips; `more` are further fields, each followed by a comma.
fn breaker(trip: &str, more: &str) -> Result<BreakerVersion, LabError> {
    let rules = format!(
        "apiVersion: tidegate/v1
resources: [{{ id: account }}]
breakers:
  - {{ id: bank, resources: [account], {more} trip: [{trip}] }}
"
    );
    Ok(Breakers::new().apply(&load(&rules)?.rules.breakers))
}

/// `millis` after the beginning.
fn at(millis: u64) -> Timestamp {
    START + Duration::from_millis(millis)
}

/// Makes one call, if it may be made; whether it was.
fn call(
    breaker: &BreakerVersion,
    status: u16,
    elapsed: Duration,
    now: Timestamp,
    random: &mut Random,
) -> bool {
    match breaker.admit(&[0], HOST, now, random.next()) {
        Ok(admission) => {
            // What moved is looked at by `state`.
            let _ = admission.record(CallResult::Status(status), elapsed, now, random.next());
            true
        }
        Err(_) => false,
    }
}

fn state(breaker: &BreakerVersion, now: Timestamp) -> Result<&'static str, LabError> {
    let status = breaker.status(0, HOST, now).ok_or("the rules have no breaker").about("the breaker")?;
    Ok(status.state.name())
}

/// The name of open or closed.
fn named(open: bool) -> &'static str {
    if open { Kind::Open.name() } else { Kind::Closed.name() }
}
