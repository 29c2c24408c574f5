//! `breaker.retry-storm`: clients that all come back at the very moment they were told. The naive way
//! has no breaker, and clients that wait a fixed time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tidegate::breakers::{BreakerVersion, CallResult};
use tidegate_core::Timestamp;

use super::{HOST, QUICK, SEED, at, breaker, call};
use crate::error::About as _;
use crate::experiment::Experiment;
use crate::node::START;
use crate::params::{Param, Params, Spec};
use crate::random::Random;
use crate::{Expectation, Figure, LabError, Report, Row, Run};

const CLIENTS: Param<u64> =
    Param { name: "clients", about: "clients that retry at once", default: 200, low: 20, high: 10_000 };

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "breaker.retry-storm",
    about: "clients that retry at once while the breaker is open and the dependency stays down for five minutes",
    params: &[Spec::Count(CLIENTS), Spec::Count(SEED)],
    fits: None,
    run: experiment,
};

const MINUTES: u64 = 5;
const OPEN_FOR: Duration = Duration::from_secs(5);
/// What a client does that was let through and got nothing.
const AGAIN: Duration = Duration::from_millis(1);

struct Found {
    reached: u64,
    probes: u64,
    /// What each client was told first: the time that is left, and when to come back.
    first_waits: Vec<(Duration, Duration)>,
}

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let clients = params.count(&CLIENTS);
    run.steps(2);
    let end = at(MINUTES * 60_000);
    let naive = naive(clients, end);
    run.step();
    let breaker = breaker("{ error_ratio: { at_least: 50% } }", "min_requests: 20, open_for: 5s,")?;
    let found = storm(&breaker, clients, end, &mut Random::new(params.count(&SEED)));
    run.step();
    let status = breaker.status(0, HOST, end).ok_or("the rules have no breaker").about("the breaker")?;
    let trips = u64::from(status.trips);

    let even = clients as f64 / 10.0;
    let reach = 5.0 * (even * 0.9).sqrt() + 1.0;
    // The lower tail is lighter than the upper one.
    let low = (even - 4.0 * (even * 0.9).sqrt()).max(0.0).floor() as u64;
    let high = (even + reach).ceil() as u64;
    let tenths = tenths(&found.first_waits);
    Ok(Report::of(vec![
        Row::new("calls that reach the dependency")
            .naive(naive.reached, Expectation::exactly(clients * MINUTES * 12))
            .tidegate(found.reached, Expectation::exactly(found.probes)),
        // Each failed probe is a trip; the first trip came before.
        Row::new("probes").tidegate(found.probes, Expectation::exactly(trips.saturating_sub(1))),
        Row::new("probes in five minutes").tidegate(found.probes, Expectation::between(5_u64, 10_u64)),
        Row::new("next attempts in the busiest tenth of the jitter")
            .naive(busiest(&self::tenths(&naive.first_waits)), Expectation::exactly(clients))
            .tidegate(busiest(&tenths), Expectation::AtMost(Figure::Count(high))),
        Row::new("next attempts in the quietest tenth of the jitter")
            .naive(quietest(&self::tenths(&naive.first_waits)), Expectation::exactly(0_u64))
            .tidegate(quietest(&tenths), Expectation::between(low, high)),
    ]))
}

/// The breaker trips, and then every client comes back at the very moment it was told. The dependency
/// stays down.
fn storm(breaker: &BreakerVersion, clients: u64, end: Timestamp, random: &mut Random) -> Found {
    for _ in 0..20 {
        call(breaker, 500, QUICK, START, random);
    }
    let mut found = Found { reached: 0, probes: 0, first_waits: Vec::new() };
    come_back(clients, end, |now| match breaker.admit(&[0], HOST, now, random.next()) {
        Ok(admission) => {
            found.reached += 1;
            found.probes += u64::from(admission.is_probe());
            // It is down: no answer.
            let _ = admission.record(CallResult::Timeout, QUICK, now, random.next());
            AGAIN
        }
        Err(refusal) => {
            if now == START {
                found.first_waits.push((refusal.remaining, refusal.retry_after));
            }
            refusal.retry_after
        }
    });
    found
}

/// Nobody stands in the way, and each client that got nothing comes back after the same five seconds.
fn naive(clients: u64, end: Timestamp) -> Found {
    let mut found = Found { reached: 0, probes: 0, first_waits: Vec::new() };
    come_back(clients, end, |now| {
        found.reached += 1;
        if now == START {
            found.first_waits.push((OPEN_FOR, OPEN_FOR));
        }
        OPEN_FOR
    });
    found
}

/// Every client tries at the beginning, and again after the wait that `attempt` tells it, until `end`.
fn come_back(clients: u64, end: Timestamp, mut attempt: impl FnMut(Timestamp) -> Duration) {
    let mut queue: BinaryHeap<_> = (0..clients).map(|client| Reverse((START, client))).collect();
    while let Some(Reverse((now, client))) = queue.pop() {
        if now >= end {
            break;
        }
        // A probe that is out leaves no time to wait for; time must go on all the same.
        queue.push(Reverse((now + attempt(now).max(AGAIN), client)));
    }
}

/// `Retry-After` is the time that is left plus up to half of it: how many of the first waits lie in each
/// tenth of that half.
fn tenths(waits: &[(Duration, Duration)]) -> [u64; 10] {
    let mut tenths = [0; 10];
    for (left, wait) in waits {
        let place = wait.saturating_sub(*left).as_nanos() * 20 / left.as_nanos().max(1);
        tenths[usize::try_from(place).map_or(9, |place| place.min(9))] += 1;
    }
    tenths
}

fn busiest(tenths: &[u64; 10]) -> u64 {
    tenths.iter().max().copied().unwrap_or(0)
}

fn quietest(tenths: &[u64; 10]) -> u64 {
    tenths.iter().min().copied().unwrap_or(0)
}
