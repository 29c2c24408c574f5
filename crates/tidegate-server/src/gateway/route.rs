//! From a listener's request to the gates, and from the gates to the upstream.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response};
use tidegate::{Body, Gates, pipeline};
use tidegate_core::rule::take;

use super::listener::Handler;
use super::upstream::Upstream;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Hands each request to the gates.
#[derive(Clone)]
pub struct Route {
    gates: Gates,
    upstream: Upstream,
    trusted_hops: usize,
}

impl Route {
    /// `trusted_hops`: how many proxies before this one each append their peer to `X-Forwarded-For`.
    pub fn new(gates: Gates, upstream: Upstream, trusted_hops: usize) -> Self {
        Self { gates, upstream, trusted_hops }
    }
}

impl Handler for Route {
    async fn handle(&self, mut request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        let client = client(request.headers(), peer.ip(), self.trusted_hops);
        forwarded(request.headers_mut(), peer.ip(), self.trusted_hops);
        // One host for the whole request: the one that its breaker is asked about is the one called.
        pipeline::handle(&self.gates, request, client, &self.upstream.pick()).await
    }
}

/// The address that the client is known by.
fn client(headers: &HeaderMap, peer: IpAddr, trusted_hops: usize) -> IpAddr {
    if trusted_hops == 0 {
        return peer;
    }
    let fields: Vec<&[u8]> = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    take::client_ip(peer, fields, trusted_hops)
}

/// Adds our peer to the trail. What nobody trusted wrote is not passed on as if it were true.
fn forwarded(headers: &mut HeaderMap, peer: IpAddr, trusted_hops: usize) {
    let mut trail = String::new();
    if trusted_hops > 0 {
        for field in headers.get_all(X_FORWARDED_FOR).iter().filter_map(|field| field.to_str().ok()) {
            trail.push_str(field);
            trail.push_str(", ");
        }
    }
    trail.push_str(&peer.to_canonical().to_string());
    if let Ok(trail) = HeaderValue::from_str(&trail) {
        headers.insert(X_FORWARDED_FOR, trail);
    }
    if trusted_hops == 0 || !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if trusted_hops == 0 || !headers.contains_key(X_FORWARDED_HOST) {
        match headers.get(HOST).cloned() {
            Some(host) => headers.insert(X_FORWARDED_HOST, host),
            None => headers.remove(X_FORWARDED_HOST),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn an_untrusted_trail_is_replaced_and_a_trusted_one_continued() {
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        for (hops, expected, proto) in [(0, "192.0.2.1", "http"), (1, "1.2.3.4, 192.0.2.1", "https")] {
            let mut headers =
                headers(&[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-proto", "https"), ("host", "a.example")]);
            forwarded(&mut headers, peer, hops);
            assert_eq!(headers["x-forwarded-for"], expected);
            assert_eq!(headers["x-forwarded-proto"], proto);
            assert_eq!(headers["x-forwarded-host"], "a.example");
        }
    }
}
