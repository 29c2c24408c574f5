//! The gates as a tower layer around a service's own handlers.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use parking_lot::Mutex;
use tower::{Layer, Service};

use crate::Body;
use crate::body::BoxError;
use crate::builder::Tidegate;
use crate::call::{Call, CallError, CallErrorKind};
use crate::context::X_REQUEST_ID;
use crate::exchange::NoVerdict;
use crate::nesting::Nest;
use crate::pipeline;

/// The address that a request comes from, as a request extension that an outer layer sets.
///
/// Behind proxies it must be the client's, not the proxy's. A request without it has no `client.ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub IpAddr);

type FindClient = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;

/// Wraps a service into the gates. Made by [`Tidegate::layer`].
#[derive(Clone)]
pub struct GateLayer {
    tidegate: Tidegate,
    client: FindClient,
}

impl GateLayer {
    pub(crate) fn new(tidegate: Tidegate) -> Self {
        let client = |parts: &Parts| parts.extensions.get().map(|ClientAddr(addr)| *addr);
        Self { tidegate, client: Arc::new(client) }
    }

    /// How the client's address is found; by default in the extension [`ClientAddr`]. Without one, a
    /// request has no `client.ip`.
    #[must_use]
    pub fn client_addr(mut self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.client = Arc::new(find);
        self
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> GateService<S> {
        GateService { layer: self.clone(), inner }
    }
}

/// A service behind the gates.
///
/// - Requests are matched by the path that this service sees: inside an axum `nest`, the path without
///   the prefix. What is routed before the gates is routed by the raw path; around the whole router,
///   routing sees the normalised one.
/// - Where an idempotency rule guards a request, the handler runs in a task of its own: a client that
///   goes away does not stop it. Elsewhere it is dropped with the request.
/// - The resource's `timeout` runs until the handler's response head. The handler is dropped then, and
///   the client gets 504.
/// - The service is asked whether it is ready once the gates have let a request through: a replay
///   needs no capacity.
/// - A panic, and an error of the inner service, count as a failure, leave an idempotency record's
///   outcome unknown, and come out of this service as they came in.
#[derive(Clone)]
pub struct GateService<S> {
    layer: GateLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for GateService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let tidegate = self.layer.tidegate.clone();
        let handler = Handler { service: self.inner.clone(), broken: Arc::default() };
        let (parts, body) = request.into_parts();
        // An unspecified address is no address: no client has it.
        let client = (self.layer.client)(&parts).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let request = Request::from_parts(parts, Body::stream(body));
        Box::pin(async move {
            let response = pipeline::handle(tidegate.gates(), request, client, &handler).await;
            let broken = handler.broken.lock().take();
            match broken {
                None => Ok(response),
                Some(Broken::Error(error)) => Err(error),
                Some(Broken::Panic(panic)) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// The inner service, as the pipeline calls it for one request.
struct Handler<S, E> {
    service: S,
    /// Why there is no response; for the caller of the outer service.
    broken: Arc<Mutex<Option<Broken<E>>>>,
}

enum Broken<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<S: Clone, E> Clone for Handler<S, E> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), broken: Arc::clone(&self.broken) }
    }
}

impl<S, R> Call for Handler<S, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    async fn call(&self, request: Request<Body>, timeout: Duration) -> Result<Response<Body>, CallError> {
        let request_id = request.headers().get(X_REQUEST_ID).cloned();
        let nest = Nest::new(request_id.unwrap_or(HeaderValue::from_static("-")));
        let run = nest.around(caught(oneshot(self.service.clone(), request)));
        let response = match tokio::time::timeout(timeout, run).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(error))) => return Err(self.broke(Broken::Error(error), "the service failed")),
            Ok(Err(panic)) => return Err(self.broke(Broken::Panic(panic), "the handler panicked")),
            Err(_) => {
                let message = format!("no response head within {timeout:?}");
                return Err(CallError { kind: CallErrorKind::Timeout, sent: true, message });
            }
        };
        let mut response = response.map(Body::stream);
        let failed = response.status().is_client_error() || response.status().is_server_error();
        if failed && nest.last_was_blocked() {
            response.extensions_mut().insert(NoVerdict);
        }
        Ok(response)
    }

    fn host(&self) -> &'static str {
        ""
    }

    fn unmatched_timeout(&self) -> Duration {
        Duration::MAX
    }
}

impl<S, E> Handler<S, E> {
    fn broke(&self, broken: Broken<E>, message: &str) -> CallError {
        *self.broken.lock() = Some(broken);
        CallError { kind: CallErrorKind::Reset, sent: true, message: message.to_owned() }
    }
}

async fn oneshot<S, Q>(mut service: S, request: Q) -> Result<S::Response, S::Error>
where
    S: Service<Q>,
{
    std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

/// A panic as a value. Nothing of the future is used after it.
async fn caught<F: Future + Send>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
