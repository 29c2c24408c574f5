//! The program's own configuration, raw → checked: `tidegate.yaml`, then `TIDEGATE_…` variables, then
//! flags; the later wins. Every layer is read whole, and every fault in any of them is reported.

mod layers;
mod read;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use crate::gateway::{HostHeader, ListenerConfig, UpstreamConfig, UpstreamUrl};

pub(crate) use layers::CONFIG_VARIABLE;
pub use layers::{Environment, Flags};
pub use read::{from_flags, load};
pub use tidegate_core::document::Refused;

/// The file that is read when no other is named, if it is there.
pub const DEFAULT_FILE: &str = "tidegate.yaml";

/// What a gateway runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The services behind it; never empty, and each id once. The first is the one that requests go to.
    pub upstreams: Vec<UpstreamSetting>,
    /// A rule file, or a directory of them.
    pub rules: PathBuf,
    /// Where clients connect. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The administration's address, on the loopback interface.
    pub admin: SocketAddr,
    /// An address that serves only probes and metrics.
    pub health: Option<SocketAddr>,
    /// Where rules, records and counters are kept.
    pub store: StoreSetting,
    /// Where limits are counted together by all instances.
    pub redis: Option<RedisSetting>,
    /// How many proxies in front are believed about who the client is, 0 to 32.
    pub trusted_hops: u8,
    /// The leading bits of an IPv6 address that make one client, 1 to 128.
    pub ipv6_prefix: u8,
    /// What is done with a path that has `%2F`.
    pub encoded_slashes: EncodedSlashes,
    /// How many gateways share the traffic; `None` lets them count themselves, which without a
    /// shared store means one.
    pub instances: Option<NonZeroU32>,
    /// How much answers say about the rules.
    pub disclose: Disclose,
    /// Bounds on what clients send and on memory.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// What is logged, and how.
    pub log: Log,
    /// How long a shutdown waits for what has begun.
    pub drain: Duration,
    /// Threads that serve requests.
    pub workers: NonZeroUsize,
}

/// A service behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSetting {
    /// Its name.
    pub id: String,
    /// Where it is; never empty, taken in turn.
    pub urls: Vec<UpstreamUrl>,
    /// Which `Host` it sees.
    pub host: HostHeader,
}

/// Where rules, records and counters are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSetting {
    /// In a database file.
    Sqlite(PathBuf),
    /// In this process; gone with it.
    Memory,
}

/// A Redis, and how it is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSetting {
    /// As `tidegate_store::redis::RedisConfig` takes it; it may hold a password.
    pub url: String,
    /// Certificates of the authorities that are believed, as PEM; the system's where there is none.
    pub ca: Option<PathBuf>,
    /// The certificate that is shown, and its key, as PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Debug for RedisSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, ca, certificate } = self;
        f.debug_struct("RedisSetting")
            .field("ca", ca)
            .field("certificate", certificate)
            .finish_non_exhaustive()
    }
}

/// What is done with a path that has an encoded slash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlashes {
    /// 400: the upstream may take it for a separator where the rules did not.
    #[default]
    Refuse,
    /// It stays as it is and separates nothing.
    Keep,
}

/// How much answers say about the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disclose {
    /// The version, and in problems the rule and the reason.
    #[default]
    Full,
    /// Neither: for the public edge.
    Minimal,
}

/// Bounds on what clients send and on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections at a time.
    pub max_connections: usize,
    /// Connections at a time to each upstream URL.
    pub max_upstream_connections: NonZeroUsize,
    /// Bytes of a request's head, and of a response's.
    pub max_header_size: usize,
    /// Header lines of a request.
    pub max_headers: usize,
    /// HTTP/2 streams at a time on one connection.
    pub max_streams: u32,
    /// Bytes of a request body that a rule needs whole. Others are streamed, and not bounded.
    pub max_body: u64,
    /// Keys that each limit remembers at a time.
    pub max_keys: usize,
}

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head.
    pub header: Duration,
    /// Without a request on a client's connection.
    pub idle: Duration,
    /// Between two pieces of a request's body.
    pub body: Duration,
    /// Without a client taking anything of what it is sent.
    pub write: Duration,
    /// Connecting to an upstream.
    pub connect: Duration,
    /// One command to Redis, and so the longest that a request waits for it.
    pub redis: Duration,
    /// Without a call on an upstream connection.
    pub upstream_idle: Duration,
    /// Between two pieces of a response's body.
    pub upstream_body: Duration,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Lines for people or for machines.
    pub format: LogFormat,
    /// The least severe lines that are written.
    pub level: LogLevel,
}

/// Lines for people or for machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How severe a line of the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Somebody should look.
    Warn,
    /// What an operator wants to know.
    #[default]
    Info,
    /// Each decision.
    Debug,
    /// Everything.
    Trace,
}

impl Config {
    /// What the listener is started with.
    pub fn listener(&self) -> ListenerConfig {
        ListenerConfig {
            workers: self.workers,
            max_connections: self.limits.max_connections,
            max_header_size: self.limits.max_header_size,
            max_headers: self.limits.max_headers,
            max_streams: self.limits.max_streams,
            header_timeout: self.timeouts.header,
            idle_timeout: self.timeouts.idle,
            body_timeout: self.timeouts.body,
            write_timeout: self.timeouts.write,
        }
    }

    /// How `upstream` is reached.
    pub fn upstream(&self, upstream: &UpstreamSetting) -> UpstreamConfig {
        UpstreamConfig {
            workers: self.workers,
            connect_timeout: self.timeouts.connect,
            max_connections: self.limits.max_upstream_connections,
            max_idle: UpstreamConfig::default().max_idle.min(self.limits.max_upstream_connections.get()),
            idle_timeout: self.timeouts.upstream_idle,
            body_timeout: self.timeouts.upstream_body,
            max_header_size: self.limits.max_header_size,
            // A service is trusted with more than a client that is held short.
            max_headers: self.limits.max_headers.max(ListenerConfig::DEFAULT_MAX_HEADERS),
            host: upstream.host.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
