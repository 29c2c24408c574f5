//! Limit is the outermost gate that can refuse: it touches no database.

use std::time::Duration;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::key::KeyBytes;
use tidegate_core::limit::{Answer, Retry, key};
use tidegate_core::rule::compile::{CostPlan, LimitPlan};
use tidegate_core::rule::render;
use tidegate_store::memory::limits::{Ask, Outcome, Permits, Verdict};

use crate::event::LimitDecided;
use crate::gates::InForce;
use crate::request::Taken;
use crate::respond::{self, Refusal};

/// What the limits of a resource said.
pub(crate) struct Decided {
    /// Why the request is refused, if it is.
    pub(crate) refusal: Option<Refusal>,
    /// When a refused request may be decided anew.
    retry: Retry,
    /// How long to wait for its turn (leaky bucket).
    pub(crate) wait: Duration,
    /// What it holds until its answer is complete (concurrency).
    pub(crate) permits: Option<Permits>,
    /// The `RateLimit` items; empty when no limit is enforced.
    pub(crate) policies: String,
    pub(crate) limits: String,
}

impl Decided {
    const FREE: Self = Self {
        refusal: None,
        retry: Retry::OnRelease,
        wait: Duration::ZERO,
        permits: None,
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

/// Decides all limits of `resource` in one step: either each of them is charged, or none is.
pub(crate) fn decide(
    rules: &InForce,
    resource: usize,
    taken: &Taken,
    now: Timestamp,
    request_id: &HeaderValue,
) -> Result<Decided, Refusal> {
    if rules.plan.resources[resource].limits.is_empty() {
        return Ok(Decided::FREE);
    }
    with_asks(rules, resource, taken, |asks| {
        let outcome = rules.limits.decide(asks, now);
        report(rules, resource, asks, outcome, request_id)
    })
}

/// What one limit would say.
pub(crate) struct Peeked {
    /// Its place among the limits of the resource.
    pub(crate) at: usize,
    pub(crate) variant: usize,
    pub(crate) cost: u64,
    pub(crate) verdict: Verdict,
}

/// What [`decide`] would say: nothing is charged, no key is remembered, nothing is counted.
pub(crate) fn peek(
    rules: &InForce,
    resource: usize,
    taken: &Taken,
    now: Timestamp,
) -> Result<(Vec<Peeked>, Duration), Refusal> {
    with_asks(rules, resource, taken, |asks| {
        let outcome = rules.limits.peek(asks, now);
        let peeked = asks.iter().zip(&outcome.verdicts).enumerate().map(|(at, (ask, verdict))| Peeked {
            at,
            variant: ask.variant,
            cost: ask.cost,
            verdict: *verdict,
        });
        (peeked.collect(), outcome.wait)
    })
}

fn with_asks<T>(
    rules: &InForce,
    resource: usize,
    taken: &Taken,
    decide: impl FnOnce(&[Ask<'_>]) -> T,
) -> Result<T, Refusal> {
    let plan = &rules.plan.resources[resource];
    let attributes = taken.named(&rules.plan.rules.resources[resource]);
    let mut keys: SmallVec<[KeyBytes; 4]> = SmallVec::new();
    for limit in &plan.limits {
        keys.push(key::encode(limit.key.iter().map(|&index| taken.text(index))));
    }
    let mut asks: SmallVec<[Ask<'_>; 4]> = SmallVec::new();
    for (limit, key) in plan.limits.iter().zip(&keys) {
        let variant = limit.overrides.iter().position(|when| when.holds(&attributes));
        asks.push(Ask {
            rule: limit.rule,
            variant: variant.map_or(0, |at| at + 1),
            key,
            cost: cost(rules, resource, limit, taken)?,
        });
    }
    Ok(decide(&asks))
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

fn report(
    rules: &InForce,
    resource: usize,
    asks: &[Ask<'_>],
    outcome: Outcome,
    request_id: &HeaderValue,
) -> Decided {
    let plan = &rules.plan.resources[resource];
    let runtimes = &rules.resources[resource].limits;
    let mut decided = Decided { wait: outcome.wait, permits: Some(outcome.permits), ..Decided::FREE };
    let mut denied = Vec::new();
    let mut retry_after = Some(Duration::ZERO);
    for (((limit, runtime), ask), verdict) in
        plan.limits.iter().zip(runtimes).zip(asks).zip(&outcome.verdicts)
    {
        LimitDecided { counters: runtime, verdict, admitted: outcome.admitted, request_id }.emit();
        let decision = &verdict.decision;
        if limit.shadow {
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
    if !outcome.admitted {
        decided.refusal = Some(Refusal::LimitDenied { rules: denied, retry_after });
    }
    decided
}
