//! What one process has: its clock, its stores, and the rule version in force.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use foldhash::fast::FixedState;
use http::HeaderValue;
use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_core::breaker::Kind;
use tidegate_core::idempotency::RecordId;
use tidegate_core::rule::compile::Plan;
use tidegate_core::rule::path::EncodedSlash;
use tidegate_core::rule::version::Version;
use tidegate_store::memory::limits::{LimitVersion, LocalLimits, LocalLimitsConfig};
use tidegate_store::traits::IdempotencyStore;
use tokio::sync::Notify;

use crate::breakers::{BreakerVersion, Breakers};
use crate::cache::{self, Cache};
use crate::env::Env;
use crate::fleet::{Fleet, FleetSetup, FleetStatus, FleetVersion};
use crate::metrics::Metrics;
use crate::respond::{self, Disclose};
use crate::runtime::{self, Durations, ResourceRuntime};
use crate::shard::Sharded;
use crate::stats::{ResourceStats, Stats};
use crate::timed::Timed;

/// What does not come out of the rules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much answers tell about the rules.
    pub disclose: Disclose,
    /// Largest body that a rule may read, in bytes. Default 1 MiB.
    pub max_body: u64,
    /// Leading bits that count as one IPv6 client. Default 64.
    pub ipv6_prefix: u8,
    /// What an encoded slash in a path is. Default: refused.
    pub encoded_slash: EncodedSlash,
    /// How many keys each limit remembers. Default 1 Mi.
    pub max_keys: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            disclose: Disclose::Full,
            max_body: 1 << 20,
            ipv6_prefix: 64,
            encoded_slash: EncodedSlash::Refuse,
            max_keys: 1 << 20,
        }
    }
}

/// One rule version, ready for requests. A request keeps the one that it began with.
pub struct InForce {
    /// Its number and digest.
    pub version: Version,
    /// Resolved rules.
    pub plan: Arc<Plan>,
    pub(crate) header: HeaderValue,
    pub(crate) limits: Arc<LimitVersion>,
    /// What counts in the store that instances share, where there is one.
    pub(crate) fleet: Option<Arc<FleetVersion>>,
    pub(crate) breakers: BreakerVersion,
    pub(crate) resources: Arc<[ResourceRuntime]>,
    /// Whether any resource reads what [`Call::tell`](crate::call::Call::tell) writes.
    pub(crate) reads_told: bool,
}

/// The four gates of one process. Cloning shares them.
#[derive(Clone)]
pub struct Gates(Arc<Shared>);

struct Shared {
    env: Env,
    settings: Settings,
    metrics: Arc<Metrics>,
    records: Arc<dyn IdempotencyStore>,
    cache: Cache,
    limits: Arc<LocalLimits>,
    fleet: Option<Arc<Fleet>>,
    breakers: Arc<Breakers>,
    stats: Stats,
    /// The same version for each thread under a reference count of its own, which every request moves.
    in_force: Sharded<ArcSwapOption<InForce>>,
    /// Held while a version is put in force, so that all threads get the same one.
    installing: Mutex<()>,
    unmatched: Durations,
    /// Held while gauges are made anew and written out.
    scrape: Mutex<()>,
    /// Told when an execution ends; a record's waiters listen at its hash.
    completed: [Notify; WAITER_SLOTS],
    running: Arc<Running>,
}

/// Waiters for different records rarely share one of these, and a wake-up too many is harmless.
const WAITER_SLOTS: usize = 64;

/// Executions that outlive their client's connection.
#[derive(Default)]
struct Running {
    count: AtomicUsize,
    changed: Notify,
}

/// One execution; dropped when it is over.
pub(crate) struct RunningGuard(Arc<Running>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_waiters();
    }
}

impl Gates {
    /// Gates without rules: every request is answered by 503 until [`Gates::install`].
    pub fn new(env: Env, settings: Settings, records: Arc<dyn IdempotencyStore>) -> Self {
        Self::with_fleet(env, settings, records, None)
    }

    /// The same, with limits that several instances count together.
    pub fn with_fleet(
        env: Env,
        settings: Settings,
        records: Arc<dyn IdempotencyStore>,
        fleet: Option<FleetSetup>,
    ) -> Self {
        let metrics = Arc::new(Metrics::new());
        let records = Arc::new(Timed { store: records, metrics: Arc::clone(&metrics), env: env.clone() });
        Self(Arc::new(Shared {
            limits: LocalLimits::new(LocalLimitsConfig {
                max_keys: settings.max_keys,
                ..LocalLimitsConfig::default()
            }),
            fleet: fleet.map(|setup| Fleet::new(setup, env.clone(), Arc::clone(&metrics))),
            breakers: Breakers::new(),
            cache: Cache::new(cache::Limits::default()),
            stats: Stats::new(),
            in_force: Sharded::new(ArcSwapOption::empty),
            installing: Mutex::default(),
            unmatched: Durations::new(&metrics, "unmatched".to_owned()),
            scrape: Mutex::default(),
            completed: std::array::from_fn(|_| Notify::new()),
            running: Arc::default(),
            env,
            settings,
            metrics,
            records,
        }))
    }

    /// Puts a rule version in force; it is when this returns. Requests under way keep the version that they began
    /// with; counters, breakers and records keep their state as `docs/rules.md` says.
    #[expect(clippy::needless_pass_by_value, reason = "handed over for good; each thread's handle shares it")]
    pub fn install(&self, version: Version, plan: Arc<Plan>) {
        let shared = &*self.0;
        let _one_at_a_time = shared.installing.lock();
        let stats = shared.stats.apply(plan.rules.resources.iter().map(|resource| resource.id.as_str()));
        let name = version.name().to_string();
        let shown = HeaderValue::from_str(&name).ok();
        let shown = shown.as_ref().and_then(|name| name.to_str().ok());
        let denial = |rule: &str| respond::denial(rule, shown, shared.settings.disclose);
        let resources: Arc<[_]> = runtime::resources(&plan, &shared.metrics, stats, denial).into();
        let reads_told = resources.iter().any(|resource| resource.reads_told);
        shared.metrics.set_version(version.number, &version.digest.short().to_string());
        let before = self.in_force();
        let last =
            before.as_ref().and_then(|before| before.fleet.as_ref()).map_or(0, |fleet| fleet.ordinal());
        let (fleet, own) = match &shared.fleet {
            None => (None, None),
            Some(fleet) => {
                let digest = version.digest.to_string();
                let limits = &plan.rules.limits;
                let (fleet, own) = FleetVersion::new(fleet, limits, digest, before.is_some(), last);
                (Some(Arc::new(fleet)), Some(own))
            }
        };
        let limits = Arc::new(shared.limits.apply(own.as_deref().unwrap_or(&plan.rules.limits)));
        let breakers = shared.breakers.apply(&plan.rules.breakers);
        for thread in shared.in_force.iter() {
            thread.store(Some(Arc::new(InForce {
                limits: Arc::clone(&limits),
                fleet: fleet.clone(),
                breakers: breakers.clone(),
                resources: Arc::clone(&resources),
                // Its clones share a count too, so it is made anew.
                header: HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("?")),
                version,
                plan: Arc::clone(&plan),
                reads_told,
            })));
        }
        if let Some(fleet) = &shared.fleet {
            fleet.wake();
        }
    }

    /// Divides shared limits anew, because instances have come or gone; the version stays the same.
    pub(crate) fn redivide(&self) {
        let shared = &*self.0;
        let _one_at_a_time = shared.installing.lock();
        let Some(rules) = self.in_force() else { return };
        let Some(fleet) = &rules.fleet else { return };
        let (fleet, own) = fleet.redivided(&rules.plan.rules.limits);
        let (fleet, limits) = (Arc::new(fleet), Arc::new(shared.limits.apply(&own)));
        for thread in shared.in_force.iter() {
            thread.store(Some(Arc::new(InForce {
                limits: Arc::clone(&limits),
                fleet: Some(Arc::clone(&fleet)),
                breakers: rules.breakers.clone(),
                resources: Arc::clone(&rules.resources),
                header: HeaderValue::from_bytes(rules.header.as_bytes())
                    .unwrap_or(HeaderValue::from_static("?")),
                version: rules.version,
                plan: Arc::clone(&rules.plan),
                reads_told: rules.reads_told,
            })));
        }
    }

    pub(crate) fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.0.fleet.as_ref()
    }

    /// How the store that instances share is doing, where there is one.
    pub fn fleet_status(&self) -> Option<FleetStatus> {
        self.0.fleet.as_ref().map(|fleet| fleet.status())
    }

    /// The version in force.
    pub fn in_force(&self) -> Option<Arc<InForce>> {
        self.0.in_force.mine().load_full()
    }

    /// Waits until every execution that has begun is over and recorded.
    pub async fn drained(&self) {
        loop {
            let changed = self.0.running.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.0.running.count.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }

    /// How many executions have begun and are not over and recorded.
    pub fn executing(&self) -> usize {
        self.0.running.count.load(Ordering::Acquire)
    }

    /// Forgets keys of limits that are as good as fresh; says how many. A flood that has passed would
    /// else stay in memory.
    pub fn sweep(&self) -> usize {
        self.0.limits.sweep(self.0.env.now())
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn render_metrics(&self) -> String {
        let _one_at_a_time = self.0.scrape.lock();
        if let Some(rules) = self.in_force() {
            rules.measure(&self.0.metrics, self.0.env.now());
        }
        self.0.metrics.render()
    }

    /// The clock and the randomness.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// What does not come out of the rules.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// The idempotency records.
    pub fn records(&self) -> &Arc<dyn IdempotencyStore> {
        &self.0.records
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

    pub(crate) fn unmatched(&self) -> &Durations {
        &self.0.unmatched
    }

    pub(crate) fn completed(&self, id: &RecordId) -> &Notify {
        let slot = FixedState::default().hash_one(id) as usize % WAITER_SLOTS;
        &self.0.completed[slot]
    }

    pub(crate) fn running(&self) -> RunningGuard {
        self.0.running.count.fetch_add(1, Ordering::AcqRel);
        RunningGuard(Arc::clone(&self.0.running))
    }
}

impl InForce {
    /// What the resource at this place of the rules has seen.
    pub fn stats(&self, resource: usize) -> Option<&ResourceStats> {
        self.resources.get(resource).map(|resource| &*resource.stats)
    }

    /// The breakers, by their places in the rules.
    pub fn breakers(&self) -> &BreakerVersion {
        &self.breakers
    }

    /// Brings the gauges up to date, without those of rules that are gone. Rules that share the label
    /// `other` are added up.
    fn measure(&self, metrics: &Metrics, now: Timestamp) {
        metrics.limit_keys.clear();
        metrics.breaker_state.clear();
        for (index, limit) in self.plan.rules.limits.iter().enumerate() {
            let keys = self.limits.keys(index);
            let labels = vec![("rule", metrics.name(&limit.id))];
            metrics.limit_keys.get_or_create(&labels).inc_by(i64::try_from(keys).unwrap_or(i64::MAX));
        }
        for (index, breaker) in self.plan.rules.breakers.iter().enumerate() {
            let Some(worst) = self.worst(index, now) else { continue };
            for state in [Kind::Closed, Kind::Open, Kind::HalfOpen] {
                let labels = vec![("rule", metrics.name(&breaker.id)), ("state", state.name().to_owned())];
                metrics.breaker_state.get_or_create(&labels).inc_by(i64::from(worst == state));
            }
        }
    }

    /// The state of a breaker; of one with a breaker for each host, the state furthest from closed.
    fn worst(&self, rule: usize, now: Timestamp) -> Option<Kind> {
        let state = |host: &str| self.breakers.status(rule, host, now).map(|status| status.state);
        let hosts = self.breakers.hosts(rule);
        let severity = |state: &Kind| match state {
            Kind::Closed => 0,
            Kind::HalfOpen => 1,
            Kind::Open => 2,
        };
        hosts.iter().filter_map(|host| state(host)).max_by_key(severity).or_else(|| state(""))
    }
}
