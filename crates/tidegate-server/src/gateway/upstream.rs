//! The service behind the gateway.

use std::error::Error as _;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tidegate::Body;
use tidegate::body::BodyError;
use tidegate::call::{Call, CallError, CallErrorKind, OneHost, Switched};
use tokio::time::{Instant, timeout_at};

use super::body::Streamed;
use super::drain::Token;
use super::headers::strip_hop_by_hop;
use super::listener::ListenerConfig;
use super::pool::{Lease, Pool};
use super::splice::splice;
use super::url::UpstreamUrl;

/// The longest timeout of a call that is told apart from none at all.
const MAX_TIMEOUT: Duration = Duration::from_hours(365 * 24);
/// How often a request may come back unsent, from connections that had just been closed, before the
/// call is given up.
const MAX_UNSENT: usize = 4;

/// Which `Host` the upstream sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The one that the client meant. A request without (HTTP/1.0) gets the upstream's own.
    #[default]
    Client,
    /// The upstream's own, as in its URL.
    Upstream,
    /// Always this one.
    Fixed(HeaderValue),
}

/// How an upstream is reached. The bounds hold for each of its URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// How many workers call it; each keeps idle connections of its own.
    pub workers: NonZeroUsize,
    /// How long connecting may take, within the call's own timeout.
    pub connect_timeout: Duration,
    /// Connections at a time, idle ones included. Calls beyond it wait, within their timeout.
    pub max_connections: NonZeroUsize,
    /// Idle connections that are kept, over all workers.
    pub max_idle: usize,
    /// How long an idle connection is kept. Shorter than the upstream's own keep-alive timeout, or a
    /// request may meet a connection that is being closed, and is then never sent again.
    pub idle_timeout: Duration,
    /// Between two pieces of a response's body.
    pub body_timeout: Duration,
    /// Bytes of a response's status line and headers, and of all interim responses before it.
    pub max_header_size: usize,
    /// Header lines of a response.
    pub max_headers: usize,
    /// Which `Host` it sees.
    pub host: HostHeader,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            connect_timeout: Duration::from_secs(3),
            max_connections: NonZeroUsize::new(1024).unwrap_or(NonZeroUsize::MIN),
            max_idle: 256,
            idle_timeout: Duration::from_secs(4),
            body_timeout: Duration::from_mins(5),
            max_header_size: 64 * 1024,
            max_headers: ListenerConfig::DEFAULT_MAX_HEADERS,
            host: HostHeader::Client,
        }
    }
}

/// One service at one or more URLs, taken in turn.
///
/// The request must be as [`super::Handler`] gets it: hop-by-hop headers are not looked for again.
/// `Host` is set as configured, and the body is framed anew; `Expect: 100-continue` has been answered
/// by the gateway and is not passed on. A `101` answer is passed on when the request still has the
/// extensions that the listener gave it, and both connections are then joined.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
    /// The URL that calls go to first, or the next in turn.
    pinned: Option<usize>,
}

struct Inner {
    targets: Vec<Target>,
    next: AtomicUsize,
    host: HostHeader,
    body_timeout: Duration,
}

struct Target {
    pool: Arc<Pool>,
    host: HeaderValue,
}

impl Upstream {
    /// An upstream at `first` and, taken in turn with it, `more`. Nothing is connected before the
    /// first call.
    pub fn new(first: UpstreamUrl, more: Vec<UpstreamUrl>, config: &UpstreamConfig) -> Self {
        let targets = std::iter::once(first).chain(more).map(|url| {
            let host = url.host_header();
            Target { pool: Arc::new(Pool::new(url, config)), host }
        });
        let inner = Inner {
            targets: targets.collect(),
            next: AtomicUsize::new(0),
            host: config.host.clone(),
            body_timeout: config.body_timeout,
        };
        Self { inner: Arc::new(inner), pinned: None }
    }

    /// The next URL in turn, for calls that must know the host before they are made ([`Call::host`]).
    /// Its calls go there first; one that says [`OneHost`] goes nowhere else.
    #[must_use]
    pub fn pick(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), pinned: Some(self.inner.turn()) }
    }

    /// How many connections are open to all URLs.
    pub fn connections(&self) -> usize {
        self.inner.targets.iter().map(|target| target.pool.open()).sum()
    }

    async fn send(&self, mut request: Request<Body>, timeout: Duration) -> Result<Response<Body>, CallError> {
        let inner = &*self.inner;
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        let mut target = self.pinned.unwrap_or_else(|| inner.turn());
        let one_host = request.extensions().get::<OneHost>().is_some();
        let mut other_targets = if one_host { 0 } else { inner.targets.len() - 1 };
        let mut unsent = 0;
        let upgrade = frame(&mut request);
        loop {
            let Target { pool, host } = &inner.targets[target];
            inner.set_host(&mut request, host);
            let mut lease = match timeout_at(deadline, pool.checkout()).await {
                Ok(Ok(lease)) => lease,
                Ok(Err(_)) if other_targets > 0 => {
                    other_targets -= 1;
                    target = (target + 1) % inner.targets.len();
                    continue;
                }
                Ok(Err(error)) => return Err(failed(CallErrorKind::Connect, false, error)),
                Err(_) => {
                    let message = format_args!("no free connection to {} within {timeout:?}", pool.url);
                    return Err(failed(CallErrorKind::Timeout, false, message));
                }
            };
            let answer = lease.sender().try_send_request(request);
            match timeout_at(deadline, answer).await {
                Ok(Ok(response)) => return inner.answer(response, lease, upgrade),
                Ok(Err(mut error)) => match error.take_message() {
                    // It never left: another connection may have it.
                    Some(returned) if unsent < MAX_UNSENT => {
                        unsent += 1;
                        request = returned;
                    }
                    Some(_) => {
                        return Err(failed(CallErrorKind::Reset, false, Chain(&error.into_error())));
                    }
                    None => return Err(broken(&error.into_error())),
                },
                Err(_) => {
                    let message = format_args!("no answer from {} within {timeout:?}", pool.url);
                    return Err(failed(CallErrorKind::Timeout, true, message));
                }
            }
        }
    }
}

impl Inner {
    fn turn(&self) -> usize {
        match self.targets.len() {
            1 => 0,
            count => self.next.fetch_add(1, Ordering::Relaxed) % count,
        }
    }

    fn set_host(&self, request: &mut Request<Body>, own: &HeaderValue) {
        match &self.host {
            HostHeader::Client if request.headers().contains_key(HOST) => {}
            HostHeader::Client | HostHeader::Upstream => {
                request.headers_mut().insert(HOST, own.clone());
            }
            HostHeader::Fixed(host) => {
                request.headers_mut().insert(HOST, host.clone());
            }
        }
    }

    fn answer(
        &self,
        mut response: Response<Incoming>,
        lease: Lease,
        upgrade: Option<Upgrade>,
    ) -> Result<Response<Body>, CallError> {
        // Each hop speaks its own version (RFC 9110, 6.2).
        *response.version_mut() = Version::HTTP_11;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        // RFC 9112, 6.3: the coding says how the message ends, and the length is removed before it is
        // passed on, or the client would take the message for another one.
        if response.headers().contains_key(TRANSFER_ENCODING) {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        strip_hop_by_hop(response.headers_mut(), switched);
        if switched {
            let Some(Upgrade { client, token }) = upgrade else {
                let message = "the upstream switched protocols unasked";
                return Err(failed(CallErrorKind::Reset, true, message));
            };
            let stream = Switched::default();
            splice(client, hyper::upgrade::on(&mut response), (lease, token, stream.clone()));
            response.extensions_mut().insert(stream);
            return Ok(response.map(|_| Body::empty()));
        }
        Ok(response.map(|incoming| {
            if incoming.is_end_stream() {
                lease.give_back();
                Body::empty()
            } else {
                Body::stream(Streamed::response(incoming, self.body_timeout, lease))
            }
        }))
    }
}

impl Call for Upstream {
    fn call(
        &self,
        request: Request<Body>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Response<Body>, CallError>> + Send {
        self.send(request, timeout)
    }

    /// The host and port of the picked URL, or of the first.
    fn host(&self) -> &str {
        self.inner.targets[self.pinned.unwrap_or(0)].pool.url.authority()
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.targets.iter().map(|target| target.pool.url.authority())).finish()
    }
}

/// The client's side of an upgrade.
struct Upgrade {
    client: OnUpgrade,
    token: Option<Arc<Token>>,
}

/// Makes the head one of HTTP/1.1 that says how long the body is, and takes out the upgrade.
fn frame(request: &mut Request<Body>) -> Option<Upgrade> {
    *request.version_mut() = Version::HTTP_11;
    let (ended, length) = (request.body().is_end_stream(), request.body().size_hint().exact());
    let headers = request.headers_mut();
    headers.remove(EXPECT);
    match length {
        // A GET with a length of 0 is better without; what others say about themselves is kept.
        Some(0) | None if ended => {
            headers.remove(TRANSFER_ENCODING);
            if headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0") {
                headers.remove(CONTENT_LENGTH);
            }
        }
        Some(length) => {
            headers.remove(TRANSFER_ENCODING);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        None => {
            headers.remove(CONTENT_LENGTH);
            // Said here because hyper would send a GET of unknown length without its body.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    if !headers.contains_key(UPGRADE) {
        return None;
    }
    let token = request.extensions_mut().remove();
    let client = request.extensions_mut().remove();
    if client.is_none() {
        // Nobody to join with: the upstream must not be asked.
        request.headers_mut().remove(UPGRADE);
        request.headers_mut().remove(CONNECTION);
    }
    client.map(|client| Upgrade { client, token })
}

fn broken(error: &hyper::Error) -> CallError {
    let by_client = error.source().is_some_and(<dyn std::error::Error>::is::<BodyError>);
    let kind = if by_client { CallErrorKind::RequestBody } else { CallErrorKind::Reset };
    failed(kind, true, Chain(error))
}

fn failed(kind: CallErrorKind, sent: bool, message: impl fmt::Display) -> CallError {
    CallError { kind, sent, message: message.to_string() }
}

/// An error with what caused it.
struct Chain<'a>(&'a hyper::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}
