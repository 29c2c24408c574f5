//! A gateway that passes everything through.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tidegate::Body;
use tidegate::call::{Call as _, CallErrorKind};
use tidegate_server::gateway::headers::add_forwarded;
use tidegate_server::gateway::{
    Drained, Handler, Listener, ListenerConfig, Server, Tracker, Upstream, UpstreamConfig,
};
use tidegate_testkit::Origin;
use tokio::runtime::Runtime;

/// A request with this header has 300 ms.
pub(crate) const HURRIED: &str = "x-hurried";

/// What the calls of a gateway have failed with: kind and whether a byte was sent.
pub(crate) type Failures = Arc<Mutex<Vec<(CallErrorKind, bool)>>>;

#[derive(Clone)]
pub(crate) struct PassThrough {
    pub(crate) upstream: Upstream,
    pub(crate) timeout: Duration,
    pub(crate) failures: Failures,
}

impl Handler for PassThrough {
    async fn handle(&self, mut request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        add_forwarded(request.headers_mut(), peer.ip(), 0);
        let hurried = request.headers().contains_key(HURRIED);
        let timeout = if hurried { Duration::from_millis(300) } else { self.timeout };
        match self.upstream.call(request, timeout).await {
            Ok(response) => response,
            Err(error) => {
                self.failures.lock().unwrap().push((error.kind, error.sent));
                let mut response = Response::new(Body::full(error.message));
                *response.status_mut() = match error.kind {
                    CallErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
                    CallErrorKind::RequestBody => StatusCode::BAD_REQUEST,
                    _ => StatusCode::BAD_GATEWAY,
                };
                response
            }
        }
    }
}

pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) failures: Failures,
    pub(crate) tasks: Tracker,
    server: Server,
}

impl Gateway {
    /// In front of `origin`, with short work for tests and generous limits.
    pub(crate) fn start(origin: &Origin) -> Self {
        Self::with(&[&origin.url()], |_, _| {})
    }

    pub(crate) fn with(urls: &[&str], change: impl FnOnce(&mut ListenerConfig, &mut UpstreamConfig)) -> Self {
        let workers = NonZeroUsize::new(2).unwrap();
        let mut listener = ListenerConfig { workers, ..ListenerConfig::default() };
        // Longer than any deadline, so that only the tests that set one see it end.
        let idle_timeout = Duration::from_mins(10);
        let mut upstream = UpstreamConfig { workers, idle_timeout, ..UpstreamConfig::default() };
        change(&mut listener, &mut upstream);
        let mut urls = urls.iter().map(|url| url.parse().unwrap());
        let upstream = Upstream::new(urls.next().unwrap(), urls.collect(), &upstream);
        let failures = Failures::default();
        let timeout = Duration::from_mins(10);
        let handler = PassThrough { upstream: upstream.clone(), timeout, failures: Arc::clone(&failures) };
        let tasks = Tracker::new();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), listener).unwrap();
        let addr = listener.addr();
        let server = listener.start(handler, tasks.clone()).unwrap();
        Self { addr, upstream, failures, tasks, server }
    }

    pub(crate) fn failures(&self) -> Vec<(CallErrorKind, bool)> {
        self.failures.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.server.connections()
    }

    pub(crate) fn shutdown(self, drain: Duration) -> Drained {
        runtime().block_on(self.server.shutdown(drain))
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
