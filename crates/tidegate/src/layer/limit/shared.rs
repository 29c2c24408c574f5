//! Limits of which some count in the store that instances share.
//!
//! The order keeps all of them or none: counters of this process are looked at first, because that costs
//! nothing; then the store decides; then this process charges its own, and where one of those refuses after
//! all, the store gets back what it charged. While the store does not answer, each shared limit does what its
//! `on_store_failure` says.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::{Answer, Decision, Retry, refilled_after};
use tidegate_core::rule::model::{AfterStoreLoss, Algorithm, Limit, Mode, OnStoreFailure};
use tidegate_store::memory::limits::{Ask, Outcome, Verdict};
use tidegate_store::shared::{Purpose, SharedAsk, SharedOutcome};

use super::{Decided, Held, Peeked, Told, asks, keys, report};
use crate::event::LimitDecided;
use crate::exchange::Exchange;
use crate::fleet::{Fleet, FleetVersion, Kept, PERMIT_LIFE};
use crate::respond::Refusal;
use crate::runtime::Source;
use crate::stats::Gate;

/// When a call may try again that is refused because the store does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// To charge what is admitted.
    Charge,
    /// To say what would be, and change nothing.
    Peek,
}

/// What all limits of a call said, in their order.
struct Said {
    limits: SmallVec<[Option<One>; 4]>,
    admitted: bool,
    wait: Duration,
    held: Held,
}

/// What one limit said.
#[derive(Clone, Copy)]
struct One {
    verdict: Verdict,
    source: Source,
    window: Option<Timestamp>,
}

/// Decides all limits of the exchange's resource.
pub(super) async fn decide(
    exchange: &Exchange,
    fleet: &FleetVersion,
    now: Timestamp,
) -> Result<Decided, Refusal> {
    let (rules, resource) = (&exchange.rules, exchange.resource);
    let keys = keys(rules, resource, &exchange.taken);
    let asks = asks(rules, resource, &exchange.taken, &keys)?;
    let said = Asking { exchange, fleet, asks: &asks, now }.say(Effect::Charge).await?;
    let told = said.limits.iter().map(|one| {
        one.as_ref().map(|one| Told { verdict: &one.verdict, source: one.source, window: one.window })
    });
    let mut decided = report(rules, resource, &asks, told, said.admitted, &exchange.context.request_id);
    decided.wait = said.wait;
    decided.held = Some(said.held);
    Ok(decided)
}

/// What [`decide`] would say.
pub(super) async fn peek(
    exchange: &Exchange,
    fleet: &FleetVersion,
    now: Timestamp,
) -> Result<(Vec<Peeked>, Duration), Refusal> {
    let keys = keys(&exchange.rules, exchange.resource, &exchange.taken);
    let asks = asks(&exchange.rules, exchange.resource, &exchange.taken, &keys)?;
    let said = Asking { exchange, fleet, asks: &asks, now }.say(Effect::Peek).await?;
    let peeked = asks.iter().zip(&said.limits).enumerate();
    let peeked = peeked.filter_map(|(at, (ask, one))| Some(Peeked::new(at, ask, one.as_ref()?.verdict)));
    Ok((peeked.collect(), said.wait))
}

/// One call's question to all its limits.
struct Asking<'a> {
    exchange: &'a Exchange,
    fleet: &'a FleetVersion,
    asks: &'a [Ask<'a>],
    now: Timestamp,
}

impl<'a> Asking<'a> {
    async fn say(&self, effect: Effect) -> Result<Said, Refusal> {
        if self.fleet.fleet.is_up() {
            if let Some(said) = self.exhausted() {
                return Ok(said);
            }
            if let Some(said) = self.in_store(effect).await {
                return Ok(said);
            }
        }
        self.without_store(effect)
    }

    /// With the store; `None` when it did not answer.
    async fn in_store(&self, effect: Effect) -> Option<Said> {
        let mut said = self.unasked();
        let (mut own, mut shared) = (SmallVec::<[usize; 4]>::new(), SmallVec::<[usize; 4]>::new());
        for (at, ask) in self.asks.iter().enumerate() {
            match self.limit(ask).mode {
                Mode::Off => {}
                _ if self.fleet.is_shared(ask.rule) => shared.push(at),
                _ => own.push(at),
            }
        }
        let own_asks = self.pick(&own);
        if !own.is_empty() {
            let peeked = self.exchange.rules.limits.peek(&own_asks, self.now);
            said.add_own(&own, &peeked, Source::Local);
            if !peeked.admitted {
                return Some(said);
            }
        }
        if shared.is_empty() {
            // All that is shared is off.
            return self.without_store(effect).ok();
        }
        let purpose = match effect {
            Effect::Peek => Purpose::Peek,
            Effect::Charge if own.is_empty() => Purpose::Charge,
            Effect::Charge => Purpose::Reserve,
        };
        let questions: Vec<SharedAsk> = shared.iter().filter_map(|&at| self.question(at)).collect();
        let id = self.id();
        let (outcome, kept) = self.ask_store(&questions, &id, purpose).await?;
        said.add_shared(&shared, self.asks, &outcome);
        said.held.shared = kept;
        if own.is_empty() || effect == Effect::Peek {
            return Some(said);
        }
        if !outcome.admitted {
            // What is left here is as if the call had not come.
            let nothing: SmallVec<[Ask<'_>; 4]> =
                own_asks.iter().map(|ask| Ask { cost: 0, ..*ask }).collect();
            let untouched = self.exchange.rules.limits.peek(&nothing, self.now);
            for (&at, untouched) in own.iter().zip(&untouched.verdicts) {
                if let Some(Some(one)) = said.limits.get_mut(at) {
                    one.verdict.decision = one.verdict.decision.uncharged(untouched.decision);
                }
            }
            return Some(said);
        }
        let charged = self.exchange.rules.limits.decide(&own_asks, self.exchange.gates.env().now());
        said.add_own(&own, &charged, Source::Local);
        said.held.local = charged.permits;
        if !charged.admitted {
            // Another call was faster here. What the store charged goes back, whether or not the client waits.
            shared.iter().for_each(|&at| said.limits[at] = None);
            let fleet = Arc::clone(&self.fleet.fleet);
            tokio::spawn(async move { fleet.give_back(&questions, &id).await });
        }
        Some(said)
    }

    /// Asks the store, and keeps the permits that it gave.
    async fn ask_store(
        &self,
        questions: &[SharedAsk],
        id: &str,
        purpose: Purpose,
    ) -> Option<(SharedOutcome, Option<Kept>)> {
        let fleet = Arc::clone(&self.fleet.fleet);
        let permits = self.asks.iter().any(|ask| {
            matches!(self.limit(ask).algorithm, Algorithm::Concurrency { .. })
                && self.fleet.is_shared(ask.rule)
        });
        if !permits || purpose == Purpose::Peek {
            return Some((fleet.decide(questions, id, purpose).await?, None));
        }
        // A permit that is given when the client has gone must not be lost: whoever holds it gives it back.
        let (questions, id) = (questions.to_vec(), id.to_owned());
        let asked = tokio::spawn(async move { decide_and_keep(&fleet, &questions, &id, purpose).await });
        asked.await.ok().flatten()
    }

    /// While the store does not answer.
    fn without_store(&self, effect: Effect) -> Result<Said, Refusal> {
        let mut said = self.unasked();
        let (mut own, mut parts) = (SmallVec::<[usize; 4]>::new(), SmallVec::<[usize; 4]>::new());
        for (at, ask) in self.asks.iter().enumerate() {
            let limit = self.limit(ask);
            if limit.mode == Mode::Off {
                continue;
            }
            if !self.fleet.is_shared(ask.rule) {
                own.push(at);
                continue;
            }
            match limit.on_store_failure {
                Some(OnStoreFailure::FailOpen) => {
                    said.put(at, ask, limit.mode, admitted(), Source::FailOpen);
                }
                Some(OnStoreFailure::LocalFallback) if self.fleet.has_nothing(ask.rule, ask.variant) => {
                    said.put(at, ask, limit.mode, denied(0, RETRY), Source::Fallback);
                }
                Some(OnStoreFailure::LocalFallback) => parts.push(at),
                // Nobody who could be asked: closed, as every rule is that does not say otherwise.
                Some(OnStoreFailure::FailClosed) | None => {
                    said.put(at, ask, limit.mode, denied(0, RETRY), Source::FailClosed);
                }
            }
        }
        if let Some(closed) = said.limits.iter().flatten().find(|one| one.closes()).copied() {
            if effect == Effect::Charge {
                self.count(&closed);
            }
            let rule = self.exchange.rules.plan.rules.limits[closed.verdict.rule].id.clone();
            return Err(Refusal::StoreUnavailable { gate: Gate::Limit, rule });
        }
        let local: SmallVec<[usize; 4]> = own.iter().chain(&parts).copied().collect();
        if local.is_empty() {
            return Ok(said);
        }
        // One step over all that this process counts, so that all are charged or none.
        let asks = self.pick(&local);
        let limits = &self.exchange.rules.limits;
        let outcome = if said.admitted && effect == Effect::Charge {
            limits.decide(&asks, self.now)
        } else {
            limits.peek(&asks, self.now)
        };
        said.add_own(&local, &outcome, Source::Local);
        for &at in &parts {
            if let Some(Some(one)) = said.limits.get_mut(at) {
                one.source = Source::Fallback;
            }
        }
        said.held.local = outcome.permits;
        Ok(said)
    }

    /// After a loss of the store's data, limits that start as used up admit nothing until they would be whole
    /// again in any case.
    fn exhausted(&self) -> Option<Said> {
        let (store_now, since) = self.fleet.fleet.lost_since(self.now)?;
        let mut said = self.unasked();
        for (at, ask) in self.asks.iter().enumerate() {
            let limit = self.limit(ask);
            if limit.after_store_loss != AfterStoreLoss::Exhausted
                || limit.mode == Mode::Off
                || !self.fleet.is_shared(ask.rule)
            {
                continue;
            }
            let numbers = ask.variant.checked_sub(1).and_then(|at| limit.overrides.get(at));
            let numbers = numbers.map_or(&limit.algorithm, |other| &other.algorithm);
            let whole = since + refilled_after(numbers).unwrap_or(PERMIT_LIFE);
            if store_now < whole {
                said.put(at, ask, limit.mode, denied(1, whole.since(store_now)), Source::Shared);
            }
        }
        (!said.admitted).then_some(said)
    }

    /// Counts a refusal that is no answer of a limit.
    fn count(&self, one: &One) {
        let plan = &self.exchange.plan().limits;
        let Some(at) = plan.iter().position(|limit| limit.rule == one.verdict.rule) else { return };
        LimitDecided {
            counters: &self.exchange.runtime().limits[at],
            verdict: &one.verdict,
            admitted: false,
            source: one.source,
            window: None,
            request_id: &self.exchange.context.request_id,
        }
        .emit();
    }

    fn unasked(&self) -> Said {
        Said {
            limits: self.asks.iter().map(|_| None).collect(),
            admitted: true,
            wait: Duration::ZERO,
            held: Held::default(),
        }
    }

    fn limit(&self, ask: &Ask<'_>) -> &'a Limit {
        &self.exchange.rules.plan.rules.limits[ask.rule]
    }

    fn pick(&self, places: &[usize]) -> SmallVec<[Ask<'a>; 4]> {
        places.iter().map(|&at| self.asks[at]).collect()
    }

    fn question(&self, at: usize) -> Option<SharedAsk> {
        let ask = &self.asks[at];
        self.fleet.ask(ask.rule, ask.variant, ask.key, ask.cost)
    }

    /// Names the call in the store. A client may send the same request id again.
    fn id(&self) -> String {
        let mut id = String::with_capacity(32);
        for byte in self.exchange.gates.env().nonce() {
            // Writing into a string does not fail.
            let _ = write!(id, "{byte:02x}");
        }
        id
    }
}

impl Said {
    fn put(&mut self, at: usize, ask: &Ask<'_>, mode: Mode, decision: Decision, source: Source) {
        let verdict = Verdict { rule: ask.rule, mode, decision, overflow: false };
        self.add(at, One { verdict, source, window: None });
    }

    fn add(&mut self, at: usize, one: One) {
        if one.verdict.mode == Mode::Enforce {
            self.admitted &= one.verdict.decision.admitted();
        }
        self.limits[at] = Some(one);
    }

    fn add_own(&mut self, places: &[usize], outcome: &Outcome, source: Source) {
        for (&at, &verdict) in places.iter().zip(&outcome.verdicts) {
            self.add(at, One { verdict, source, window: None });
        }
        self.admitted &= outcome.admitted;
        self.wait = self.wait.max(outcome.wait);
    }

    fn add_shared(&mut self, places: &[usize], asks: &[Ask<'_>], outcome: &SharedOutcome) {
        for (&at, verdict) in places.iter().zip(&outcome.verdicts) {
            let Some(decision) = verdict.decision else { continue };
            let told = Verdict { rule: asks[at].rule, mode: verdict.mode, decision, overflow: false };
            self.add(at, One { verdict: told, source: Source::Shared, window: verdict.window });
        }
        self.admitted &= outcome.admitted;
        self.wait = self.wait.max(outcome.wait);
    }
}

impl One {
    /// Whether it refuses because nobody can be asked.
    fn closes(&self) -> bool {
        self.source == Source::FailClosed && self.verdict.mode == Mode::Enforce
    }
}

async fn decide_and_keep(
    fleet: &Fleet,
    questions: &[SharedAsk],
    id: &str,
    purpose: Purpose,
) -> Option<(SharedOutcome, Option<Kept>)> {
    let mut outcome = fleet.decide(questions, id, purpose).await?;
    let kept = fleet.keep(std::mem::take(&mut outcome.permits));
    Some((outcome, kept))
}

fn admitted() -> Decision {
    Decision::new(Answer::Admitted { wait: Duration::ZERO }, 0, 0, Duration::ZERO)
}

fn denied(limit: u64, retry: Duration) -> Decision {
    Decision::new(Answer::Denied(Retry::After(retry)), limit, 0, retry)
}
