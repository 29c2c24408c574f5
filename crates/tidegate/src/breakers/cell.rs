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
use tidegate_core::breaker::{
    CallResult, Class, Decision, Good, Kind, Permit, Policy, Shape, State, Tally, Window,
};
use tidegate_core::time::nanos;

use crate::shard::Sharded;

pub(super) struct Cell {
    /// `generation << 2 | kind`: all that a call through a closed breaker looks at.
    gate: AtomicU64,
    /// While open, since when and until when, so that a refusal takes no lock either. Written only
    /// while `gate` says `MOVING`.
    since: AtomicU64,
    until: AtomicU64,
    /// The [`Shape`] of the good results that count, or that it is being changed. Written under `state`.
    shape: AtomicU64,
    /// What is good without asking the policy: [`Policy::certainly_good`], the time in nanoseconds above
    /// 16 bits of status. Written only while `shape` says [`Shape::CHANGING`].
    quick: AtomicU64,
    /// When the last result that was not good leaves the window. A hint: too late costs time only.
    troubled_until: AtomicU64,
    /// Good results of closed calls: nearly all there are. Each thread counts into its own ring, which
    /// stays where it is, so that nothing need be looked up.
    good: Sharded<Good>,
    live: ArcSwap<Live>,
    /// Taken for transitions and probes only, and never held across a call.
    state: Mutex<State>,
}

/// What other results are judged and counted by. A new generation has a new one, so a thread that was held
/// up since before a transition counts into the window of its own generation, which nobody reads.
struct Live {
    generation: u64,
    policy: Arc<Policy>,
    windows: Arc<Sharded<Window>>,
    /// Of the good results that belong to `windows`.
    shape: Shape,
}

const CLOSED: u64 = 0;
const OPEN: u64 = 1;
const HALF_OPEN: u64 = 2;
/// A transition is being written: wait for the lock.
const MOVING: u64 = 3;

const STATUS_BITS: u32 = 16;
const STATUS_MASK: u64 = (1 << STATUS_BITS) - 1;

/// What became of a result that was tried as a good one.
pub(super) enum Quick {
    /// It is none, or has no place: [`Cell::record`] knows.
    No,
    /// It was counted.
    Counted,
    /// It was counted, and others in the window are bad: [`Cell::weigh_now`] adds up.
    Troubled,
}

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
        let shape = Shape::new(policy.window);
        let cell = Self {
            gate: AtomicU64::new(MOVING),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
            shape: AtomicU64::new(shape.bits()),
            quick: AtomicU64::new(quick(&policy)),
            troubled_until: AtomicU64::new(0),
            good: Sharded::new(Good::default),
            live: ArcSwap::from_pointee(Live { generation: state.generation(), policy, windows, shape }),
            state: Mutex::new(State::new(Timestamp::EPOCH)),
        };
        cell.open_gate(&state);
        *cell.state.lock() = state;
        cell
    }

    /// The generation that lets calls pass, if the breaker is closed: most answers, at the cost of one
    /// read.
    #[inline]
    pub(super) fn closed(&self) -> Option<u64> {
        let gate = self.gate.load(Ordering::Acquire);
        (gate & 3 == CLOSED).then_some(gate >> 2)
    }

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

    /// Counts the result of a call through a closed breaker, if it is good and of its generation; else it
    /// is for [`Cell::record`] and nothing happened.
    ///
    /// Three words say so, and they are of one moment if `shape` is the same before and after: whoever
    /// changes `quick` makes `shape` say so first. Each load acquires, so none is taken before the one
    /// above it, and a new value of one word brings what was written before it. `gate` is read after
    /// `shape`: whoever begins a new era has moved `gate` before, so the shape of an era that the permit is
    /// not of never meets a gate that lets the permit pass. A thread that is held up after that counts by
    /// the old shape, which [`Good`] knows for a straggler's.
    #[inline]
    pub(super) fn record_good(
        &self,
        generation: u64,
        result: CallResult,
        elapsed: Duration,
        now: Timestamp,
    ) -> Quick {
        let CallResult::Status(status) = result else { return Quick::No };
        let shape = self.shape.load(Ordering::Acquire);
        let quick = self.quick.load(Ordering::Acquire);
        if u64::from(status) >= quick & STATUS_MASK || nanos(elapsed) > quick >> STATUS_BITS {
            return Quick::No;
        }
        let passes = self.gate.load(Ordering::Acquire) == (generation << 2) | CLOSED;
        if !passes || shape == Shape::CHANGING.bits() || self.shape.load(Ordering::Acquire) != shape {
            return Quick::No;
        }
        self.good.mine().record(Shape::from_bits(shape), now);
        // After counting. A bad result marks trouble, is counted, and then all are added up, each of these
        // sequentially consistent: of two threads at least one sees both results.
        if self.troubled(now) { Quick::Troubled } else { Quick::Counted }
    }

    /// Takes the result of a call that was admitted with `permit`.
    #[cold]
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
        if class != Class::GOOD {
            // After `live` was read: whoever replaces it takes the old mark away first.
            let leaves = live.shape.leaves(now).as_nanos();
            if self.troubled_until.load(Ordering::SeqCst) < leaves {
                self.troubled_until.fetch_max(leaves, Ordering::SeqCst);
            }
        }
        live.windows.mine().record(class.index(), now);
        let changes = if self.troubled(now) { self.weigh(&live, now, random) } else { Changes::new() };
        Judged { class, counted: true, changes }
    }

    /// Trips if the window says so, after a result that was [`Quick::Troubled`].
    #[cold]
    pub(super) fn weigh_now(&self, generation: u64, now: Timestamp, random: u64) -> Changes {
        let live = self.live.load();
        if live.generation == generation { self.weigh(&live, now, random) } else { Changes::new() }
    }

    fn weigh(&self, live: &Live, now: Timestamp, random: u64) -> Changes {
        let Some(index) = live.policy.tripped(&self.tally(live, now)) else { return Changes::new() };
        self.step(|state, policy| {
            let (changes, state) = state::trip(state, policy, live.generation, index, now, random);
            ((), changes, state)
        })
        .1
    }

    /// Whether a result that was not good may stand in the window: without one nothing can trip, and
    /// nothing need be added up.
    #[inline]
    fn troubled(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.troubled_until.load(Ordering::SeqCst)
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
        self.shape.store(Shape::CHANGING.bits(), Ordering::Release);
        self.quick.store(quick(&policy), Ordering::Release);
        let (windows, shape) = if keep_window {
            (Arc::clone(&live.windows), live.shape)
        } else {
            (windows(&policy), self.next_era(live.shape, &policy))
        };
        self.live.store(Arc::new(Live { generation: live.generation, policy, windows, shape }));
        self.shape.store(shape.bits(), Ordering::Release);
    }

    /// What a call would meet `now`, without effect. The wait it names has no random share.
    pub(super) fn look(&self, now: Timestamp) -> Look {
        let state = self.state.lock().clone();
        let live = self.live.load();
        let (decision, _, mut state) = state::admit(state, &live.policy, now, 0);
        if let Decision::Admit(permit) = decision {
            state = state::release(state, permit);
        }
        Look { decision, state, tally: self.tally(&live, now), probes: live.policy.probes }
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
            let (windows, shape) = if next.kind() == Kind::Closed {
                self.shape.store(Shape::CHANGING.bits(), Ordering::Release);
                (windows(&live.policy), self.next_era(live.shape, &live.policy))
            } else {
                (Arc::clone(&live.windows), live.shape)
            };
            let policy = Arc::clone(&live.policy);
            self.live.store(Arc::new(Live { generation: next.generation(), policy, windows, shape }));
            self.shape.store(shape.bits(), Ordering::Release);
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

    /// Empties the rings of good results for a new era. `shape` says that it is being changed.
    fn next_era(&self, shape: Shape, policy: &Policy) -> Shape {
        for good in self.good.iter() {
            good.clear();
        }
        self.troubled_until.store(0, Ordering::SeqCst);
        shape.next(policy.window)
    }

    fn tally(&self, live: &Live, now: Timestamp) -> Tally {
        let mut counts = Counts::from_elem(0, live.policy.classes());
        for window in live.windows.iter() {
            window.add_to(&mut counts, now);
        }
        if let Some(good) = counts.get_mut(Class::GOOD.index()) {
            let more = self.good.iter().map(|good| good.count(live.shape, now));
            *good = more.fold(*good, u64::saturating_add);
        }
        live.policy.tally(&counts)
    }
}

/// [`Policy::certainly_good`] as one word. A call that takes longer than the word can say is for the
/// policy to judge.
fn quick(policy: &Policy) -> u64 {
    let (below, slowest) = policy.certainly_good();
    (nanos(slowest).min(u64::MAX >> STATUS_BITS) << STATUS_BITS) | u64::from(below)
}

fn windows(policy: &Policy) -> Arc<Sharded<Window>> {
    Arc::new(Sharded::new(|| Window::new(policy.window, BUCKETS, policy.classes())))
}
