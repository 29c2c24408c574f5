//! Asks the gates, in the order in which a request meets them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use tidegate_core::breaker::{Answer as Layer, degrade};
use tidegate_core::idempotency::fingerprint;
use tidegate_core::idempotency::record::Stage;
use tidegate_core::idempotency::transition::{Answer, How};
use tidegate_core::rule::model::{InProgress, Missing};
use tidegate_core::rule::render;
use tidegate_core::rule::route::Matched;
use tidegate_store::traits::Shown;

use super::{
    AttributeTaken, BreakerSays, Explained, Explanation, IdempotencyAnswer, IdempotencySays, LimitSays,
    Question, RecordFound, Verdict, explain_flag,
};
use crate::context::Context;
use crate::exchange::{Exchange, strip};
use crate::gates::{Gates, InForce};
use crate::layer::idempotency::{Peeked, Unanswered};
use crate::layer::{breaker, idempotency, limit};
use crate::request::{self, Origin, Taken, take_one};
use crate::respond::Refusal;
use crate::stats::Gate;

pub(super) async fn ask(gates: &Gates, rules: &Arc<InForce>, question: Question) -> Explanation {
    let Question { request, client, hosts } = question;
    let (mut parts, body) = request.into_parts();
    strip(&mut parts.headers);
    let valid = request::normalise_target(&mut parts, gates.settings().encoded_slash);
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let without = |target, verdict| Explanation { version: rules.version, target, resource: None, verdict };
    if let Err(refusal) = valid {
        return without(target, Verdict::Refused(refusal));
    }
    let uri = parts.uri.clone();
    let host = request::host(&parts).map(Cow::into_owned);
    let found = rules.plan.routes.find(host.as_deref(), parts.method.as_str(), uri.path());
    let Some(Matched { resource, params }) = found else { return without(target, Verdict::Unmatched) };
    let path = |name: &str| params.get(name).map(ToOwned::to_owned);
    let mut asking = Asking {
        gates,
        rules,
        explained: Explained {
            id: rules.plan.rules.resources[resource].id.clone(),
            attributes: Vec::new(),
            subject: None,
            flags: Vec::new(),
            limits: Vec::new(),
            idempotency: None,
            breakers: Vec::new(),
        },
        resource,
        path_key: idempotency::path_key(rules, resource, &path),
        wait: Duration::ZERO,
        verdict: None,
    };
    if let Some(taken) = asking.attributes(&parts, &body, client, &path) {
        asking.gates(taken, &parts, &body, client, &hosts).await;
    }
    let verdict = asking.verdict.unwrap_or(Verdict::Called { wait: asking.wait });
    Explanation { version: rules.version, target, resource: Some(asking.explained), verdict }
}

/// One question to the gates of one resource.
struct Asking<'a> {
    gates: &'a Gates,
    rules: &'a Arc<InForce>,
    resource: usize,
    path_key: Option<String>,
    explained: Explained,
    /// In the queue of a leaky bucket.
    wait: Duration,
    /// The first gate that answers in place of the call.
    verdict: Option<Verdict>,
}

impl Asking<'_> {
    fn decide(&mut self, verdict: Verdict) {
        self.verdict.get_or_insert(verdict);
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.decide(Verdict::Refused(refusal));
    }

    /// Takes the attributes; `None` when the request is refused for them.
    fn attributes(
        &mut self,
        parts: &Parts,
        body: &Bytes,
        client: IpAddr,
        path: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Option<Taken> {
        let plan = &self.rules.plan.resources[self.resource];
        let limit = self.gates.settings().max_body;
        if (plan.attributes_in_body || plan.idempotency.is_some()) && body.len() as u64 > limit {
            self.refuse(Refusal::BodyTooLarge { limit });
        }
        let json = if plan.attributes_in_body { serde_json::from_slice(body).ok() } else { None };
        let ipv6_prefix = self.gates.settings().ipv6_prefix;
        let origin = Origin { parts, path, client, ipv6_prefix, body: json.as_ref() };
        let resource = &self.rules.plan.rules.resources[self.resource];
        let attributes = resource.attributes.iter().map(|attribute| AttributeTaken {
            name: attribute.name.clone(),
            from: render::source(&attribute.from),
            value: take_one(&attribute.from, &origin),
            required: attribute.missing == Missing::Reject,
        });
        self.explained.attributes = attributes.collect();
        match request::take(resource, &origin) {
            Ok(taken) => Some(taken),
            Err(refusal) => {
                self.refuse(refusal);
                None
            }
        }
    }

    async fn gates(&mut self, taken: Taken, parts: &Parts, body: &Bytes, client: IpAddr, hosts: &[String]) {
        self.flags(&taken);
        let exchange = Exchange {
            gates: self.gates.clone(),
            rules: Arc::clone(self.rules),
            resource: self.resource,
            context: Context { request_id: HeaderValue::from_static("explain"), client },
            method: parts.method.clone(),
            cacheable: breaker::cacheable(self.rules, self.resource, parts, &taken),
            taken,
            flags: None,
            path_key: self.path_key.take(),
        };
        self.limits(&exchange).await;
        self.idempotency(&exchange, parts, body).await;
        self.breakers(&exchange, hosts);
    }

    fn flags(&mut self, taken: &Taken) {
        let resource = &self.rules.plan.rules.resources[self.resource];
        let subject = self.rules.plan.resources[self.resource].subject.and_then(|index| taken.text(index));
        let attributes = taken.named(resource);
        // A resource names only flags that there are: loading has seen to that.
        let says =
            resource.flags.iter().filter_map(|key| explain_flag(self.rules, key, subject, &attributes).ok());
        self.explained.flags = says.collect();
        self.explained.subject = subject.map(ToOwned::to_owned);
    }

    async fn limits(&mut self, exchange: &Exchange) {
        let taken = &exchange.taken;
        let (peeked, wait) = match limit::peek(exchange, self.gates.env().now()).await {
            Ok(peeked) => peeked,
            Err(refusal) => return self.refuse(refusal),
        };
        self.wait = wait;
        let resource = &self.rules.plan.rules.resources[self.resource];
        let mut denied = Vec::new();
        let mut retry_after = Some(Duration::ZERO);
        for one in peeked {
            let plan = &self.rules.plan.resources[self.resource].limits[one.at];
            let rule = &self.rules.plan.rules.limits[plan.rule];
            let overridden_by = one.variant.checked_sub(1);
            let key = plan.key.iter().map(|&index| {
                (resource.attributes[index].name.clone(), taken.text(index).map(ToOwned::to_owned))
            });
            let decision = one.verdict.decision;
            if !plan.shadow && !decision.admitted() {
                denied.push(rule.id.clone());
                retry_after = retry_after.zip(decision.retry_after()).map(|(a, b)| a.max(b));
            }
            self.explained.limits.push(LimitSays {
                rule: rule.id.clone(),
                mode: rule.mode,
                algorithm: rule.algorithm.name(),
                key: key.collect(),
                overridden_by,
                cost: one.cost,
                decision,
                overflow: one.verdict.overflow,
            });
        }
        if !denied.is_empty() {
            self.refuse(Refusal::LimitDenied { rules: denied, retry_after });
        }
    }

    async fn idempotency(&mut self, exchange: &Exchange, parts: &Parts, body: &Bytes) {
        let Some(plan) = &exchange.plan().idempotency else { return };
        let rule = &self.rules.plan.rules.idempotency[plan.rule];
        let mut says = IdempotencySays {
            rule: rule.id.clone(),
            record: None,
            found: None,
            answer: IdempotencyAnswer::Unguarded,
        };
        match idempotency::peek(exchange, parts, body).await {
            Ok(None) => {}
            Ok(Some(Peeked { id, found, claim })) => {
                says.record = Some(id);
                says.found = found.map(|shown| found_record(&shown));
                says.answer = answer(claim, rule.id.clone(), rule.in_progress);
            }
            Err(Unanswered::Refused(refusal)) => says.answer = IdempotencyAnswer::Refuse(refusal),
            Err(Unanswered::Store(error)) => {
                says.answer = IdempotencyAnswer::StoreFailed { error: error.to_string() };
            }
        }
        match &says.answer {
            IdempotencyAnswer::Unguarded | IdempotencyAnswer::Execute(_) => {}
            IdempotencyAnswer::Replay { status } => self.decide(Verdict::Replayed { status: *status }),
            IdempotencyAnswer::Refuse(refusal) => self.refuse(refusal.clone()),
            IdempotencyAnswer::Wait { at_most } => self.decide(Verdict::Waits { at_most: *at_most }),
            IdempotencyAnswer::StoreFailed { .. } => {
                self.refuse(Refusal::StoreUnavailable { gate: Gate::Idempotency, rule: rule.id.clone() });
            }
        }
        self.explained.idempotency = Some(says);
    }

    fn breakers(&mut self, exchange: &Exchange, hosts: &[String]) {
        let now = self.gates.env().now();
        let breakers = &self.rules.breakers;
        for &index in &exchange.plan().breakers {
            let rule = &self.rules.plan.rules.breakers[index];
            let each = rule.per_upstream_host && !hosts.is_empty();
            let hosts: Vec<Option<&String>> =
                if each { hosts.iter().map(Some).collect() } else { vec![None] };
            for host in hosts {
                let name = host.map_or("", String::as_str);
                let Some(status) = breakers.status(index, name, now) else { continue };
                let refuses_for = breakers.peek(&[index], name, now).err().map(|refusal| refusal.remaining);
                let (rule, host) = (rule.id.clone(), host.cloned());
                self.explained.breakers.push(BreakerSays { rule, host, status, refuses_for });
            }
        }
        // Calls take the hosts in turn, so that only what all of them refuse is refused for certain.
        let names = hosts.iter().map(String::as_str);
        let asked: Result<Vec<_>, ()> = if hosts.is_empty() { vec![""] } else { names.collect() }
            .into_iter()
            .map(|host| breakers.peek(&exchange.plan().breakers, host, now).err().ok_or(()))
            .collect();
        let refusal = asked.ok().and_then(|refusals| refusals.into_iter().min_by_key(|said| said.remaining));
        let Some(refusal) = refusal else { return };
        let rule = &self.rules.plan.rules.breakers[refusal.rule];
        let cached = exchange.cacheable.as_ref();
        let cached = cached.and_then(|ask| self.gates.cache().peek(&ask.key, &ask.headers, now));
        let layer = degrade::layers(&rule.fallback, cached.map(|hit| hit.age())).next();
        let (layer, status) = match layer {
            Some(layer @ Layer::Cached { .. }) => (layer.name(), None),
            Some(layer @ Layer::Respond { status, .. }) => (layer.name(), Some(status)),
            Some(Layer::FailFast) | None => {
                let retry_after = refusal.remaining;
                return self.refuse(Refusal::BreakerOpen { rule: rule.id.clone(), retry_after });
            }
        };
        self.decide(Verdict::Fallback { rule: rule.id.clone(), layer, status });
    }
}

fn found_record(shown: &Shown) -> RecordFound {
    let record = &shown.record;
    RecordFound {
        state: record.stage.state(),
        token: record.fence.token,
        attempts: record.attempts,
        version: record.first.version,
        first_claimed_at: record.first_claimed_at,
        lease_until: record.lease_until,
        expires_at: record.expires_at(),
        status: match &record.stage {
            Stage::Finished(response) => Some(response.status()),
            _ => None,
        },
    }
}

fn answer(claim: Result<How, Answer>, rule: String, in_progress: InProgress) -> IdempotencyAnswer {
    match claim {
        Ok(how) => IdempotencyAnswer::Execute(how),
        Err(Answer::Replay { response, .. }) => IdempotencyAnswer::Replay { status: response.status() },
        Err(Answer::InProgress { retry_after }) => match in_progress {
            InProgress::Wait(at_most) => IdempotencyAnswer::Wait { at_most },
            InProgress::Reject => IdempotencyAnswer::Refuse(Refusal::InProgress { rule, retry_after }),
        },
        Err(Answer::Mismatch { fields }) => {
            let fields = fields.iter().map(fingerprint::label).collect();
            IdempotencyAnswer::Refuse(Refusal::KeyReused { rule, fields })
        }
        Err(Answer::OutcomeUnknown { .. }) => IdempotencyAnswer::Refuse(Refusal::OutcomeUnknown { rule }),
        // The record compares what this request does not have.
        Err(Answer::NotComputed { .. }) => {
            IdempotencyAnswer::Refuse(Refusal::StoreUnavailable { gate: Gate::Idempotency, rule })
        }
    }
}
