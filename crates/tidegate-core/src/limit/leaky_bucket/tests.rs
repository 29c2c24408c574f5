use super::*;
use crate::limit::Retry;
use crate::limit::tests::{Bench, SECOND, TODAY, per};

fn waits(bench: &mut Bench<LeakyBucket>, calls: usize, now: Timestamp) -> Vec<u128> {
    (0..calls)
        .map(|_| bench.ask(1, now))
        .filter(Decision::admitted)
        .map(|decision| decision.wait().as_millis())
        .collect()
}

#[test]
fn l16_five_thousand_a_second_without_a_queue() {
    let mut bench = Bench::new(LeakyBucket::new(per(5000, SECOND), 0), TODAY);
    // A call each 50 µs for two seconds: one in four passes, none waits.
    let times = (0..40_000_u32).map(|n| TODAY + n * Duration::from_micros(50));
    let passed: Vec<Timestamp> = times
        .filter(|at| {
            let decision = bench.ask(1, *at);
            assert_eq!(decision.wait(), Duration::ZERO);
            decision.admitted()
        })
        .collect();
    assert_eq!(passed.len(), 10_000);
    for (first, last) in passed.iter().zip(passed.iter().skip(5000)) {
        assert!(last.since(*first) >= SECOND);
    }
}

#[test]
fn l16_a_rate_below_one_a_second_works() {
    let mut bench = Bench::new(LeakyBucket::new(per(1, 5 * SECOND), 0), TODAY);
    let passed: Vec<u32> = (0..16).filter(|at| bench.ask(1, TODAY + *at * SECOND).admitted()).collect();
    assert_eq!(passed, [0, 5, 10, 15]);
    assert_eq!(bench.ask(1, TODAY + 16 * SECOND).retry_after(), Some(4 * SECOND));
}

#[test]
fn calls_wait_their_turn_and_a_full_queue_refuses() {
    let mut bench = Bench::new(LeakyBucket::new(per(10, SECOND), 3), TODAY);
    assert_eq!(waits(&mut bench, 10, TODAY), [0, 100, 200, 300]);
    let denied = bench.ask(1, TODAY);
    assert_eq!((denied.limit, denied.remaining), (4, 0));
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
    bench.check_retry(1, TODAY);
    assert_eq!(waits(&mut bench, 10, TODAY + Duration::from_millis(150)), [250]);
}

#[test]
fn a_dear_call_leaves_with_its_last_turn() {
    let mut bench = Bench::new(LeakyBucket::new(per(10, SECOND), 3), TODAY);
    assert_eq!(bench.ask(5, TODAY).answer, Answer::Denied(Retry::Never));
    assert_eq!(bench.ask(3, TODAY).wait(), Duration::from_millis(200));
    assert_eq!(bench.ask(1, TODAY).wait(), Duration::from_millis(300));
    assert!(!bench.ask(1, TODAY).admitted());
}

#[test]
fn a_changed_bucket_keeps_its_queue() {
    let slow = LeakyBucket::new(per(1, SECOND), 50);
    let mut bench = Bench::new(slow, TODAY);
    assert_eq!(bench.burst(100, TODAY), 51);
    // Twice as fast: the same 51 turns are given away, each half as long.
    bench.change(LeakyBucket::new(per(2, SECOND), 60), TODAY);
    assert_eq!(bench.ask(1, TODAY).wait(), Duration::from_millis(25_500));
    // A shorter queue admits nobody until the 52 turns given away have drained to it.
    bench.change(LeakyBucket::new(per(2, SECOND), 5), TODAY);
    assert_eq!(bench.burst(100, TODAY), 0);
    assert_eq!(bench.ask(1, TODAY).retry_after(), Some(Duration::from_millis(23_500)));
    bench.check_retry(1, TODAY);
    assert_eq!(bench.burst(100, TODAY + Duration::from_millis(23_500)), 1);
}

#[test]
fn a_clock_set_back_owes_a_long_queue_only_while_it_lasts() {
    let bench_at = |drained: Duration| {
        let mut bench = Bench::new(LeakyBucket::new(per(1, SECOND), 99), TODAY);
        assert_eq!(bench.burst(200, TODAY), 100);
        bench.change(LeakyBucket::new(per(1, SECOND), 9), TODAY);
        // A look that charges nothing.
        bench.ask(0, TODAY + drained);
        bench.ask(1, TODAY.before(Duration::from_hours(1))).retry_after()
    };
    // Nothing has left: all the 100 turns are owed, of which the tenth from the end is the next.
    assert_eq!(bench_at(Duration::ZERO), Some(91 * SECOND));
    assert_eq!(bench_at(60 * SECOND), Some(31 * SECOND));
    // The queue has drained to less than the new rule's: no more than ten turns are owed.
    assert_eq!(bench_at(95 * SECOND), Some(SECOND));
}
