use proptest::prelude::*;

use super::*;
use crate::breaker::policy::CallResult;
use crate::breaker::test::{percent, rule};
use crate::rule::model::{Breaker, HalfOpen, Trip};

const START: Timestamp = Timestamp::from_secs(1_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn secs(seconds: u64) -> Timestamp {
    START + SECOND * seconds as u32
}

fn probes(probes: u32) -> Policy {
    let half_open = HalfOpen { probes, probe_timeout: SECOND * 10 };
    let trip = vec![Trip::SlowRatio { slower_than: Duration::from_millis(250), at_least: percent(5_000) }];
    Policy::new(&Breaker { trip, half_open, ..rule() })
}

/// One breaker and what moved it.
struct Bench {
    policy: Policy,
    state: State,
    random: u64,
    changes: Vec<Change>,
}

impl Bench {
    fn new(policy: Policy) -> Self {
        Self { policy, state: State::new(START), random: 0, changes: Vec::new() }
    }

    /// A breaker that is open from `START` to five seconds later.
    fn open(policy: Policy) -> Self {
        let mut bench = Self::new(policy);
        bench.trip(START);
        bench
    }

    fn admit(&mut self, now: Timestamp) -> Decision {
        let (decision, changes, state) = admit(self.state.clone(), &self.policy, now, self.random);
        self.changes.extend(changes);
        self.state = state;
        decision
    }

    fn permit(&mut self, now: Timestamp) -> Permit {
        match self.admit(now) {
            Decision::Admit(permit) => permit,
            Decision::Refuse(refused) => panic!("{refused:?}"),
        }
    }

    fn refused(&mut self, now: Timestamp) -> Refused {
        match self.admit(now) {
            Decision::Admit(permit) => panic!("{permit:?}"),
            Decision::Refuse(refused) => refused,
        }
    }

    fn settle(&mut self, permit: Permit, result: CallResult, elapsed: Duration, now: Timestamp) {
        let class = self.policy.class(result, elapsed);
        let (_, changes, state) = settle(self.state.clone(), &self.policy, permit, class, now, self.random);
        self.changes.extend(changes);
        self.state = state;
    }

    fn succeed(&mut self, permit: Permit, now: Timestamp) {
        self.settle(permit, CallResult::Status(200), Duration::ZERO, now);
    }

    fn fail(&mut self, permit: Permit, now: Timestamp) {
        self.settle(permit, CallResult::Reset, Duration::ZERO, now);
    }

    fn release(&mut self, permit: Permit) {
        self.state = release(self.state.clone(), permit);
    }

    fn trip(&mut self, now: Timestamp) {
        self.trip_in(self.state.generation(), now);
    }

    fn trip_in(&mut self, generation: u64, now: Timestamp) {
        let (changes, state) = trip(self.state.clone(), &self.policy, generation, 0, now, self.random);
        self.changes.extend(changes);
        self.state = state;
    }

    fn length(&self) -> Duration {
        let (since, until) = self.state.open_until().unwrap();
        until.since(since)
    }
}

#[test]
fn the_documented_table_is_what_the_machine_does() {
    let row = |from: &str, event: &str, bench: &Bench| {
        format!("//! | {from} | {event} | {} |", bench.state.kind().name())
    };
    let mut done = Vec::new();

    let mut bench = Bench::new(probes(1));
    bench.trip(START);
    done.push(row("closed", "the window trips", &bench));

    let mut bench = Bench::new(probes(1));
    bench.trip_in(7, START);
    bench.settle(Permit { generation: 7, probe: None }, CallResult::Reset, SECOND, START);
    done.push(row("closed", "a result or a trip of an older generation", &bench));

    let mut bench = Bench::new(probes(1));
    assert_eq!(bench.permit(START), Permit { generation: 0, probe: None });
    done.push(row("closed", "a call", &bench));

    let mut bench = Bench::open(probes(1));
    bench.refused(START + Duration::from_nanos(4_999_999_999));
    done.push(row("open", "a call before its end", &bench));

    let mut bench = Bench::open(probes(1));
    assert_eq!(bench.permit(secs(5)).probe, Some(0));
    done.push(row("open", "a call at its end or later: it is a probe", &bench));

    let mut bench = Bench::open(probes(1));
    bench.succeed(Permit { generation: 0, probe: None }, START);
    bench.succeed(Permit { generation: 0, probe: Some(0) }, START);
    bench.trip_in(0, START);
    done.push(row("open", "a result of an older generation", &bench));

    let half_open = |probes: Policy| {
        let mut bench = Bench::open(probes);
        let permit = bench.permit(secs(5));
        (bench, permit)
    };
    let (mut bench, _) = half_open(probes(1));
    bench.refused(secs(5));
    done.push(row("half-open", "a call while all permits are out", &bench));

    let (mut bench, permit) = half_open(probes(1));
    bench.release(permit);
    assert_eq!(bench.state.probes(), Some((0, 0)));
    done.push(row("half-open", "a probe cancelled or dropped: its permit is back", &bench));

    let (mut bench, permit) = half_open(probes(2));
    bench.succeed(permit, secs(6));
    done.push(row("half-open", "a probe succeeded, others are due", &bench));

    let (mut bench, permit) = half_open(probes(1));
    bench.succeed(permit, secs(6));
    done.push(row("half-open", "the last probe succeeded", &bench));

    let (mut bench, permit) = half_open(probes(2));
    bench.fail(permit, secs(6));
    done.push(row("half-open", "a probe failed", &bench));

    let (mut bench, permit) = half_open(probes(2));
    bench.settle(permit, CallResult::Status(200), Duration::from_millis(251), secs(6));
    assert_eq!(bench.changes.last().unwrap().cause, Cause::ProbeSlow);
    done.push(row("half-open", "a probe was slow", &bench));

    let (mut bench, _) = half_open(probes(1));
    bench.refused(secs(15));
    done.push(row("half-open", "a probe was silent past its time", &bench));

    let (mut bench, permit) = half_open(probes(1));
    bench.fail(Permit { generation: 0, ..permit }, secs(5));
    bench.trip_in(permit.generation, secs(5));
    done.push(row("half-open", "a result of an older generation", &bench));

    let documented: Vec<&str> = include_str!("../state.rs")
        .lines()
        .filter(|line| {
            ["closed", "open", "half-open"].iter().any(|from| line.starts_with(&format!("//! | {from} |")))
        })
        .collect();
    assert_eq!(done, documented);
}

#[test]
fn every_transition_says_why_and_begins_a_generation() {
    let mut bench = Bench::open(probes(1));
    let probe = bench.permit(secs(5));
    bench.fail(probe, secs(6));
    let probe = bench.permit(secs(16));
    bench.succeed(probe, secs(17));
    let change = |from, to, cause, at| Change { from, to, cause, at: secs(at) };
    assert_eq!(
        bench.changes,
        [
            change(Kind::Closed, Kind::Open, Cause::Trip(0), 0),
            change(Kind::Open, Kind::HalfOpen, Cause::ProbeDue, 5),
            change(Kind::HalfOpen, Kind::Open, Cause::ProbeFailed, 6),
            change(Kind::Open, Kind::HalfOpen, Cause::ProbeDue, 16),
            change(Kind::HalfOpen, Kind::Closed, Cause::ProbesSucceeded, 17),
        ]
    );
    assert_eq!(bench.state.generation(), 5);
}

#[test]
fn b1_a_permit_that_is_given_back_lets_a_later_probe_close() {
    let mut bench = Bench::open(probes(1));
    let permit = bench.permit(secs(5));
    bench.release(permit);
    let again = bench.permit(secs(5));
    assert_ne!(again, permit);
    bench.succeed(again, secs(6));
    assert_eq!(bench.state.kind(), Kind::Closed);
}

#[test]
fn b5_a_silent_probe_is_a_failure_from_its_deadline_and_its_late_result_is_ignored() {
    let mut bench = Bench::open(probes(1));
    let permit = bench.permit(secs(5));
    assert_eq!(bench.refused(START + Duration::from_nanos(14_999_999_999)).kind, Kind::HalfOpen);
    // Seen late: the opening dates from the deadline, 15 s, and has grown to 10 s.
    assert_eq!(bench.refused(secs(24)).remaining, SECOND);
    assert_eq!(bench.changes.last().unwrap().cause, Cause::ProbeSilent);
    assert_eq!(bench.changes.last().unwrap().at, secs(15));
    let before = bench.state.clone();
    bench.succeed(permit, secs(24));
    bench.fail(permit, secs(24));
    bench.release(permit);
    assert_eq!(bench.state, before);
    // Silent again, and nobody asked until the next probe was due as well: two steps at once.
    let _silent = bench.permit(secs(25));
    bench.changes.clear();
    let next = bench.permit(secs(500));
    assert_eq!(
        bench.changes.iter().map(|change| change.to).collect::<Vec<_>>(),
        [Kind::Open, Kind::HalfOpen]
    );
    assert_eq!(bench.state.trips(), 3);
    bench.succeed(next, secs(501));
    assert_eq!(bench.state.kind(), Kind::Closed);
}

#[test]
fn b5_a_result_at_the_deadline_is_late() {
    let mut bench = Bench::open(probes(1));
    let permit = bench.permit(secs(5));
    bench.succeed(permit, secs(15));
    assert_eq!(bench.state.kind(), Kind::Open);
    assert_eq!(bench.changes.last().unwrap().cause, Cause::ProbeSilent);
}

#[test]
fn b5_a_cancelled_probe_has_no_verdict_unless_it_was_silent_past_its_time() {
    for (at, kind) in [(14, Kind::HalfOpen), (15, Kind::Open)] {
        let mut bench = Bench::open(probes(1));
        let permit = bench.permit(secs(5));
        let (changes, state) = cancel(bench.state, &bench.policy, permit, secs(at), 0);
        assert_eq!(state.kind(), kind, "{at}");
        assert_eq!(changes.len(), usize::from(kind == Kind::Open));
        if kind == Kind::HalfOpen {
            assert_eq!(state.probes(), Some((0, 0)));
        }
    }
}

#[test]
fn b4_a_fork_keeps_the_state_but_not_the_permits_of_others() {
    let mut bench = Bench::open(probes(2));
    assert_eq!(bench.state.fork(), bench.state);
    let permit = bench.permit(secs(5));
    bench.succeed(permit, secs(5));
    let _ = bench.permit(secs(5));
    assert_eq!(bench.state.probes(), Some((1, 1)));
    let fork = bench.state.fork();
    assert_eq!((fork.kind(), fork.probes(), fork.trips()), (Kind::HalfOpen, Some((0, 0)), 1));
}

#[test]
fn b6_the_last_probe_without_a_verdict_leaves_it_half_open() {
    let mut bench = Bench::open(probes(2));
    let (one, two) = (bench.permit(secs(5)), bench.permit(secs(5)));
    bench.refused(secs(5));
    bench.succeed(one, secs(6));
    bench.refused(secs(6));
    bench.release(two);
    assert_eq!(bench.state.probes(), Some((1, 0)));
    let three = bench.permit(secs(6));
    bench.refused(secs(6));
    bench.succeed(three, secs(7));
    assert_eq!(bench.state.kind(), Kind::Closed);
}

#[test]
fn b7_calls_admitted_while_closed_decide_nothing_later() {
    let mut bench = Bench::new(probes(1));
    let early = bench.permit(START);
    bench.trip(START);
    let probe = bench.permit(secs(5));
    bench.fail(early, secs(5));
    bench.trip_in(early.generation, secs(5));
    assert_eq!(bench.state.kind(), Kind::HalfOpen);
    bench.succeed(early, secs(5));
    assert_eq!(bench.state.probes(), Some((0, 1)));
    bench.succeed(probe, secs(6));
    assert_eq!(bench.state.kind(), Kind::Closed);
    bench.trip_in(early.generation, secs(6));
    assert_eq!(bench.state.kind(), Kind::Closed, "nor after it closed again");
}

#[test]
fn a_settled_or_foreign_permit_moves_nothing() {
    let mut bench = Bench::open(probes(2));
    let permit = bench.permit(secs(5));
    bench.succeed(permit, secs(6));
    bench.succeed(permit, secs(6));
    bench.release(permit);
    bench.fail(Permit { probe: None, ..permit }, secs(6));
    bench.fail(Permit { probe: Some(9), ..permit }, secs(6));
    assert_eq!(bench.state.probes(), Some((1, 0)));
}

#[test]
fn repeated_trips_open_longer_up_to_the_bound() {
    for (random, percent) in [(0, 100), (u64::MAX / 2, 110), (u64::MAX, 120)] {
        let mut bench = Bench::new(probes(1));
        bench.random = random;
        let mut now = START;
        for seconds in [5, 10, 20, 40, 60, 60, 60] {
            if bench.state.kind() == Kind::HalfOpen {
                let _ = bench.permit(now);
            }
            bench.trip(now);
            let expected = SECOND * seconds * percent / 100;
            let got = bench.length();
            assert!(got <= expected && got + Duration::from_micros(1) >= expected, "{got:?} {expected:?}");
            now = bench.state.open_until().unwrap().1;
            let probe = bench.permit(now);
            bench.succeed(probe, now);
        }
        assert_eq!(bench.state.trips(), 7);
    }
}

#[test]
fn the_row_of_trips_ends_after_a_healthy_time() {
    // The last opening was 20 s, longer than the window of 10 s.
    for (closed_for, length) in [(20_000, 5), (19_999, 40)] {
        let mut bench = Bench::new(probes(1));
        let mut now = START;
        for _ in 0..3 {
            bench.trip(now);
            now = bench.state.open_until().unwrap().1;
            let probe = bench.permit(now);
            bench.succeed(probe, now);
        }
        bench.trip(now + Duration::from_millis(closed_for));
        assert_eq!(bench.length(), SECOND * length, "{closed_for}");
    }
    // The last opening was 5 s, shorter than the window.
    for (closed_for, length) in [(10_000, 5), (9_999, 10)] {
        let mut bench = Bench::open(probes(1));
        let probe = bench.permit(secs(5));
        bench.succeed(probe, secs(5));
        bench.trip(secs(5) + Duration::from_millis(closed_for));
        assert_eq!(bench.length(), SECOND * length, "{closed_for}");
    }
}

#[test]
fn retry_after_is_what_remains_and_up_to_half_of_it() {
    let mut bench = Bench::open(probes(1));
    assert_eq!(bench.refused(secs(1)).remaining, SECOND * 4);
    assert_eq!(bench.refused(secs(1)).retry_after, SECOND * 4);
    let mut longest = Duration::ZERO;
    for step in 0..1_000_u64 {
        bench.random = step.wrapping_mul(0x1234_5678_9abc_def1);
        let refused = bench.refused(secs(1));
        assert!(refused.retry_after >= SECOND * 4 && refused.retry_after <= SECOND * 6, "{refused:?}");
        longest = longest.max(refused.retry_after);
    }
    assert!(longest > Duration::from_millis(5_900), "{longest:?}");
    // Half-open: until the probe must have answered, at most one opening.
    let _ = bench.permit(secs(5));
    bench.random = 0;
    assert_eq!(bench.refused(secs(5)).remaining, SECOND * 5);
    assert_eq!(bench.refused(secs(12)).remaining, SECOND * 3);
}

#[test]
fn b13_a_clock_that_runs_backwards_waits_one_period_at_most() {
    let mut bench = Bench::open(probes(1));
    // The wall clock is no input. Should the steady one step back, the opening starts again.
    assert_eq!(bench.refused(START.before(SECOND * 60)).remaining, SECOND * 5);
    assert_eq!(bench.refused(START.before(SECOND * 56)).remaining, SECOND);
    let _silent = bench.permit(START.before(SECOND * 55));
    assert_eq!(bench.refused(START.before(SECOND * 500)).remaining, SECOND * 5);
    assert_eq!(bench.refused(START.before(SECOND * 491)).kind, Kind::HalfOpen);
    assert_eq!(bench.refused(START.before(SECOND * 490)).kind, Kind::Open, "the probe was silent for 10 s");
}

#[test]
fn b16_zero_times_and_a_frozen_clock_neither_loop_nor_panic() {
    let zero = Breaker {
        window: Duration::ZERO,
        open_for: Duration::ZERO,
        max_open: Duration::ZERO,
        half_open: HalfOpen { probes: 0, probe_timeout: Duration::ZERO },
        ..rule()
    };
    let mut bench = Bench::open(Policy::new(&zero));
    for _ in 0..100 {
        // Open for no time at all: the next call is a probe, and a probe is late at once.
        let permit = bench.permit(START);
        bench.succeed(permit, START);
        assert_ne!(bench.state.kind(), Kind::Closed);
    }
    let huge = Breaker {
        window: Duration::MAX,
        open_for: Duration::MAX,
        max_open: Duration::MAX,
        half_open: HalfOpen { probes: u32::MAX, probe_timeout: Duration::MAX },
        ..rule()
    };
    let mut bench = Bench::open(Policy::new(&huge));
    bench.random = u64::MAX;
    let refused = bench.refused(Timestamp::EPOCH);
    assert!(refused.retry_after >= refused.remaining);
    let _ = bench.permit(Timestamp::MAX);
}

#[test]
fn b4_an_edited_rule_takes_the_state_as_it_is() {
    let mut bench = Bench::open(probes(3));
    bench.policy.open_for = SECOND;
    bench.policy.max_open = SECOND;
    assert_eq!(bench.refused(START).remaining, SECOND * 5, "open until its own deadline");
    let (one, two) = (bench.permit(secs(5)), bench.permit(secs(5)));
    bench.succeed(one, secs(6));
    bench.succeed(two, secs(6));
    // Two are enough now: a visible transition with the next call.
    bench.policy = probes(2);
    assert_eq!(bench.permit(secs(7)).probe, None);
    assert_eq!(bench.changes.last().unwrap().cause, Cause::ProbesSucceeded);
}

/// The same machine as a log of what happened, looked through anew for each question.
#[derive(Default)]
struct Model {
    open: Option<Timestamp>,
    half_open: bool,
    out: Vec<(u64, Permit, Timestamp)>,
    succeeded: usize,
    trips: u32,
    closed_since: Timestamp,
    last: Duration,
}

impl Model {
    fn trip(&mut self, policy: &Policy, at: Timestamp) {
        let closed = self.open.is_none() && !self.half_open;
        if closed && at.since(self.closed_since) >= policy.window.max(self.last) {
            self.trips = 0;
        }
        self.last = (0..self.trips).fold(policy.open_for, |length, _| (length * 2).min(policy.max_open));
        self.trips += 1;
        *self = Self { open: Some(at + self.last), trips: self.trips, last: self.last, ..Self::default() };
    }

    fn pass(&mut self, policy: &Policy, now: Timestamp) {
        if let Some(late) = self.out.iter().map(|(_, _, at)| *at + policy.probe_timeout).min()
            && late <= now
        {
            self.trip(policy, late);
        }
        if self.open.is_some_and(|until| until <= now) {
            self.open = None;
            self.half_open = true;
        }
    }
}

#[test]
fn a_cause_reads_as_words_and_counts_trips_from_1() {
    assert_eq!(Cause::Trip(0).to_string(), "entry 1 of trip");
    assert_eq!(Cause::ProbeSilent.to_string(), "a probe gave no result");
}

proptest! {
    #[test]
    fn it_agrees_with_a_plain_model(
        limit in 1_u32..4,
        steps in prop::collection::vec((0_u64..6_000, 0_u8..12, any::<prop::sample::Index>()), 1..120),
    ) {
        let mut bench = Bench::new(probes(limit));
        let mut model = Model { closed_since: START, ..Model::default() };
        let mut now = START;
        let mut given: Vec<(u64, Permit)> = Vec::new();
        for (number, (wait, action, pick)) in steps.into_iter().enumerate() {
            now = now + Duration::from_millis(wait);
            let number = number as u64;
            match action {
                0..=4 => {
                    model.pass(&bench.policy, now);
                    let expected = !model.half_open && model.open.is_none()
                        || model.half_open && model.out.len() + model.succeeded < limit as usize;
                    match bench.admit(now) {
                        Decision::Admit(permit) => {
                            prop_assert!(expected);
                            prop_assert_eq!(permit.probe.is_some(), model.half_open);
                            if model.half_open {
                                model.out.push((number, permit, now));
                            }
                            given.push((number, permit));
                        }
                        Decision::Refuse(refused) => {
                            prop_assert!(!expected);
                            if let Some(until) = model.open {
                                prop_assert_eq!(refused.remaining, until.since(now));
                            }
                            prop_assert!(refused.remaining > Duration::ZERO);
                        }
                    }
                }
                5..=10 if !given.is_empty() => {
                    let (id, permit) = *pick.get(&given);
                    if action == 10 {
                        // Given back: nobody looks at the time.
                        bench.release(permit);
                        model.out.retain(|(other, ..)| *other != id);
                    } else {
                        model.pass(&bench.policy, now);
                        let mine = model.out.iter().any(|(other, ..)| *other == id);
                        model.out.retain(|(other, ..)| *other != id);
                        if action < 8 {
                            bench.succeed(permit, now);
                            model.succeeded += usize::from(mine);
                            if mine && model.succeeded == limit as usize {
                                model = Model {
                                    closed_since: now,
                                    trips: model.trips,
                                    last: model.last,
                                    ..Model::default()
                                };
                            }
                        } else {
                            bench.fail(permit, now);
                            if mine {
                                model.trip(&bench.policy, now);
                            }
                        }
                    }
                }
                11 => {
                    let closed = bench.state.kind() == Kind::Closed;
                    bench.trip(now);
                    if closed {
                        model.trip(&bench.policy, now);
                    }
                }
                _ => {}
            }
            let kind = if model.open.is_some() {
                Kind::Open
            } else if model.half_open {
                Kind::HalfOpen
            } else {
                Kind::Closed
            };
            prop_assert_eq!(bench.state.kind(), kind);
            if kind == Kind::HalfOpen {
                prop_assert_eq!(bench.state.probes(), Some((model.succeeded as u32, model.out.len() as u32)));
            }
            prop_assert_eq!(bench.state.trips(), model.trips);
        }
        // However it went: with every permit back, the breaker can be closed again.
        for (_, permit) in given {
            bench.release(permit);
        }
        now = now + SECOND * 100;
        for _ in 0..limit {
            let permit = bench.permit(now);
            bench.succeed(permit, now);
        }
        prop_assert_eq!(bench.state.kind(), Kind::Closed);
    }
}
