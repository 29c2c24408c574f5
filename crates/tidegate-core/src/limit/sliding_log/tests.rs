use proptest::prelude::*;

use super::*;
use crate::limit::tests::{Bench, SECOND, TODAY, ms, traffic};

#[test]
fn no_span_of_one_window_holds_more_than_the_limit() {
    let mut bench = Bench::new(SlidingLog::new(100, SECOND), ms(0));
    assert_eq!((bench.burst(100, ms(990)), bench.burst(100, ms(1000))), (100, 0));
    assert_eq!((bench.burst(100, ms(1989)), bench.burst(100, ms(1990))), (0, 100));
}

#[test]
fn calls_of_one_instant_share_a_run() {
    let mut bench = Bench::new(SlidingLog::new(1_000_000, SECOND), TODAY);
    assert!(bench.ask(500_000, TODAY).admitted());
    assert_eq!(bench.burst(100, TODAY), 100);
    assert_eq!(SlidingLog::footprint(&bench.state), 1);
}

#[test]
fn a_coarser_log_admits_less_and_never_more() {
    let mut bench = Bench::new(SlidingLog::new(4, SECOND), ms(0));
    for at in [0, 100, 200, 300] {
        assert!(bench.ask(1, ms(at)).admitted());
    }
    SlidingLog::coarsen(&mut bench.state);
    assert_eq!(SlidingLog::footprint(&bench.state), 3);
    assert_eq!(bench.burst(9, ms(1199)), 2, "those of 0 and 100 ms have left");
    assert_eq!(bench.burst(9, ms(1299)), 0, "that of 200 ms counts as made at 300 ms");
    assert_eq!(bench.burst(9, ms(1300)), 2);
    // Two become one, at the later time; one and none are as coarse as can be.
    let mut bench = Bench::new(SlidingLog::new(4, SECOND), ms(0));
    SlidingLog::coarsen(&mut bench.state);
    assert_eq!(bench.state, bench.rule.fresh(ms(0)));
    assert!(bench.ask(1, ms(0)).admitted() && bench.ask(1, ms(100)).admitted());
    for _ in 0..2 {
        SlidingLog::coarsen(&mut bench.state);
        assert_eq!(SlidingLog::footprint(&bench.state), 1);
        assert_eq!(bench.rule.peek(&bench.state, 4, ms(100)).retry_after(), Some(SECOND));
    }
}

#[test]
fn what_a_clock_set_back_carries_along_joins_the_run_of_that_instant() {
    let mut bench = Bench::new(SlidingLog::new(9, 10 * SECOND), TODAY);
    for after in [0, 1, 2, 3] {
        assert!(bench.ask(1, TODAY + after * SECOND).admitted());
    }
    assert!(bench.ask(1, TODAY + SECOND).admitted());
    assert_eq!(SlidingLog::footprint(&bench.state), 2);
    assert_eq!(bench.ask(9, TODAY + SECOND).retry_after(), Some(10 * SECOND));
}

#[test]
fn a_call_that_costs_nothing_is_not_remembered() {
    let mut bench = Bench::new(SlidingLog::new(4, 10 * SECOND), TODAY);
    assert_eq!(bench.ask(0, TODAY).reset_after(), Duration::ZERO);
    assert_eq!(bench.ask(1, TODAY).reset_after(), 10 * SECOND);
    assert_eq!(bench.ask(0, TODAY + 3 * SECOND).reset_after(), 7 * SECOND);
    assert_eq!(SlidingLog::footprint(&bench.state), 1);
}

#[test]
fn another_window_starts_fresh_and_another_limit_does_not() {
    let mut bench = Bench::new(SlidingLog::new(4, SECOND), TODAY);
    assert_eq!(bench.burst(9, TODAY), 4);
    bench.change(SlidingLog::new(6, SECOND), TODAY);
    assert_eq!(bench.burst(9, TODAY), 2);
    bench.change(SlidingLog::new(6, 2 * SECOND), TODAY);
    assert_eq!(bench.burst(9, TODAY), 6);
}

#[test]
fn memory_is_kept_until_three_quarters_of_it_are_unused() {
    let rule = SlidingLog::new(100, SECOND);
    let settled = |places: usize, runs: u64| {
        let mut log = rule.fresh(TODAY);
        log.runs.reserve_exact(places);
        let before = log.runs.capacity();
        for after in 0..runs {
            rule.take(&mut log, 1, TODAY + Duration::from_nanos(after));
        }
        rule.settle(&mut log, TODAY + Duration::from_nanos(runs));
        (before, log.runs.capacity())
    };
    for (places, runs, kept) in [
        (16, 15, true),
        (16, 5, true),
        (16, 4, true),
        (16, 3, false),
        (16, 0, false),
        (SPARE_RUNS, 1, true),
        (SPARE_RUNS, 0, true),
    ] {
        let (before, after) = settled(places, runs);
        assert_eq!(before, places);
        assert_eq!(after == before, kept, "{places} {runs}: {after}");
    }
}

#[test]
fn memory_is_given_back() {
    let mut bench = Bench::new(SlidingLog::new(10_000, SECOND), TODAY);
    for at in 0..10_000_u32 {
        assert!(bench.ask(1, TODAY + at * Duration::from_micros(10)).admitted());
    }
    assert!(bench.state.runs.capacity() >= 10_000);
    bench.ask(1, TODAY + 5 * SECOND);
    assert!(bench.state.runs.capacity() <= SPARE_RUNS, "{}", bench.state.runs.capacity());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agrees_with_a_plain_list(limit in 1..15_u64, calls in traffic(1_000)) {
        let window = 1_000;
        let mut bench = Bench::new(SlidingLog::new(limit, Duration::from_nanos(window)), TODAY);
        let mut list: Vec<u64> = Vec::new();
        let mut now = TODAY;
        for (gap, cost) in calls {
            now = now + Duration::from_nanos(gap);
            list.retain(|at| at + window > now.as_nanos());
            let fits = list.len() as u64 + cost <= limit;
            if fits {
                list.extend((0..cost).map(|_| now.as_nanos()));
            }
            let decision = bench.ask(cost, now);
            prop_assert_eq!(decision.admitted(), fits);
            prop_assert_eq!(decision.remaining, limit - list.len() as u64);
        }
    }
}
