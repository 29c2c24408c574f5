//! One client connection, from its first byte to its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidegate::Body;
use tidegate::body::BodyError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::body::Streamed;
use super::drain::Token;
use super::inbound::{Refusal, normalise};
use super::io::{Closing, InFlight, Io, Phase, Prefix, Progress, Protocol};
use super::listener::{Handler, ListenerConfig};

/// How long an HTTP/2 connection that is being closed may take to say so.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long, and for how many bytes, a client is heard out after the last answer, so that it reads
/// that answer instead of a reset.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// What all connections of a listener share.
pub(super) struct Settings {
    pub(super) config: ListenerConfig,
    /// Set before the connections are told to look: reading it costs nothing, asking the channel does.
    pub(super) draining: AtomicBool,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Settings {
    pub(super) fn new(config: ListenerConfig) -> Self {
        let mut http1 = http1::Builder::new();
        // The time for a head is kept here, without a timer for each request.
        http1.header_read_timeout(None).max_header_size(config.max_header_size);
        // Any number but hyper's own makes it allocate for each request.
        if config.max_headers != ListenerConfig::DEFAULT_MAX_HEADERS {
            http1.max_headers(config.max_headers);
        }
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(config.max_streams)
            .max_header_list_size(u32::try_from(config.max_header_size).unwrap_or(u32::MAX));
        Self { config, draining: AtomicBool::new(false), http1, http2 }
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve<H: Handler>(
    mut stream: TcpStream,
    peer: SocketAddr,
    token: Token,
    settings: &Settings,
    handler: Arc<H>,
    mut draining: watch::Receiver<bool>,
) {
    let config = &settings.config;
    let mut prefix = Prefix::default();
    let protocol = tokio::select! {
        protocol = first_bytes(&mut prefix, &mut stream, config) => protocol,
        _ = draining.wait_for(|draining| *draining) => None,
    };
    let Some(protocol) = protocol else { return };

    let progress = Arc::new(Progress::default());
    let io = TokioIo::new(Io::new(stream, prefix, Arc::clone(&progress)));
    let token = Arc::new(token);
    let limits = RequestLimits { body_timeout: config.body_timeout, max_headers: config.max_headers };
    let for_requests = Arc::clone(&progress);
    let service = service_fn(move |request: Request<Incoming>| {
        let in_flight = for_requests.begin();
        // The end of an answer of unknown length is the end of its connection, then.
        let ends_by_closing = request.version() < Version::HTTP_11;
        // Not inside the future, whose every byte is moved for each request.
        let admitted = admit(request, &token, &for_requests, limits);
        let handler = Arc::clone(&handler);
        async move {
            let response = match admitted {
                Ok(request) => handler.handle(request, peer).await,
                Err(refused) => refused.response(),
            };
            Ok::<_, Infallible>(response.map(|body| Tracked { body, ends_by_closing, in_flight }))
        }
    });

    match protocol {
        Protocol::Http1 => {
            let mut connection = settings.http1.serve_connection(io, service).with_upgrades();
            let end = drive(&mut connection, &progress, settings, draining, |phase| phase).await;
            let Some(parts) = connection.into_parts() else { return };
            let mut stream = parts.io.into_inner().into_stream();
            match end {
                End::Over { failed } => match progress.closing(failed || !parts.read_buf.is_empty()) {
                    Closing::AtOnce => {}
                    Closing::Linger => linger(stream).await,
                    Closing::Reset => {
                        // If it cannot be set, the connection is gone already.
                        let _ = stream.set_zero_linger();
                    }
                },
                End::TimedOut(Phase::Head) => {
                    // One try: a client that does not read is not waited for.
                    let written = timeout(LINGER, stream.write_all(REQUEST_TIMEOUT)).await;
                    if matches!(written, Ok(Ok(()))) && stream.shutdown().await.is_ok() {
                        linger(stream).await;
                    }
                }
                End::TimedOut(_) => {}
            }
        }
        Protocol::Http2 => {
            let mut connection = settings.http2.serve_connection(io, service);
            // Frames of the connection itself are no request's head.
            let no_head = |phase| if phase == Phase::Head { Phase::Idle } else { phase };
            if let End::TimedOut(Phase::Idle) =
                drive(&mut connection, &progress, settings, draining, no_head).await
            {
                Pin::new(&mut connection).graceful_shutdown();
                // What counts is that it ends; how, nobody is left to be told.
                let _ = timeout(GOODBYE, connection).await;
            }
        }
    }
}

async fn first_bytes(
    prefix: &mut Prefix,
    stream: &mut TcpStream,
    config: &ListenerConfig,
) -> Option<Protocol> {
    // Waiting for the first byte is being idle; from then on it is a head.
    timeout(config.idle_timeout, stream.readable()).await.ok()?.ok()?;
    if let Ok(protocol) = timeout(config.header_timeout, prefix.sniff(stream)).await {
        return protocol.ok()?;
    }
    if prefix.started() {
        // One try, as above: a client that does not read is not waited for.
        let _ = stream.try_write(REQUEST_TIMEOUT);
    }
    None
}

/// What holds for each request of a connection.
#[derive(Clone, Copy)]
struct RequestLimits {
    body_timeout: Duration,
    max_headers: usize,
}

/// Why a request reaches no handler.
enum Refused {
    Malformed(Refusal),
    TooManyHeaders,
}

impl Refused {
    fn response(self) -> Response<Body> {
        match self {
            Self::Malformed(refusal) => refusal.response(),
            Self::TooManyHeaders => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                response
            }
        }
    }
}

/// The request as handlers get it.
fn admit(
    mut request: Request<Incoming>,
    token: &Arc<Token>,
    progress: &Arc<Progress>,
    limits: RequestLimits,
) -> Result<Request<Body>, Refused> {
    if normalise(&mut request).map_err(Refused::Malformed)? {
        // Whoever splices the streams later holds it, so that a shutdown knows of them.
        request.extensions_mut().insert(Arc::clone(token));
    }
    // hyper counts the headers of HTTP/1 only.
    if request.version() == Version::HTTP_2 && request.headers().len() > limits.max_headers {
        return Err(Refused::TooManyHeaders);
    }
    Ok(request.map(|incoming| {
        if incoming.is_end_stream() {
            Body::empty()
        } else {
            Body::stream(Streamed::request(incoming, limits.body_timeout, Arc::clone(progress)))
        }
    }))
}

/// How serving ended.
enum End {
    /// hyper is done with it.
    Over {
        /// The client broke off, or what it sent was refused as no HTTP.
        failed: bool,
    },
    /// It stayed in this phase for longer than is allowed.
    TimedOut(Phase),
}

/// A connection that hyper serves.
trait Drive: Future<Output = hyper::Result<()>> + Unpin {
    /// No further request after those that have begun.
    fn close_soon(&mut self);
}

impl<S> Drive for http1::UpgradeableConnection<TokioIo<Io>, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = Tracked> + Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    Self: Future<Output = hyper::Result<()>> + Unpin,
{
    fn close_soon(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

impl<S> Drive for http2::Connection<TokioIo<Io>, S, TokioExecutor>
where
    S: hyper::service::HttpService<Incoming, ResBody = Tracked>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    TokioExecutor: hyper::rt::bounds::Http2ServerConnExec<S::Future, Tracked>,
    Self: Future<Output = hyper::Result<()>> + Unpin,
{
    fn close_soon(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

/// Polls a connection to its end, and watches over the time that each phase may take.
///
/// One timer is armed at most, and moved only to an earlier time or when it fires: a connection that
/// keeps answering costs one look at the clock for a request.
async fn drive<C: Drive>(
    connection: &mut C,
    progress: &Progress,
    settings: &Settings,
    mut draining: watch::Receiver<bool>,
    seen_as: impl Fn(Phase) -> Phase,
) -> End {
    let config = &settings.config;
    let mut drain = pin!(async move {
        // The sender outlives every connection but at a hard stop, and then nothing matters.
        let _ = draining.wait_for(|draining| *draining).await;
    });
    let mut drain_watched = false;
    let mut closing = false;

    let allowed = |phase| match phase {
        Phase::Busy => None,
        Phase::Idle => Some(config.idle_timeout),
        Phase::Head => Some(config.header_timeout),
        Phase::Stalled => Some(config.write_timeout),
    };
    let mut current = (Phase::Idle, 0);
    let mut deadline = Some(Instant::now() + config.idle_timeout);
    let mut armed = Instant::now() + config.idle_timeout;
    let mut timer = pin!(sleep_until(armed));
    let mut timer_watched = false;

    poll_fn(|cx| {
        // A task's waker stays the same: watching once is enough.
        if !drain_watched {
            drain_watched = true;
            let _ = drain.as_mut().poll(cx);
        }
        if !closing && settings.draining.load(Ordering::Acquire) {
            closing = true;
            connection.close_soon();
        }
        if let Poll::Ready(end) = Pin::new(&mut *connection).poll(cx) {
            return Poll::Ready(End::Over { failed: end.is_err() });
        }
        let (phase, step) = progress.phase();
        let now_in = (seen_as(phase), step);
        if now_in != current {
            current = now_in;
            deadline = allowed(now_in.0).map(|span| Instant::now() + span);
            if let Some(deadline) = deadline
                && deadline < armed
            {
                armed = deadline;
                timer.as_mut().reset(armed);
                timer_watched = false;
            }
        }
        loop {
            if timer_watched && !timer.is_elapsed() {
                return Poll::Pending;
            }
            timer_watched = true;
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            match deadline {
                Some(deadline) if deadline <= now => return Poll::Ready(End::TimedOut(current.0)),
                later => {
                    armed = later.unwrap_or(now + config.idle_timeout);
                    timer.as_mut().reset(armed);
                    timer_watched = false;
                }
            }
        }
    })
    .await
}

/// Hears the client out for a moment. Closing with bytes unread would reset the connection, and the
/// reset may overtake the answer.
async fn linger(mut stream: TcpStream) {
    let mut discard = [0; 4096];
    let mut total = 0;
    let over = sleep(LINGER);
    let mut over = pin!(over);
    while total < LINGER_BYTES {
        let read = tokio::select! {
            read = stream.read(&mut discard) => read,
            () = &mut over => return,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => total += read,
        }
    }
}

/// A response body whose end is the end of its request.
struct Tracked {
    body: Body,
    ends_by_closing: bool,
    in_flight: InFlight,
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = &frame {
            tracing::debug!(%error, "an answer broke off");
            self.in_flight.progress().broke(self.ends_by_closing);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
