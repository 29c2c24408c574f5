//! Starts a gateway out of its configuration, and stops it without losing anything.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::env::Env;
use tidegate::fleet::FleetSetup;
use tidegate::loader::Loader;
use tidegate::rules::{Options, RuleService, Setup, StartError};
use tidegate::{Gates, Settings, respond, upkeep};
use tidegate_core::rule::path::EncodedSlash;
use tidegate_core::rule::version::{Digest, Version};
use tidegate_core::rule::{Deployment, IdempotencyBackend, Shell};
use tidegate_store::IdempotencyStore;
use tidegate_store::memory::rules::MemoryRules;
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tidegate_store::redis::limits::RedisLimits;
use tidegate_store::redis::{Redis, RedisConfig, RedisConfigError};
use tidegate_store::rules::{RuleStore, RuleStoreError};
use tidegate_store::sql::sqlite::{self, MigrateError, SetupError, SqliteIdempotency, SqliteRules};

use crate::admin::{self, Port, Running, Subject};
use crate::config::{Config, Disclose, EncodedSlashes, RedisSetting, StoreSetting};
use crate::gateway::{BindError, Drained, Listener, Route, Server, Tracker, Upstream};

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] sqlite::OpenError),
    /// The database cannot be used.
    #[error("{path}: {source}")]
    Store {
        /// The file.
        path: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database is a newer program's, or has a table of ours that is not.
    #[error("{path}: {source}")]
    NotOurs {
        /// The file.
        path: String,
        /// What was found.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No rules are in force.
    #[error(transparent)]
    Rules(#[from] StartError),
    /// A port cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The shared store of limits is not configured as it should be.
    #[error("redis: {0}")]
    Redis(String),
    /// The administration cannot be served.
    #[error("the administration cannot be served: {0}")]
    Admin(#[source] std::io::Error),
}

/// Where rules and records live.
pub struct Stores {
    /// Rule versions and the audit trail.
    pub rules: Arc<dyn RuleStore>,
    /// Idempotency records.
    pub records: Arc<dyn IdempotencyStore>,
}

impl Stores {
    /// Opens what the configuration names, making the database when there is none.
    pub async fn open(setting: &StoreSetting, env: &Env) -> Result<Self, ServeError> {
        match setting {
            StoreSetting::Memory => {
                let (rules, records) = (env.clone(), env.clone());
                Ok(Self {
                    rules: Arc::new(MemoryRules::new(move || rules.now())),
                    records: Arc::new(MemoryIdempotency::new(
                        Arc::new(move || records.now()),
                        MemoryLimits::default(),
                    )),
                })
            }
            StoreSetting::Sqlite(path) => open_sqlite(path).await,
        }
    }
}

async fn open_sqlite(path: &Path) -> Result<Stores, ServeError> {
    let name = || path.display().to_string();
    let pool = sqlite::open_own(path).await?;
    let rules = SqliteRules::new(pool.clone()).await.map_err(|error| match error {
        RuleStoreError::Newer { .. } => ServeError::NotOurs { path: name(), source: error.into() },
        _ => ServeError::Store { path: name(), source: error.into() },
    })?;
    let records = SqliteIdempotency::open(pool).await.map_err(|error| match error {
        SetupError::Shape { .. } | SetupError::Migrate(MigrateError::Newer { .. }) => {
            ServeError::NotOurs { path: name(), source: error.into() }
        }
        _ => ServeError::Store { path: name(), source: error.into() },
    })?;
    Ok(Stores { rules: Arc::new(rules), records: Arc::new(records) })
}

/// A gateway at work.
pub struct Gateway {
    /// Its gates.
    pub gates: Gates,
    /// The rules' life.
    pub rules: Arc<RuleService>,
    /// The rule store, for the audit trail.
    pub store: Arc<dyn RuleStore>,
    server: Server,
    subject: Subject,
    admin: Running,
    health: Option<Running>,
    drain: Duration,
}

impl Gateway {
    /// Opens the stores, brings the rules in force, and only then answers clients.
    pub async fn start(config: &Config) -> Result<Self, ServeError> {
        let env = Env::system();
        // Taken first: a port in use is the mistake that is made most often, and costs nothing to find.
        let listener = Listener::bind(config.listen, config.listener())?;
        let admin = Port::bind(config.admin, "--admin")?;
        let health = config.health.map(|addr| Port::bind(addr, "--health")).transpose()?;
        let stores = Stores::open(&config.store, &env).await?;
        let fleet = config.redis.as_ref().map(|redis| fleet(config, redis)).transpose()?;
        let records = Arc::clone(&stores.records);
        let gates = Gates::with_fleet(env.clone(), settings(config), records, fleet);
        let subject = Subject::new(gates.clone(), Arc::clone(&stores.rules), hosts(config));
        // Before the rules: while they are loaded, it lives and is not ready.
        let admin = admin.start(admin::router(subject.clone())).map_err(ServeError::Admin)?;
        let health = health
            .map(|port| port.start(admin::health_router(subject.clone())))
            .transpose()
            .map_err(ServeError::Admin)?;
        let setup = Setup {
            store: Arc::clone(&stores.rules),
            path: config.rules.clone(),
            node: node(config),
            compile: Loader::new(deployment(config)),
            env,
            metrics: Arc::clone(gates.metrics()),
            options: Options::default(),
        };
        let swapped = gates.clone();
        let rules = RuleService::start(setup, move |stored, plan| {
            let version = Version { number: stored.number, digest: Digest::from_bytes(stored.digest) };
            swapped.install(version, plan);
        })
        .await?;
        // Requests find the shared store open from the first, if it answers.
        gates.join_fleet().await;
        // For as long as the process lives.
        drop(upkeep::start(&gates));
        let upstream = upstream(config);
        let route = Route::new(gates.clone(), upstream, config.trusted_hops);
        let server = listener.start(route, Tracker::new())?;
        let rules = Arc::new(rules);
        subject.set_rules(Arc::clone(&rules));
        let (store, drain) = (stores.rules, config.drain);
        Ok(Self { gates, rules, store, server, subject, admin, health, drain })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Where the administration listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin.addr()
    }

    /// Where the probes are served apart, if they are.
    pub fn health(&self) -> Option<SocketAddr> {
        self.health.as_ref().map(Running::addr)
    }

    /// Stops accepting, lets what has begun come to its end and be recorded, and says what was cut.
    pub async fn shutdown(self) -> Drained {
        // Load balancers and people can see the whole of it.
        self.subject.drain();
        let gates = self.gates;
        let drained = self.server.shutdown_after(self.drain, gates.drained(), || gates.executing()).await;
        let health = async {
            if let Some(health) = self.health {
                health.shutdown().await;
            }
        };
        tokio::join!(self.admin.shutdown(), health);
        drained
    }
}

fn settings(config: &Config) -> Settings {
    Settings {
        disclose: match config.disclose {
            Disclose::Full => respond::Disclose::Full,
            Disclose::Minimal => respond::Disclose::Minimal,
        },
        max_body: config.limits.max_body,
        ipv6_prefix: config.ipv6_prefix,
        encoded_slash: match config.encoded_slashes {
            EncodedSlashes::Refuse => EncodedSlash::Refuse,
            EncodedSlashes::Keep => EncodedSlash::Keep,
        },
        max_keys: config.limits.max_keys,
    }
}

/// What rules may ask for behind this gateway.
pub fn deployment(config: &Config) -> Deployment {
    Deployment {
        shared_store: config.redis.is_some(),
        leases: false,
        idempotency_store: match config.store {
            StoreSetting::Memory => IdempotencyBackend::Memory,
            StoreSetting::Sqlite(_) => IdempotencyBackend::Sqlite,
        },
        shell: Shell::Gateway,
    }
}

/// The Redis that instances share, under a name that no other process has.
fn fleet(config: &Config, setting: &RedisSetting) -> Result<FleetSetup, ServeError> {
    let redis = redis(setting, config.timeouts.redis)?;
    Ok(FleetSetup {
        store: Arc::new(RedisLimits::new(redis)),
        instance: format!("{}:{}:{:016x}", node(config), std::process::id(), Env::system().random()),
        instances: config.instances,
    })
}

/// The client of a Redis. It connects when it is first used.
pub(crate) fn redis(setting: &RedisSetting, timeout: Duration) -> Result<Redis, ServeError> {
    let read = |path: &Path| {
        let pem = std::fs::read(path);
        pem.map_err(|error| ServeError::Redis(format!("cannot read {}: {error}", path.display())))
    };
    let refused = |error: RedisConfigError| ServeError::Redis(error.to_string());
    let mut config = RedisConfig::from_url(&setting.url).and_then(|config| config.with_timeout(timeout));
    if let (Ok(known), Some(ca)) = (&config, &setting.ca) {
        config = Ok(known.clone().with_authority(read(ca)?));
    }
    if let (Ok(known), Some((certificate, key))) = (&config, &setting.certificate) {
        config = Ok(known.clone().with_certificate(read(certificate)?, read(key)?));
    }
    config.and_then(Redis::new).map_err(refused)
}

/// The same after a restart: what was published from a file is remembered for each node and path.
fn node(config: &Config) -> String {
    format!("{}:{}", host(), config.listen.port())
}

/// This machine's name.
pub(crate) fn host() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { "localhost".to_owned() } else { host.to_owned() }
}

/// The hosts that calls go to.
fn hosts(config: &Config) -> Vec<String> {
    config.upstreams[0].urls.iter().map(|url| url.authority().to_owned()).collect()
}

fn upstream(config: &Config) -> Upstream {
    // The checked configuration has at least one upstream, and each at least one URL.
    let setting = &config.upstreams[0];
    let mut urls = setting.urls.clone();
    let first = urls.remove(0);
    Upstream::new(first, urls, &config.upstream(setting))
}
