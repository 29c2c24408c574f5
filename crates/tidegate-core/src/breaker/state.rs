//! The state machine of a breaker: closed, open, half-open.
//!
//! Plain functions, `(state, policy, input, now, random) -> (decision, new state)`. `now` is a steady
//! clock's: a wall clock that steps is no input here. Should `now` run backwards all the same, an
//! opening and a probe's deadline start again from there, so no wait exceeds one period.
//!
//! | from | event | to |
//! |---|---|---|
//! | closed | the window trips | open |
//! | closed | a result or a trip of an older generation | closed |
//! | closed | a call | closed |
//! | open | a call before its end | open |
//! | open | a call at its end or later: it is a probe | half-open |
//! | open | a result of an older generation | open |
//! | half-open | a call while all permits are out | half-open |
//! | half-open | a probe cancelled or dropped: its permit is back | half-open |
//! | half-open | a probe succeeded, others are due | half-open |
//! | half-open | the last probe succeeded | closed |
//! | half-open | a probe failed | open |
//! | half-open | a probe was slow | open |
//! | half-open | a probe was silent past its time | open |
//! | half-open | a result of an older generation | half-open |
//!
//! "Open" means "would refuse now": at its end the state admits. Each transition begins a new
//! *generation*. A permit carries the one it was given in, and its result moves nothing in another.
//!
//! **How long it stays open.** The n-th trip in a row opens for `open_for` × 2ⁿ⁻¹, at most `max_open`,
//! lengthened by a random share of up to 20 %. A row ends when the breaker has stayed closed for as
//! long as its last opening lasted, and for one window at least.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use crate::breaker::policy::{Class, Policy};
use crate::time::{Timestamp, nanos};

/// Which of the three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Calls pass and are counted.
    Closed,
    /// Calls are refused.
    Open,
    /// A few calls try whether the dependency has recovered.
    HalfOpen,
}

impl Kind {
    /// Its name in metrics, documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// What moved a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The window reached the entry of `trip` with this index.
    Trip(usize),
    /// The opening was over and a call came.
    ProbeDue,
    /// All probes succeeded.
    ProbesSucceeded,
    /// A probe failed.
    ProbeFailed,
    /// A probe was slower than a slow threshold.
    ProbeSlow,
    /// A probe gave no result within `probe_timeout`.
    ProbeSilent,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trip(index) => write!(f, "entry {} of trip", index.saturating_add(1)),
            Self::ProbeDue => f.write_str("a probe is due"),
            Self::ProbesSucceeded => f.write_str("the probes succeeded"),
            Self::ProbeFailed => f.write_str("a probe failed"),
            Self::ProbeSlow => f.write_str("a probe was slow"),
            Self::ProbeSilent => f.write_str("a probe gave no result"),
        }
    }
}

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state before.
    pub from: Kind,
    /// The state after.
    pub to: Kind,
    /// Why.
    pub cause: Cause,
    /// When; a silent probe's failure dates from its deadline.
    pub at: Timestamp,
}

/// The transitions of one step: at most two, a silent probe and the next one that is due already.
pub type Changes = SmallVec<[Change; 2]>;

/// Permission for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a probe's permit must be settled or released"]
pub struct Permit {
    /// The generation it was given in.
    pub generation: u64,
    /// The probe's number in that generation; `None` for a call through a closed breaker.
    pub probe: Option<u64>,
}

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Admit(Permit),
    /// It may not.
    Refuse(Refused),
}

/// Why not, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Open, or half-open with all permits out.
    pub kind: Kind,
    /// Until a probe is due; half-open, until the oldest probe must have answered, but no longer than
    /// the last opening was.
    pub remaining: Duration,
    /// `remaining` plus a random share of up to half of it, so that clients do not return as one.
    pub retry_after: Duration,
}

/// The state of one breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    generation: u64,
    phase: Phase,
    /// Trips in a row.
    trips: u32,
    /// How long the last opening was meant to last, without jitter.
    last_open: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Closed { since: Timestamp },
    Open { since: Timestamp, until: Timestamp },
    HalfOpen { succeeded: u32, next: u64, out: SmallVec<[Probe; 1]> },
}

/// A probe that has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    number: u64,
    started: Timestamp,
}

/// Asks whether a call may be made. An admitted probe is out until [`settle`] or [`release`].
pub fn admit(mut state: State, policy: &Policy, now: Timestamp, random: u64) -> (Decision, Changes, State) {
    let mut changes = Changes::new();
    state.advance(policy, now, random, &mut changes);
    let generation = state.generation;
    let decision = match &mut state.phase {
        Phase::Closed { .. } => Decision::Admit(Permit { generation, probe: None }),
        Phase::Open { until, .. } => Decision::Refuse(refused(Kind::Open, until.since(now), random)),
        Phase::HalfOpen { succeeded, next, out } => {
            if succeeded.saturating_add(out.len() as u32) < policy.probes {
                let number = *next;
                *next += 1;
                out.push(Probe { number, started: now });
                Decision::Admit(Permit { generation, probe: Some(number) })
            } else {
                let silent = out.iter().map(|probe| probe.started + policy.probe_timeout).min();
                let remaining = silent.unwrap_or(now).since(now).min(state.last_open);
                Decision::Refuse(refused(Kind::HalfOpen, remaining, random))
            }
        }
    };
    (decision, changes, state)
}

/// Takes the result of a probe. One of another generation, or of a probe that is no longer out, moves
/// nothing; nor does that of a call through a closed breaker, which its window counts. The first part of
/// the answer says whether it was taken.
pub fn settle(
    mut state: State,
    policy: &Policy,
    permit: Permit,
    class: Class,
    now: Timestamp,
    random: u64,
) -> (bool, Changes, State) {
    let mut changes = Changes::new();
    state.advance(policy, now, random, &mut changes);
    if !state.take(permit) {
        return (false, changes, state);
    }
    if class.failed() || class.slow() {
        let cause = if class.failed() { Cause::ProbeFailed } else { Cause::ProbeSlow };
        state.open(policy, now, random, cause, &mut changes);
    } else {
        if let Phase::HalfOpen { succeeded, .. } = &mut state.phase {
            *succeeded = succeeded.saturating_add(1);
        }
        state.advance(policy, now, random, &mut changes);
    }
    (true, changes, state)
}

/// Takes a permit back without a verdict: the call was cancelled, or never made.
#[must_use]
pub fn release(mut state: State, permit: Permit) -> State {
    state.take(permit);
    state
}

/// A call ended without a verdict at a known time: as [`release`], unless its probe was silent past
/// its time by then, which is a failure.
pub fn cancel(
    mut state: State,
    policy: &Policy,
    permit: Permit,
    now: Timestamp,
    random: u64,
) -> (Changes, State) {
    let mut changes = Changes::new();
    state.advance(policy, now, random, &mut changes);
    state.take(permit);
    (changes, state)
}

/// The closed window of `generation` reached the entry `index` of `trip`: opens, unless the breaker
/// has moved on since.
pub fn trip(
    mut state: State,
    policy: &Policy,
    generation: u64,
    index: usize,
    now: Timestamp,
    random: u64,
) -> (Changes, State) {
    let mut changes = Changes::new();
    if state.generation == generation && state.kind() == Kind::Closed {
        state.open(policy, now, random, Cause::Trip(index), &mut changes);
    }
    (changes, state)
}

impl State {
    /// A closed breaker that never tripped.
    pub fn new(now: Timestamp) -> Self {
        Self { generation: 0, phase: Phase::Closed { since: now }, trips: 0, last_open: Duration::ZERO }
    }

    /// The same state for another breaker that takes over from this one: closed, open until the same
    /// time, or half-open with all permits free, because those that are out belong to this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        let phase = match self.phase {
            Phase::HalfOpen { .. } => Phase::HalfOpen { succeeded: 0, next: 0, out: SmallVec::new() },
            ref phase => phase.clone(),
        };
        Self { phase, ..self.clone() }
    }

    /// Grows by one with each transition.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Which of the three states it stands in. An open one admits from [`State::open_until`] on.
    pub fn kind(&self) -> Kind {
        match self.phase {
            Phase::Closed { .. } => Kind::Closed,
            Phase::Open { .. } => Kind::Open,
            Phase::HalfOpen { .. } => Kind::HalfOpen,
        }
    }

    /// When it opened and when it admits a probe, while open.
    pub fn open_until(&self) -> Option<(Timestamp, Timestamp)> {
        match self.phase {
            Phase::Open { since, until } => Some((since, until)),
            Phase::Closed { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// Probes that have succeeded and probes that are out, while half-open.
    pub fn probes(&self) -> Option<(u32, u32)> {
        match &self.phase {
            Phase::HalfOpen { succeeded, out, .. } => Some((*succeeded, out.len() as u32)),
            Phase::Closed { .. } | Phase::Open { .. } => None,
        }
    }

    /// Trips in a row.
    pub fn trips(&self) -> u32 {
        self.trips
    }

    /// What is due by `now` happens. Half-open to open to half-open is the longest chain, because a
    /// half-open state that has just begun has no probe out.
    fn advance(&mut self, policy: &Policy, now: Timestamp, random: u64, changes: &mut Changes) {
        if let Phase::HalfOpen { succeeded, out, .. } = &mut self.phase {
            for probe in out.iter_mut() {
                probe.started = probe.started.min(now);
            }
            let silent = out.iter().map(|probe| probe.started + policy.probe_timeout).min();
            if let Some(deadline) = silent.filter(|deadline| *deadline <= now) {
                self.open(policy, deadline, random, Cause::ProbeSilent, changes);
            } else if *succeeded >= policy.probes {
                let at =
                    Change { from: Kind::HalfOpen, to: Kind::Closed, cause: Cause::ProbesSucceeded, at: now };
                self.enter(Phase::Closed { since: now }, at, changes);
            }
        }
        if let Phase::Open { since, until } = &mut self.phase {
            let length = until.since(*since);
            *since = now.min(*since);
            *until = *since + length;
            if now >= *until {
                let at = Change { from: Kind::Open, to: Kind::HalfOpen, cause: Cause::ProbeDue, at: now };
                self.enter(Phase::HalfOpen { succeeded: 0, next: 0, out: SmallVec::new() }, at, changes);
            }
        }
    }

    fn open(&mut self, policy: &Policy, at: Timestamp, random: u64, cause: Cause, changes: &mut Changes) {
        if let Phase::Closed { since } = self.phase
            && at.since(since) >= self.last_open.max(policy.window)
        {
            self.trips = 0;
        }
        let factor = 1_u32.checked_shl(self.trips).unwrap_or(u32::MAX);
        let length = policy.open_for.saturating_mul(factor).min(policy.max_open);
        self.trips = self.trips.saturating_add(1);
        self.last_open = length;
        let until = at + length + share(length / 5, random);
        let change = Change { from: self.kind(), to: Kind::Open, cause, at };
        self.enter(Phase::Open { since: at, until }, change, changes);
    }

    fn enter(&mut self, phase: Phase, change: Change, changes: &mut Changes) {
        self.phase = phase;
        self.generation = self.generation.wrapping_add(1);
        changes.push(change);
    }

    /// Takes the permit's probe off the list; `false` if it is not (or no longer) out.
    fn take(&mut self, permit: Permit) -> bool {
        let Phase::HalfOpen { out, .. } = &mut self.phase else { return false };
        if self.generation != permit.generation {
            return false;
        }
        let Some(place) = out.iter().position(|probe| Some(probe.number) == permit.probe) else {
            return false;
        };
        out.swap_remove(place);
        true
    }
}

/// A refusal by an open breaker, from what is left of its opening.
pub fn refused(kind: Kind, remaining: Duration, random: u64) -> Refused {
    // Another draw than the one that lengthened the opening.
    let random = random.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Refused { kind, remaining, retry_after: remaining.saturating_add(share(remaining / 2, random)) }
}

/// The share `random / 2⁶⁴` of a span, which must be under 584 years to count whole.
fn share(span: Duration, random: u64) -> Duration {
    Duration::from_nanos(((u128::from(nanos(span)) * u128::from(random)) >> 64) as u64)
}

#[cfg(test)]
mod tests;
