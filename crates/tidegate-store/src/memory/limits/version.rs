//! The limits of one version of the rules, and the decision over several of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::{
    Concurrency, Counter, Decision, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use tidegate_core::rule::model::{Algorithm, Limit, Mode};

use super::shard::{Held, Place, Prepared};
use super::table::Bound;
use super::{Ask, LocalLimitsConfig, Outcome, Permits, Verdict};

/// The limits of one version of the rules, ready to decide.
pub struct LimitVersion {
    rules: Box<[Rule]>,
}

pub(super) struct Rule {
    pub(super) mode: Mode,
    pub(super) bound: AnyBound,
}

/// A table of some kind.
#[derive(Clone)]
pub(super) enum AnyBound {
    TokenBucket(Bound<TokenBucket>),
    FixedWindow(Bound<FixedWindow>),
    SlidingLog(Bound<SlidingLog>),
    SlidingWindow(Bound<SlidingWindow>),
    LeakyBucket(Bound<LeakyBucket>),
    Concurrency(Bound<Concurrency>),
}

/// A shard of a table of some kind.
enum AnyHeld<'a> {
    TokenBucket(Held<'a, TokenBucket>),
    FixedWindow(Held<'a, FixedWindow>),
    SlidingLog(Held<'a, SlidingLog>),
    SlidingWindow(Held<'a, SlidingWindow>),
    LeakyBucket(Held<'a, LeakyBucket>),
    Concurrency(Held<'a, Concurrency>),
}

/// The same step for whichever kind it is.
macro_rules! each {
    ($kind:ident, $value:expr, $it:ident => $step:expr) => {
        match $value {
            $kind::TokenBucket($it) => $step,
            $kind::FixedWindow($it) => $step,
            $kind::SlidingLog($it) => $step,
            $kind::SlidingWindow($it) => $step,
            $kind::LeakyBucket($it) => $step,
            $kind::Concurrency($it) => $step,
        }
    };
}

/// The same step, wrapped in the same kind again.
macro_rules! map {
    ($from:ident => $to:ident, $value:expr, $it:ident => $step:expr) => {
        match $value {
            $from::TokenBucket($it) => $to::TokenBucket($step),
            $from::FixedWindow($it) => $to::FixedWindow($step),
            $from::SlidingLog($it) => $to::SlidingLog($step),
            $from::SlidingWindow($it) => $to::SlidingWindow($step),
            $from::LeakyBucket($it) => $to::LeakyBucket($step),
            $from::Concurrency($it) => $to::Concurrency($step),
        }
    };
}

impl LimitVersion {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        Self { rules: rules.into_boxed_slice() }
    }

    /// Decides one call on all its limits, in one atomic step.
    ///
    /// It is admitted when every enforced limit admits it; only then is it charged, on those and on
    /// each limit in shadow mode that would have admitted it too. Limits that are off decide and are
    /// never charged. The same counter may be asked twice: the second is decided as after the first.
    ///
    /// A rule index that does not exist is denied for good.
    #[inline]
    pub fn decide(&self, asks: &[Ask<'_>], now: Timestamp) -> Outcome {
        if let [ask] = asks
            && let Some(rule) = self.rules.get(ask.rule)
            && let AnyBound::TokenBucket(bound) = &rule.bound
            && let Some(decision) = bound.quick(ask.key, ask.variant, ask.cost, now, rule.mode != Mode::Off)
        {
            return Outcome::one(Verdict { rule: ask.rule, mode: rule.mode, decision, overflow: false });
        }
        self.decide_locked(asks, now)
    }

    fn decide_locked(&self, asks: &[Ask<'_>], now: Timestamp) -> Outcome {
        match asks {
            [ask] => self.decide_one(*ask, now),
            _ => self.decide_all(asks, now),
        }
    }

    /// What [`decide`](Self::decide) would say, without any effect. Each counter is looked at in turn.
    pub fn peek(&self, asks: &[Ask<'_>], now: Timestamp) -> Outcome {
        let mut outcome = Outcome::empty();
        for (at, ask) in asks.iter().enumerate() {
            let verdict = self.rules.get(ask.rule).map_or_else(
                || Verdict::unknown(ask.rule),
                |rule| {
                    let (decision, overflow) = each!(AnyBound, &rule.bound, bound => {
                        let place = bound.place(ask.key);
                        let same = |other: &Ask<'_>| other.rule == ask.rule && bound.place(other.key) == place;
                        let earlier = asks.iter().zip(&outcome.verdicts).take(at);
                        let earlier = earlier.filter(|(other, said)| said.decision.admitted() && same(other));
                        let before = earlier.fold(0_u64, |sum, (other, _)| sum.saturating_add(other.cost));
                        let alone = bound.peek(place, ask.variant, ask.cost, now);
                        // A cost that can never pass says so, whatever was asked before.
                        if before == 0 || !alone.0.admitted() {
                            alone
                        } else {
                            bound.peek(place, ask.variant, before.saturating_add(ask.cost), now)
                        }
                    });
                    Verdict { rule: ask.rule, mode: rule.mode, decision, overflow }
                },
            );
            outcome.add(verdict);
        }
        outcome.finish();
        outcome
    }

    /// Keys that have a counter of their own, for the metric `tidegate_limit_keys`.
    pub fn keys(&self, rule: usize) -> usize {
        self.rules.get(rule).map_or(0, |rule| each!(AnyBound, &rule.bound, bound => bound.keys()))
    }

    /// Decisions for keys that had to share a counter because the table was full, since the table was
    /// made.
    pub fn overflowed(&self, rule: usize) -> u64 {
        let count = |rule: &Rule| each!(AnyBound, &rule.bound, bound => bound.table.overflowed.load(Ordering::Relaxed));
        self.rules.get(rule).map_or(0, count)
    }

    /// Times that a sliding log gave up precision because all logs of the rule together were full, since
    /// the table was made.
    pub fn coarsened(&self, rule: usize) -> u64 {
        let count = |rule: &Rule| each!(AnyBound, &rule.bound, bound => bound.table.coarsened.load(Ordering::Relaxed));
        self.rules.get(rule).map_or(0, count)
    }

    #[cfg(test)]
    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    fn decide_one(&self, ask: Ask<'_>, now: Timestamp) -> Outcome {
        let mut outcome = Outcome::empty();
        let Some(rule) = self.rules.get(ask.rule) else {
            outcome.add(Verdict::unknown(ask.rule));
            outcome.finish();
            return outcome;
        };
        let charge = rule.mode != Mode::Off;
        each!(AnyBound, &rule.bound, bound => {
            let place = bound.place(ask.key);
            let (decision, at) = bound.decide(place, ask.variant, ask.cost, now, charge);
            outcome.add(Verdict { rule: ask.rule, mode: rule.mode, decision, overflow: at != place });
            if charge && decision.admitted() {
                bound.permit(at, ask.cost, &mut outcome.permits);
            }
        });
        outcome.finish();
        outcome
    }

    fn decide_all(&self, asks: &[Ask<'_>], now: Timestamp) -> Outcome {
        let mut shards = Shards::lock(&self.rules, asks, now);
        let mut outcome = Outcome::empty();
        for (at, ask) in asks.iter().enumerate() {
            let verdict = match (self.rules.get(ask.rule), shards.steps.get(at).copied().flatten()) {
                (Some(rule), Some(step)) => {
                    let before = shards.charged_before(at, asks, &outcome.verdicts);
                    let alone = shards.test(step, ask.variant, ask.cost, now);
                    // A cost that can never pass says so, whatever was asked before.
                    let decision = if before == 0 || !alone.admitted() {
                        alone
                    } else {
                        shards.test(step, ask.variant, before.saturating_add(ask.cost), now)
                    };
                    Verdict { rule: ask.rule, mode: rule.mode, decision, overflow: step.overflow }
                }
                _ => Verdict::unknown(ask.rule),
            };
            outcome.add(verdict);
        }
        outcome.finish();
        for (at, ask) in asks.iter().enumerate() {
            let (Some(step), Some(verdict)) =
                (shards.steps.get(at).copied().flatten(), outcome.verdicts.get_mut(at))
            else {
                continue;
            };
            let charge = verdict.mode != Mode::Off && verdict.decision.admitted();
            if charge && outcome.admitted {
                shards.take(step, ask, now, &mut outcome.permits);
            } else if charge {
                let untouched = shards.test(step, ask.variant, 0, now);
                verdict.decision = verdict.decision.uncharged(untouched);
            }
        }
        if !outcome.admitted {
            shards.unmake();
        }
        outcome
    }
}

/// All the shards that one decision touches, under their locks.
///
/// Locks are taken in one order everywhere: shards by table and number, then shared counters by table.
struct Shards<'a> {
    held: SmallVec<[AnyHeld<'a>; 4]>,
    /// For each ask; `None` for a rule that does not exist.
    steps: SmallVec<[Option<Step>; 4]>,
}

/// An ask's table and its place there.
type Home<'a> = (u64, Place, &'a AnyBound);

/// Where one ask is decided.
#[derive(Clone, Copy)]
struct Step {
    held: usize,
    place: Place,
    overflow: bool,
    /// Whether its entry was made for this call.
    made: bool,
}

impl<'a> Shards<'a> {
    fn lock(rules: &'a [Rule], asks: &[Ask<'_>], now: Timestamp) -> Self {
        let mut order: SmallVec<[(u64, usize, &'a AnyBound); 4]> = SmallVec::new();
        let mut homes: SmallVec<[Option<Home<'a>>; 4]> = SmallVec::new();
        for ask in asks {
            let home = rules.get(ask.rule).map(|rule| {
                let (uid, place) =
                    each!(AnyBound, &rule.bound, bound => (bound.table.uid, bound.place(ask.key)));
                order.push((uid, place.shard, &rule.bound));
                (uid, place, &rule.bound)
            });
            homes.push(home);
        }
        order.sort_unstable_by_key(|(uid, shard, _)| (*uid, *shard));
        order.dedup_by_key(|(uid, shard, _)| (*uid, *shard));
        let mut held: SmallVec<[AnyHeld<'a>; 4]> =
            order.iter().map(|(_, shard, bound)| bound.lock(*shard)).collect();
        let mut steps: SmallVec<[Option<Step>; 4]> = SmallVec::new();
        for home in &homes {
            let step = home.and_then(|(uid, place, _)| {
                let held =
                    order.iter().position(|(table, shard, _)| (*table, *shard) == (uid, place.shard))?;
                Some(Step { held, place, overflow: false, made: false })
            });
            steps.push(step);
        }
        // Sweep before anything is found or made, so that no entry of this call is swept away.
        for (at, shard) in held.iter_mut().enumerate() {
            let mut here = steps.iter().flatten().filter(|step| step.held == at);
            each!(AnyHeld, shard, shard => {
                if here.any(|step| !shard.contains(step.place)) {
                    shard.sweep(now);
                }
            });
        }
        // What is there is kept before anything is made, which could take the place of what is fresh.
        for step in steps.iter().flatten() {
            if let Some(shard) = held.get_mut(step.held) {
                each!(AnyHeld, shard, shard => if shard.contains(step.place) { shard.keep(step.place) });
            }
        }
        let mut sharing: SmallVec<[(u64, usize, &'a AnyBound); 4]> = SmallVec::new();
        for (at, (ask, home)) in asks.iter().zip(&homes).enumerate() {
            if let (Some(Some(step)), Some((uid, _, bound))) = (steps.get_mut(at), home)
                && let Some(shard) = held.get_mut(step.held)
            {
                match each!(AnyHeld, shard, shard => shard.prepare(step.place, ask.variant, now)) {
                    Prepared::Found => {}
                    Prepared::Made => {
                        step.made = true;
                        each!(AnyHeld, shard, shard => shard.keep(step.place));
                    }
                    Prepared::AskShared => sharing.push((*uid, at, bound)),
                }
            }
        }
        if !sharing.is_empty() {
            sharing.sort_unstable_by_key(|(uid, at, _)| (*uid, *at));
            let mut last = None;
            for (uid, at, bound) in sharing {
                if last != Some(uid) {
                    held.push(map!(AnyBound => AnyHeld, bound, bound => bound.lock_overflow()));
                    last = Some(uid);
                }
                let Some((ask, step)) = asks.get(at).zip(steps.get_mut(at).and_then(Option::as_mut)) else {
                    continue;
                };
                let overflow = held.len() - 1;
                let place = receive(&mut held, step.held, step.place, ask.variant, now);
                if place != step.place {
                    *step = Step { held: overflow, place, overflow: true, made: false };
                } else if let Some(shard) = held.get_mut(step.held) {
                    each!(AnyHeld, shard, shard => shard.keep(place));
                }
            }
        }
        Self { held, steps }
    }

    /// What the asks before `at` will take from the same counter.
    fn charged_before(&self, at: usize, asks: &[Ask<'_>], verdicts: &[Verdict]) -> u64 {
        let Some(Some(own)) = self.steps.get(at) else {
            return 0;
        };
        let earlier = self.steps.iter().zip(asks).zip(verdicts).take(at);
        let same = earlier.filter(|((step, _), verdict)| {
            verdict.decision.admitted()
                && step.is_some_and(|step| step.held == own.held && step.place == own.place)
        });
        same.fold(0, |sum, ((_, ask), _)| sum.saturating_add(ask.cost))
    }

    fn test(&mut self, step: Step, variant: usize, cost: u64, now: Timestamp) -> Decision {
        self.held.get_mut(step.held).map_or(
            Decision::NEVER,
            |shard| each!(AnyHeld, shard, shard => shard.test(step.place, variant, cost, now)),
        )
    }

    /// A denied call leaves no entry that it made.
    fn unmake(&mut self) {
        for step in self.steps.iter().flatten().filter(|step| step.made) {
            if let Some(shard) = self.held.get_mut(step.held) {
                each!(AnyHeld, shard, shard => shard.unmake(step.place));
            }
        }
    }

    fn take(&mut self, step: Step, ask: &Ask<'_>, now: Timestamp, permits: &mut Permits) {
        if let Some(shard) = self.held.get_mut(step.held) {
            each!(AnyHeld, shard, shard => {
                shard.take(step.place, ask.variant, ask.cost, now);
                shard.bound.permit(step.place, ask.cost, permits);
            });
        }
    }
}

/// Finds an entry for a key that has none, with the shared counters as the last of `held`.
fn receive(held: &mut [AnyHeld<'_>], home: usize, place: Place, variant: usize, now: Timestamp) -> Place {
    let Some((overflow, shards)) = held.split_last_mut() else {
        return place;
    };
    macro_rules! pair {
        ($($kind:ident),*) => {
            match (overflow, shards.get_mut(home)) {
                $((AnyHeld::$kind(overflow), Some(AnyHeld::$kind(home))) => {
                    overflow.receive(home, place, variant, now)
                })*
                _ => place,
            }
        };
    }
    pair!(TokenBucket, FixedWindow, SlidingLog, SlidingWindow, LeakyBucket, Concurrency)
}

impl AnyBound {
    pub(super) fn fresh(limit: &Limit, config: &LocalLimitsConfig, uid: u64) -> Self {
        let keyed = !limit.key.is_empty();
        macro_rules! kinds {
            ($($kind:ident),*) => {
                match &limit.algorithm {
                    $(Algorithm::$kind { .. } => Self::$kind(Bound::fresh(params(limit), keyed, config, uid)),)*
                }
            };
        }
        kinds!(TokenBucket, FixedWindow, SlidingLog, SlidingWindow, LeakyBucket, Concurrency)
    }

    /// The same table under the numbers of `limit`, an algorithm of the same kind. `None` when the table
    /// cannot be carried over.
    pub(super) fn changed(&self, limit: &Limit) -> Option<Self> {
        Some(map!(Self => Self, self, bound => bound.changed(params(limit))?))
    }

    pub(super) fn sweep(&self, now: Timestamp) -> usize {
        each!(Self, self, bound => bound.sweep(now))
    }

    fn lock(&self, shard: usize) -> AnyHeld<'_> {
        map!(Self => AnyHeld, self, bound => bound.lock(shard))
    }
}

/// The rule's own numbers, then the overrides'. An override of another kind, which no valid document
/// has, counts by the rule's own.
fn params<C: Counter>(limit: &Limit) -> Vec<C> {
    let overrides = limit.overrides.iter().map(|other| &other.algorithm);
    let own = C::compile(&limit.algorithm);
    let all = std::iter::once(&limit.algorithm).chain(overrides);
    all.filter_map(|algorithm| C::compile(algorithm).or_else(|| own.clone())).collect()
}

/// Makes the permit that a charged call holds: only concurrency has one.
trait Permit {
    fn permit(&self, place: Place, cost: u64, permits: &mut Permits);
}

macro_rules! no_permit {
    ($($kind:ty),*) => {
        $(impl Permit for Bound<$kind> {
            fn permit(&self, _: Place, _: u64, _: &mut Permits) {}
        })*
    };
}

no_permit!(TokenBucket, FixedWindow, SlidingLog, SlidingWindow, LeakyBucket);

impl Permit for Bound<Concurrency> {
    fn permit(&self, place: Place, cost: u64, permits: &mut Permits) {
        permits.push(&self.table, place, cost);
    }
}

impl Verdict {
    fn unknown(rule: usize) -> Self {
        Self { rule, mode: Mode::Enforce, decision: Decision::NEVER, overflow: false }
    }
}

impl Outcome {
    fn empty() -> Self {
        Self { verdicts: SmallVec::new(), admitted: true, wait: Duration::ZERO, permits: Permits::default() }
    }

    /// Built in place: to go through [`empty`](Self::empty) costs as much as the decision.
    #[inline]
    fn one(verdict: Verdict) -> Self {
        let enforced = verdict.mode == Mode::Enforce;
        Self {
            verdicts: SmallVec::from_iter([verdict]),
            admitted: !enforced || verdict.decision.admitted(),
            wait: if enforced { verdict.decision.wait() } else { Duration::ZERO },
            permits: Permits::default(),
        }
    }

    fn add(&mut self, verdict: Verdict) {
        if verdict.mode == Mode::Enforce {
            self.admitted &= verdict.decision.admitted();
            self.wait = self.wait.max(verdict.decision.wait());
        }
        self.verdicts.push(verdict);
    }

    fn finish(&mut self) {
        if !self.admitted {
            self.wait = Duration::ZERO;
        }
    }
}
