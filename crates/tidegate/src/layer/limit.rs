//! Limit is the outermost gate that can refuse: it touches no database, and the store that instances share
//! only where a rule asks for it.

mod shared;

use std::time::Duration;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::key::KeyBytes;
use tidegate_core::limit::{Answer, Retry, key};
use tidegate_core::rule::compile::{CostPlan, LimitPlan};
use tidegate_core::rule::render;
use tidegate_store::memory::limits::{Ask, Permits, Verdict};

use crate::event::LimitDecided;
use crate::exchange::Exchange;
use crate::fleet::Kept;
use crate::gates::InForce;
use crate::request::Taken;
use crate::respond::{self, Refusal};
use crate::runtime::Source;

/// The concurrency permits of a call; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    local: Permits,
    shared: Option<Kept>,
}

impl Held {
    /// Whether it holds none.
    pub(crate) fn is_empty(&self) -> bool {
        self.local.is_empty() && self.shared.is_none()
    }
}

/// What one limit said.
#[derive(Clone, Copy)]
struct Told<'a> {
    verdict: &'a Verdict,
    source: Source,
    /// The start of the window that the shared store counted it in.
    window: Option<Timestamp>,
}

/// What the limits of a resource said.
pub(crate) struct Decided {
    /// Why the request is refused, if it is.
    pub(crate) refusal: Option<Refusal>,
    /// When a refused request may be decided anew.
    retry: Retry,
    /// How long to wait for its turn (leaky bucket).
    pub(crate) wait: Duration,
    /// What it holds until its answer is complete (concurrency).
    pub(crate) held: Option<Held>,
    /// The `RateLimit` items; empty when no limit is enforced.
    pub(crate) policies: String,
    pub(crate) limits: String,
}

impl Decided {
    const FREE: Self = Self {
        refusal: None,
        retry: Retry::OnRelease,
        wait: Duration::ZERO,
        held: None,
        policies: String::new(),
        limits: String::new(),
    };

    /// What all limits together say, for who may wait.
    pub(crate) fn answer(&self) -> Answer {
        match self.refusal {
            None => Answer::Admitted { wait: self.wait },
            Some(_) => Answer::Denied(self.retry),
        }
    }
}

/// When a call that two limits deny may be decided anew.
fn later(a: Retry, b: Retry) -> Retry {
    match (a, b) {
        (Retry::Never, _) | (_, Retry::Never) => Retry::Never,
        (Retry::After(a), Retry::After(b)) => Retry::After(a.max(b)),
        (after @ Retry::After(_), Retry::OnRelease) | (Retry::OnRelease, after) => after,
    }
}

/// Decides all limits of the exchange's resource, wherever they count: either each of them is charged, or
/// none is.
pub(crate) async fn charge(exchange: &Exchange, now: Timestamp) -> Result<Decided, Refusal> {
    let rules = &exchange.rules;
    match rules.fleet.as_deref().filter(|_| exchange.runtime().shares) {
        // On the heap, so that calls without a shared limit do not carry its state.
        Some(fleet) => Box::pin(shared::decide(exchange, fleet, now)).await,
        None => decide(rules, exchange.resource, &exchange.taken, now, &exchange.context.request_id),
    }
}

/// Decides all limits of `resource` in one step, in this process.
fn decide(
    rules: &InForce,
    resource: usize,
    taken: &Taken,
    now: Timestamp,
    request_id: &HeaderValue,
) -> Result<Decided, Refusal> {
    if rules.plan.resources[resource].limits.is_empty() {
        return Ok(Decided::FREE);
    }
    let keys = keys(rules, resource, taken);
    let asks = asks(rules, resource, taken, &keys)?;
    let outcome = rules.limits.decide(&asks, now);
    let told = outcome.verdicts.iter().map(|verdict| Told { verdict, source: Source::Local, window: None });
    let mut decided = report(rules, resource, &asks, told.map(Some), outcome.admitted, request_id);
    decided.wait = outcome.wait;
    decided.held = Some(Held { local: outcome.permits, shared: None });
    Ok(decided)
}

/// What one limit would say.
pub(crate) struct Peeked {
    /// Its place among the limits of the resource.
    pub(crate) at: usize,
    pub(crate) variant: usize,
    pub(crate) cost: u64,
    pub(crate) verdict: Verdict,
}

/// What [`charge`] would say: nothing is charged, no key is remembered, nothing is counted.
pub(crate) async fn peek(exchange: &Exchange, now: Timestamp) -> Result<(Vec<Peeked>, Duration), Refusal> {
    let (rules, resource, taken) = (&exchange.rules, exchange.resource, &exchange.taken);
    if let Some(fleet) = rules.fleet.as_deref().filter(|_| exchange.runtime().shares) {
        return shared::peek(exchange, fleet, now).await;
    }
    let keys = keys(rules, resource, taken);
    let asks = asks(rules, resource, taken, &keys)?;
    let outcome = rules.limits.peek(&asks, now);
    let peeked = asks.iter().zip(&outcome.verdicts).enumerate();
    Ok((peeked.map(|(at, (ask, verdict))| Peeked::new(at, ask, *verdict)).collect(), outcome.wait))
}

impl Peeked {
    fn new(at: usize, ask: &Ask<'_>, verdict: Verdict) -> Self {
        Self { at, variant: ask.variant, cost: ask.cost, verdict }
    }
}

type Keys = SmallVec<[KeyBytes; 4]>;
type Asks<'a> = SmallVec<[Ask<'a>; 4]>;

/// Each limit's key, in the plan's order.
fn keys(rules: &InForce, resource: usize, taken: &Taken) -> Keys {
    let limits = rules.plan.resources[resource].limits.iter();
    limits.map(|limit| key::encode(limit.key.iter().map(|&index| taken.text(index)))).collect()
}

/// What each limit is asked.
fn asks<'a>(rules: &InForce, resource: usize, taken: &Taken, keys: &'a Keys) -> Result<Asks<'a>, Refusal> {
    let plan = &rules.plan.resources[resource];
    let attributes = taken.named(&rules.plan.rules.resources[resource]);
    let mut asks = Asks::new();
    for (limit, key) in plan.limits.iter().zip(keys) {
        let variant = limit.overrides.iter().position(|when| when.holds(&attributes));
        asks.push(Ask {
            rule: limit.rule,
            variant: variant.map_or(0, |at| at + 1),
            key,
            cost: cost(rules, resource, limit, taken)?,
        });
    }
    Ok(asks)
}

fn cost(rules: &InForce, resource: usize, limit: &LimitPlan, taken: &Taken) -> Result<u64, Refusal> {
    let (from, default, max) = match limit.cost {
        CostPlan::Fixed(cost) => return Ok(cost),
        CostPlan::Attribute { from, default, max } => (from, default, max),
    };
    let Some(text) = taken.text(from) else { return Ok(default) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(cost) if digits && (1..=max).contains(&cost) => Ok(cost),
        _ => Err(Refusal::CostInvalid {
            rule: rules.plan.rules.limits[limit.rule].id.clone(),
            attribute: render::source(&rules.plan.rules.resources[resource].attributes[from].from),
            max,
        }),
    }
}

/// Counts what each limit said, and makes of it what the client is told. `told` is in the order of `asks`;
/// `None`: it was not asked, because another one had refused already.
fn report<'a>(
    rules: &InForce,
    resource: usize,
    asks: &[Ask<'_>],
    told: impl Iterator<Item = Option<Told<'a>>>,
    admitted: bool,
    request_id: &HeaderValue,
) -> Decided {
    let plan = &rules.plan.resources[resource];
    let runtimes = &rules.resources[resource].limits;
    let mut decided = Decided::FREE;
    let mut denied = Vec::new();
    let mut retry_after = Some(Duration::ZERO);
    for (((limit, runtime), ask), told) in plan.limits.iter().zip(runtimes).zip(asks).zip(told) {
        let Some(Told { verdict, source, window }) = told else { continue };
        LimitDecided { counters: runtime, verdict, admitted, source, window, request_id }.emit();
        let decision = &verdict.decision;
        // What nobody counts has no numbers to tell.
        if limit.shadow || source == Source::FailOpen {
            continue;
        }
        if !decided.policies.is_empty() {
            decided.policies.push_str(", ");
        }
        decided.policies.push_str(&runtime.policies[ask.variant]);
        let reset = runtime.timed.then(|| decision.reset_after());
        respond::push_limit_item(&mut decided.limits, &runtime.rule, decision.remaining, reset);
        if !decision.admitted() {
            denied.push(runtime.rule.clone());
            if let Answer::Denied(retry) = decision.answer {
                decided.retry = later(decided.retry, retry);
            }
            // The call passes when the slowest of them lets it.
            retry_after = retry_after.zip(decision.retry_after()).map(|(a, b)| a.max(b));
        }
    }
    if !admitted {
        decided.refusal = Some(Refusal::LimitDenied { rules: denied, retry_after });
    }
    decided
}
