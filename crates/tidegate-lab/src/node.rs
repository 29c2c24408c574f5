//! A node as the gateway makes one: rules from a file, loaded and put in force by the rule service,
//! and gates that requests go through. Only the socket is missing.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tempfile::TempDir;
use tidegate::call::{Call, CallError};
use tidegate::env::{Env, ManualClock};
use tidegate::fleet::FleetSetup;
use tidegate::loader::Loader;
use tidegate::rules::{Compile as _, Options, RuleService, Setup, Status};
use tidegate::{Body, Gates, Settings, pipeline};
use tidegate_core::Timestamp;
use tidegate_core::rule::compile::Plan;
use tidegate_core::rule::version::{Digest, Version};
use tidegate_core::rule::{Deployment, Shell};
use tidegate_store::memory::rules::MemoryRules;
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tidegate_store::rules::{Publish, PublishId, RuleStore};
use tidegate_store::traits::IdempotencyStore;

use crate::LabError;
use crate::error::About as _;

/// Where injected clocks begin: a whole day, so that every window begins there as well.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000 - 1_800_000_000 % 86_400);
/// The rule service looks when it is told to.
const NEVER: Duration = Duration::from_hours(1);
const NODE: &str = "lab";

/// One node.
pub(crate) struct Node {
    pub(crate) gates: Gates,
    service: RuleService,
    store: Arc<dyn RuleStore>,
    path: PathBuf,
    _folder: TempDir,
}

impl Node {
    /// A node under `rules` whose clock only moves by the handle.
    pub(crate) async fn on_manual_clock(rules: &str) -> Result<(Self, ManualClock), LabError> {
        let (env, clock) = Env::manual(START);
        let own = env.clone();
        let records = MemoryIdempotency::new(Arc::new(move || own.now()), MemoryLimits::default());
        Ok((Self::start(rules, env, Arc::new(records)).await?, clock))
    }

    /// A node under `rules` with these records.
    pub(crate) async fn start(
        rules: &str,
        env: Env,
        records: Arc<dyn IdempotencyStore>,
    ) -> Result<Self, LabError> {
        Self::launch(rules, env, records, None).await
    }

    /// One of several nodes that count limits together, on the system's clock.
    pub(crate) async fn in_fleet(rules: &str, fleet: FleetSetup) -> Result<Self, LabError> {
        let env = Env::system();
        let own = env.clone();
        let records = MemoryIdempotency::new(Arc::new(move || own.now()), MemoryLimits::default());
        let node = Self::launch(rules, env, Arc::new(records), Some(fleet)).await?;
        node.gates.join_fleet().await;
        Ok(node)
    }

    async fn launch(
        rules: &str,
        env: Env,
        records: Arc<dyn IdempotencyStore>,
        fleet: Option<FleetSetup>,
    ) -> Result<Self, LabError> {
        let folder = tempfile::tempdir().about("making a folder for the rules")?;
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, rules).about("writing the rules")?;
        let own = env.clone();
        let store: Arc<dyn RuleStore> = Arc::new(MemoryRules::new(move || own.now()));
        let deployment = Deployment { shared_store: fleet.is_some(), ..Deployment::default() };
        let gates = Gates::with_fleet(env.clone(), Settings::default(), records, fleet);
        let setup = Setup {
            store: Arc::clone(&store),
            path: path.clone(),
            node: NODE.to_owned(),
            compile: Loader::new(deployment),
            env,
            metrics: Arc::clone(gates.metrics()),
            options: Options { file_poll: NEVER, store_poll: NEVER, settle: Duration::ZERO, watch: false },
        };
        let swapped = gates.clone();
        let service = RuleService::start(setup, move |stored, plan| {
            let version = Version { number: stored.number, digest: Digest::from_bytes(stored.digest) };
            swapped.install(version, plan);
        })
        .await
        .about("putting the rules in force")?;
        Ok(Self { gates, service, store, path, _folder: folder })
    }

    /// Writes other rules over the file, and says what became of it.
    pub(crate) async fn edit(&self, rules: &str) -> Result<Status, LabError> {
        std::fs::write(&self.path, rules).about("writing the rules")?;
        Ok(self.service.reload().await)
    }

    /// Publishes the rules of version `number` again.
    pub(crate) async fn roll_back_to(&self, number: u64) -> Result<Status, LabError> {
        let seen = self.store.latest_number().await.about("asking the rule store")?;
        let old = self.store.get(number).await.about("asking the rule store")?;
        let old =
            old.ok_or_else(|| LabError::broken("rolling back", format!("there is no version {number}")))?;
        let id = PublishId(self.gates.env().nonce());
        let publish = Publish::rollback(id, seen, &old, NODE, "lab", "the experiment rolls back");
        self.store.publish(publish).await.about("rolling back")?;
        Ok(self.service.reload().await)
    }

    /// The first line of a refusal, without the folder that the file happens to lie in.
    pub(crate) fn refused(&self, status: &Status) -> Option<String> {
        let line = status.refusal.as_ref()?.rendered.lines().next()?;
        let folder = self.path.parent()?.to_str()?;
        Some(line.replace(folder, "").trim_start_matches('/').to_owned())
    }

    /// The rule set's state.
    pub(crate) fn status(&self) -> Status {
        self.service.status()
    }

    /// The rules in force.
    pub(crate) fn plan(&self) -> Result<Arc<Plan>, LabError> {
        let in_force = self.gates.in_force();
        in_force
            .map(|rules| Arc::clone(&rules.plan))
            .ok_or_else(|| LabError::broken("the rules", "none in force"))
    }
}

/// Loads rules without a node, as the library of a service with its own SQLite would.
pub(crate) fn load(rules: &str) -> Result<Plan, LabError> {
    let loader = Loader::new(Deployment { shell: Shell::Library, ..Deployment::default() });
    let loaded = loader.load(&[("rules.yaml".to_owned(), rules.to_owned())]);
    loaded
        .map(|candidate| candidate.rules)
        .map_err(|refused| LabError::broken("loading the rules", refused.rendered))
}

/// Sends one request through the gates, outermost first.
pub(crate) async fn send<C: Call>(gates: &Gates, request: Request<Body>, call: &C) -> Response<Body> {
    pipeline::handle(gates, request, IpAddr::V4(Ipv4Addr::LOCALHOST), call).await
}

/// A protected call that is done at once and succeeds.
#[derive(Clone, Copy)]
pub(crate) struct Succeeds;

impl Call for Succeeds {
    async fn call(&self, _request: Request<Body>, _timeout: Duration) -> Result<Response<Body>, CallError> {
        Ok(Response::new(Body::empty()))
    }

    fn host(&self) -> &'static str {
        "lab"
    }
}

/// `POST` to `target`.
pub(crate) fn post(target: &str) -> Result<Request<Body>, LabError> {
    Request::post(target).body(Body::empty()).about("making a request")
}

/// Runs a future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, LabError>>) -> Result<T, LabError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.about("starting a runtime")?.block_on(future)
}
