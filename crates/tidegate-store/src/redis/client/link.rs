//! One connection to one server, shared by all callers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates,
    Value,
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::config::{Address, Login, RedisConfig};
use super::fault::{ConnectFault, Lost, NotSent, RedisFault, bounded};
use super::flight::Usable;
use super::node::Budget;

/// A connection on which calls have timed out for this long, with no answer in between, is given up. A new one
/// may reach the server where this one does not: a firewall or balancer has forgotten it, the host was replaced.
const SILENCE: Duration = Duration::from_secs(1);
/// How many calls may wait to be written; more wait for their turn.
const QUEUE: usize = 1024;

/// How connections are opened: everything but where to.
#[derive(Clone)]
pub(super) struct Dialer {
    tls: Option<TlsCertificates>,
    login: Login,
    db: u16,
    connect_timeout: Duration,
}

impl Dialer {
    /// To the servers that hold data.
    pub(super) fn to_servers(config: &RedisConfig) -> Self {
        Self::new(config, config.login.clone(), config.db)
    }

    /// To sentinels.
    pub(super) fn to_sentinels(config: &RedisConfig) -> Self {
        Self::new(config, config.sentinel_login.clone(), 0)
    }

    fn new(config: &RedisConfig, login: Login, db: u16) -> Self {
        let identity = config.identity.as_ref();
        let tls = config.tls.then(|| TlsCertificates {
            client_tls: identity.map(|identity| ClientTlsConfig {
                client_cert: identity.certificate.to_vec(),
                client_key: identity.key.to_vec(),
            }),
            root_cert: config.authority.as_ref().map(|pem| pem.to_vec()),
        });
        Self { tls, login, db, connect_timeout: config.connect_timeout }
    }

    /// Reads the certificates; connects to nothing.
    pub(super) fn client(&self, at: &Address) -> RedisResult<Client> {
        let (host, port) = (at.host.to_string(), at.port);
        let address = match self.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        };
        // The third version of the protocol tells at once when a connection closes.
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(self.db.into())
            .set_lib_name("tidegate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.login.password {
            settings = settings.set_password(password);
        }
        let info = address
            .into_connection_info()?
            .set_redis_settings(settings)
            // Small requests in a row would otherwise wait for each other's acknowledgements.
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.tls {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    /// Connects and signs in.
    pub(super) async fn dial(&self, at: &Address) -> Result<Arc<Link>, ConnectFault> {
        let after = self.connect_timeout;
        let closed = Arc::new(AtomicBool::new(false));
        let hears = Arc::clone(&closed);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            // Callers bound their calls themselves, with the time that they queue.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    hears.store(true, Ordering::Release);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        let opening = async { self.client(at)?.get_multiplexed_async_connection_with_config(&config).await };
        match timeout(after, opening).await {
            Ok(Ok(connection)) => Ok(Arc::new(Link {
                at: at.clone(),
                connection,
                closed,
                proved: AtomicBool::new(false),
                silent_since: Mutex::new(None),
            })),
            Ok(Err(error)) => Err(self.failed(at, &error)),
            Err(_) => Err(ConnectFault::Timeout { at: at.clone(), after }),
        }
    }

    /// For what is asked while connecting.
    pub(super) fn budget(&self) -> Budget {
        Budget::new(self.connect_timeout)
    }

    fn failed(&self, at: &Address, error: &RedisError) -> ConnectFault {
        let text = error.to_string();
        ConnectFault::Failed { at: at.clone(), why: bounded(&self.login.redact(&text)) }
    }
}

/// One connection. Calls of many callers share it and are answered in order.
pub(super) struct Link {
    at: Address,
    connection: MultiplexedConnection,
    closed: Arc<AtomicBool>,
    proved: AtomicBool,
    /// When the first call was sent of those that have timed out since the last answer.
    silent_since: Mutex<Option<Instant>>,
}

impl Usable for Arc<Link> {
    fn is_usable(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }
}

impl Link {
    /// The server.
    pub(super) fn address(&self) -> &Address {
        &self.at
    }

    /// Whether this is the first time that it is asked after an answer came.
    pub(super) fn proves_itself(&self) -> bool {
        !self.proved.load(Ordering::Relaxed) && !self.proved.swap(true, Ordering::Relaxed)
    }

    /// Sends a command once and waits for its answer. Dropping the future leaves it unknown whether it runs.
    pub(super) async fn send(&self, command: &Cmd, budget: Budget) -> Result<Value, RedisFault> {
        let mut connection = self.connection.clone();
        self.exchange(connection.send_packed_command(command), budget).await.and_then(checked)
    }

    /// Sends a command right behind another that prepares the connection for it, as one write.
    pub(super) async fn send_after(
        &self,
        first: Cmd,
        command: &Cmd,
        budget: Budget,
    ) -> Result<Value, RedisFault> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(first).add_command(command.clone());
        let mut connection = self.connection.clone();
        let values = self.exchange(connection.send_packed_commands(&both, 0, 2), budget).await?;
        match <[Value; 2]>::try_from(values) {
            // What the first is answered does not matter: without it, the second is refused.
            Ok([_, value]) => checked(value),
            Err(_) => Err(Lost::Reply("too few answers".into()).into()),
        }
    }

    async fn exchange<V>(
        &self,
        sending: impl Future<Output = RedisResult<V>>,
        Budget { deadline, timeout }: Budget,
    ) -> Result<V, RedisFault> {
        if self.closed.load(Ordering::Acquire) {
            return Err(NotSent::Closed.into());
        }
        let sent = Instant::now();
        if sent >= deadline {
            return Err(NotSent::Timeout(timeout).into());
        }
        // From here on it may run.
        match timeout_at(deadline, sending).await {
            Ok(Ok(value)) => {
                self.heard();
                Ok(value)
            }
            Ok(Err(error)) => {
                // Whatever it was: what is in flight can no longer be told apart.
                self.closed.store(true, Ordering::Release);
                Err(RedisFault::after_sending(&error))
            }
            Err(_) => {
                self.not_heard(sent);
                Err(Lost::Timeout(timeout).into())
            }
        }
    }

    fn heard(&self) {
        let mut silent_since = self.silent_since.lock();
        *silent_since = None;
    }

    fn not_heard(&self, sent: Instant) {
        let since = *self.silent_since.lock().get_or_insert(sent);
        if since.elapsed() >= SILENCE {
            self.closed.store(true, Ordering::Release);
        }
    }
}

/// The value, or the fault that the server sent in its place.
fn checked(value: Value) -> Result<Value, RedisFault> {
    match value {
        Value::ServerError(error) => Err(RedisFault::of_server(&error)),
        value => Ok(value),
    }
}
