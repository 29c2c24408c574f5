//! A closed breaker, with outcome and duration recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use recloser::Recloser;
use tidegate::breakers::{BreakerVersion, Breakers, CallResult};
use tidegate::env::Env;
use tidegate::stats::{Ended, LATENCY_WINDOW, ResourceStats};
use tidegate_core::breaker::Histogram;
use tidegate_core::rule::{Deployment, Source, load};

use crate::{Case, case, repeat};

pub fn breakers() -> BreakerVersion {
    // Once open, it stays so for as long as a run takes.
    let document = "apiVersion: tidegate/v1\nresources: [ { id: r } ]\nbreakers: [ { id: b, resources: [r], trip: [ { error_ratio: { at_least: 50% } }, { slow_ratio: { slower_than: 250ms, at_least: 50% } } ], open_for: 1h, max_open: 1h } ]";
    let loaded = load(&[Source::new("bench.yaml", document)], &Deployment::default()).expect("rules");
    Breakers::new().apply(&loaded.rules.breakers)
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let (count, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    cases.push(case("breaker, closed", "floor: add + clock", move |n, _| {
        repeat(n, |_| count.fetch_add(start.elapsed().as_nanos() as u64 & 1, Ordering::AcqRel) < u64::MAX)
    }));
    let recloser = Arc::new(Recloser::default());
    cases.push(case("breaker, closed", "recloser (a ring of outcomes, no clock)", move |n, _| {
        repeat(n, |_| recloser.call(|| Ok::<(), ()>(())).is_ok())
    }));
    let failsafe = Arc::new(failsafe::Config::new().build());
    cases.push(case("breaker, closed", "failsafe, default policy", move |n, _| {
        use failsafe::CircuitBreaker as _;
        repeat(n, |_| failsafe.call(|| Ok::<(), ()>(())).is_ok())
    }));
    let env = Env::system();
    cases.push(case("breaker, closed", "tidegate, two clock reads alone", move |n, _| {
        repeat(n, |_| {
            let started = env.now();
            std::hint::black_box(started);
            env.now() >= started
        })
    }));
    let (env, version) = (Env::system(), Arc::new(breakers()));
    let stats = Arc::new(ResourceStats::default());
    cases.push(case("breaker, closed", "tidegate, and all figures of the resource", move |n, _| {
        repeat(n, |i| {
            let started = env.now();
            let Ok(admission) = version.admit(&[0], "", started, i) else { return false };
            let running = stats.start();
            let now = env.now();
            let elapsed = now.since(started);
            running.finish(Ended::Succeeded, elapsed, now);
            admission.record(CallResult::Status(200), elapsed, now, i);
            true
        })
    }));
    let (env, version) = (Env::system(), Arc::new(breakers()));
    cases.push(case("breaker, closed", "tidegate, both clock reads", move |n, _| {
        repeat(n, |i| {
            let started = env.now();
            let Ok(admission) = version.admit(&[0], "", started, i) else { return false };
            let now = env.now();
            admission.record(CallResult::Status(200), now.since(started), now, i);
            true
        })
    }));
    let (env, version) = (Env::system(), Arc::new(breakers()));
    // One for each thread, as a resource has.
    let latencies: Arc<[Histogram; 2]> = Arc::new(std::array::from_fn(|_| Histogram::new(LATENCY_WINDOW)));
    cases.push(case("breaker, closed", "tidegate, and the latency histogram", move |n, thread| {
        repeat(n, |i| {
            let started = env.now();
            let Ok(admission) = version.admit(&[0], "", started, i) else { return false };
            let now = env.now();
            let elapsed = now.since(started);
            latencies[thread & 1].record(elapsed, now);
            admission.record(CallResult::Status(200), elapsed, now, i);
            true
        })
    }));
    let (env, version) = (Env::system(), Arc::new(breakers()));
    for i in 0..200 {
        if let Ok(admission) = version.admit(&[0], "", env.now(), i) {
            admission.record(CallResult::Status(500), Duration::from_millis(1), env.now(), i);
        }
    }
    cases.push(case("breaker, open", "floor: clock", move |n, _| {
        repeat(n, |_| start.elapsed().as_nanos() > 0)
    }));
    cases.push(case("breaker, open", "tidegate", move |n, _| {
        repeat(n, |i| version.admit(&[0], "", env.now(), i).is_err())
    }));
    cases
}
