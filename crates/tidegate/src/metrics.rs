//! Metric families, with names and labels as `docs/operate.md` lists them.
//!
//! Labels come from rules and fixed lists only, never from a key, subject, tenant or raw path. Rules
//! beyond [`MAX_RULE_VALUES`] are counted under `other`, so a store of rule versions that churns
//! through ids cannot grow the series without bound.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::series::{Counter, Latencies};

/// Distinct rule, resource and flag names that get series of their own.
pub const MAX_RULE_VALUES: usize = 1_000;

/// Upper bounds in seconds for one request to a store.
const STORE_BUCKETS: [f64; 10] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0];

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type HistogramMaker = fn() -> Histogram;

/// All metrics of one process.
pub struct Metrics {
    registry: Registry,
    names: Mutex<HashSet<String>>,
    pub(crate) limit_decisions: Counters,
    pub(crate) limit_keys: Family<Labels, Gauge<i64, AtomicI64>>,
    pub(crate) limit_bound_violations: Counters,
    pub(crate) limit_overflowed: Counters,
    pub(crate) limit_commands: Counter,
    pub(crate) limit_store_losses: Counter,
    pub(crate) idempotency_outcomes: Counters,
    pub(crate) breaker_calls: Counters,
    pub(crate) breaker_state: Family<Labels, Gauge<i64, AtomicI64>>,
    pub(crate) breaker_transitions: Counters,
    pub(crate) fallbacks: Counters,
    pub(crate) flag_evaluations: Counters,
    pub(crate) rules_info: Family<Labels, Gauge<i64, AtomicI64>>,
    pub(crate) rules_loads: Counters,
    pub(crate) rules_stale: Family<Labels, Gauge<f64, AtomicU64>>,
    pub(crate) store_duration: Family<Labels, Histogram, HistogramMaker>,
    pub(crate) server_duration: Family<Labels, Latencies>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Empty series of every family.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let mut counter = |name: &str, help: &str| {
            let family = Counters::default();
            registry.register(name, help, family.clone());
            family
        };
        let limit_decisions = counter("tidegate_limit_decisions", "Limit decisions");
        // Local counters cannot break their bound; a shared one is checked, and counts here.
        let limit_bound_violations =
            counter("tidegate_limit_bound_violations", "Decisions that broke a rule's declared bound");
        let limit_overflowed = counter(
            "tidegate_limit_overflowed",
            "Decisions for new keys taken by the rule's overflow counter",
        );
        let mut single = |name: &str, help: &str| {
            let single = Counter::default();
            registry.register(name, help, single.clone());
            single
        };
        let limit_commands =
            single("tidegate_limit_commands", "Commands to the shared store that decided limits");
        let limit_store_losses =
            single("tidegate_limit_store_losses", "Times that the shared store lost its data");
        let mut counter = |name: &str, help: &str| {
            let family = Counters::default();
            registry.register(name, help, family.clone());
            family
        };
        let idempotency_outcomes =
            counter("tidegate_idempotency_outcomes", "What the idempotency gate answered");
        let breaker_calls = counter("tidegate_breaker_calls", "Results that breakers counted");
        let breaker_transitions = counter("tidegate_breaker_transitions", "Changes of breaker state");
        let fallbacks = counter("tidegate_fallbacks", "Answers given in place of a call, by layer");
        let flag_evaluations = counter("tidegate_flag_evaluations", "Flag evaluations");
        let rules_loads = counter("tidegate_rules_loads", "Rule documents read, by result");

        let limit_keys = Family::<Labels, Gauge<i64, AtomicI64>>::default();
        registry.register("tidegate_limit_keys", "Keys that a limit remembers", limit_keys.clone());
        let breaker_state = Family::<Labels, Gauge<i64, AtomicI64>>::default();
        registry.register(
            "tidegate_breaker_state",
            "1 for the state that the breaker is in",
            breaker_state.clone(),
        );
        let rules_info = Family::<Labels, Gauge<i64, AtomicI64>>::default();
        registry.register("tidegate_rules_info", "1 for the rule version in force", rules_info.clone());
        let rules_stale = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        registry.register_with_unit(
            "tidegate_rules_stale",
            "For how long the source of rules has not been readable",
            Unit::Seconds,
            rules_stale.clone(),
        );
        let store_duration = Family::<Labels, Histogram, HistogramMaker>::new_with_constructor(|| {
            Histogram::new(STORE_BUCKETS)
        });
        registry.register_with_unit(
            "tidegate_store_request_duration",
            "Time for one request to a store",
            Unit::Seconds,
            store_duration.clone(),
        );
        let server_duration = Family::<Labels, Latencies>::default();
        registry.register_with_unit(
            "http_server_request_duration",
            "Time from the request head to the response head",
            Unit::Seconds,
            server_duration.clone(),
        );
        Self {
            registry,
            names: Mutex::default(),
            limit_decisions,
            limit_keys,
            limit_bound_violations,
            limit_overflowed,
            limit_commands,
            limit_store_losses,
            idempotency_outcomes,
            breaker_calls,
            breaker_state,
            breaker_transitions,
            fallbacks,
            flag_evaluations,
            rules_info,
            rules_loads,
            rules_stale,
            store_duration,
            server_duration,
        }
    }

    /// The label value for a name out of the rules: itself, or `other` beyond the bound.
    pub(crate) fn name(&self, name: &str) -> String {
        let mut names = self.names.lock();
        if names.contains(name) || (names.len() < MAX_RULE_VALUES && names.insert(name.to_owned())) {
            name.to_owned()
        } else {
            "other".to_owned()
        }
    }

    /// Says which rule version is in force: one series, whatever came before.
    pub(crate) fn set_version(&self, number: u64, digest: &str) {
        self.rules_info.clear();
        let labels = vec![("version", number.to_string()), ("digest", digest.to_owned())];
        self.rules_info.get_or_create(&labels).set(1);
    }

    /// Records one request to a store.
    pub(crate) fn store_request(
        &self,
        store: &'static str,
        operation: &'static str,
        ok: bool,
        took: Duration,
    ) {
        let result = if ok { "ok" } else { "error" };
        let labels = vec![
            ("store", store.to_owned()),
            ("operation", operation.to_owned()),
            ("result", result.to_owned()),
        ];
        self.store_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The whole in the `OpenMetrics` text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            // Writing into a string does not fail; a scraper that sees this line knows what broke.
            let _ = write!(text, "# metrics could not be written: {error}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one_value() {
        let metrics = Metrics::new();
        for i in 0..MAX_RULE_VALUES {
            assert_eq!(metrics.name(&format!("rule-{i}")), format!("rule-{i}"));
        }
        assert_eq!(metrics.name("one-more"), "other");
        assert_eq!(metrics.name("rule-7"), "rule-7");
    }

    #[test]
    fn families_have_the_documented_names() {
        let metrics = Metrics::new();
        let labels = |pairs: &[(&'static str, &str)]| -> Labels {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        metrics.limit_decisions.get_or_create(&labels(&[("rule", "r")])).inc();
        metrics.set_version(12, "3f2a9c1b2d4e");
        metrics.set_version(13, "aaaaaaaaaaaa");
        metrics.store_request("sqlite", "claim", true, Duration::from_millis(1));
        metrics.rules_stale.get_or_create(&labels(&[("source", "file")])).set(1.5);
        metrics
            .server_duration
            .get_or_create(&labels(&[("http_request_method", "GET")]))
            .observe(Duration::from_millis(100));
        let text = metrics.render();
        for line in [
            "tidegate_limit_decisions_total{rule=\"r\"} 1",
            "tidegate_rules_info{version=\"13\",digest=\"aaaaaaaaaaaa\"} 1",
            "tidegate_store_request_duration_seconds_count{store=\"sqlite\",operation=\"claim\",result=\"ok\"} 1",
            "tidegate_rules_stale_seconds{source=\"file\"} 1.5",
            "http_server_request_duration_seconds_count{http_request_method=\"GET\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("version=\"12\""), "{text}");
    }
}
