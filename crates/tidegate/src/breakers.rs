//! The circuit breakers of a process: one for each rule, or one for each rule and upstream host.
//!
//! State belongs to the process and outlives rule versions; a [`BreakerVersion`] says which rules
//! there are. All versions of one rule share its breakers, judged by the newest parameters.
//!
//! A call asks [`BreakerVersion::admit`] first, before its idempotency claim. The [`Admission`] is
//! then either given a result with [`Admission::record`], or ends without a verdict: by
//! [`Admission::cancelled`], or dropped, as by an answer that makes no call (a replay, a cache hit, a
//! rejection by a limit or by another breaker). Those are never results.
//!
//! `now` is a steady clock's ([`Env::now`](crate::env::Env::now)).

mod cell;
mod entry;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::breaker::state::Changes;
pub use tidegate_core::breaker::state::{Cause, Change, Kind};
pub use tidegate_core::breaker::{CallResult, Tally};
use tidegate_core::breaker::{Decision, Permit};
use tidegate_core::rule::model::Breaker;

use crate::shard::Sharded;
use cell::{Cell, Look, Quick};
use entry::{Entry, Slot};

/// The state of all breakers of a process, by rule id.
#[derive(Default)]
pub struct Breakers {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
}

/// The breakers of one version of the rules. Rules are named by their place in the slice that was
/// given to [`Breakers::apply`].
#[derive(Clone)]
pub struct BreakerVersion {
    /// The same list for each thread under a reference count of its own: an admission that outlives its
    /// version holds one, and one count for all threads would cost more than the rest of it.
    handles: Arc<Sharded<Arc<Handle>>>,
}

#[repr(align(128))]
struct Handle {
    entries: Arc<[Arc<Entry>]>,
}

/// Permission for one call, through each breaker that guards it. Lent by the version that gave it; see
/// [`Admission::into_owned`].
#[must_use = "a probe's permit comes back only when the admission is recorded, cancelled or dropped"]
pub struct Admission<'a> {
    home: Home<'a>,
    held: SmallVec<[Held; 2]>,
    transitions: Vec<Transition>,
}

/// Where the breakers of an admission are.
enum Home<'a> {
    Lent(&'a Arc<Handle>),
    Owned(Arc<Handle>),
}

impl Home<'_> {
    #[inline]
    fn entry(&self, rule: u32) -> Option<&Entry> {
        let handle = match self {
            Self::Lent(handle) => handle,
            Self::Owned(handle) => handle,
        };
        handle.entries.get(rule as usize).map(|entry| &**entry)
    }
}

#[derive(Clone, Copy)]
struct Held {
    rule: u32,
    slot: Slot,
    permit: Permit,
}

/// A breaker said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule's place in the version.
    pub rule: usize,
    /// Open, or half-open with all permits out.
    pub state: Kind,
    /// Until a call may be admitted.
    pub remaining: Duration,
    /// `remaining` plus a random share of up to half of it. Round up for `Retry-After`.
    pub retry_after: Duration,
    /// What moved while asking.
    pub transitions: Vec<Transition>,
}

/// A breaker moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The rule's id.
    pub rule: Arc<str>,
    /// The upstream host, where the rule has a breaker for each.
    pub host: Option<Arc<str>>,
    /// From what to what, why and when.
    pub change: Change,
}

/// What the result of a call meant.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// For each breaker that guarded the call.
    pub results: SmallVec<[Outcome; 2]>,
    /// What moved.
    pub transitions: Vec<Transition>,
}

/// What the result of a call meant to one breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The rule's place in the version.
    pub rule: usize,
    /// A failure by the rule's list.
    pub failed: bool,
    /// Slower than a slow threshold of the rule.
    pub slow: bool,
    /// `false` for a straggler: the breaker has moved on since the call was admitted, or moved now
    /// because the probe was silent for too long.
    pub counted: bool,
}

impl Outcome {
    /// The `result` label of metrics; a failure that was slow too is a failure.
    pub const fn result(&self) -> &'static str {
        if self.failed {
            "failure"
        } else if self.slow {
            "slow"
        } else {
            "success"
        }
    }
}

/// What a breaker is doing, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state now. An open breaker whose probe is due is half-open.
    pub state: Kind,
    /// Grows with each transition.
    pub generation: u64,
    /// Trips in a row.
    pub trips: u32,
    /// Until a probe may be admitted, while not closed; zero when one may be now.
    pub next_probe: Option<Duration>,
    /// While half-open: probes that succeeded, probes that are out, probes that must succeed.
    pub probes: Option<(u32, u32, u32)>,
    /// The counts of its window. While not closed, what is left of the window that tripped.
    pub tally: Tally,
}

impl Breakers {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes `rules` the rules in force.
    ///
    /// What becomes of a rule's breakers is what
    /// [`breaker_effect`](tidegate_core::rule::diff::breaker_effect) says. An untouched rule keeps its
    /// state and window. An edited one keeps its state: open stays open until its own deadline, probes
    /// that are out stay out, and the window stays if its length, the failures and the slow thresholds
    /// did. A changed key starts anew, not closed but as the worst breaker of the rule was. The state of
    /// a rule that is gone goes with the last version that names it.
    pub fn apply(self: &Arc<Self>, rules: &[Breaker]) -> BreakerVersion {
        let mut known = self.entries.lock();
        let entries: Arc<[Arc<Entry>]> = rules
            .iter()
            .map(|rule| match known.get(&rule.id) {
                Some(entry) => entry.edited(rule),
                None => Arc::new(Entry::new(rule)),
            })
            .collect();
        *known = rules.iter().map(|rule| rule.id.clone()).zip(entries.iter().cloned()).collect();
        let handle = || Arc::new(Handle { entries: Arc::clone(&entries) });
        BreakerVersion { handles: Arc::new(Sharded::new(handle)) }
    }
}

impl BreakerVersion {
    /// Asks each of `rules`, which guard one resource, for a call to `host`.
    ///
    /// All or nothing: a refusal gives back every probe's permit that was already taken. A rule that
    /// is listed twice is asked once; a place that no rule has is no breaker.
    #[inline]
    pub fn admit(
        &self,
        rules: &[usize],
        host: &str,
        now: Timestamp,
        random: u64,
    ) -> Result<Admission<'_>, Refusal> {
        let handle = self.handles.mine();
        let mut admission =
            Admission { home: Home::Lent(handle), held: SmallVec::new(), transitions: Vec::new() };
        for (place, &rule) in rules.iter().enumerate() {
            let Some(entry) = handle.entries.get(rule) else { continue };
            if rules[..place].contains(&rule) {
                continue;
            }
            let slot = entry.slot(host);
            let rule = rule as u32;
            if let Some(generation) = entry.with(slot, Cell::closed) {
                admission.held.push(Held { rule, slot, permit: Permit { generation, probe: None } });
            } else {
                admission.ask(rule, slot, now, random)?;
            }
        }
        Ok(admission)
    }

    /// What [`BreakerVersion::admit`] would say now, without effect. The wait has no random share.
    pub fn peek(&self, rules: &[usize], host: &str, now: Timestamp) -> Result<(), Refusal> {
        for &rule in rules {
            let Some(entry) = self.entry(rule) else { continue };
            if let Decision::Refuse(refused) = look(entry, entry.find(host), now).decision {
                return Err(Refusal {
                    rule,
                    state: refused.kind,
                    remaining: refused.remaining,
                    retry_after: refused.retry_after,
                    transitions: Vec::new(),
                });
            }
        }
        Ok(())
    }

    /// What the breaker of `rule` for calls to `host` is doing; `None` if there is no such rule.
    pub fn status(&self, rule: usize, host: &str, now: Timestamp) -> Option<Status> {
        let entry = self.entry(rule)?;
        let Look { decision, state, tally, probes } = look(entry, entry.find(host), now);
        let next_probe = match decision {
            Decision::Admit(Permit { probe: None, .. }) => None,
            Decision::Admit(_) => Some(Duration::ZERO),
            Decision::Refuse(refused) => Some(refused.remaining),
        };
        Some(Status {
            state: state.kind(),
            generation: state.generation(),
            trips: state.trips(),
            next_probe,
            probes: state.probes().map(|(succeeded, out)| (succeeded, out, probes)),
            tally,
        })
    }

    /// The hosts that `rule` has breakers of their own for, in order of their first call; empty for a
    /// rule with one breaker.
    pub fn hosts(&self, rule: usize) -> Vec<Arc<str>> {
        self.entry(rule).map(|entry| entry.hosts()).unwrap_or_default()
    }

    /// The id of the rule at this place.
    pub fn id(&self, rule: usize) -> Option<&str> {
        self.entry(rule).map(|entry| &*entry.id)
    }

    fn entry(&self, rule: usize) -> Option<&Arc<Entry>> {
        self.handles.mine().entries.get(rule)
    }
}

impl Admission<'_> {
    /// The same permission, for a task that may outlive the version it came from.
    pub fn into_owned(mut self) -> Admission<'static> {
        let home = match &self.home {
            Home::Lent(handle) => Home::Owned(Arc::clone(handle)),
            Home::Owned(handle) => Home::Owned(Arc::clone(handle)),
        };
        Admission {
            home,
            held: std::mem::take(&mut self.held),
            transitions: std::mem::take(&mut self.transitions),
        }
    }

    /// Asks a breaker that is not simply closed.
    #[cold]
    fn ask(&mut self, rule: u32, slot: Slot, now: Timestamp, random: u64) -> Result<(), Refusal> {
        let Some(entry) = self.home.entry(rule) else { return Ok(()) };
        let (decision, changes) = entry.with(slot, |cell| cell.admit(now, random));
        note(&mut self.transitions, entry, slot, changes);
        match decision {
            Decision::Admit(permit) => {
                self.held.push(Held { rule, slot, permit });
                Ok(())
            }
            Decision::Refuse(refused) => Err(Refusal {
                rule: rule as usize,
                state: refused.kind,
                remaining: refused.remaining,
                retry_after: refused.retry_after,
                transitions: std::mem::take(&mut self.transitions),
            }),
        }
    }

    /// What moved while asking: an opening that ended, a silent probe. Empty the second time.
    pub fn take_transitions(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.transitions)
    }

    /// Whether the call is a probe of a breaker that is recovering.
    pub fn is_probe(&self) -> bool {
        self.held.iter().any(|held| held.permit.probe.is_some())
    }

    /// The call ended with `result` after `elapsed`, which the caller measures from the start of the
    /// call, not from the admission. Each breaker judges it by its own `failure` list.
    #[inline]
    pub fn record(mut self, result: CallResult, elapsed: Duration, now: Timestamp, random: u64) -> Recorded {
        let mut recorded = Recorded { transitions: self.take_transitions(), ..Recorded::default() };
        for held in &self.held {
            let Some(entry) = self.home.entry(held.rule) else { continue };
            let quick = match held.permit.probe {
                None => entry
                    .with(held.slot, |cell| cell.record_good(held.permit.generation, result, elapsed, now)),
                Some(_) => Quick::No,
            };
            match quick {
                Quick::Counted => recorded.results.push(held.good()),
                Quick::Troubled => {
                    let generation = held.permit.generation;
                    let changes = entry.with(held.slot, |cell| cell.weigh_now(generation, now, random));
                    recorded.results.push(held.good());
                    note(&mut recorded.transitions, entry, held.slot, changes);
                }
                Quick::No => {
                    let judged =
                        entry.with(held.slot, |cell| cell.record(held.permit, result, elapsed, now, random));
                    recorded.results.push(Outcome {
                        rule: held.rule as usize,
                        failed: judged.class.failed(),
                        slow: judged.class.slow(),
                        counted: judged.counted,
                    });
                    note(&mut recorded.transitions, entry, held.slot, judged.changes);
                }
            }
        }
        // Taken: nothing is left to give back.
        self.held.clear();
        recorded
    }

    /// The call was cancelled after `elapsed`. At or past its `timeout` the cancellation is how the
    /// timeout was delivered, and it counts as one; earlier there is no verdict, unless it was a probe
    /// that had been silent past `probe_timeout`.
    pub fn cancelled(
        mut self,
        elapsed: Duration,
        timeout: Duration,
        now: Timestamp,
        random: u64,
    ) -> Recorded {
        if elapsed >= timeout {
            return self.record(CallResult::Timeout, elapsed, now, random);
        }
        let mut recorded = Recorded { transitions: self.take_transitions(), ..Recorded::default() };
        for held in std::mem::take(&mut self.held) {
            let Some(entry) = self.home.entry(held.rule) else { continue };
            let changes = entry.with(held.slot, |cell| cell.cancel(held.permit, now, random));
            note(&mut recorded.transitions, entry, held.slot, changes);
        }
        recorded
    }
}

/// No verdict: the permits come back.
impl Drop for Admission<'_> {
    #[inline]
    fn drop(&mut self) {
        // A call through a closed breaker holds nothing.
        for held in self.held.iter().filter(|held| held.permit.probe.is_some()) {
            if let Some(entry) = self.home.entry(held.rule) {
                entry.with(held.slot, |cell| cell.release(held.permit));
            }
        }
    }
}

impl Held {
    fn good(self) -> Outcome {
        Outcome { rule: self.rule as usize, failed: false, slow: false, counted: true }
    }
}

impl std::fmt::Debug for Admission<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let permits = self.held.iter().map(|held| held.permit);
        f.debug_struct("Admission").field("permits", &permits.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

fn note(transitions: &mut Vec<Transition>, entry: &Entry, slot: Slot, changes: Changes) {
    transitions.extend(changes.into_iter().map(|change| Transition {
        rule: Arc::clone(&entry.id),
        host: entry.host(slot),
        change,
    }));
}

fn look(entry: &Entry, slot: Option<Slot>, now: Timestamp) -> Look {
    match slot {
        Some(slot) => entry.with(slot, |cell| cell.look(now)),
        // Looking makes no breaker.
        None => Cell::look(&entry.unborn(), now),
    }
}

#[cfg(test)]
mod tests;
