//! The connections to one upstream address: idle ones on a stack for each worker, and a bound on all.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tidegate::Body;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::interim::Awaited;
use super::io::Joined;
use super::listener::ListenerConfig;
use super::upstream::UpstreamConfig;
use super::url::UpstreamUrl;
use super::worker;

/// A connection that has been idle for longer is looked at once more before it is used: the other
/// side may have closed it, and what is written after that may or may not have been taken.
const RECHECK: Duration = Duration::from_millis(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot connect to {url}: {source}")]
    Refused { url: UpstreamUrl, source: io::Error },
    #[error("no connection to {url} within {after:?}")]
    Timeout { url: UpstreamUrl, after: Duration },
    #[error("cannot start HTTP with {url}: {source}")]
    Handshake { url: UpstreamUrl, source: hyper::Error },
}

/// All connections to one address.
pub(super) struct Pool {
    pub(super) url: UpstreamUrl,
    http: Builder,
    max_header_size: usize,
    connect_timeout: Duration,
    idle_timeout: Duration,
    /// One permit for each call in flight, so at most this many connections are in use.
    calls: Arc<Semaphore>,
    max_connections: usize,
    /// Connections in use or idle.
    open: Arc<AtomicUsize>,
    /// One for each worker, and a last one for every other thread.
    shards: Box<[Shard]>,
    max_idle_per_shard: usize,
}

#[derive(Default)]
struct Shard {
    idle: Mutex<Stack>,
}

#[derive(Default)]
struct Stack {
    /// The most recently used on top.
    connections: Vec<Idle>,
    /// Whether a task looks after those that have been idle for too long.
    swept: bool,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

struct Connection {
    sender: SendRequest<Body>,
    awaited: Awaited,
    _open: Open,
}

/// A place among the open connections.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection in use. Dropping it closes the connection.
pub(super) struct Lease {
    connection: Connection,
    pool: Arc<Pool>,
    call: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(url: UpstreamUrl, config: &UpstreamConfig) -> Self {
        let mut http = Builder::new();
        http.max_header_size(config.max_header_size);
        // Any number but hyper's own makes it allocate for each response.
        if config.max_headers != ListenerConfig::DEFAULT_MAX_HEADERS {
            http.max_headers(config.max_headers);
        }
        let shards = config.workers.get() + 1;
        Self {
            url,
            http,
            max_header_size: config.max_header_size,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            calls: Arc::new(Semaphore::new(config.max_connections.get().min(Semaphore::MAX_PERMITS))),
            max_connections: config.max_connections.get(),
            open: Arc::default(),
            shards: std::iter::repeat_with(Shard::default).take(shards).collect(),
            max_idle_per_shard: config.max_idle.div_ceil(config.workers.get()),
        }
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// An idle connection, or a new one. Waits while all are in use; whoever calls bounds that.
    pub(super) async fn checkout(self: &Arc<Self>) -> Result<Lease, ConnectError> {
        let call = match Arc::clone(&self.calls).try_acquire_owned() {
            Ok(call) => call,
            Err(_) => match Arc::clone(&self.calls).acquire_owned().await {
                Ok(call) => call,
                // The semaphore is never closed; if it were, this could only wait.
                Err(_closed) => std::future::pending().await,
            },
        };
        loop {
            let own = self.own_shard();
            while let Some((connection, age)) = self.pop(own) {
                if age >= RECHECK {
                    // Lets the runtime look at its sockets, and the connection's task at its own.
                    tokio::task::yield_now().await;
                }
                if connection.sender.is_ready() {
                    return Ok(self.lease(connection, call));
                }
            }
            let place = self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
                (open < self.max_connections).then_some(open + 1)
            });
            if place.is_ok() {
                let open = Open(Arc::clone(&self.open));
                let connection = self.connect(open).await?;
                return Ok(self.lease(connection, call));
            }
            // At the bound, with a permit for a call and no connection: one is idle elsewhere.
            if let Some((connection, _)) = (0..self.shards.len()).find_map(|shard| self.pop(shard))
                && connection.sender.is_ready()
            {
                return Ok(self.lease(connection, call));
            }
            tokio::task::yield_now().await;
        }
    }

    fn lease(self: &Arc<Self>, connection: Connection, call: OwnedSemaphorePermit) -> Lease {
        Lease { connection, pool: Arc::clone(self), call }
    }

    async fn connect(&self, open: Open) -> Result<Connection, ConnectError> {
        let url = || self.url.clone();
        let connecting = TcpStream::connect((self.url.host(), self.url.port()));
        let stream = match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(ConnectError::Refused { url: url(), source }),
            Err(_) => return Err(ConnectError::Timeout { url: url(), after: self.connect_timeout }),
        };
        stream.set_nodelay(true).map_err(|source| ConnectError::Refused { url: url(), source })?;
        let awaited = Awaited::default();
        let stream = Joined::new(stream, awaited.clone(), self.max_header_size);
        let (sender, connection) = self
            .http
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ConnectError::Handshake { url: url(), source })?;
        // Ends when the sender is dropped or the upstream closes. What broke is told to the call.
        tokio::spawn(connection.with_upgrades());
        Ok(Connection { sender, awaited, _open: open })
    }

    fn own_shard(&self) -> usize {
        worker::index().min(self.shards.len() - 1)
    }

    fn stack(&self, shard: usize) -> MutexGuard<'_, Stack> {
        self.shards[shard].idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last, and how long it has been idle.
    fn pop(&self, shard: usize) -> Option<(Connection, Duration)> {
        let mut stack = self.stack(shard);
        let Idle { connection, since } = stack.connections.pop()?;
        let age = since.elapsed();
        if age < self.idle_timeout {
            return Some((connection, age));
        }
        // All below have been idle for longer still.
        stack.connections.clear();
        None
    }

    fn push(self: &Arc<Self>, connection: Connection) {
        let shard = self.own_shard();
        let mut stack = self.stack(shard);
        if stack.connections.len() >= self.max_idle_per_shard {
            return;
        }
        stack.connections.push(Idle { connection, since: Instant::now() });
        if !stack.swept
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            stack.swept = true;
            runtime.spawn(sweep(Arc::downgrade(self), shard, self.idle_timeout));
        }
    }
}

/// Closes what has been idle for too long, until nothing is idle.
async fn sweep(pool: Weak<Pool>, shard: usize, idle_timeout: Duration) {
    loop {
        tokio::time::sleep(idle_timeout).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut stack = pool.stack(shard);
        stack
            .connections
            .retain(|idle| idle.since.elapsed() < idle_timeout && !idle.connection.sender.is_closed());
        if stack.connections.is_empty() {
            stack.swept = false;
            return;
        }
    }
}

impl Lease {
    /// The way to send one request on it.
    pub(super) fn sender(&mut self) -> &mut SendRequest<Body> {
        self.connection.awaited.set();
        &mut self.connection.sender
    }

    /// Back to the pool: the exchange has ended in order.
    pub(super) fn give_back(self) {
        let Self { mut connection, pool, call } = self;
        if connection.sender.is_ready() {
            pool.push(connection);
        } else if !connection.sender.is_closed()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // The answer is complete and the request is still being sent.
            runtime.spawn(async move {
                if connection.sender.ready().await.is_ok() {
                    pool.push(connection);
                }
                drop(call);
            });
        }
    }
}
