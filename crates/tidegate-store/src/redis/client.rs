//! One handle over a single server, Sentinel and Cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, ToRedisArgs, Value, cmd};
use tokio::time::Instant;

pub(super) mod config;
pub(super) mod fault;
pub(super) mod info;
pub(super) mod script;
pub(super) mod slots;

mod cluster;
mod flight;
mod link;
mod node;

use cluster::Cluster;
use config::{Address, RedisConfig, RedisConfigError, Topology};
use fault::{Lost, RedisFault, bounded};
use info::ServerInfo;
use link::Dialer;
use node::{Budget, Node, Place, Sentinels};
use script::Script;

/// A Redis, whatever stands behind it. Clones share its connections: one to each server, used by all callers at
/// once. It connects when it is first used, and again when a connection has broken, one attempt at a time, after
/// pauses that grow to a second. A call that finds no connection waits for the attempt within its own timeout;
/// between attempts it is refused at once.
///
/// Calls are made inside a Tokio runtime. A connection lives on the runtime of the call that opened it; when that
/// runtime ends, the next call opens another.
#[derive(Clone)]
pub struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    config: RedisConfig,
    route: Route,
}

enum Route {
    One(Node),
    Many(Cluster),
}

impl Redis {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// Certificates that cannot be read, or that are given for a connection without TLS.
    pub fn new(config: RedisConfig) -> Result<Self, RedisConfigError> {
        let dialer = Dialer::to_servers(&config);
        if config.tls {
            // Names the provider once: a process into which another one is linked too would have to choose.
            // That one was named before is fine.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            for host in &config.hosts {
                dialer.client(host).map_err(|error| RedisConfigError::Certificates(error.to_string()))?;
            }
        } else if config.authority.is_some() || config.identity.is_some() {
            return Err(RedisConfigError::NoTls);
        }
        let route = match (&config.topology, config.hosts.as_slice()) {
            (Topology::Single, [host]) => Route::One(Node::new(Place::Fixed(host.clone()), dialer)),
            (Topology::Single, []) => return Err(RedisConfigError::Host),
            (Topology::Single, _) => return Err(RedisConfigError::TooManyHosts),
            (Topology::Sentinel(name), hosts) => {
                let name = Arc::clone(name);
                let sentinels = Dialer::to_sentinels(&config);
                let sentinels = Sentinels { name, addresses: hosts.to_vec(), dialer: sentinels };
                Route::One(Node::new(Place::Master(Arc::new(sentinels)), dialer))
            }
            (Topology::Cluster, hosts) => Route::Many(Cluster::new(hosts.to_vec(), dialer)),
        };
        Ok(Self { shared: Arc::new(Shared { config, route }) })
    }

    /// What it was made from.
    pub fn config(&self) -> &RedisConfig {
        &self.shared.config
    }

    /// Runs a script at most once and gives its result, within the configured timeout.
    ///
    /// In a cluster the keys must lie in one slot (see [`slot_of`](super::slot_of)) and there must be one.
    ///
    /// # Errors
    /// Whether it ran is in the kind of [`RedisFault`]. Dropping the future before it is done is like
    /// [`RedisFault::Unknown`]: the script may run.
    pub async fn run<K, A>(&self, script: &Script, keys: &[K], args: &[A]) -> Result<Value, RedisFault>
    where
        K: AsRef<[u8]> + Sync,
        A: ToRedisArgs + Sync,
    {
        let budget = self.budget();
        match &self.shared.route {
            Route::One(node) => node.run(script, keys, args, false, budget).await,
            Route::Many(cluster) => cluster.run(script, keys, args, budget).await,
        }
    }

    /// Asks for a sign of life; in a cluster, from every master. Gives how long the slowest took, connecting
    /// included where there was no connection.
    pub async fn ping(&self) -> Result<Duration, RedisFault> {
        let start = Instant::now();
        self.send_to_all(&cmd("PING")).await?;
        Ok(start.elapsed())
    }

    /// What the server says of itself; in a cluster, every master.
    pub async fn info(&self) -> Result<Vec<ServerInfo>, RedisFault> {
        let answers = self.send_to_all(&cmd("INFO")).await?;
        let read = |(value, address): (Value, Address)| {
            node::text(&value)
                .and_then(|text| ServerInfo::read(address, &text))
                .ok_or_else(|| Lost::Reply(bounded("INFO without a version")).into())
        };
        answers.into_iter().map(read).collect()
    }

    async fn send_to_all(&self, command: &Cmd) -> Result<Vec<(Value, Address)>, RedisFault> {
        match &self.shared.route {
            Route::One(node) => Ok(vec![node.send(command, self.budget()).await?]),
            Route::Many(cluster) => cluster.send_to_all(command, self.budget()).await,
        }
    }

    fn budget(&self) -> Budget {
        Budget::new(self.shared.config.timeout)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.shared.config).finish()
    }
}
