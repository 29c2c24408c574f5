//! The run-time breaker against the pure state machine and a plain list of results.

use std::collections::VecDeque;

use proptest::prelude::*;
use tidegate_core::breaker::state;
use tidegate_core::breaker::window::BUCKETS;
use tidegate_core::breaker::{Class, Policy, State, Window};
use tidegate_core::time::nanos;

use super::*;

fn lively() -> Breaker {
    Breaker {
        trip: vec![
            Trip::ErrorRatio { at_least: half() },
            Trip::SlowRatio { slower_than: Duration::from_millis(100), at_least: half() },
            Trip::ErrorCount { at_least: 6 },
        ],
        min_requests: 4,
        window: Duration::from_secs(1),
        open_for: Duration::from_millis(500),
        max_open: Duration::from_secs(2),
        half_open: HalfOpen { probes: 2, probe_timeout: Duration::from_millis(700) },
        ..rule("bank")
    }
}

/// What is expected: the machine of the core, and a list of (tick, class) since it last closed.
struct Model {
    policy: Policy,
    state: State,
    results: VecDeque<(u64, Class)>,
    ticks: u64,
    tick: u64,
}

impl Model {
    fn new(rule: &Breaker) -> Self {
        let policy = Policy::new(rule);
        let window: Window = Window::new(policy.window, BUCKETS, policy.classes());
        Self {
            state: State::new(Timestamp::EPOCH),
            results: VecDeque::new(),
            ticks: u64::from(window.buckets()),
            tick: nanos(window.tick_length()),
            policy,
        }
    }

    fn tally(&self, now: Timestamp) -> Tally {
        let tick = now.as_nanos() / self.tick;
        let standing = self.results.iter().filter(|(then, _)| then + self.ticks > tick);
        let mut tally = Tally { slow: SmallVec::from_elem(0, 1), ..Tally::default() };
        for (_, class) in standing {
            tally.calls += 1;
            tally.failures += u64::from(class.failed());
            tally.slow[0] += u64::from(class.slow());
        }
        tally
    }

    fn take(&mut self, state: State) {
        if state.generation() != self.state.generation() && state.kind() == Kind::Closed {
            self.results.clear();
        }
        self.state = state;
    }

    fn record(&mut self, permit: Permit, result: CallResult, elapsed: Duration, now: Timestamp) {
        let class = self.policy.class(result, elapsed);
        if permit.probe.is_some() {
            let (_, _, state) = state::settle(self.state.clone(), &self.policy, permit, class, now, 0);
            self.take(state);
        } else if permit.generation == self.state.generation() {
            self.results.push_back((now.as_nanos() / self.tick, class));
            if let Some(index) = self.policy.tripped(&self.tally(now)) {
                let (_, state) =
                    state::trip(self.state.clone(), &self.policy, permit.generation, index, now, 0);
                self.take(state);
            }
        }
    }
}

proptest! {
    #[test]
    fn it_does_what_the_state_machine_and_a_list_of_results_say(
        steps in prop::collection::vec((0_u64..250, 0_u8..14, any::<prop::sample::Index>()), 1..250),
    ) {
        let rule = lively();
        let version = version(std::slice::from_ref(&rule));
        let mut model = Model::new(&rule);
        let mut flight: Vec<(Admission, Permit)> = Vec::new();
        let mut now = START;
        for (wait, action, pick) in steps {
            now = now + Duration::from_millis(wait);
            let call = (!flight.is_empty()).then(|| pick.index(flight.len()));
            match (action, call) {
                (0..=5, _) => {
                    let (decision, _, state) = state::admit(model.state.clone(), &model.policy, now, 0);
                    model.take(state);
                    let peeked = version.peek(&[0], HOST, now).is_ok();
                    match (decision, version.admit(&[0], HOST, now, 0)) {
                        (Decision::Admit(permit), Ok(admission)) => {
                            prop_assert!(peeked);
                            prop_assert_eq!(admission.held[0].permit, permit);
                            flight.push((admission, permit));
                        }
                        (Decision::Refuse(expected), Err(refusal)) => {
                            prop_assert!(!peeked);
                            prop_assert_eq!(refusal.state, expected.kind);
                            prop_assert_eq!(refusal.remaining, expected.remaining);
                        }
                        (expected, got) => prop_assert!(false, "{expected:?}, {got:?}"),
                    }
                }
                (6..=11, Some(call)) => {
                    let (admission, permit) = flight.swap_remove(call);
                    let (result, elapsed) = match action {
                        6..=8 => (CallResult::Status(200), QUICK),
                        9 => (CallResult::Status(200), Duration::from_millis(101)),
                        10 => (CallResult::Connect, QUICK),
                        _ => (CallResult::Timeout, Duration::from_secs(3)),
                    };
                    model.record(permit, result, elapsed, now);
                    admission.record(result, elapsed, now, 0);
                }
                (12, Some(call)) => {
                    let (admission, permit) = flight.swap_remove(call);
                    model.take(state::release(model.state.clone(), permit));
                    drop(admission);
                }
                (13, Some(call)) => {
                    let (admission, permit) = flight.swap_remove(call);
                    if permit.probe.is_some() {
                        let (_, state) = state::cancel(model.state.clone(), &model.policy, permit, now, 0);
                        model.take(state);
                    }
                    admission.cancelled(QUICK, Duration::from_secs(3), now, 0);
                }
                _ => {}
            }
            prop_assert_eq!(version.handles.mine().entries[0].with(0, Cell::state), model.state.clone());
            if model.state.kind() == Kind::Closed {
                prop_assert_eq!(version.status(0, HOST, now).unwrap().tally, model.tally(now));
            }
        }
    }
}

#[test]
fn threads_never_hold_more_probes_than_the_rule_allows() {
    let version = version(&[lively()]);
    // Whoever holds an admission reads the clock, so time stands still meanwhile: a thread that is kept off
    // its processor is no silent probe.
    let clock = std::sync::RwLock::new(0_u64);
    let (probes, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (version, clock, probes, most) = (&version, &clock, &probes, &most);
            scope.spawn(move || {
                for step in 0..3_000_u64 {
                    *clock.write().unwrap() += 1;
                    let ticks = clock.read().unwrap();
                    // A millisecond for every four calls.
                    let now = at(*ticks / 4);
                    let Ok(admission) = version.admit(&[0], HOST, now, step) else { continue };
                    let probe = admission.is_probe();
                    if probe {
                        most.fetch_max(probes.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        probes.fetch_sub(1, Ordering::SeqCst);
                    }
                    match (step + thread) % 3 {
                        0 if !probe => drop(admission),
                        1 => drop(admission.record(CallResult::Status(200), QUICK, now, step)),
                        _ => drop(admission.record(CallResult::Reset, QUICK, now, step)),
                    }
                }
            });
        }
    });
    assert!((1..=2).contains(&most.into_inner()));
    let end = at(clock.into_inner().unwrap() + 10_000);
    for _ in 0..2 {
        succeed(&version, &[0], end);
    }
    check(&version, 0, end, Kind::Closed);
}

/// The two results that reach the threshold together: whichever is counted last, it is seen by one of them
/// that both stand there. The good one takes the short way and the bad one the long way.
#[test]
fn of_a_good_and_a_bad_result_at_once_one_trips() {
    let twos: Vec<_> = (0..2_000).map(|_| version(&[Breaker { min_requests: 2, ..rule("bank") }])).collect();
    let moved: Vec<_> = twos.iter().map(|_| AtomicUsize::new(0)).collect();
    let met: Vec<_> = twos.iter().map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for result in [CallResult::Status(200), CallResult::Reset] {
            let (twos, moved, met) = (&twos, &moved, &met);
            scope.spawn(move || {
                for ((version, moved), met) in twos.iter().zip(moved).zip(met) {
                    let admission = version.admit(&[0], HOST, START, 0).unwrap();
                    // As close together as two threads come.
                    met.fetch_add(1, Ordering::SeqCst);
                    while met.load(Ordering::SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                    let recorded = admission.record(result, QUICK, START, 0);
                    moved.fetch_add(recorded.transitions.len(), Ordering::SeqCst);
                }
            });
        }
    });
    for (round, (version, moved)) in twos.iter().zip(moved).enumerate() {
        assert_eq!(moved.into_inner(), 1, "{round}");
        assert_eq!(tally(version, START), (2, 1), "{round}");
    }
}

/// An edit that keeps the window loses nothing of what is counted meanwhile, by either way.
#[test]
fn results_at_the_time_of_an_edit_that_keeps_the_window_all_count() {
    let breakers = Breakers::new();
    let edited = |open_for: u64| Breaker {
        min_requests: 1_000_000,
        open_for: Duration::from_secs(open_for),
        ..rule("bank")
    };
    let first = breakers.apply(&[edited(1)]);
    let running = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (first, running) = (&first, &running);
            scope.spawn(move || {
                for step in 0..5_000_u64 {
                    let good = !(step + thread).is_multiple_of(4);
                    let result = if good { CallResult::Status(200) } else { CallResult::Reset };
                    call(first, &[0], result, QUICK, START).unwrap();
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let mut edits = 0;
        while running.load(Ordering::SeqCst) > 0 {
            edits += 1;
            breakers.apply(&[edited(1 + edits % 2)]);
        }
    });
    assert_eq!(tally(&first, START), (15_000, 3_750));
}
