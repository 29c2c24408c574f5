//! Who may use the administration: programs and people on this machine, and no web page.
//!
//! A page that a browser on this machine has open can send requests to the loopback interface. It can
//! make them name another host (DNS rebinding: its own name, pointed at 127.0.0.1, with which it could
//! read the answers), or name ours from another origin. Both tell on themselves: in `Host`, and in
//! `Origin` and `Sec-Fetch-Site`, which no page can forge.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::problem::Problem;

/// The other end of the connection, as the port puts it into each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Lets a request through, or says why not.
pub(super) async fn admit(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    match check(peer, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => not_for_caches(problem.into_response()).await,
    }
}

/// Answers hold keys and attributes, and are out of date at once.
pub(super) async fn not_for_caches(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn check(peer: Option<IpAddr>, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |detail: &str| Err(Problem::new(StatusCode::FORBIDDEN, detail));
    if !peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
        return refuse("the administration is for this machine only; use an SSH tunnel");
    }
    let Some(host) = host(uri, headers) else {
        return Err(Problem::bad_request("a request needs exactly one Host header with a valid host"));
    };
    if !is_loopback(&host) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the administration answers to localhost and loopback addresses only",
        ));
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return refuse("requests from web pages of other origins are refused");
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    let own = |origin: &HeaderValue| {
        let authority = origin.as_bytes().strip_prefix(b"http://");
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str().as_bytes()))
    };
    if !origins.all(own) {
        return refuse("requests from web pages of other origins are refused");
    }
    Ok(())
}

/// Whom the client meant: the target's authority goes before `Host` (RFC 9112, 3.2.2).
fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next()?, hosts.next());
    let named = Authority::try_from(first.as_bytes()).ok();
    let host = uri.authority().cloned().or(named)?;
    (second.is_none() && !host.as_str().contains('@')).then_some(host)
}

fn is_loopback(host: &Authority) -> bool {
    let name = host.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(peer: &str, target: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        match check(Some(peer.parse().unwrap()), &target.parse().unwrap(), &map) {
            Ok(()) => 200,
            Err(problem) => problem.status().as_u16(),
        }
    }

    #[test]
    fn only_this_machine_and_no_web_page() {
        let local = "127.0.0.1";
        for host in
            ["localhost", "LOCALHOST:9080", "127.0.0.1:9080", "127.9.9.9", "[::1]:9080", "[::ffff:127.0.0.1]"]
        {
            assert_eq!(checked(local, "/v1/rules", &[("host", host)]), 200, "{host}");
        }
        for (peer, target, headers, expected) in [
            ("::1", "/", &[("host", "localhost:1")][..], 200),
            ("::ffff:127.0.0.1", "/", &[("host", "localhost:1")], 200),
            ("192.0.2.1", "/", &[("host", "localhost:1")], 403),
            // Rebinding.
            (local, "/", &[("host", "attacker.example:9080")], 421),
            (local, "/", &[("host", "localhost.attacker.example")], 421),
            (local, "/", &[("host", "127.0.0.1.attacker.example")], 421),
            (local, "/", &[("host", "192.0.2.1")], 421),
            (local, "/", &[("host", "0.0.0.0:9080")], 421),
            (local, "http://attacker.example/", &[("host", "localhost")], 421),
            (local, "/", &[], 400),
            (local, "/", &[("host", "localhost"), ("host", "localhost")], 400),
            (local, "/", &[("host", "a@localhost")], 400),
            (local, "/", &[("host", "a b")], 400),
            // Cross-site.
            (local, "/", &[("host", "localhost:1"), ("sec-fetch-site", "same-origin")], 200),
            (local, "/", &[("host", "localhost:1"), ("sec-fetch-site", "none")], 200),
            (local, "/", &[("host", "localhost:1"), ("sec-fetch-site", "cross-site")], 403),
            (local, "/", &[("host", "localhost:1"), ("sec-fetch-site", "same-site")], 403),
            (local, "/", &[("host", "localhost:1"), ("origin", "http://localhost:1")], 200),
            (local, "/", &[("host", "localhost:1"), ("origin", "http://localhost:2")], 403),
            (local, "/", &[("host", "localhost:1"), ("origin", "https://localhost:1")], 403),
            (local, "/", &[("host", "localhost:1"), ("origin", "null")], 403),
            (local, "/", &[("host", "localhost:1"), ("origin", "http://attacker.example")], 403),
        ] {
            assert_eq!(checked(peer, target, headers), expected, "{peer} {target} {headers:?}");
        }
    }
}
