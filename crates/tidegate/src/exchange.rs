//! One request on its way through the gates.

use std::sync::Arc;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method, Response};
use tidegate_core::rule::compile::ResourcePlan;
use tidegate_core::rule::model::Resource;

use crate::Body;
use crate::cache;
use crate::context::{Context, X_REQUEST_ID};
use crate::event::Refused;
use crate::gates::{Gates, InForce};
use crate::request::Taken;
use crate::respond::{self, Refusal};
use crate::runtime::{LimitRuntime, ResourceRuntime};
use crate::stats::Gate;

/// The resource's flags, told to the upstream.
pub(crate) const TIDEGATE_FLAGS: HeaderName = HeaderName::from_static("tidegate-flags");

/// What the gates know of one request. It outlives the client's connection where an execution does.
pub(crate) struct Exchange {
    pub(crate) gates: Gates,
    /// The version that the request began with, and keeps.
    pub(crate) rules: Arc<InForce>,
    /// Index of its resource.
    pub(crate) resource: usize,
    pub(crate) context: Context,
    pub(crate) method: Method,
    pub(crate) taken: Taken,
    /// The labels that rollout gave it.
    pub(crate) flags: Option<HeaderValue>,
    /// The idempotency key, where its rule takes it from the path.
    pub(crate) path_key: Option<String>,
    /// What the cache is asked with, where a breaker's fallback names it.
    pub(crate) cacheable: Option<Cacheable>,
}

/// On a response: it says nothing about what was called, because a guard inside said no.
#[derive(Clone, Copy)]
pub(crate) struct NoVerdict;

/// A request whose answer may be remembered.
pub(crate) struct Cacheable {
    pub(crate) key: cache::Key,
    pub(crate) headers: HeaderMap,
}

impl Exchange {
    pub(crate) fn plan(&self) -> &ResourcePlan {
        &self.rules.plan.resources[self.resource]
    }

    pub(crate) fn resource(&self) -> &Resource {
        &self.rules.plan.rules.resources[self.resource]
    }

    pub(crate) fn runtime(&self) -> &ResourceRuntime {
        &self.rules.resources[self.resource]
    }

    /// A problem answer; the log and the statistics say so.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Response<Body> {
        self.note(refusal);
        match self.denied_by(refusal) {
            Some(limit) if refusal.retry_after().is_some() => refusal.respond_with(limit.denial.clone()),
            _ => refusal.respond(self.rules.header.to_str().ok(), self.gates.settings().disclose),
        }
    }

    /// The one limit that denied.
    fn denied_by(&self, refusal: &Refusal) -> Option<&LimitRuntime> {
        let Refusal::LimitDenied { rules, .. } = refusal else { return None };
        let [rule] = &rules[..] else { return None };
        self.runtime().limits.iter().find(|limit| limit.rule == *rule)
    }

    /// Says in the log and in the statistics that it was refused.
    pub(crate) fn note(&self, refusal: &Refusal) {
        Refused { resource: &self.resource().id, refusal, request_id: &self.context.request_id }.emit();
        let stats = &self.runtime().stats;
        if let Some(limit) = self.denied_by(refusal) {
            stats.block(Gate::Limit, &limit.name);
        } else if let (Some(gate), Some(rule)) = (refusal.gate(), refusal.rule()) {
            stats.block(gate, &rule.into());
        }
    }

    /// The headers that each call carries to the upstream.
    pub(crate) fn label(&self, headers: &mut HeaderMap) {
        headers.insert(X_REQUEST_ID, self.context.request_id.clone());
        if let Some(flags) = &self.flags {
            headers.insert(TIDEGATE_FLAGS, flags.clone());
        }
    }
}

/// Removes every header that only Tidegate may set.
pub(crate) fn strip(headers: &mut HeaderMap) {
    // Many frameworks see `Tidegate_Fence` and `Tidegate-Fence` under one name.
    let ours = |name: &HeaderName| {
        name.as_str().strip_prefix("tidegate").is_some_and(|rest| rest.starts_with(['-', '_']))
            || *name == respond::IDEMPOTENT_REPLAYED
    };
    // Most requests carry none: one scan, no removal.
    while let Some(name) = headers.keys().find(|name| ours(name)).cloned() {
        headers.remove(name);
    }
}
