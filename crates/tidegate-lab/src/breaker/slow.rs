//! `breaker.slow`: a few calls are very slow, the mean is fine, and nothing fails. The naive way looks at
//! the mean.

use std::time::Duration;

use super::{QUICK, SEED, at, breaker, call, named, state};
use crate::experiment::Experiment;
use crate::params::{Param, Params, Share, Spec};
use crate::random::Random;
use crate::{Expectation, LabError, Report, Row, Run};

const SLOW: Param<u64> =
    Param { name: "slow", about: "slow calls among a hundred", default: 2, low: 0, high: 100 };
const TAKES: Param<Duration> = Param {
    name: "takes",
    about: "how long a slow call takes",
    default: Duration::from_secs(2),
    low: Duration::from_millis(10),
    high: Duration::from_secs(30),
};
const SLOWER_THAN: Param<Duration> = Param {
    name: "slower-than",
    about: "longest call that is not slow, and longest mean that is fine",
    default: Duration::from_millis(250),
    low: Duration::from_millis(10),
    high: Duration::from_secs(30),
};
const AT_LEAST: Param<Share> = Param {
    name: "at-least",
    about: "share of slow calls that is too much",
    default: Share::percent(2),
    low: Share::percent(1),
    high: Share::ALL,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "breaker.slow",
    about: "mean latency is fine and P99 is bad, and no call fails",
    params: &[
        Spec::Count(SLOW),
        Spec::Span(TAKES),
        Spec::Span(SLOWER_THAN),
        Spec::Share(AT_LEAST),
        Spec::Count(SEED),
    ],
    fits: None,
    run: experiment,
};

const CALLS: u64 = 100;

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (slow, takes) = (params.count(&SLOW), params.span(&TAKES));
    let (slower_than, at_least) = (params.span(&SLOWER_THAN), params.share(&AT_LEAST));
    run.steps(1);
    let more = format!("min_requests: {CALLS},");
    let by_errors = breaker("{ error_ratio: { at_least: 50% } }", &more)?;
    let slow_ratio =
        format!("{{ slow_ratio: {{ slower_than: {}us, at_least: {at_least}% }} }}", slower_than.as_micros());
    let by_latency = breaker(&slow_ratio, &more)?;
    let mut random = Random::new(params.count(&SEED));
    let mut taken = Vec::new();
    for number in 0..CALLS {
        let elapsed = if number < CALLS - slow { QUICK } else { takes };
        taken.push(elapsed);
        for breaker in [&by_errors, &by_latency] {
            call(breaker, 200, elapsed, at(number), &mut random);
        }
    }
    taken.sort_unstable();
    let mean = taken.iter().sum::<Duration>() / CALLS as u32;
    let naive_open = mean > slower_than;
    let p99 = taken[98];
    let end = at(CALLS);
    let trips = takes > slower_than && slow * 100 >= u64::from(at_least.0);
    let mean_trips = (QUICK * (CALLS - slow) as u32 + takes * slow as u32) / CALLS as u32 > slower_than;
    run.step();
    Ok(Report::of(vec![
        Row::new("a breaker on failures")
            .naive(named(naive_open), Expectation::exactly(named(mean_trips)))
            .tidegate(state(&by_errors, end)?, Expectation::exactly("closed")),
        Row::new("a breaker on slow calls")
            .naive(named(naive_open), Expectation::exactly(named(mean_trips)))
            .tidegate(state(&by_latency, end)?, Expectation::exactly(named(trips))),
    ])
    .note(format!(
        "mean {} ms, P99 {} ms; the naive breaker opens when the mean is over {} ms",
        mean.as_millis(),
        p99.as_millis(),
        slower_than.as_millis()
    )))
}
