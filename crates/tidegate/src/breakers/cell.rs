//! One breaker at run time: the pure state machine behind a lock, and what a closed breaker needs in
//! atomics beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_core::breaker::state::{self, Changes, refused};
use tidegate_core::breaker::window::{BUCKETS, Counts};
use tidegate_core::breaker::{CallResult, Class, Decision, Kind, Permit, Policy, State, Tally, Window};

use crate::shard::Sharded;

pub(super) struct Cell {
    /// `generation << 2 | kind`: all that a call through a closed breaker looks at.
    gate: AtomicU64,
    /// While open, since when and until when, so that a refusal takes no lock either. Written only
    /// while `gate` says `MOVING`.
    since: AtomicU64,
    until: AtomicU64,
    live: ArcSwap<Live>,
    /// Taken for transitions and probes only, and never held across a call.
    state: Mutex<State>,
}

/// What a result is judged and counted by. A new generation has a new one, so a thread that was held
/// up since before a transition counts into the window of its own generation, which nobody reads.
struct Live {
    generation: u64,
    policy: Arc<Policy>,
    windows: Arc<Sharded<Window>>,
}

const CLOSED: u64 = 0;
const OPEN: u64 = 1;
const HALF_OPEN: u64 = 2;
/// A transition is being written: wait for the lock.
const MOVING: u64 = 3;

/// What one result meant.
pub(super) struct Judged {
    pub(super) class: Class,
    /// Whether it was of the current generation and, from a probe, in time.
    pub(super) counted: bool,
    pub(super) changes: Changes,
}

/// What a breaker is doing.
pub(super) struct Look {
    pub(super) decision: Decision,
    pub(super) state: State,
    pub(super) tally: Tally,
    pub(super) probes: u32,
}

impl Cell {
    pub(super) fn new(policy: Arc<Policy>, state: State) -> Self {
        let windows = windows(&policy);
        let cell = Self {
            gate: AtomicU64::new(MOVING),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
            live: ArcSwap::from_pointee(Live { generation: state.generation(), policy, windows }),
            state: Mutex::new(State::new(Timestamp::EPOCH)),
        };
        cell.open_gate(&state);
        *cell.state.lock() = state;
        cell
    }

    #[inline]
    pub(super) fn admit(&self, now: Timestamp, random: u64) -> (Decision, Changes) {
        let gate = self.gate.load(Ordering::Acquire);
        if gate & 3 == CLOSED {
            return (Decision::Admit(Permit { generation: gate >> 2, probe: None }), Changes::new());
        }
        if gate & 3 == OPEN {
            let since = Timestamp::from_nanos(self.since.load(Ordering::Acquire));
            let until = Timestamp::from_nanos(self.until.load(Ordering::Acquire));
            // The same gate before and after: the times in between are of its generation.
            if since <= now && now < until && self.gate.load(Ordering::Acquire) == gate {
                return (Decision::Refuse(refused(Kind::Open, until.since(now), random)), Changes::new());
            }
        }
        self.step(|state, policy| state::admit(state, policy, now, random))
    }

    /// Takes the result of a call that was admitted with `permit`.
    pub(super) fn record(
        &self,
        permit: Permit,
        result: CallResult,
        elapsed: Duration,
        now: Timestamp,
        random: u64,
    ) -> Judged {
        let live = self.live.load();
        let class = live.policy.class(result, elapsed);
        if permit.probe.is_some() {
            let (counted, changes) =
                self.step(|state, policy| state::settle(state, policy, permit, class, now, random));
            return Judged { class, counted, changes };
        }
        if live.generation != permit.generation {
            return Judged { class, counted: false, changes: Changes::new() };
        }
        live.windows.mine().record(class.index(), now);
        let mut changes = Changes::new();
        // Without a bad result in the window nothing can trip, and nothing need be added up.
        if live.windows.iter().any(|window| window.troubled(now))
            && let Some(index) = live.policy.tripped(&live.tally(now))
        {
            let generation = live.generation;
            changes = self
                .step(|state, policy| {
                    let (changes, state) = state::trip(state, policy, generation, index, now, random);
                    ((), changes, state)
                })
                .1;
        }
        Judged { class, counted: true, changes }
    }

    /// A call ended without a verdict.
    pub(super) fn cancel(&self, permit: Permit, now: Timestamp, random: u64) -> Changes {
        if permit.probe.is_none() {
            return Changes::new();
        }
        self.step(|state, policy| {
            let (changes, state) = state::cancel(state, policy, permit, now, random);
            ((), changes, state)
        })
        .1
    }

    /// A call ended without a verdict, nobody knows when.
    pub(super) fn release(&self, permit: Permit) {
        if permit.probe.is_some() {
            self.step(|state, _| ((), Changes::new(), state::release(state, permit)));
        }
    }

    /// From now on `policy` holds. The state stays, and the window where `keep_window` says so, which
    /// needs a policy by which its counts mean the same.
    pub(super) fn edit(&self, policy: Arc<Policy>, keep_window: bool) {
        let _state = self.state.lock();
        let live = self.live.load_full();
        let windows = if keep_window { Arc::clone(&live.windows) } else { windows(&policy) };
        self.live.store(Arc::new(Live { generation: live.generation, policy, windows }));
    }

    /// What a call would meet `now`, without effect. The wait it names has no random share.
    pub(super) fn look(&self, now: Timestamp) -> Look {
        let state = self.state.lock().clone();
        let live = self.live.load();
        let (decision, _, mut state) = state::admit(state, &live.policy, now, 0);
        if let Decision::Admit(permit) = decision {
            state = state::release(state, permit);
        }
        Look { decision, state, tally: live.tally(now), probes: live.policy.probes }
    }

    pub(super) fn state(&self) -> State {
        self.state.lock().clone()
    }

    fn step<T>(&self, decide: impl FnOnce(State, &Policy) -> (T, Changes, State)) -> (T, Changes) {
        let mut state = self.state.lock();
        let live = self.live.load_full();
        let (answer, changes, next) = decide(state.clone(), &live.policy);
        if next.generation() != state.generation() {
            self.gate.store(MOVING, Ordering::Release);
            // Half-open results never seed the window of the closed state that follows. While open,
            // the old one stays to be shown.
            let windows =
                if next.kind() == Kind::Closed { windows(&live.policy) } else { Arc::clone(&live.windows) };
            let policy = Arc::clone(&live.policy);
            self.live.store(Arc::new(Live { generation: next.generation(), policy, windows }));
            // Last: a call that is admitted in the new generation finds its window.
            self.open_gate(&next);
        } else if next.open_until() != state.open_until() {
            // The clock stepped back.
            self.gate.store(MOVING, Ordering::Release);
            self.open_gate(&next);
        }
        *state = next;
        (answer, changes)
    }

    fn open_gate(&self, state: &State) {
        if let Some((since, until)) = state.open_until() {
            self.since.store(since.as_nanos(), Ordering::Release);
            self.until.store(until.as_nanos(), Ordering::Release);
        }
        let kind = match state.kind() {
            Kind::Closed => CLOSED,
            Kind::Open => OPEN,
            Kind::HalfOpen => HALF_OPEN,
        };
        self.gate.store((state.generation() << 2) | kind, Ordering::Release);
    }
}

impl Live {
    fn tally(&self, now: Timestamp) -> Tally {
        let mut counts = Counts::from_elem(0, self.policy.classes());
        for window in self.windows.iter() {
            window.add_to(&mut counts, now);
        }
        self.policy.tally(&counts)
    }
}

fn windows(policy: &Policy) -> Arc<Sharded<Window>> {
    Arc::new(Sharded::new(|| Window::new(policy.window, BUCKETS, policy.classes())))
}
