//! Cases met in the field, on a shared counter.

use super::*;

const S: Duration = Duration::from_secs(1);

fn ms(ms: u64) -> u64 {
    TODAY + ms * 1000
}

#[test]
fn l1_a_burst_is_the_capacity_and_not_one_more() {
    let mut server = Server::start();
    for algorithm in [token_bucket(2, 1, S), leaky_bucket(1, S, 1)] {
        let counter = server.counter(&algorithm);
        let passed = [TODAY, TODAY, TODAY + 1].map(|now| server.ask(&counter, 1, now).admitted());
        assert_eq!(passed, [true, true, false], "{algorithm:?}");
    }
}

#[test]
fn l2_a_full_bucket_never_holds_more_than_its_capacity() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(10, 10, 60 * S));
    assert!(server.ask(&counter, 1, TODAY).admitted());
    assert_eq!(server.burst(&counter, 30, ms(53_900)), 10);
}

#[test]
fn l3_large_capacities_and_long_periods_count_exactly() {
    let mut server = Server::start();
    for capacity in [(1 << 32) - 1, (1 << 32) + 1, 999_999_999_999_999] {
        let counter = server.counter(&token_bucket(capacity, capacity.min(1 << 32), 86_400 * S));
        assert_eq!(server.admits(&counter, &[capacity - 1, 1, 1], TODAY), [true, true, false], "{capacity}");
        let wait = server.ask(&counter, 1, TODAY).retry_after().unwrap();
        let then = TODAY + u64::try_from(wait.as_nanos().div_ceil(1000)).unwrap();
        assert!(!server.ask(&counter, 1, then - 1).admitted());
        assert!(server.ask(&counter, 1, then).admitted());
        for algorithm in [fixed_window(capacity, S), sliding_window(capacity, S), sliding_log(capacity, S)] {
            let counter = server.counter(&algorithm);
            assert_eq!(server.admits(&counter, &[capacity - 1, 1, 1], TODAY), [true, true, false]);
        }
    }
}

#[test]
fn l4_sub_millisecond_interval_admits_exactly_capacity() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(20, 2000, S));
    assert_eq!(server.burst(&counter, 3000, TODAY), 20);
}

#[test]
fn l5_a_call_passes_when_the_denied_one_was_told() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        if matches!(algorithm, Algorithm::Concurrency { .. }) {
            continue;
        }
        let counter = server.counter(&algorithm);
        assert_eq!(server.burst(&counter, 20, ms(37)), 10, "{algorithm:?}");
        let wait = server.ask(&counter, 1, ms(41)).retry_after().unwrap();
        let then = ms(41) + u64::try_from(wait.as_nanos().div_ceil(1000)).unwrap();
        assert!(!server.ask(&counter, 1, then - 1).admitted(), "{algorithm:?}");
        assert!(server.ask(&counter, 1, then).admitted(), "{algorithm:?}");
    }
}

#[test]
fn l6_a_long_idle_bucket_is_full() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(1_000_000, 1_000_000, 3600 * S));
    assert_eq!(server.admits(&counter, &[1_000_000], TODAY), [true]);
    let idle = TODAY + 12 * HOUR;
    assert_eq!(server.ask(&counter, 0, idle).remaining, 1_000_000);
    assert_eq!(server.admits(&counter, &[1_000_000, 1], idle), [true, false]);
}

#[test]
fn l7_traffic_does_not_stall_the_refill() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(10, 10, 30 * S));
    let left: Vec<_> = (0..8).map(|t| server.ask(&counter, 1, ms(1000 * t)).remaining).collect();
    assert_eq!(left, [9, 8, 7, 7, 6, 5, 5, 4]);
}

#[test]
fn l8_frequent_calls_gain_nothing() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(3, 3, S));
    let passed = (0..=100).filter(|t| server.ask(&counter, 1, ms(100 * t)).admitted()).count();
    assert_eq!(passed, 33);
}

#[test]
fn l9_denied_calls_are_not_charged() {
    let mut server = Server::start();
    for algorithms in one_of_each(10).into_iter().zip(one_of_each(20)) {
        if matches!(algorithms.0, Algorithm::Concurrency { .. }) {
            continue;
        }
        let counter = server.counter(&algorithms.0);
        assert_eq!(server.burst(&counter, 50, TODAY), 10);
        let raised = Counter { numbers: Numbers::new(&algorithms.1, PERMIT_LIFE), ordinal: 2, ..counter };
        assert_eq!(server.burst(&raised, 50, TODAY), 10, "{algorithms:?}");
    }
}

#[test]
fn l10_two_limits_are_charged_both_or_neither() {
    let mut server = Server::start();
    for (a, b) in one_of_each(2).into_iter().zip(one_of_each(10).into_iter().rev()) {
        let [a, b] = [a, b].map(|algorithm| server.counter(&algorithm));
        let both = [a.clone(), b.clone()];
        let calls = ["1", "2", "3", "4"].map(|id| call(id, &[1, 1]));
        let decided = server.calls(&both, &calls, Purpose::Charge, TODAY);
        let admitted: Vec<_> = decided.calls.iter().map(|call| call.admitted).collect();
        assert_eq!(admitted, [true, true, false, false], "{a:?} {b:?}");
        assert_eq!(decided.calls[3].decisions[1].remaining, 8);
        assert!(decided.calls[3].decisions[1].admitted());
        assert_eq!(server.ask(&b, 0, TODAY).remaining, 8, "{b:?}");
    }
}

#[test]
fn l15_a_cost_above_the_limit_can_never_pass() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        let counter = server.counter(&algorithm);
        let decision = server.ask(&counter, 100, TODAY);
        assert!(!decision.admitted());
        assert_eq!((decision.retry_after(), decision.remaining), (None, 10), "{algorithm:?}");
        assert_eq!(server.session().command(&["EXISTS", counter.key.as_str()]).number(), 0);
    }
}

#[test]
fn l16_leaky_buckets_shape_fast_and_slow_rates() {
    let mut server = Server::start();
    let fast = server.counter(&leaky_bucket(5000, S, 0));
    let passed = (0..10_000).step_by(50).map(|t| server.burst(&fast, 2, TODAY + 100 * t));
    assert_eq!(passed.sum::<usize>(), 200);
    let slow = server.counter(&leaky_bucket(1, 5 * S, 1));
    assert_eq!(server.ask(&slow, 1, TODAY).wait(), Duration::ZERO);
    assert_eq!(server.ask(&slow, 1, ms(1000)).wait(), 4 * S);
    assert_eq!(server.ask(&slow, 1, ms(1000)).retry_after(), Some(4 * S));
    assert_eq!(server.ask(&slow, 1, ms(5000)).wait(), 5 * S);
}

#[test]
fn l20_a_denied_call_leaves_nothing_behind() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        let counter = server.counter(&algorithm);
        let calls = [call("1", &[9]), call("2", &[9]), call("3", &[1]), call("4", &[1])];
        let decided = server.calls(std::slice::from_ref(&counter), &calls, Purpose::Charge, TODAY);
        let admitted: Vec<_> = decided.calls.iter().map(|call| call.admitted).collect();
        assert_eq!(admitted, [true, false, true, false], "{algorithm:?}");
    }
}

#[test]
fn l21_a_raised_limit_counts_at_once() {
    let mut server = Server::start();
    for (old, new) in one_of_each(10).into_iter().zip(one_of_each(100)) {
        let counter = server.counter(&old);
        assert!(server.ask(&counter, 10, TODAY).admitted());
        assert!(!server.ask(&counter, 1, TODAY).admitted());
        let raised = Counter { numbers: Numbers::new(&new, PERMIT_LIFE), ordinal: 2, ..counter };
        assert_eq!(server.ask(&raised, 1, TODAY).remaining, 89, "{new:?}");
    }
}

#[test]
fn l22_callers_clocks_do_not_matter() {
    // The time is the server's: a script of production has no argument for another.
    for script in Script::ALL {
        assert!(script.text().contains("redis.call('TIME')"), "{script:?}");
    }
}

#[test]
fn l23_a_clock_that_is_set_back_neither_grants_nor_locks_out() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        if matches!(algorithm, Algorithm::Concurrency { .. }) {
            continue;
        }
        let counter = server.counter(&algorithm);
        assert_eq!(server.burst(&counter, 10, TODAY + HOUR), 10);
        assert_eq!(server.burst(&counter, 10, TODAY), 0, "{algorithm:?}");
        let windows = if matches!(algorithm, Algorithm::SlidingWindow { .. }) { 2 } else { 1 };
        let wait = server.ask(&counter, 1, ms(1)).retry_after().unwrap();
        assert!(wait <= windows * S, "{algorithm:?} {wait:?}");
        assert_eq!(server.burst(&counter, 20, TODAY + u64::from(windows) * SECOND), 10, "{algorithm:?}");
    }
}

#[test]
fn l27_a_rate_is_sustained() {
    let mut server = Server::start();
    for algorithm in [token_bucket(20, 20, S), leaky_bucket(20, S, 19), sliding_log(20, S)] {
        let counter = server.counter(&algorithm);
        let passed = (0..500).filter(|t| server.ask(&counter, 1, ms(20 * t)).admitted()).count();
        assert!((200..=220).contains(&passed), "{algorithm:?} {passed}");
    }
}
