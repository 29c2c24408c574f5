use super::*;
use crate::breaker::test::{percent, rule};
use crate::rule::model::HalfOpen;

const MS: Duration = Duration::from_millis(1);

fn counts(calls: u64, failures: u64, slow: &[u64]) -> Tally {
    Tally { calls, failures, slow: slow.iter().copied().collect() }
}

fn slow(millis: u64, hundredths: u16) -> Trip {
    Trip::SlowRatio { slower_than: Duration::from_millis(millis), at_least: percent(hundredths) }
}

fn errors(hundredths: u16) -> Trip {
    Trip::ErrorRatio { at_least: percent(hundredths) }
}

/// Whether a rule with these trips and `min_requests: 20` trips, and on which.
#[track_caller]
fn check(trip: &[Trip], tally: &Tally, expected: Option<usize>) {
    let policy = Policy::new(&Breaker { trip: trip.to_vec(), ..rule() });
    assert_eq!(policy.tripped(tally), expected, "{trip:?} {tally:?}");
}

#[test]
fn b3_all_errors_and_a_share_exactly_at_the_threshold_trip() {
    check(&[errors(10_000)], &counts(20, 20, &[]), Some(0));
    check(&[errors(10_000)], &counts(20, 19, &[]), None);
    check(&[errors(5_000)], &counts(20, 10, &[]), Some(0));
    check(&[errors(5_000)], &counts(21, 10, &[]), None);
    // A third, as near as a rule can say it, through no float.
    check(&[errors(3_333)], &counts(30_000, 9_999, &[]), Some(0));
    check(&[errors(3_333)], &counts(30_000, 9_998, &[]), None);
    check(&[errors(1)], &counts(10_000, 1, &[]), Some(0));
    check(&[errors(1)], &counts(10_001, 1, &[]), None);
    check(&[errors(10_000)], &counts(u64::MAX, u64::MAX, &[]), Some(0));
}

#[test]
fn b12_one_failure_at_night_is_below_min_requests() {
    let one = counts(1, 1, &[]);
    check(&[errors(5_000)], &one, None);
    check(&[errors(5_000)], &counts(19, 19, &[]), None);
    check(&[Trip::ErrorCount { at_least: 1 }], &counts(19, 19, &[]), None);
    check(&[slow(250, 1)], &counts(19, 0, &[19]), None);
    let eager = Policy::new(&Breaker { min_requests: 1, trip: vec![errors(5_000)], ..rule() });
    assert_eq!(eager.tripped(&one), Some(0));
}

#[test]
fn b17_every_call_slow_trips_at_a_share_of_one() {
    check(&[slow(250, 10_000)], &counts(20, 0, &[20]), Some(0));
    check(&[slow(250, 10_000)], &counts(20, 0, &[19]), None);
}

#[test]
fn any_trip_opens_and_the_first_listed_is_named() {
    let all = [slow(250, 5_000), errors(5_000), Trip::ErrorCount { at_least: 200 }];
    check(&all, &counts(20, 0, &[10]), Some(0));
    check(&all, &counts(20, 10, &[0]), Some(1));
    check(&all, &counts(1_000, 200, &[0]), Some(2));
    check(&all, &counts(1_000, 199, &[0]), None);
    check(&all, &counts(20, 20, &[20]), Some(0));
    check(&[], &counts(20, 20, &[]), None);
}

#[test]
fn b16_empty_windows_and_zeros_never_trip() {
    let zero = Breaker {
        min_requests: 0,
        trip: vec![errors(0), slow(0, 0), Trip::ErrorCount { at_least: 0 }],
        ..rule()
    };
    let policy = Policy::new(&zero);
    assert_eq!(policy.tripped(&counts(0, 0, &[0])), None);
    assert_eq!(policy.tripped(&counts(5, 0, &[0])), None, "a trip needs a bad result");
    assert_eq!(policy.tripped(&counts(5, 1, &[0])), Some(0));
    assert_eq!(policy.tripped(&counts(5, 0, &[1])), Some(1));
    assert_eq!(policy.tripped(&Tally::default()), None);
}

#[test]
fn b14_a_status_500_is_a_failure_whoever_made_it() {
    let default = Policy::new(&rule());
    let listed = Policy::new(&Breaker {
        failure: vec![FailureKind::Timeout, FailureKind::Status(429), FailureKind::Status(503)],
        ..rule()
    });
    let nothing = Policy::new(&Breaker { failure: vec![], ..rule() });
    for (result, by_default, by_list) in [
        (CallResult::Status(200), false, false),
        (CallResult::Status(404), false, false),
        (CallResult::Status(429), false, true),
        (CallResult::Status(499), false, false),
        (CallResult::Status(500), true, false),
        (CallResult::Status(503), true, true),
        (CallResult::Status(599), true, false),
        (CallResult::Status(600), false, false),
        (CallResult::Connect, true, false),
        (CallResult::Timeout, true, true),
        (CallResult::Reset, true, false),
    ] {
        assert_eq!(default.class(result, MS).failed(), by_default, "{result:?}");
        assert_eq!(listed.class(result, MS).failed(), by_list, "{result:?}");
        assert!(!nothing.class(result, MS).failed(), "{result:?}");
    }
    for kind in [FailureKind::Connect, FailureKind::Timeout, FailureKind::Reset] {
        let policy = Policy::new(&Breaker { failure: vec![kind], ..rule() });
        for (result, of) in [
            (CallResult::Connect, FailureKind::Connect),
            (CallResult::Timeout, FailureKind::Timeout),
            (CallResult::Reset, FailureKind::Reset),
        ] {
            assert_eq!(policy.class(result, MS).failed(), of == kind, "{kind:?} {result:?}");
        }
        assert!(!policy.class(CallResult::Status(500), MS).failed());
    }
}

#[test]
fn slow_is_strictly_longer_and_each_threshold_counts_apart() {
    let policy = Policy::new(&Breaker {
        trip: vec![slow(1_000, 1_000), errors(5_000), slow(250, 5_000), slow(250, 9_000)],
        ..rule()
    });
    assert_eq!(policy.classes(), 6);
    let ok = CallResult::Status(200);
    for (millis, slow, index) in
        [(0, false, 0), (250, false, 0), (251, true, 2), (1_000, true, 2), (1_001, true, 4)]
    {
        let class = policy.class(ok, MS * millis);
        assert_eq!((class.slow(), class.failed(), class.index()), (slow, false, index), "{millis}");
        assert_eq!(policy.class(CallResult::Reset, MS * millis).index(), index + 1, "{millis}");
    }
    let tally = policy.tally(&Counts::from_slice(&[1, 2, 4, 8, 16, 32]));
    assert_eq!(tally, counts(63, 42, &[60, 48]));
    assert_eq!(policy.tally(&Counts::from_slice(&[u64::MAX, u64::MAX])).calls, u64::MAX);
    // 100 calls, 12 above 1 s: the first trip; 50 above 250 ms: the third.
    assert_eq!(policy.tripped(&counts(100, 0, &[12, 12])), Some(0));
    assert_eq!(policy.tripped(&counts(100, 0, &[50, 2])), Some(2));
    assert_eq!(policy.tripped(&counts(100, 0, &[49, 9])), None);
}

#[test]
fn counts_are_kept_only_where_they_mean_the_same() {
    let base = Policy::new(&Breaker { trip: vec![slow(250, 5_000)], ..rule() });
    for (changed, expected) in [
        (Breaker { trip: vec![slow(250, 100)], min_requests: 3, ..rule() }, true),
        (Breaker { trip: vec![slow(251, 5_000)], ..rule() }, false),
        (Breaker { trip: vec![errors(5_000)], ..rule() }, false),
        (Breaker { trip: vec![slow(250, 5_000)], window: Duration::from_secs(11), ..rule() }, false),
    ] {
        assert_eq!(base.counts_like(&Policy::new(&changed)), expected, "{changed:?}");
    }
}

#[test]
fn probes_are_bounded_at_both_ends() {
    for (probes, expected) in [(0, 1), (1, 1), (1_024, 1_024), (u32::MAX, 1_024)] {
        let half_open = HalfOpen { probes, probe_timeout: MS };
        assert_eq!(Policy::new(&Breaker { half_open, ..rule() }).probes, expected);
    }
}

#[test]
fn what_is_certainly_good_is_good() {
    let policy = |failure: &[FailureKind], trip: &[Trip]| {
        Policy::new(&Breaker { failure: failure.to_vec(), trip: trip.to_vec(), ..rule() })
    };
    for (failure, below) in [
        (&[][..], 500),
        (&[FailureKind::ServerError], 500),
        (&[FailureKind::Connect, FailureKind::Status(503)], 500),
        (&[FailureKind::Status(503), FailureKind::Status(429), FailureKind::Status(430)], 429),
    ] {
        for (trip, within) in
            [(&[errors(5_000)][..], Duration::MAX), (&[slow(250, 1), slow(100, 1)], 100 * MS)]
        {
            let policy = policy(failure, trip);
            assert_eq!(policy.certainly_good(), (below, within), "{failure:?} {trip:?}");
            assert_eq!(policy.class(CallResult::Status(below - 1), within), Class::GOOD);
        }
    }
}
