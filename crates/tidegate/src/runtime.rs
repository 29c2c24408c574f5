//! What one resource of one version needs at hand, so that a request looks nothing up by name:
//! metric series, statistics, and the constant parts of its headers.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::RwLock;
use tidegate_core::limit::refilled_after;
use tidegate_core::rollout::Reason;
use tidegate_core::rule::compile::Plan;
use tidegate_core::rule::model::{Algorithm, AttributeSource, Fallback, Flag, Limit, Resource, Sharing};
use tidegate_core::rule::render;

use crate::call::TOLD;
use crate::layer::rollout;
use crate::metrics::Metrics;
use crate::respond::policy_item;
use crate::series::{Counter, Latencies};
use crate::shard::Sharded;
use crate::stats::ResourceStats;

pub(crate) struct ResourceRuntime {
    pub(crate) stats: Arc<ResourceStats>,
    pub(crate) limits: Vec<LimitRuntime>,
    pub(crate) flags: Vec<FlagRuntime>,
    /// By the breaker's index in the rules.
    breakers: Vec<(usize, BreakerCalls)>,
    pub(crate) durations: Durations,
    /// Whether something reads what `Call::tell` sets before the limits have decided.
    pub(crate) reads_told: bool,
    /// Whether one of its limits counts in the store that instances share.
    pub(crate) shares: bool,
}

impl ResourceRuntime {
    /// The series of one result of one breaker.
    pub(crate) fn breaker_calls(&self, rule: usize, result: &str) -> Option<&Counter> {
        let (_, calls) = self.breakers.iter().find(|(index, _)| *index == rule)?;
        let at = BREAKER_RESULTS.iter().position(|known| *known == result)?;
        calls.get(at)
    }
}

const BREAKER_RESULTS: [&str; 5] = ["success", "failure", "slow", "rejected", "cancelled"];
type BreakerCalls = [Counter; BREAKER_RESULTS.len()];

/// A limit's counters and the constant part of its header.
pub(crate) struct LimitRuntime {
    pub(crate) rule: String,
    /// The same, for the statistics.
    pub(crate) name: Arc<str>,
    /// The problem of its denials.
    pub(crate) denial: Bytes,
    /// `RateLimit-Policy` items: the base, then one for each override.
    pub(crate) policies: Vec<String>,
    /// Whether it becomes whole by time alone.
    pub(crate) timed: bool,
    /// Decided in this process.
    pub(crate) local: DecisionCounters,
    /// Decided elsewhere, or in place of a store that does not answer; for shared limits only.
    shared: Option<Box<[DecisionCounters; Source::ELSEWHERE.len()]>>,
    pub(crate) overflowed: Counter,
}

/// `tidegate_limit_decisions_total` of one rule, resource and source.
pub(crate) struct DecisionCounters {
    pub(crate) allowed: Counter,
    pub(crate) denied: Counter,
    pub(crate) shadow_denied: Counter,
}

/// Who decided a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// A counter of this process.
    #[default]
    Local,
    /// The shared store.
    Shared,
    /// This instance's part of the limit, while the store does not answer.
    Fallback,
    /// Nobody: the store does not answer, and the rule lets calls pass.
    FailOpen,
    /// Nobody: the store does not answer, and the rule lets no call pass.
    FailClosed,
}

impl Source {
    /// All but the local one.
    const ELSEWHERE: [Self; 4] = [Self::Shared, Self::Fallback, Self::FailOpen, Self::FailClosed];

    /// As metrics and logs have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Shared => "shared",
            Self::Fallback => "fallback",
            Self::FailOpen => "fail_open",
            Self::FailClosed => "fail_closed",
        }
    }
}

impl LimitRuntime {
    /// The counters of a source.
    #[inline]
    pub(crate) fn counters(&self, source: Source) -> &DecisionCounters {
        let elsewhere = || {
            let at = Source::ELSEWHERE.iter().position(|known| *known == source)?;
            self.shared.as_ref()?.get(at)
        };
        if source == Source::Local { &self.local } else { elsewhere().unwrap_or(&self.local) }
    }
}

/// What a flag's results need: series, and the item of the label that tells the upstream.
pub(crate) struct FlagRuntime {
    pub(crate) flag: String,
    metrics: Arc<Metrics>,
    /// In the flag's order.
    variants: Box<[VariantRuntime]>,
    /// The default's place among them.
    pub(crate) default: usize,
}

struct VariantRuntime {
    name: String,
    /// The whole label, if the resource has this flag alone. One for each thread, because a header
    /// value's clones share a reference count.
    alone: Option<Sharded<HeaderValue>>,
    /// By [`Reason::index`]. Made when a result first comes up, so that there is no series without one.
    counters: [OnceLock<Counter>; Reason::COUNT],
}

impl FlagRuntime {
    fn new(flag: &Flag, alone: bool, metrics: &Arc<Metrics>) -> Self {
        let label = |name: &str| {
            let mut item = String::new();
            rollout::push_item(&mut item, &flag.key, name);
            // Such an item is visible ASCII.
            HeaderValue::from_str(&item).unwrap_or(HeaderValue::from_static(""))
        };
        let variants = flag.variants.iter().map(|(name, _)| VariantRuntime {
            name: name.clone(),
            alone: alone.then(|| Sharded::new(|| label(name))),
            counters: Default::default(),
        });
        Self {
            flag: flag.key.clone(),
            metrics: Arc::clone(metrics),
            variants: variants.collect(),
            default: flag.variants.iter().position(|(name, _)| *name == flag.default).unwrap_or(0),
        }
    }

    /// The name of a variant.
    pub(crate) fn variant(&self, variant: usize) -> &str {
        self.variants.get(variant).map_or("", |found| &found.name)
    }

    /// The label of a resource, if it has this flag alone.
    pub(crate) fn label(&self, variant: usize) -> Option<HeaderValue> {
        self.variants.get(variant)?.alone.as_ref().map(|labels| labels.mine().clone())
    }

    /// Counts one result.
    pub(crate) fn count(&self, variant: usize, reason: Reason) {
        let Some(found) = self.variants.get(variant) else { return };
        let Some(counter) = found.counters.get(reason.index()) else { return };
        let series = counter.get_or_init(|| {
            let labels = vec![
                ("flag", self.metrics.name(&self.flag)),
                ("variant", self.metrics.name(&found.name)),
                ("reason", reason.name().to_lowercase()),
            ];
            self.metrics.flag_evaluations.get_or_create(&labels).clone()
        });
        series.inc();
    }
}

/// `http_server_request_duration_seconds` of one route.
pub(crate) struct Durations {
    metrics: Arc<Metrics>,
    route: String,
    /// The first series that came up, found without a lock.
    first: [OnceLock<(Answered, Latencies)>; FIRST_SERIES],
    more: RwLock<HashMap<Answered, Latencies>>,
}

/// Method and status of an answer.
type Answered = (&'static str, u16);

/// A route rarely has more than a few methods and statuses. The rest are found under a lock.
const FIRST_SERIES: usize = 8;

impl Durations {
    pub(crate) fn new(metrics: &Arc<Metrics>, route: String) -> Self {
        Self { metrics: Arc::clone(metrics), route, first: Default::default(), more: RwLock::default() }
    }

    /// Records the time to the response head.
    pub(crate) fn observe(&self, method: &http::Method, status: u16, took: Duration) {
        let key = (method_label(method), status);
        for slot in &self.first {
            // Methods of the fixed list: one address for one name, but equal is equal.
            let (known, series) = slot.get_or_init(|| (key, self.series(key)));
            if *known == key {
                return series.observe(took);
            }
        }
        if let Some(series) = self.more.read().get(&key) {
            return series.observe(took);
        }
        self.more.write().entry(key).or_insert_with(|| self.series(key)).observe(took);
    }

    fn series(&self, (method, status): Answered) -> Latencies {
        let mut labels = vec![
            ("http_request_method", method.to_owned()),
            ("http_route", self.route.clone()),
            ("http_response_status_code", status.to_string()),
        ];
        if status >= 500 {
            labels.push(("error_type", status.to_string()));
        }
        self.metrics.server_duration.get_or_create(&labels).clone()
    }
}

/// OpenTelemetry's known methods; any other is `_OTHER`, so that a client cannot make series.
fn method_label(method: &http::Method) -> &'static str {
    const KNOWN: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "QUERY"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

/// The runtime of every resource, in the plan's order, as `stats` are.
pub(crate) fn resources(
    plan: &Plan,
    metrics: &Arc<Metrics>,
    stats: Vec<Arc<ResourceStats>>,
    denial: impl Fn(&str) -> Bytes,
) -> Vec<ResourceRuntime> {
    let of = |((index, resource), stats): ((usize, &Resource), Arc<ResourceStats>)| {
        let compiled = &plan.resources[index];
        let label = metrics.name(&resource.id);
        let limits = compiled
            .limits
            .iter()
            .map(|limit| &plan.rules.limits[limit.rule])
            .map(|limit| limit_runtime(limit, &label, metrics, denial(&limit.id)));
        let flag = |key: &String| plan.rules.flags.iter().find(|flag| flag.key == *key);
        let flags = resource.flags.iter().filter(|key| plan.flags.index(key).is_some());
        let alone = compiled.flags.len() == 1;
        let flags = flags.filter_map(flag).map(|flag| FlagRuntime::new(flag, alone, metrics));
        let calls = |rule: &str| {
            BREAKER_RESULTS.map(|result| {
                let labels = vec![
                    ("resource", label.clone()),
                    ("rule", metrics.name(rule)),
                    ("result", result.to_owned()),
                ];
                metrics.breaker_calls.get_or_create(&labels).clone()
            })
        };
        let breakers = compiled.breakers.iter().map(|&rule| (rule, calls(&plan.rules.breakers[rule].id)));
        let route = resource
            .matcher
            .as_ref()
            .map_or_else(|| label.clone(), |matcher| metrics.name(&render::path(&matcher.path)));
        let read = resource.attributes.iter().any(|attribute| match &attribute.from {
            AttributeSource::Header(name) => TOLD.iter().any(|told| told.eq_ignore_ascii_case(name)),
            _ => false,
        });
        // What varies with a header is kept with the request's headers as they were sent.
        let kept = compiled.breakers.iter().any(|&rule| {
            let fallback = &plan.rules.breakers[rule].fallback;
            fallback.iter().any(|layer| matches!(layer, Fallback::Cache { .. }))
        });
        ResourceRuntime {
            reads_told: read || kept,
            shares: compiled
                .limits
                .iter()
                .any(|limit| plan.rules.limits[limit.rule].sharing != Sharing::Local),
            stats,
            limits: limits.collect(),
            flags: flags.collect(),
            breakers: breakers.collect(),
            durations: Durations::new(metrics, route),
        }
    };
    plan.rules.resources.iter().enumerate().zip(stats).map(of).collect()
}

fn limit_runtime(limit: &Limit, resource: &str, metrics: &Metrics, denial: Bytes) -> LimitRuntime {
    let decisions = |source: Source| {
        let counter = |decision: &str| {
            let labels = vec![
                ("resource", resource.to_owned()),
                ("rule", metrics.name(&limit.id)),
                ("decision", decision.to_owned()),
                ("source", source.name().to_owned()),
            ];
            metrics.limit_decisions.get_or_create(&labels).clone()
        };
        let (allowed, denied) = (counter("allowed"), counter("denied"));
        DecisionCounters { allowed, denied, shadow_denied: counter("shadow_denied") }
    };
    // There from the start, so that an alert on it does not wait for a series to appear.
    drop(metrics.limit_bound_violations.get_or_create(&vec![("rule", metrics.name(&limit.id))]));
    let variants =
        std::iter::once(&limit.algorithm).chain(limit.overrides.iter().map(|case| &case.algorithm));
    LimitRuntime {
        rule: limit.id.clone(),
        name: limit.id.as_str().into(),
        denial,
        policies: variants.map(|algorithm| policy(&limit.id, algorithm)).collect(),
        timed: !matches!(limit.algorithm, Algorithm::Concurrency { .. }),
        local: decisions(Source::Local),
        shared: (limit.sharing != Sharing::Local).then(|| Box::new(Source::ELSEWHERE.map(decisions))),
        overflowed: metrics.limit_overflowed.get_or_create(&vec![("rule", metrics.name(&limit.id))]).clone(),
    }
}

/// Quota and window of an algorithm. A bucket's window is the time in which it refills whole.
fn policy(rule: &str, algorithm: &Algorithm) -> String {
    let quota = match algorithm {
        Algorithm::TokenBucket { capacity, .. } => *capacity,
        Algorithm::FixedWindow { limit, .. }
        | Algorithm::SlidingLog { limit, .. }
        | Algorithm::SlidingWindow { limit, .. } => *limit,
        Algorithm::LeakyBucket { queue, .. } => queue.saturating_add(1),
        Algorithm::Concurrency { max } => *max,
    };
    policy_item(rule, quota, refilled_after(algorithm))
}

#[cfg(test)]
mod tests {
    use tidegate_core::rule::model::Rate;

    use super::*;

    #[test]
    fn a_policy_names_quota_and_window() {
        let rate = Rate { count: 10, per: Duration::from_secs(1) };
        let second = Duration::from_secs(1);
        for (algorithm, expected) in [
            (Algorithm::TokenBucket { capacity: 20, refill: rate }, "\"r\";q=20;w=2"),
            (Algorithm::FixedWindow { limit: 100, window: second * 60 }, "\"r\";q=100;w=60"),
            (Algorithm::LeakyBucket { rate, queue: 49 }, "\"r\";q=50;w=5"),
            (Algorithm::Concurrency { max: 64 }, "\"r\";q=64;qu=\"concurrent-requests\""),
        ] {
            assert_eq!(policy("r", &algorithm), expected);
        }
    }

    #[test]
    fn an_unknown_method_makes_no_series() {
        assert_eq!(method_label(&http::Method::GET), "GET");
        assert_eq!(method_label(&http::Method::from_bytes(b"BREW").unwrap()), "_OTHER");
    }
}
