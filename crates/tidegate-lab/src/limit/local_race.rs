//! `limit.local-race`: many threads, one counter.
//!
//! The naive way looks, pauses for 50 µs as a busy process would, and counts. Tidegate's calls go
//! through [`tidegate::pipeline`] from as many threads, with the clock standing still.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{passes, rules};
use crate::error::About as _;
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::{Param, Params, Spec};
use crate::{Expectation, Figure, LabError, Report, Row, Run};

const THREADS: Param<u64> =
    Param { name: "threads", about: "callers at once", default: 32, low: 1, high: 256 };
const CALLS: Param<u64> = Param { name: "calls", about: "calls of each", default: 200, low: 1, high: 10_000 };
const LIMIT: Param<u64> =
    Param { name: "limit", about: "calls that may pass", default: 1_000, low: 1, high: 1_000_000 };
const PAUSE: Param<Duration> = Param {
    name: "pause",
    about: "the naive way's pause between looking and counting",
    default: Duration::from_micros(50),
    low: Duration::ZERO,
    high: Duration::from_millis(10),
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "limit.local-race",
    about: "threads that race for one limit in one process",
    params: &[Spec::Count(THREADS), Spec::Count(CALLS), Spec::Count(LIMIT), Spec::Span(PAUSE)],
    fits: None,
    run: experiment,
};

fn experiment(params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
    let (threads, calls) = (params.count(&THREADS), params.count(&CALLS));
    let (limit, pause) = (params.count(&LIMIT), params.span(&PAUSE));
    let exact = limit.min(threads * calls);
    run.steps(4);
    let seen = AtomicU64::new(0);
    let by_hand = race(threads, || {
        let mut passed = 0;
        for _ in 0..calls {
            if seen.load(Ordering::SeqCst) < limit {
                thread::sleep(pause);
                seen.fetch_add(1, Ordering::SeqCst);
                passed += 1;
            }
        }
        Ok(passed)
    })?;
    run.step();
    let mut rows = Vec::new();
    for (name, algorithm) in [
        ("fixed window", format!("fixed_window: {{ limit: {limit}, window: 1d }}")),
        ("sliding log", format!("sliding_log: {{ limit: {limit}, window: 1d }}")),
        ("token bucket", format!("token_bucket: {{ capacity: {limit}, refill: 1/h }}")),
    ] {
        let passed = tidegate(&rules(&algorithm), threads, calls)?;
        let row = Row::new(format!("{name}: calls that pass"));
        let row = row.naive(by_hand, Expectation::Race(Figure::Count(limit)));
        rows.push(row.tidegate(passed, Expectation::exactly(exact)));
        run.step();
    }
    Ok(Report::of(rows))
}

fn tidegate(rules: &str, threads: u64, calls: u64) -> Result<u64, LabError> {
    let gates = block_on(async { Ok(Node::on_manual_clock(rules).await?.0.gates) })?;
    race(threads, || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().about("starting a runtime")?;
        runtime.block_on(async {
            let mut passed = 0;
            for _ in 0..calls {
                passed += u64::from(passes(&gates).await?);
            }
            Ok(passed)
        })
    })
}

/// Lets `threads` threads begin at once; how many of their calls passed.
fn race(threads: u64, calls: impl Fn() -> Result<u64, LabError> + Sync) -> Result<u64, LabError> {
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    calls()
                })
            })
            .collect();
        let mut passed = 0;
        for worker in workers {
            passed += worker.join().map_err(|_| LabError::broken("a caller's thread", "it panicked"))??;
        }
        Ok(passed)
    })
}
