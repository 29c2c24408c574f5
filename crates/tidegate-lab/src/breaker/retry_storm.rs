//! `breaker.retry-storm`: clients that all come back at the very moment they were told. The naive way
//! has no breaker, and clients that wait a fixed time.

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
    // Each client comes back after the same five seconds, and nobody stands in the way.
    let end = at(MINUTES * 60_000);
    let naive_waits = vec![(OPEN_FOR, OPEN_FOR); clients as usize];
    let rounds = std::iter::successors(Some(START), |now| Some(*now + OPEN_FOR)).take_while(|now| *now < end);
    let naive_reached = rounds.map(|_| clients).sum::<u64>();
    run.step();
    let breaker = breaker("{ error_ratio: { at_least: 50% } }", "min_requests: 20, open_for: 5s,")?;
    let found = storm(&breaker, clients, end, &mut Random::new(params.count(&SEED)));
    run.step();
    let status = breaker.status(0, HOST, end).ok_or("the rules have no breaker").about("the breaker")?;
    let trips = u64::from(status.trips);

    let even = clients as f64 / 10.0;
    let reach = 5.0 * (even * 0.9).sqrt() + 1.0;
    let low = (even - reach).max(0.0).floor() as u64;
    let high = (even + reach).ceil() as u64;
    let tenths = tenths(&found.first_waits);
    Ok(Report::of(vec![
        Row::new("calls that reach the dependency")
            .naive(naive_reached, Expectation::exactly(clients * MINUTES * 12))
            .tidegate(found.reached, Expectation::exactly(found.probes)),
        // Each failed probe is a trip; the first trip came before.
        Row::new("probes").tidegate(found.probes, Expectation::exactly(trips.saturating_sub(1))),
        Row::new("probes in five minutes").tidegate(found.probes, Expectation::between(5_u64, 10_u64)),
        Row::new("next attempts in the busiest tenth of the jitter")
            .naive(busiest(&self::tenths(&naive_waits)), Expectation::exactly(clients))
            .tidegate(busiest(&tenths), Expectation::AtMost(Figure::Count(high))),
        Row::new("next attempts in the quietest tenth of the jitter")
            .naive(quietest(&self::tenths(&naive_waits)), Expectation::exactly(0_u64))
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
    let mut queue: std::collections::BinaryHeap<_> =
        (0..clients).map(|client| std::cmp::Reverse((START, client))).collect();
    while let Some(std::cmp::Reverse((now, client))) = queue.pop() {
        if now >= end {
            break;
        }
        let wait = match breaker.admit(&[0], HOST, now, random.next()) {
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
        };
        // A probe that is out leaves no time to wait for; time must go on all the same.
        queue.push(std::cmp::Reverse((now + wait.max(AGAIN), client)));
    }
    found
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
