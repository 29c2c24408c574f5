//! From a listener's request to the gates, and from the gates to the upstream.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response};
use tidegate::call::{Call, CallError};
use tidegate::{Body, Gates, pipeline};
use tidegate_core::rule::take;

use super::headers::add_forwarded;
use super::listener::Handler;
use super::upstream::Upstream;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Hands each request to the gates.
#[derive(Clone)]
pub struct Route {
    gates: Gates,
    upstream: Upstream,
    trusted_hops: u8,
}

impl Route {
    /// `trusted_hops`: how many proxies before this one each append their peer to `X-Forwarded-For`.
    pub fn new(gates: Gates, upstream: Upstream, trusted_hops: u8) -> Self {
        Self { gates, upstream, trusted_hops }
    }
}

impl Handler for Route {
    fn handle(
        &self,
        request: Request<Body>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Body>> + Send {
        let client = client(request.headers(), peer.ip(), self.trusted_hops);
        // The host that a breaker of its own is asked about is the one called.
        let call =
            ForClient { upstream: self.upstream.pick(), peer: peer.ip(), trusted_hops: self.trusted_hops };
        async move { pipeline::handle(&self.gates, request, client, &call).await }
    }
}

/// The upstream, for the requests of one client.
#[derive(Clone)]
struct ForClient {
    upstream: Upstream,
    peer: IpAddr,
    trusted_hops: u8,
}

impl Call for ForClient {
    fn call(
        &self,
        request: Request<Body>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Response<Body>, CallError>> + Send {
        self.upstream.call(request, timeout)
    }

    fn tell(&self, headers: &mut HeaderMap) {
        add_forwarded(headers, self.peer, self.trusted_hops);
    }

    fn host(&self) -> &str {
        self.upstream.host()
    }
}

/// The address that the client is known by.
fn client(headers: &HeaderMap, peer: IpAddr, trusted_hops: u8) -> IpAddr {
    if trusted_hops == 0 {
        return peer;
    }
    let fields: Vec<&[u8]> = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    take::client_ip(peer, fields, usize::from(trusted_hops))
}
