//! The port that clients connect to.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Request, Response};
use socket2::{Domain, Protocol, Socket, Type};
use tidegate::Body;
use tokio::sync::watch;

use super::connection::Settings;
use super::drain::Tracker;
use super::worker::{self, Workers};

/// Connections that the system holds until they are accepted; it may allow fewer.
const BACKLOG: i32 = 4096;

/// What is done with a request.
///
/// The request's target is a path (or `*`), `Host` says whom the client meant (it is missing only
/// for HTTP/1.0), hop-by-hop headers are gone, and the body is streamed: an interim `100 Continue` is
/// sent when it is first read. The extensions must be handed on to the upstream for upgrades to
/// work. The future is dropped when the client breaks off.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request from `peer`, the other end of the connection.
    fn handle(&self, request: Request<Body>, peer: SocketAddr)
    -> impl Future<Output = Response<Body>> + Send;
}

/// The limits of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Threads, each with a runtime of its own.
    pub workers: NonZeroUsize,
    /// Connections at a time; one more is answered 503 and closed.
    pub max_connections: usize,
    /// Bytes of a request's start line and headers, [`Self::MIN_HEADER_SIZE`] to
    /// [`Self::MAX_HEADER_SIZE`]; more is 431.
    pub max_header_size: usize,
    /// Header lines of a request; more is 431.
    pub max_headers: usize,
    /// HTTP/2 streams at a time on one connection.
    pub max_streams: u32,
    /// From the first byte of a request to the end of its head; longer is 408.
    pub header_timeout: Duration,
    /// How long a connection is kept without a request.
    pub idle_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// How long a client may take nothing of what it is sent.
    pub write_timeout: Duration,
}

impl ListenerConfig {
    /// The number of header lines that costs nothing to check.
    pub const DEFAULT_MAX_HEADERS: usize = 100;
    /// The smallest [`Self::max_header_size`], in bytes.
    pub const MIN_HEADER_SIZE: usize = 8 * 1024;
    /// The largest, in bytes: less than hyper buffers for a connection.
    pub const MAX_HEADER_SIZE: usize = 256 * 1024;
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            max_connections: 10_000,
            max_header_size: 64 * 1024,
            max_headers: Self::DEFAULT_MAX_HEADERS,
            max_streams: 100,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket has the port.
    #[error(
        "{addr} is in use by another program: stop it (`ss -ltnp 'sport = :{port}'` names it) or choose another address with {flag}",
        port = addr.port()
    )]
    InUse {
        /// What was asked for.
        addr: SocketAddr,
        /// The setting that chooses it.
        flag: &'static str,
    },
    /// A port below 1024, usually.
    #[error(
        "{addr} needs privileges that this process lacks: choose a port from 1024 up with {flag}, or grant CAP_NET_BIND_SERVICE"
    )]
    Denied {
        /// What was asked for.
        addr: SocketAddr,
        /// The setting that chooses it.
        flag: &'static str,
    },
    /// The address is not this machine's.
    #[error(
        "{addr} is not an address of this machine: choose one that is with {flag}, for example 0.0.0.0:{port} for all",
        port = addr.port()
    )]
    NotLocal {
        /// What was asked for.
        addr: SocketAddr,
        /// The setting that chooses it.
        flag: &'static str,
    },
    /// Anything else.
    #[error("cannot listen on {addr}: {source}; choose another address with {flag}")]
    Other {
        /// What was asked for.
        addr: SocketAddr,
        /// The setting that chooses it.
        flag: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No thread for the workers.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
}

impl BindError {
    /// What `error` means for an attempt to listen on `addr`, which the setting `flag` chooses.
    pub fn new(addr: SocketAddr, flag: &'static str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { addr, flag },
            io::ErrorKind::PermissionDenied => Self::Denied { addr, flag },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { addr, flag },
            _ => Self::Other { addr, flag, source: error },
        }
    }
}

/// A bound port on which nobody is answered yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    addr: SocketAddr,
    config: ListenerConfig,
}

impl Listener {
    /// Binds `addr`; port 0 takes a free one.
    pub fn bind(addr: SocketAddr, config: ListenerConfig) -> Result<Self, BindError> {
        let failed = |error| BindError::new(addr, "--listen", error);
        let socket = listen(addr).map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, addr, config })
    }

    /// The address, with the port that was really taken.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Starts the workers and answers by `handler`. Work that outlives a request (a call whose client
    /// is gone) holds a token of `tasks`, so that a shutdown waits for it.
    pub fn start<H: Handler>(self, handler: H, tasks: Tracker) -> Result<Server, BindError> {
        let (drain, draining) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let connections = Tracker::new();
        let max_connections = self.config.max_connections;
        let settings = Arc::new(Settings::new(self.config));
        let handler = Arc::new(handler);
        let mut threads = Vec::new();
        let workers = Workers::start(&settings, &handler, &draining, &stopped, &mut threads);
        let workers = workers.map_err(BindError::Worker)?;
        let acceptor = worker::accept(
            self.socket,
            workers,
            connections.clone(),
            max_connections,
            draining,
            &mut threads,
        );
        acceptor.map_err(BindError::Worker)?;
        Ok(Server { addr: self.addr, settings, drain, stop, connections, tasks, threads })
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the last run to be forgotten by the system.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// What a shutdown left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut with a request or an upgraded stream on them.
    pub connections: usize,
    /// Tasks that were still running.
    pub tasks: usize,
}

/// A listener at work. Dropping it cuts everything at once.
pub struct Server {
    addr: SocketAddr,
    settings: Arc<Settings>,
    drain: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    connections: Tracker,
    tasks: Tracker,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many client connections are open.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    fn stop_accepting(&self) {
        self.settings.draining.store(true, Ordering::Release);
        self.drain.send_replace(true);
    }

    /// Stops accepting, closes idle connections, waits up to `drain` for requests, upgraded streams
    /// and tasks to end, then cuts what is left and says how much that was.
    pub async fn shutdown(self, drain: Duration) -> Drained {
        self.shutdown_after(drain, std::future::ready(()), || 0).await
    }

    /// The same, and waits for `work` too: what requests have begun on the workers and does not end
    /// with their connections. `left` says how much of it there still is.
    pub async fn shutdown_after(
        mut self,
        drain: Duration,
        work: impl Future<Output = ()>,
        left: impl Fn() -> usize,
    ) -> Drained {
        self.stop_accepting();
        let ended = async {
            // First: while a client is connected, it may begin more.
            self.connections.idle().await;
            self.tasks.idle().await;
            work.await;
        };
        let left = match tokio::time::timeout(drain, ended).await {
            Ok(()) => Drained::default(),
            Err(_) => Drained { connections: self.connections.count(), tasks: self.tasks.count() + left() },
        };
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // A worker that panicked has said so on standard error.
                let _ = thread.join();
            }
        });
        let _ = joined.await;
        left
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addr", &self.addr)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting();
        self.stop.send_replace(true);
    }
}
