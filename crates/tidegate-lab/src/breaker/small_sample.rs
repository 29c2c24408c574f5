//! `breaker.small-sample`: a single error at night. The naive way computes the ratio of whatever there is.

use super::{QUICK, at, breaker, call, named, state};
use crate::experiment::Experiment;
use crate::params::{Param, Params, Spec};
use crate::random::Random;
use crate::{Expectation, LabError, Report, Row, Run};

const ERRORS: Param<u64> =
    Param { name: "errors", about: "calls, all of which fail", default: 1, low: 1, high: 1_000 };
const MIN_REQUESTS: Param<u64> =
    Param { name: "min-requests", about: "results before anything trips", default: 20, low: 1, high: 1_000 };

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "breaker.small-sample",
    about: "a single error at night, with and without a smallest sample",
    params: &[Spec::Count(ERRORS), Spec::Count(MIN_REQUESTS)],
    fits: None,
    run: experiment,
};

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (errors, min_requests) = (params.count(&ERRORS), params.count(&MIN_REQUESTS));
    run.steps(2);
    let mut rows = Vec::new();
    for least in [1, min_requests] {
        let breaker = breaker("{ error_ratio: { at_least: 50% } }", &format!("min_requests: {least},"))?;
        let mut random = Random::new(1);
        let (mut failed, mut seen, mut naive_open) = (0, 0, false);
        for number in 0..errors {
            call(&breaker, 500, QUICK, at(number), &mut random);
            seen += 1;
            failed += 1;
            naive_open |= failed * 2 >= seen;
        }
        let row = Row::new(format!("failing calls: {errors}, min_requests: {least}"));
        let row = row.naive(named(naive_open), Expectation::exactly("open"));
        rows.push(row.tidegate(state(&breaker, at(errors))?, Expectation::exactly(named(errors >= least))));
        run.step();
    }
    Ok(Report::of(rows).note("the naive breaker opens at half of the results, however few there are"))
}
