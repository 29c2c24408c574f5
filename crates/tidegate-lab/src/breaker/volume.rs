//! `breaker.volume`: traffic doubles, the share of errors stays. The naive way counts errors.

use super::{QUICK, SEED, at, breaker, call, named, state};
use crate::experiment::Experiment;
use crate::params::{Param, Params, Share, Spec};
use crate::random::Random;
use crate::{Expectation, LabError, Report, Row, Run};

const RATE: Param<u64> =
    Param { name: "rate", about: "calls a second before it doubles", default: 100, low: 10, high: 1_000 };
const EVERY: Param<u64> =
    Param { name: "every", about: "one call in so many fails", default: 10, low: 3, high: 1_000 };
const COUNT: Param<u64> = Param {
    name: "count",
    about: "errors in ten seconds that are too many",
    default: 150,
    low: 1,
    high: 100_000,
};
const RATIO: Param<Share> = Param {
    name: "ratio",
    about: "share of errors that is too much",
    default: Share::percent(50),
    low: Share::percent(50),
    high: Share::ALL,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "breaker.volume",
    about: "traffic doubles at the same share of errors: a count trips, a ratio does not",
    params: &[
        Spec::Count(RATE),
        Spec::Count(EVERY),
        Spec::Count(COUNT),
        Spec::Share(RATIO),
        Spec::Count(SEED),
    ],
    fits: Some(fits),
    run: experiment,
};

const SECONDS: u64 = 10;

/// A window is as long as it says give or take an eighth.
fn fits(params: &Params) -> Result<(), String> {
    let (rate, every, count) = (params.count(&RATE), params.count(&EVERY), params.count(&COUNT));
    let unclear = |errors: u64| errors >= count && errors * 7 / 8 < count;
    match [rate, 2 * rate].map(|rate| rate * SECONDS / every).into_iter().find(|errors| unclear(*errors)) {
        Some(errors) => {
            Err(format!("{errors} errors are too close to the count of {count} to tell: set another count"))
        }
        None => Ok(()),
    }
}

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (every, count) = (params.count(&EVERY), params.count(&COUNT));
    run.steps(2);
    let mut rows = Vec::new();
    for rate in [params.count(&RATE), 2 * params.count(&RATE)] {
        let calls = rate * SECONDS;
        let errors = calls / every;
        let by_count = breaker(&format!("{{ error_count: {{ at_least: {count} }} }}"), "window: 10s,")?;
        let by_ratio = breaker(
            &format!("{{ error_ratio: {{ at_least: {}% }} }}", params.share(&RATIO)),
            "window: 10s,",
        )?;
        let mut random = Random::new(params.count(&SEED));
        let mut naive_errors = 0;
        // An opening that is over by the end counts too.
        let (mut count_opened, mut ratio_opened) = (false, false);
        for number in 0..calls {
            let now = at(number * 1_000 / rate);
            let status = if number % every == every - 1 { 500 } else { 200 };
            naive_errors += u64::from(status == 500);
            call(&by_count, status, QUICK, now, &mut random);
            call(&by_ratio, status, QUICK, now, &mut random);
            count_opened |= state(&by_count, now)? == named(true);
            ratio_opened |= state(&by_ratio, now)? == named(true);
        }
        let naive = Expectation::exactly(named(errors >= count));
        rows.push(
            Row::new(format!("{rate} calls/s, {errors} errors in {SECONDS} s: error_count"))
                .naive(named(naive_errors >= count), naive.clone())
                .tidegate(named(count_opened), naive.clone()),
        );
        rows.push(
            Row::new(format!("{rate} calls/s, {errors} errors in {SECONDS} s: error_ratio"))
                .naive(named(naive_errors >= count), naive)
                .tidegate(named(ratio_opened), Expectation::exactly(named(false))),
        );
        run.step();
    }
    Ok(Report::of(rows).note("the naive breaker counts errors; Tidegate's error_count says the same, and its error_ratio does not mind traffic"))
}
