//! Tidegate inside a service: from rules and stores to a handle.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::rule::version::{Digest, Version};
use tidegate_core::rule::{Deployment, IdempotencyBackend, Shell};
use tidegate_store::rules::{
    Origin, Publish, PublishError, PublishId, RuleStore, RuleStoreError, SourceText,
};
use tidegate_store::sql::sqlite::SetupError;
use tokio::task::AbortHandle;

use crate::env::Env;
use crate::gates::{Gates, Settings};
use crate::guard::ResourceCall;
use crate::loader::Loader;
use crate::rules::{self, Compile as _, Options, RuleService, Setup, Status};
use crate::service::GateLayer;
use crate::source::{Kind, RuleSource};
use crate::store::{self, Records, Store};
use crate::upkeep;

/// How often code's own rules are published anew when others publish at the same time.
const PUBLISH_TRIES: usize = 8;
/// The most unknown resources that the log tells of.
const MAX_UNNAMED: usize = 1_000;

/// The four gates inside a service: a cheap handle, whose clones are one.
///
/// When the last clone is dropped (each layer made of it holds one), the rules are no longer watched.
/// Executions under an idempotency rule are tasks of their own: they go on and are recorded for as long
/// as the runtime lives. To stop without losing any, end with [`Tidegate::shutdown`].
#[derive(Clone)]
pub struct Tidegate(Arc<Shared>);

struct Shared {
    gates: Gates,
    rules: Mutex<Option<Arc<RuleService>>>,
    upkeep: Vec<AbortHandle>,
    /// Resources that code names and no rule knows, as far as the log has told of them.
    unnamed: Mutex<HashSet<String>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.upkeep {
            task.abort();
        }
    }
}

/// Why Tidegate did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// [`Builder::rules`] was not called.
    #[error(
        "no rules: give the builder `.rules(source::file(\"rules.yaml\"))`, `source::text` or `source::rule_set`"
    )]
    NoRules,
    /// The rules have faults; each is rendered with line, column and a way to mend it.
    #[error("{}", .0.rendered)]
    Refused(rules::Refusal),
    /// No version of a rule file came into force. A file's faults are rendered in it.
    #[error(transparent)]
    File(rules::StartError),
    /// The idempotency records have no place.
    #[error("the idempotency store cannot be used: {0}")]
    Records(#[from] SetupError),
    /// The rule versions have no place.
    #[error("the rule store cannot be used: {0}")]
    RuleStore(#[from] RuleStoreError),
    /// Code's own rules could not be published.
    #[error("the rules could not be published: {0}")]
    Publish(PublishError),
}

impl From<rules::StartError> for StartError {
    fn from(error: rules::StartError) -> Self {
        match error {
            rules::StartError::Refused(refusal) => Self::Refused(refusal),
            other => Self::File(other),
        }
    }
}

/// What [`Tidegate::builder`] collects.
#[must_use = "nothing happens until `start`"]
pub struct Builder {
    rules: Option<RuleSource>,
    records: Records,
    rule_store: Store,
    settings: Settings,
    options: Options,
    env: Env,
    node: String,
}

impl Tidegate {
    /// Gates to be: without limits on a shared store, with records and rule versions in memory.
    pub fn builder() -> Builder {
        Builder {
            rules: None,
            records: store::memory().into(),
            rule_store: store::memory(),
            settings: Settings::default(),
            options: Options::default(),
            env: Env::system(),
            node: hostname(),
        }
    }

    /// A tower layer that takes each request through rollout, limits, idempotency and breakers.
    pub fn layer(&self) -> GateLayer {
        GateLayer::new(self.clone())
    }

    /// A call of the resource called `id`, to be guarded by its limits and breakers.
    ///
    /// A resource that no rule file names (any more) has no rules: its calls pass, and the log says so.
    pub fn resource<'a>(&'a self, id: &'a str) -> ResourceCall<'a> {
        ResourceCall::new(self, id)
    }

    /// The gates themselves: metrics, statistics, the version in force, the records.
    pub fn gates(&self) -> &Gates {
        &self.0.gates
    }

    /// How a rule file and its store are; `None` for rules out of the program, and after the shutdown.
    pub fn rules(&self) -> Option<Status> {
        self.0.rules.lock().as_ref().map(|service| service.status())
    }

    /// Looks at the rule file and the rule store now, without waiting for an event.
    pub async fn reload(&self) -> Option<Status> {
        let service = self.0.rules.lock().clone()?;
        Some(service.reload().await)
    }

    /// Says once for each name that its calls pass without a rule.
    pub(crate) fn note_unnamed(&self, resource: &str) {
        let mut told = self.0.unnamed.lock();
        if told.len() < MAX_UNNAMED && told.insert(resource.to_owned()) {
            tracing::warn!(resource, "no rule knows this resource: its calls pass unguarded");
        }
    }

    /// Stops watching the rules, and waits until every execution that has begun is over and recorded,
    /// but for `patience` at most. Says whether all were. The server must take no new requests by then.
    pub async fn shutdown(&self, patience: Duration) -> bool {
        self.0.rules.lock().take();
        let drained = tokio::time::timeout(patience, self.0.gates.drained()).await;
        for task in &self.0.upkeep {
            task.abort();
        }
        drained.is_ok()
    }
}

impl std::fmt::Debug for Tidegate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = self.0.gates.in_force().map(|rules| rules.version);
        f.debug_struct("Tidegate").field("version", &version).finish_non_exhaustive()
    }
}

impl Builder {
    /// Where the rules come from. Required.
    pub fn rules(mut self, source: RuleSource) -> Self {
        self.rules = Some(source);
        self
    }

    /// Where idempotency records are kept: a [`store::memory`], a [`store::sqlite`], or one that was
    /// [`opened`](store::opened) elsewhere. Default: memory.
    pub fn idempotency(mut self, records: impl Into<Records>) -> Self {
        self.records = records.into();
        self
    }

    /// Where rule versions and the audit trail are kept. Default: memory, so that versions count from 1
    /// at each start.
    pub fn rule_store(mut self, store: Store) -> Self {
        self.rule_store = store;
        self
    }

    /// What does not come out of the rules.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How often to look at a rule file and the rule store.
    pub fn watch(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// This node's name, the same after a restart: what was published from a file is remembered for each
    /// node and path. Default: the host's name.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = name.into();
        self
    }

    /// The clock. For tests.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Opens the stores and brings the rules in force.
    ///
    /// # Errors
    /// Rules with faults are refused with all of them, each as `NAME:LINE:COL: …`.
    pub async fn start(self) -> Result<Tidegate, StartError> {
        let source = self.rules.ok_or(StartError::NoRules)?.0;
        let (records, backend) = self.records.open(&self.env).await?;
        let store = self.rule_store.open_rules(&self.env).await?;
        let gates = Gates::new(self.env.clone(), self.settings, Arc::clone(&records));
        let loader = Loader::new(deployment(backend));
        let rules = match source {
            Kind::File(path) => {
                let setup = Setup {
                    store,
                    path,
                    node: self.node,
                    compile: loader,
                    env: self.env,
                    metrics: Arc::clone(gates.metrics()),
                    options: self.options,
                };
                Some(Arc::new(watched(setup, gates.clone()).await?))
            }
            Kind::Fixed { name, text } => {
                let own = Own { node: self.node, name, text };
                own.bring_in_force(&loader, &*store, &gates).await?;
                None
            }
        };
        let upkeep = upkeep::start(&gates);
        Ok(Tidegate(Arc::new(Shared { gates, rules: Mutex::new(rules), upkeep, unnamed: Mutex::default() })))
    }
}

/// What rules may ask for inside a service.
fn deployment(backend: IdempotencyBackend) -> Deployment {
    Deployment { shared_store: false, leases: false, idempotency_store: backend, shell: Shell::Library }
}

async fn watched(setup: Setup<Loader>, gates: Gates) -> Result<RuleService, rules::StartError> {
    RuleService::start(setup, move |stored, plan| {
        let version = Version { number: stored.number, digest: Digest::from_bytes(stored.digest) };
        gates.install(version, plan);
    })
    .await
}

/// Rules that are part of the program.
struct Own {
    node: String,
    name: String,
    text: String,
}

impl Own {
    async fn bring_in_force(
        &self,
        loader: &Loader,
        store: &dyn RuleStore,
        gates: &Gates,
    ) -> Result<(), StartError> {
        let named = [(self.name.clone(), self.text.clone())];
        let candidate = loader.load(&named).map_err(StartError::Refused)?;
        crate::loader::warn(&candidate.warnings);
        let number = self.publish(&candidate.canonical, candidate.digest, store, gates.env()).await?;
        let version = Version { number, digest: Digest::from_bytes(candidate.digest) };
        gates.install(version, Arc::new(candidate.rules));
        Ok(())
    }

    /// The number of these rules in the store: the newest version's if it says the same, else a new one.
    async fn publish(
        &self,
        canonical: &str,
        digest: [u8; 32],
        store: &dyn RuleStore,
        env: &Env,
    ) -> Result<u64, StartError> {
        let mut tries = PUBLISH_TRIES;
        loop {
            let newest = store.latest().await?;
            if let Some(newest) = newest.as_ref().filter(|newest| newest.digest == digest) {
                return Ok(newest.number);
            }
            let publish = Publish {
                id: PublishId(env.nonce()),
                expected: newest.map(|newest| newest.number),
                digest,
                canonical: canonical.to_owned(),
                source: vec![SourceText { name: self.name.clone(), text: self.text.clone() }],
                node: self.node.clone(),
                author: self.node.clone(),
                reason: "the rules of the program that starts".to_owned(),
                origin: Origin::Request,
            };
            match store.publish(publish).await {
                Ok(version) => return Ok(version.number),
                Err(PublishError::Conflict { .. }) if tries > 1 => tries -= 1,
                Err(error) => return Err(StartError::Publish(error)),
            }
        }
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string(Path::new("/etc/hostname")).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
