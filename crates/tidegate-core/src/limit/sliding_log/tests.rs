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
    let mut one = Log::default();
    SlidingLog::coarsen(&mut one);
    assert_eq!(one, Log::default());
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
