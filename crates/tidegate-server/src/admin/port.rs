//! A port of the administration: HTTP/1.1 on the shared runtime, with a bound on everything that a
//! client could hold on to.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower::Service as _;

use super::guard::Peer;
use super::problem::Problem;
use crate::gateway::BindError;

/// Connections at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// From the first byte of a request, or the end of the one before, to the end of its head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// From the end of a request's head to its answer, the request's body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection lives so long at most, whatever its client does or leaves undone.
const MAX_AGE: Duration = Duration::from_mins(5);
/// What is being answered when a connection is to end may take so long.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of a request's head, give or take what one more read brings.
const MAX_HEAD: usize = 64 * 1024;
/// Header lines of a request.
const MAX_HEADERS: usize = 100;
/// The pause after a connection could not be accepted: for want of file descriptors, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound port on which nobody is answered yet.
#[derive(Debug)]
pub struct Port {
    socket: TcpListener,
    addr: SocketAddr,
}

impl Port {
    /// Binds `addr`, which the setting `flag` chooses; port 0 takes a free one.
    pub fn bind(addr: SocketAddr, flag: &'static str) -> Result<Self, BindError> {
        let failed = |error: io::Error| BindError::new(addr, flag, error);
        let socket = TcpListener::bind(addr).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, addr })
    }

    /// Answers by `router`, on the runtime that this is called in.
    pub fn start(self, router: Router) -> io::Result<Running> {
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(accept(socket, router, stopped));
        Ok(Running { addr: self.addr, stop, task })
    }
}

/// A port at work. Dropping it cuts everything at once.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops accepting, and lets what is being answered come to its end, for a short while.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        // It ends by itself: every connection does, in `GRACE`.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(socket: tokio::net::TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Its connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, socket.accept().await)
        };
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next() => {}
            (place, accepted) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let connection = serve(stream, peer, router.clone(), stopped.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the administration cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, peer: SocketAddr, router: Router, mut stopped: watch::Receiver<bool>) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let router = router.clone();
        request.extensions_mut().insert(Peer(peer));
        async move { Ok::<_, Infallible>(answer(router, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A client that broke off has nothing to be told.
        _ = &mut connection => return,
        _ = stopped.changed() => {}
        () = tokio::time::sleep(MAX_AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(GRACE, connection).await;
}

async fn answer(mut router: Router, request: Request<Incoming>) -> Response {
    // The path alone: a query can hold subjects and attributes.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match tokio::time::timeout(REQUEST_TIMEOUT, router.call(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => {
            let detail = format!("this was not answered within {} s", REQUEST_TIMEOUT.as_secs());
            Problem::new(StatusCode::GATEWAY_TIMEOUT, detail).into_response()
        }
    };
    tracing::debug!(%method, path, status = response.status().as_u16(), "administration");
    response
}
