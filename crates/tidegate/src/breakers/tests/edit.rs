//! Rules that are edited while their breakers are at work.

use super::*;

type Edit = fn(&mut Breaker);

#[test]
fn b4_an_untouched_rule_keeps_state_and_window() {
    let breakers = Breakers::new();
    let old = breakers.apply(&[rule("bank"), rule("other")]);
    fail(&old, &[0], 12, START);
    let edited = Breaker { min_requests: 3, ..rule("other") };
    // The order of rules is no part of them.
    let new = breakers.apply(&[edited, rule("bank")]);
    assert_eq!(new.status(1, HOST, START), old.status(0, HOST, START));
    fail(&new, &[1], 8, START);
    check(&new, 1, START, Kind::Open);
    check(&old, 0, START, Kind::Open);
    let again = breakers.apply(&[rule("bank")]);
    assert_eq!(again.admit(&[0], HOST, at(1_000), 0).unwrap_err().remaining, Duration::from_secs(4));
    assert!(old.admit(&[1], HOST, START, 0).is_ok(), "a removed rule lives on in its old version");
}

#[test]
fn b4_an_edited_rule_is_open_until_its_own_deadline() {
    let breakers = Breakers::new();
    let old = breakers.apply(&[rule("bank")]);
    fail(&old, &[0], 20, START);
    let edited = Breaker {
        open_for: Duration::from_secs(1),
        max_open: Duration::from_secs(1),
        window: Duration::from_secs(20),
        min_requests: 1_000,
        trip: vec![],
        ..rule("bank")
    };
    let new = breakers.apply(&[edited]);
    assert_eq!(new.admit(&[0], HOST, at(4_000), 0).unwrap_err().remaining, Duration::from_secs(1));
    let probe = new.admit(&[0], HOST, at(5_000), 0).unwrap();
    probe.record(CallResult::Reset, QUICK, at(5_000), 0);
    assert_eq!(new.admit(&[0], HOST, at(5_000), 0).unwrap_err().remaining, Duration::from_secs(1));
}

#[test]
fn b4_a_probe_that_is_out_stays_out() {
    let breakers = Breakers::new();
    let old = breakers.apply(&[rule("bank")]);
    fail(&old, &[0], 20, START);
    let probe = old.admit(&[0], HOST, at(5_000), 0).unwrap();
    let new = breakers.apply(&[Breaker { min_requests: 5, ..rule("bank") }]);
    assert_eq!(new.admit(&[0], HOST, at(5_000), 0).unwrap_err().state, Kind::HalfOpen);
    probe.record(CallResult::Status(200), QUICK, at(5_000), 0);
    check(&new, 0, at(5_000), Kind::Closed);
}

#[test]
fn b4_a_closed_window_is_kept_where_its_counts_mean_the_same() {
    let slow = Trip::SlowRatio { slower_than: Duration::from_secs(1), at_least: half() };
    for (edited, kept) in [
        (Breaker { min_requests: 13, open_for: Duration::from_secs(1), ..rule("bank") }, true),
        (Breaker { failure: vec![FailureKind::Reset], ..rule("bank") }, false),
        (Breaker { window: Duration::from_secs(11), ..rule("bank") }, false),
        (Breaker { trip: vec![slow], ..rule("bank") }, false),
    ] {
        let breakers = Breakers::new();
        let old = breakers.apply(&[rule("bank")]);
        fail(&old, &[0], 12, START);
        let before = old.admit(&[0], HOST, START, 0).unwrap();
        let new = breakers.apply(std::slice::from_ref(&edited));
        assert_eq!(tally(&new, START), if kept { (12, 12) } else { (0, 0) }, "{edited:?}");
        // A call from before the edit is of the same generation, so it counts.
        before.record(CallResult::Reset, QUICK, START, 0);
        assert_eq!(tally(&new, START).0, if kept { 13 } else { 1 }, "{edited:?}");
        let state = if edited.min_requests == 13 { Kind::Open } else { Kind::Closed };
        check(&new, 0, START, state);
    }
}

/// What a change of each field does is what the difference between two rule sets says that it does.
#[test]
fn b4_breakers_do_what_the_difference_of_rules_says() {
    use tidegate_core::rule::diff::{BreakerCarry, breaker_effect};

    let second = Duration::from_secs(1);
    let slow = |slower_than| Trip::SlowRatio { slower_than, at_least: half() };
    let with_slow =
        Breaker { trip: vec![Trip::ErrorRatio { at_least: half() }, slow(second)], ..rule("bank") };
    let edits: [(BreakerCarry, Edit); 15] = [
        (BreakerCarry::Untouched, |_| ()),
        (BreakerCarry::Keep, |rule| rule.resources = Resources::Listed(vec!["pay".into()])),
        (BreakerCarry::Keep, |rule| rule.min_requests = 21),
        (BreakerCarry::Keep, |rule| rule.open_for = Duration::from_secs(1)),
        (BreakerCarry::Keep, |rule| rule.max_open = Duration::from_secs(7)),
        (BreakerCarry::Keep, |rule| rule.half_open.probes = 3),
        (BreakerCarry::Keep, |rule| rule.half_open.probe_timeout = Duration::from_secs(1)),
        (BreakerCarry::Keep, |rule| rule.fallback = vec![Fallback::Cache { ttl: Duration::from_secs(1) }]),
        (BreakerCarry::Keep, |rule| rule.failure.reverse()),
        (BreakerCarry::Keep, |rule| rule.trip.reverse()),
        (BreakerCarry::Keep, |rule| rule.trip.push(Trip::ErrorCount { at_least: 500 })),
        (BreakerCarry::KeepState, |rule| rule.failure = vec![FailureKind::ServerError]),
        (BreakerCarry::KeepState, |rule| rule.window = Duration::from_secs(11)),
        (BreakerCarry::KeepState, |rule| rule.trip.truncate(1)),
        (BreakerCarry::Rekeyed, |rule| rule.per_upstream_host = true),
    ];
    for (expected, edit) in edits {
        let mut edited = with_slow.clone();
        edit(&mut edited);
        assert_eq!(breaker_effect(&with_slow, &edited), expected, "{edited:?}");
        for failures in [12, 20] {
            let breakers = Breakers::new();
            let old = breakers.apply(std::slice::from_ref(&with_slow));
            fail(&old, &[0], failures, START);
            let before = old.status(0, HOST, START).unwrap();
            let after = breakers.apply(std::slice::from_ref(&edited)).status(0, HOST, START).unwrap();
            assert_eq!((after.state, after.next_probe), (before.state, before.next_probe), "{edited:?}");
            let kept = matches!(expected, BreakerCarry::Untouched | BreakerCarry::Keep);
            let calls = if kept { failures as u64 } else { 0 };
            assert_eq!((after.tally.calls, after.tally.failures), (calls, calls), "{edited:?}");
        }
    }
}

#[test]
fn b4_a_changed_key_never_closes_what_was_open() {
    let single = rule("bank");
    let by_host = Breaker { per_upstream_host: true, ..rule("bank") };
    let breakers = Breakers::new();
    let old = breakers.apply(std::slice::from_ref(&single));
    fail(&old, &[0], 20, START);
    let hosts = breakers.apply(std::slice::from_ref(&by_host));
    for host in ["a", "b"] {
        let refusal = hosts.admit(&[0], host, at(1_000), 0).unwrap_err();
        assert_eq!(refusal.remaining, Duration::from_secs(4), "{host}");
    }
    // One host recovers, the other fails its probe: one breaker for both is as bad as the worse.
    let good = hosts.admit(&[0], "a", at(5_000), 0).unwrap();
    let bad = hosts.admit(&[0], "b", at(5_000), 0).unwrap();
    good.record(CallResult::Status(200), QUICK, at(5_000), 0);
    bad.record(CallResult::Reset, QUICK, at(5_000), 0);
    let new = breakers.apply(&[single]);
    assert_eq!(new.admit(&[0], "a", at(6_000), 0).unwrap_err().remaining, Duration::from_secs(9));
}

#[test]
fn a_host_that_is_first_called_during_an_edit_gets_the_new_policy() {
    let by_host = Breaker { per_upstream_host: true, ..rule("bank") };
    let breakers = Breakers::new();
    let old = breakers.apply(std::slice::from_ref(&by_host));
    drop(old.admit(&[0], "a", START, 0).unwrap());
    let _new = breakers.apply(&[Breaker { min_requests: 1, ..by_host }]);
    for host in ["a", "b"] {
        let admission = old.admit(&[0], host, START, 0).unwrap();
        let recorded = admission.record(CallResult::Reset, QUICK, START, 0);
        assert_eq!(recorded.transitions.len(), 1, "{host}");
    }
}
