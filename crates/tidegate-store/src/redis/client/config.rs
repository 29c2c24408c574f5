//! Where Redis is and how to sign in, from a URL.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;

/// How long a call may take in all unless it is set.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
/// How long one attempt to connect may take unless it is set, with name lookup, TLS and sign-in.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest timeout that can be set.
const MAX_TIMEOUT: Duration = Duration::from_mins(1);
/// The port of a server or cluster node when the URL names none.
const PORT: u16 = 6379;
/// The port of a sentinel when the URL names none.
const SENTINEL_PORT: u16 = 26_379;
/// The most hosts in one URL.
const MAX_HOSTS: usize = 64;

/// Which Redis, and how it is reached. Nothing that prints this shows a password or key.
#[derive(Clone)]
pub struct RedisConfig {
    pub(super) topology: Topology,
    pub(super) hosts: Vec<Address>,
    pub(super) tls: bool,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) db: u16,
    pub(super) authority: Option<Arc<[u8]>>,
    pub(super) identity: Option<Identity>,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
}

/// What is behind the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// One server.
    Single,
    /// The hosts are sentinels that know the master by this name.
    Sentinel(Arc<str>),
    /// The hosts are some nodes of a cluster.
    Cluster,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<Arc<str>>,
    pub(super) password: Option<Arc<str>>,
}

/// A certificate that the client shows, and its key, in PEM.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) certificate: Arc<[u8]>,
    pub(super) key: Arc<[u8]>,
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address, an IPv6 one without brackets.
    pub host: Arc<str>,
    /// From 1.
    pub port: u16,
}

/// What is wrong with a configuration. The messages repeat no part of a URL, as it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisConfigError {
    /// Another scheme, or none.
    #[error(
        "a Redis URL begins with redis://, redis+sentinel:// or redis+cluster://, or with rediss for TLS \
         (rediss://, rediss+sentinel://, rediss+cluster://)"
    )]
    Scheme,
    /// No host, or an empty one.
    #[error(
        "a Redis URL names a host: redis://HOST:PORT, several with Sentinel and Cluster: HOST:PORT,HOST:PORT"
    )]
    Host,
    /// Several hosts where there is one server, or too many.
    #[error(
        "a redis:// URL names one host; several are written redis+sentinel://…/NAME or redis+cluster://…, \
         at most {MAX_HOSTS}"
    )]
    TooManyHosts,
    /// Not a port.
    #[error(
        "the port of a Redis URL is a number from 1 to 65535; '/', '?', '#' and '%' in a user or password are \
         written %2F, %3F, %23 and %25"
    )]
    Port,
    /// A user or password that does not decode.
    #[error("the user and password of a Redis URL are UTF-8 with %-encoding")]
    Login,
    /// Something after the hosts that does not belong there.
    #[error(
        "after the hosts of a Redis URL comes /DATABASE (redis://), /NAME or /NAME/DATABASE (redis+sentinel://) \
         or nothing (redis+cluster://); there are no ?parameters"
    )]
    Path,
    /// A Sentinel URL without the name of the master.
    #[error(
        "a redis+sentinel:// URL names the master as the sentinels know it: redis+sentinel://HOST:PORT/NAME"
    )]
    MasterName,
    /// Zero or too long.
    #[error("a Redis timeout is more than 0 and at most {MAX_TIMEOUT:?}")]
    Timeout,
    /// Certificates given for a connection without TLS.
    #[error("certificates are for TLS: write rediss in the URL")]
    NoTls,
    /// Certificates or a key that cannot be read.
    #[error("the certificates or the key for Redis: {0}")]
    Certificates(String),
}

impl RedisConfig {
    /// Reads one of
    /// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`, one server;
    /// - `redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],…/NAME[/DATABASE]`, the master that the sentinels at
    ///   these hosts know as NAME; user and password are those of the master;
    /// - `redis+cluster://[USER[:PASSWORD]@]HOST[:PORT],…`, a cluster that some nodes of are at these hosts.
    ///
    /// With `rediss` in the place of `redis`, each connection is by TLS. A password without a user is written
    /// `:PASSWORD@`. Ports left out are 6379, and 26379 for sentinels.
    pub fn from_url(url: &str) -> Result<Self, RedisConfigError> {
        let (scheme, rest) = url.trim().split_once("://").ok_or(RedisConfigError::Scheme)?;
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").ok_or(RedisConfigError::Scheme)?),
        };
        if rest.contains(['?', '#']) {
            return Err(RedisConfigError::Path);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::from_url(login)?, hosts),
            None => (Login::default(), authority),
        };
        let default_port = if kind == "+sentinel" { SENTINEL_PORT } else { PORT };
        let hosts: Vec<Address> =
            hosts.split(',').map(|host| Address::from_url(host, default_port)).collect::<Result<_, _>>()?;
        if hosts.len() > if kind.is_empty() { 1 } else { MAX_HOSTS } {
            return Err(RedisConfigError::TooManyHosts);
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        let (topology, db) = match kind {
            "" => (Topology::Single, path),
            "+sentinel" => {
                let (name, db) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(RedisConfigError::MasterName);
                }
                (Topology::Sentinel(decode(name)?), db)
            }
            "+cluster" if path.is_empty() => (Topology::Cluster, ""),
            "+cluster" => return Err(RedisConfigError::Path),
            _ => return Err(RedisConfigError::Scheme),
        };
        let db = if db.is_empty() { 0 } else { db.parse().map_err(|_| RedisConfigError::Path)? };
        Ok(Self {
            topology,
            hosts,
            tls,
            login,
            sentinel_login: Login::default(),
            db,
            authority: None,
            identity: None,
            timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        })
    }

    /// Signs in with this password, whatever the URL says; for one that comes from a file.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<Arc<str>>) -> Self {
        self.login.password = Some(password.into());
        self
    }

    /// Signs in as this user of Redis's access control, whatever the URL says.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<Arc<str>>) -> Self {
        self.login.user = Some(user.into());
        self
    }

    /// Signs in to the sentinels themselves, which by default ask for nothing.
    #[must_use]
    pub fn with_sentinel_login(mut self, user: Option<Arc<str>>, password: impl Into<Arc<str>>) -> Self {
        self.sentinel_login = Login { user, password: Some(password.into()) };
        self
    }

    /// Trusts servers whose certificates these authorities signed, in PEM, and not the system's.
    #[must_use]
    pub fn with_authority(mut self, pem: impl Into<Arc<[u8]>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Shows this certificate to servers that ask for one, both in PEM.
    #[must_use]
    pub fn with_certificate(mut self, certificate: impl Into<Arc<[u8]>>, key: impl Into<Arc<[u8]>>) -> Self {
        self.identity = Some(Identity { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Bounds each call in all, also its wait for a connection; 50 ms unless set.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, RedisConfigError> {
        self.timeout = checked(timeout)?;
        Ok(self)
    }

    /// Bounds each attempt to connect, which goes on when the call that began it has given up; 2 s unless set.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self, RedisConfigError> {
        self.connect_timeout = checked(timeout)?;
        Ok(self)
    }

    /// Whether keys are spread over slots, so that one script reaches the keys of one slot only.
    pub fn is_cluster(&self) -> bool {
        self.topology == Topology::Cluster
    }

    /// The bound of each call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// The URL without its password.
impl fmt::Display for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss" } else { "redis" })?;
        f.write_str(match self.topology {
            Topology::Single => "://",
            Topology::Sentinel(_) => "+sentinel://",
            Topology::Cluster => "+cluster://",
        })?;
        if let Some(user) = &self.login.user {
            write!(f, "{user}@")?;
        }
        for (at, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if at == 0 { "" } else { "," })?;
        }
        if let Topology::Sentinel(name) = &self.topology {
            write!(f, "/{name}")?;
        }
        if self.db == 0 { Ok(()) } else { write!(f, "/{}", self.db) }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("url", &self.to_string())
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

impl Login {
    fn from_url(text: &str) -> Result<Self, RedisConfigError> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(decode(password)?)),
            None => (text, None),
        };
        let user = if user.is_empty() { None } else { Some(decode(user)?) };
        Ok(Self { user, password })
    }

    /// The text without the password in it, should a server or library ever repeat it.
    pub(super) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.password {
            Some(password) if !password.is_empty() && text.contains(&**password) => {
                text.replace(&**password, "<password>").into()
            }
            _ => text.into(),
        }
    }
}

impl Address {
    /// From a host and port that a server named.
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
    fn from_url(text: &str, default_port: u16) -> Result<Self, RedisConfigError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(RedisConfigError::Host)?;
                let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')) };
                (host, port.map(|port| port.ok_or(RedisConfigError::Port)).transpose()?)
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(RedisConfigError::Host);
        }
        let port = match port {
            None => default_port,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(RedisConfigError::Port)?,
        };
        Ok(Self::new(host, port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn decode(text: &str) -> Result<Arc<str>, RedisConfigError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| RedisConfigError::Login)?;
    Ok(decoded.as_ref().into())
}

fn checked(timeout: Duration) -> Result<Duration, RedisConfigError> {
    if timeout.is_zero() || timeout > MAX_TIMEOUT { Err(RedisConfigError::Timeout) } else { Ok(timeout) }
}

#[cfg(test)]
mod tests;
