//! `breaker.false-recovery`: the dependency answers each probe, and fails under the traffic that follows.
//! The naive way opens for the same time each time.

use std::time::Duration;

use tidegate::breakers::{CallResult, Kind};
use tidegate_core::Timestamp;

use super::{HOST, QUICK, SEED, at, breaker};
use crate::experiment::Experiment;
use crate::params::{Param, Params, Spec};
use crate::random::Random;
use crate::{Expectation, Figure, LabError, Report, Row, Run};

const OPEN_FOR: Param<Duration> = Param {
    name: "open-for",
    about: "the first opening",
    default: Duration::from_secs(5),
    low: Duration::from_secs(1),
    high: Duration::from_secs(30),
};
const MAX_OPEN: Param<Duration> = Param {
    name: "max-open",
    about: "the longest opening, before jitter",
    default: Duration::from_mins(1),
    low: Duration::from_secs(30),
    high: Duration::from_mins(10),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "breaker.false-recovery",
    about: "a dependency that answers one probe and fails again, for half an hour at ten calls a second",
    params: &[Spec::Span(OPEN_FOR), Spec::Span(MAX_OPEN), Spec::Count(SEED)],
    fits: None,
    run: experiment,
};

const MIN_REQUESTS: u64 = 20;
/// Time between two calls, and how many there are.
const BETWEEN: u64 = 100;
const CALLS: u64 = 18_000;

/// What half an hour came to.
struct Found {
    openings: Vec<Duration>,
    reached: u64,
}

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (open_for, max_open) = (params.span(&OPEN_FOR), params.span(&MAX_OPEN));
    run.steps(2);
    let naive = naive(open_for);
    run.step();
    let found = tidegate(open_for, max_open, params.count(&SEED))?;
    run.step();

    // Jitter lengthens an opening by at most a fifth.
    let most = |base: Duration| base + base / 5;
    let bases = std::iter::successors(Some(open_for), |base| Some((*base * 2).min(max_open)));
    let mut rows: Vec<Row> = found
        .openings
        .iter()
        .zip(bases)
        .take(6)
        .enumerate()
        .map(|(number, (opening, base))| {
            let row = Row::new(format!("opening {}", number + 1));
            let row = row.tidegate(*opening, Expectation::between(base, most(base)));
            match naive.openings.get(number) {
                Some(same) => row.naive(*same, Expectation::exactly(open_for)),
                None => row,
            }
        })
        .collect();
    let longest = |found: &Found| found.openings.iter().max().copied().unwrap_or_default();
    rows.push(
        Row::new("longest opening")
            .naive(longest(&naive), Expectation::exactly(open_for))
            .tidegate(longest(&found), Expectation::AtMost(Figure::Span(most(max_open)))),
    );
    // The fewest and the most that half an hour has room for, if each opening is as long, or as short,
    // as it may be. What lies between two openings is a probe and the calls of one smallest sample.
    let closed = Duration::from_millis(BETWEEN * (MIN_REQUESTS + 2));
    let fewest = openings(|number| most(grown(open_for, max_open, number)) + closed).saturating_sub(1);
    let many = openings(|number| grown(open_for, max_open, number)) + 1;
    let same = openings(|_| open_for + closed).saturating_sub(1);
    rows.push(
        Row::new("openings")
            .naive(naive.openings.len(), Expectation::between(same, openings(|_| open_for) + 1))
            .tidegate(found.openings.len(), Expectation::between(fewest, many)),
    );
    let cost = |found: &Found| found.openings.len() as u64 * (MIN_REQUESTS + 1) + MIN_REQUESTS;
    rows.push(
        Row::new("calls that reach the failing dependency")
            .naive(naive.reached, Expectation::AtMost(cost(&naive).into()))
            .tidegate(found.reached, Expectation::AtMost(cost(&found).into())),
    );
    Ok(Report::of(rows))
}

/// The base of opening `number`, from 0.
fn grown(open_for: Duration, max_open: Duration, number: u32) -> Duration {
    open_for.saturating_mul(1_u32.checked_shl(number).unwrap_or(u32::MAX)).min(max_open)
}

/// How many spans fit into the half hour.
fn openings(span: impl Fn(u32) -> Duration) -> u64 {
    let mut left = Duration::from_millis(BETWEEN * CALLS);
    let mut number = 0;
    while let Some(rest) = left.checked_sub(span(number)) {
        left = rest;
        number += 1;
    }
    u64::from(number)
}

/// The dependency answers a probe and nothing else.
const fn answer(probe: bool) -> u16 {
    if probe { 200 } else { 500 }
}

fn tidegate(open_for: Duration, max_open: Duration, seed: u64) -> Result<Found, LabError> {
    let more = format!(
        "min_requests: {MIN_REQUESTS}, open_for: {}ms, max_open: {}ms,",
        open_for.as_millis(),
        max_open.as_millis()
    );
    let breaker = breaker("{ error_ratio: { at_least: 50% } }", &more)?;
    let mut random = Random::new(seed);
    let mut found = Found { openings: Vec::new(), reached: 0 };
    for number in 0..CALLS {
        let now = at(number * BETWEEN);
        let Ok(admission) = breaker.admit(&[0], HOST, now, random.next()) else { continue };
        found.reached += 1;
        let status = answer(admission.is_probe());
        let recorded = admission.record(CallResult::Status(status), QUICK, now, random.next());
        if recorded.transitions.last().is_some_and(|moved| moved.change.to == Kind::Open)
            && let Err(refusal) = breaker.peek(&[0], HOST, now)
        {
            found.openings.push(refusal.remaining);
        }
    }
    Ok(found)
}

/// A breaker by hand: opens when the smallest sample has failed by half, for the same time each time;
/// then one probe decides.
fn naive(open_for: Duration) -> Found {
    let mut found = Found { openings: Vec::new(), reached: 0 };
    let mut open_until: Option<Timestamp> = None;
    let (mut seen, mut failed) = (0, 0);
    for number in 0..CALLS {
        let now = at(number * BETWEEN);
        if open_until.is_some_and(|until| now < until) {
            continue;
        }
        let probe = open_until.take().is_some();
        found.reached += 1;
        if probe {
            (seen, failed) = (0, 0);
            continue;
        }
        seen += 1;
        failed += u64::from(answer(probe) >= 500);
        if seen >= MIN_REQUESTS && failed * 2 >= seen {
            open_until = Some(now + open_for);
            found.openings.push(open_for);
        }
    }
    found
}
