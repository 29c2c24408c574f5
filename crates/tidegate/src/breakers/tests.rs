use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::rule::model::{FailureKind, Fallback, HalfOpen, Percentage, Resources, Trip};

use super::*;

mod edit;
mod experiments;
mod model;

const START: Timestamp = Timestamp::from_secs(1_000_000);
const HOST: &str = "a.internal";
const QUICK: Duration = Duration::from_millis(5);

fn at(millis: u64) -> Timestamp {
    START + Duration::from_millis(millis)
}

/// The documented defaults, with `error_ratio: { at_least: 50% }`.
fn rule(id: &str) -> Breaker {
    Breaker {
        id: id.into(),
        resources: Resources::All,
        per_upstream_host: false,
        failure: vec![
            FailureKind::Connect,
            FailureKind::Timeout,
            FailureKind::Reset,
            FailureKind::ServerError,
        ],
        trip: vec![Trip::ErrorRatio { at_least: half() }],
        min_requests: 20,
        window: Duration::from_secs(10),
        open_for: Duration::from_secs(5),
        max_open: Duration::from_mins(1),
        half_open: HalfOpen { probes: 1, probe_timeout: Duration::from_secs(10) },
        fallback: vec![],
    }
}

fn half() -> Percentage {
    Percentage::from_hundredths(5_000).unwrap()
}

fn version(rules: &[Breaker]) -> BreakerVersion {
    Breakers::new().apply(rules)
}

/// A call through all of `rules`; `None` if it was refused.
fn call(
    version: &BreakerVersion,
    rules: &[usize],
    result: CallResult,
    elapsed: Duration,
    now: Timestamp,
) -> Option<Recorded> {
    let admission = version.admit(rules, HOST, now, 0).ok()?;
    Some(admission.record(result, elapsed, now, 0))
}

/// `n` failures; they trip an `error_ratio` at the twentieth.
fn fail(version: &BreakerVersion, rules: &[usize], n: usize, now: Timestamp) {
    for _ in 0..n {
        call(version, rules, CallResult::Status(500), QUICK, now).unwrap();
    }
}

fn succeed(version: &BreakerVersion, rules: &[usize], now: Timestamp) -> Recorded {
    call(version, rules, CallResult::Status(200), QUICK, now).unwrap()
}

#[track_caller]
fn check(version: &BreakerVersion, rule: usize, now: Timestamp, expected: Kind) {
    assert_eq!(version.status(rule, HOST, now).unwrap().state, expected);
}

fn tally(version: &BreakerVersion, now: Timestamp) -> (u64, u64) {
    let tally = version.status(0, HOST, now).unwrap().tally;
    (tally.calls, tally.failures)
}

#[test]
fn it_opens_refuses_probes_and_closes_and_says_so() {
    let version = version(&[rule("bank")]);
    assert_eq!(version.id(0), Some("bank"));
    fail(&version, &[0], 19, START);
    check(&version, 0, START, Kind::Closed);
    let last = call(&version, &[0], CallResult::Reset, QUICK, START).unwrap();
    let change = |from, to, cause, at| Change { from, to, cause, at };
    let transition = |change| Transition { rule: "bank".into(), host: None, change };
    assert_eq!(last.transitions, [transition(change(Kind::Closed, Kind::Open, Cause::Trip(0), START))]);
    assert_eq!(last.results[0].result(), "failure");

    let refusal = version.admit(&[0], HOST, at(1_000), u64::MAX).unwrap_err();
    assert_eq!((refusal.rule, refusal.state), (0, Kind::Open));
    assert_eq!(refusal.remaining, Duration::from_secs(4));
    assert!(refusal.retry_after > refusal.remaining && refusal.retry_after <= Duration::from_secs(6));
    assert_eq!(version.peek(&[0], HOST, at(1_000)).unwrap_err().retry_after, Duration::from_secs(4));
    let status = version.status(0, HOST, at(1_000)).unwrap();
    assert_eq!((status.state, status.trips, status.generation), (Kind::Open, 1, 1));
    assert_eq!(status.next_probe, Some(Duration::from_secs(4)));
    assert_eq!((status.tally.calls, status.tally.failures), (20, 20));

    assert!(version.peek(&[0], HOST, at(5_000)).is_ok());
    let due = version.status(0, HOST, at(5_000)).unwrap();
    assert_eq!(
        (due.state, due.next_probe, due.probes),
        (Kind::HalfOpen, Some(Duration::ZERO), Some((0, 0, 1)))
    );
    let mut probe = version.admit(&[0], HOST, at(5_000), 0).unwrap();
    assert!(probe.is_probe());
    assert_eq!(
        probe.take_transitions(),
        [transition(change(Kind::Open, Kind::HalfOpen, Cause::ProbeDue, at(5_000)))]
    );
    let out = version.status(0, HOST, at(5_000)).unwrap();
    assert_eq!((out.next_probe, out.probes), (Some(Duration::from_secs(5)), Some((0, 1, 1))));
    let closed = probe.record(CallResult::Status(204), QUICK, at(5_100), 0);
    assert_eq!(
        closed.transitions,
        [transition(change(Kind::HalfOpen, Kind::Closed, Cause::ProbesSucceeded, at(5_100)))]
    );
    assert_eq!(version.status(0, HOST, at(5_100)).unwrap().next_probe, None);
    assert!(!version.admit(&[0], HOST, at(5_100), 0).unwrap().is_probe());
}

#[test]
fn a_transition_of_the_admission_reaches_the_record_when_nobody_took_it() {
    let version = version(&[rule("bank")]);
    fail(&version, &[0], 20, START);
    let probe = version.admit(&[0], HOST, at(5_000), 0).unwrap();
    let recorded = probe.record(CallResult::Status(500), QUICK, at(5_000), 0);
    assert_eq!(
        recorded.transitions.iter().map(|transition| transition.change.cause).collect::<Vec<_>>(),
        [Cause::ProbeDue, Cause::ProbeFailed]
    );
}

#[test]
fn b1_a_refusal_by_one_breaker_gives_the_others_probe_back() {
    let slow = Breaker { open_for: Duration::from_secs(30), ..rule("slow-to-open") };
    let version = version(&[rule("quick"), slow]);
    fail(&version, &[0, 1], 20, START);
    let refusal = version.admit(&[0, 1], HOST, at(5_000), 0).unwrap_err();
    assert_eq!((refusal.rule, refusal.state), (1, Kind::Open));
    assert_eq!(refusal.transitions.len(), 1, "the first one became half-open");
    let status = version.status(0, HOST, at(5_000)).unwrap();
    assert_eq!(status.probes, Some((0, 0, 1)));
    let later = succeed(&version, &[0, 1], at(30_000));
    assert_eq!(later.results.len(), 2);
    check(&version, 0, at(30_000), Kind::Closed);
    check(&version, 1, at(30_000), Kind::Closed);
}

#[test]
fn b2_a_breaker_that_is_listed_twice_is_asked_once() {
    let version = version(&[rule("bank")]);
    fail(&version, &[0, 0], 19, START);
    check(&version, 0, START, Kind::Closed);
    fail(&version, &[0, 0], 1, START);
    let probe = version.admit(&[0, 0], HOST, at(5_000), 0).unwrap();
    assert_eq!(probe.record(CallResult::Status(200), QUICK, at(5_000), 0).results.len(), 1);
    check(&version, 0, at(5_000), Kind::Closed);
    assert!(version.admit(&[7], HOST, START, 0).is_ok(), "a place without a rule is no breaker");
    assert!(version.admit(&[], HOST, START, 0).is_ok());
    assert!(version.status(7, HOST, START).is_none() && version.id(7).is_none());
}

#[test]
fn b5_a_probe_that_is_dropped_or_cancelled_has_no_verdict() {
    let version = version(&[rule("bank")]);
    fail(&version, &[0], 20, START);
    for _ in 0..5 {
        let probe = version.admit(&[0], HOST, at(5_000), 0).unwrap();
        assert!(version.admit(&[0], HOST, at(5_000), 0).is_err());
        drop(probe);
        let probe = version.admit(&[0], HOST, at(5_000), 0).unwrap();
        let recorded = probe.cancelled(QUICK, Duration::from_secs(3), at(5_000), 0);
        assert!(recorded.results.is_empty());
        check(&version, 0, at(5_000), Kind::HalfOpen);
    }
    succeed(&version, &[0], at(5_000));
    check(&version, 0, at(5_000), Kind::Closed);
}

#[test]
fn b5_a_probe_that_never_returns_is_a_failure_and_its_late_result_is_ignored() {
    let version = version(&[rule("bank")]);
    fail(&version, &[0], 20, START);
    let mut silent = version.admit(&[0], HOST, at(5_000), 0).unwrap();
    assert_eq!(silent.take_transitions().len(), 1);
    let refusal = version.admit(&[0], HOST, at(15_000), 0).unwrap_err();
    assert_eq!(refusal.transitions[0].change.cause, Cause::ProbeSilent);
    assert_eq!(refusal.remaining, Duration::from_secs(10), "open_for grew");
    let late = silent.record(CallResult::Status(200), QUICK, at(16_000), 0);
    assert!(!late.results[0].counted && late.transitions.is_empty());
    check(&version, 0, at(24_999), Kind::Open);
    let mut late = version.admit(&[0], HOST, at(25_000), 0).unwrap();
    late.take_transitions();
    let recorded = late.record(CallResult::Status(200), QUICK, at(35_000), 0);
    assert!(!recorded.results[0].counted, "nobody asked in between, and it is late all the same");
    assert_eq!(recorded.transitions[0].change.cause, Cause::ProbeSilent);
    // A cancellation that comes so late is the failure itself.
    let silent = version.admit(&[0], HOST, at(55_000), 0).unwrap();
    let recorded = silent.cancelled(QUICK, Duration::from_mins(1), at(65_000), 0);
    assert_eq!(recorded.transitions.last().unwrap().change.cause, Cause::ProbeSilent);
}

#[test]
fn b6_the_last_probe_that_ends_as_ignored_leaves_it_half_open() {
    let half_open = HalfOpen { probes: 2, probe_timeout: Duration::from_secs(10) };
    let version = version(&[Breaker { half_open, ..rule("bank") }]);
    fail(&version, &[0], 20, START);
    let last = version.admit(&[0], HOST, at(5_000), 0).unwrap();
    succeed(&version, &[0], at(5_000));
    drop(last);
    assert_eq!(version.status(0, HOST, at(5_000)).unwrap().probes, Some((1, 0, 2)));
    succeed(&version, &[0], at(5_000));
    check(&version, 0, at(5_000), Kind::Closed);
}

#[test]
fn b7_results_from_before_a_transition_decide_nothing() {
    let version = version(&[rule("bank")]);
    let early: Vec<_> = (0..60).map(|_| version.admit(&[0], HOST, START, 0).unwrap()).collect();
    fail(&version, &[0], 20, START);
    let probe = version.admit(&[0], HOST, at(5_000), 0).unwrap();
    let mut early = early.into_iter();
    for result in [CallResult::Status(200), CallResult::Timeout] {
        for straggler in early.by_ref().take(20) {
            let recorded = straggler.record(result, QUICK, at(5_100), 0);
            assert!(!recorded.results[0].counted);
            assert_eq!(recorded.transitions, []);
        }
        check(&version, 0, at(5_100), Kind::HalfOpen);
    }
    probe.record(CallResult::Status(200), QUICK, at(5_200), 0);
    for straggler in early {
        straggler.record(CallResult::Timeout, QUICK, at(5_300), 0);
    }
    check(&version, 0, at(5_300), Kind::Closed);
    assert_eq!(tally(&version, at(5_300)), (0, 0));
}

#[test]
fn b8_half_open_results_do_not_seed_the_closed_window() {
    let half_open = HalfOpen { probes: 3, probe_timeout: Duration::from_secs(10) };
    let version = version(&[Breaker { half_open, min_requests: 1, ..rule("bank") }]);
    fail(&version, &[0], 1, START);
    for _ in 0..3 {
        succeed(&version, &[0], at(5_000));
    }
    check(&version, 0, at(5_000), Kind::Closed);
    assert_eq!(tally(&version, at(5_000)), (0, 0), "nor does the window that tripped");
    succeed(&version, &[0], at(5_001));
    assert_eq!(tally(&version, at(5_001)), (1, 0));
}

#[test]
fn b9_b20_calls_that_were_never_made_count_neither_way() {
    let inner = Breaker { min_requests: 1, ..rule("inner") };
    let version = version(&[rule("outer"), inner]);
    fail(&version, &[1], 1, START);
    for _ in 0..100 {
        // A limit, a concurrency cap, a replay: the admission is dropped without a call.
        drop(version.admit(&[0], HOST, START, 0).unwrap());
        // Nested: the outer one admits, the inner one refuses.
        let outer = version.admit(&[0], HOST, START, 0).unwrap();
        assert!(version.admit(&[1], HOST, START, 0).is_err());
        drop(outer);
        // Side by side on one resource.
        assert_eq!(version.admit(&[0, 1], HOST, START, 0).unwrap_err().rule, 1);
    }
    assert_eq!(tally(&version, START), (0, 0));
    check(&version, 0, START, Kind::Closed);
}

#[test]
fn b10_a_timeout_that_comes_as_a_cancellation_counts_once() {
    let version = version(&[rule("bank")]);
    let timeout = Duration::from_secs(3);
    let admission = version.admit(&[0], HOST, START, 0).unwrap();
    let recorded = admission.cancelled(timeout, timeout, at(3_000), 0);
    assert_eq!(recorded.results[0].result(), "failure");
    assert_eq!(tally(&version, at(3_000)), (1, 1));
    let admission = version.admit(&[0], HOST, START, 0).unwrap();
    admission.record(CallResult::Timeout, timeout, at(3_000), 0);
    assert_eq!(tally(&version, at(3_000)), (2, 2));
    let admission = version.admit(&[0], HOST, START, 0).unwrap();
    admission.cancelled(timeout.saturating_sub(QUICK), timeout, at(3_000), 0);
    assert_eq!(tally(&version, at(3_000)), (2, 2), "a client that left earlier");
}

#[test]
fn b11_calls_longer_than_the_window_still_trip() {
    let slow = Trip::SlowRatio { slower_than: Duration::from_secs(1), at_least: half() };
    let version = version(&[Breaker { trip: vec![slow], ..rule("bank") }]);
    let calls: Vec<_> = (0..20).map(|_| version.admit(&[0], HOST, START, 0).unwrap()).collect();
    let mut moved = Vec::new();
    for call in calls {
        let recorded = call.record(CallResult::Status(200), Duration::from_secs(45), at(45_000), 0);
        moved.extend(recorded.transitions);
    }
    assert_eq!(moved.len(), 1);
    check(&version, 0, at(45_000), Kind::Open);
}

#[test]
fn b13_the_wall_clock_is_no_input_so_its_steps_change_no_opening() {
    let (env, clock) = crate::env::Env::manual(START);
    let version = version(&[rule("bank")]);
    fail(&version, &[0], 20, env.now());
    clock.advance(Duration::from_millis(4_999));
    let left = version.admit(&[0], HOST, env.now(), 0).unwrap_err().remaining;
    assert_eq!(left, Duration::from_millis(1));
    // A steady clock does not run backwards; if it did, the wait is one opening and no more.
    let back = START.before(Duration::from_mins(1));
    assert_eq!(version.admit(&[0], HOST, back, 0).unwrap_err().remaining, Duration::from_secs(5));
    let next = back + Duration::from_secs(1);
    assert_eq!(version.admit(&[0], HOST, next, 0).unwrap_err().remaining, Duration::from_secs(4));
    assert!(version.admit(&[0], HOST, back + Duration::from_secs(5), 0).unwrap().is_probe());
}

#[test]
fn b15_of_callers_that_race_into_half_open_exactly_one_is_admitted() {
    for round in 0..50 {
        let version = version(&[rule("bank")]);
        fail(&version, &[0], 20, START);
        let barrier = Barrier::new(8);
        let refused = AtomicUsize::new(0);
        let admitted = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    match version.admit(&[0], HOST, at(5_000), 0) {
                        Ok(admission) => admitted.lock().push(admission),
                        Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                    }
                });
            }
        });
        assert_eq!((admitted.lock().len(), refused.into_inner()), (1, 7), "{round}");
    }
}

#[test]
fn b18_a_breaker_for_each_host_opens_for_the_bad_one_only() {
    let both = [Breaker { per_upstream_host: true, ..rule("hosts") }, rule("all")];
    let version = version(&both);
    let send = |rule: usize, host: &str, result| {
        let admission = version.admit(&[rule], host, START, 0).ok()?;
        Some(admission.record(result, QUICK, START, 0))
    };
    let mut moved = Vec::new();
    for _ in 0..20 {
        moved.extend(send(0, "bad", CallResult::Connect).unwrap().transitions);
        send(0, "good", CallResult::Status(200)).unwrap();
    }
    assert_eq!(moved.len(), 1);
    assert_eq!(moved[0].host.as_deref(), Some("bad"));
    assert!(send(0, "bad", CallResult::Connect).is_none());
    assert!(send(0, "good", CallResult::Status(200)).is_some());
    assert!(version.peek(&[0], "bad", START).is_err() && version.peek(&[0], "new", START).is_ok());
    assert_eq!(version.status(0, "new", START).unwrap().state, Kind::Closed);
    assert_eq!(version.hosts(0).iter().map(|host| &**host).collect::<Vec<_>>(), ["bad", "good"]);
    // One breaker for all: the bad host opens it for the good one.
    for _ in 0..20 {
        send(1, "bad", CallResult::Connect).unwrap();
    }
    assert!(send(1, "good", CallResult::Status(200)).is_none());
    assert!(version.hosts(1).is_empty());
}

#[test]
fn hosts_past_the_bound_share_one_breaker() {
    let version = version(&[Breaker { per_upstream_host: true, min_requests: 1, ..rule("hosts") }]);
    for host in 0..entry::MAX_HOSTS {
        drop(version.admit(&[0], &format!("h{host}"), START, 0).unwrap());
    }
    let admission = version.admit(&[0], "one more", START, 0).unwrap();
    let recorded = admission.record(CallResult::Reset, QUICK, START, 0);
    assert_eq!(recorded.transitions[0].host, None);
    assert!(version.admit(&[0], "and another", START, 0).is_err());
    assert!(version.admit(&[0], "h0", START, 0).is_ok());
    assert_eq!(version.hosts(0).len(), entry::MAX_HOSTS);
}

#[test]
fn threads_that_record_at_once_trip_exactly_once_and_lose_no_count() {
    for _ in 0..20 {
        let version = version(&[Breaker { min_requests: 4_000, ..rule("bank") }]);
        let moved = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let admissions: Vec<_> =
                        (0..1_000).map(|_| version.admit(&[0], HOST, START, 0).unwrap()).collect();
                    for admission in admissions {
                        let recorded = admission.record(CallResult::Reset, QUICK, START, 0);
                        moved.fetch_add(recorded.transitions.len(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(moved.into_inner(), 1);
        assert_eq!(tally(&version, START), (4_000, 4_000));
        check(&version, 0, START, Kind::Open);
    }
}

#[test]
fn an_admission_can_move_to_a_task_of_its_own() {
    fn movable<T: Send + Sync + 'static>(_: &T) {}
    let version = version(&[rule("bank")]);
    movable(&version);
    movable(&version.admit(&[0], HOST, START, 0).unwrap().into_owned());
    let admission = version.admit(&[0], HOST, START, 0).unwrap().into_owned();
    drop(version);
    assert_eq!(admission.record(CallResult::Status(200), QUICK, START, 0).results.len(), 1);
}
