//! A client's request in the one form that the gates see, and what no gate ever sees.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Method, Request, Response, StatusCode, Version};
use tidegate::Body;

use super::headers::strip_hop_by_hop;

/// Why a request is refused before any gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// RFC 9112, 3.2: none, several, or one that is no host.
    #[error("a request needs exactly one Host header with a valid host")]
    Host,
    /// A tunnel would run past every gate.
    #[error("CONNECT is not supported")]
    Connect,
    /// RFC 9112, 3.2.4: `*` is for OPTIONS only.
    #[error("the request target is not a path")]
    Target,
}

impl Refusal {
    /// As an answer (RFC 9457).
    pub(super) fn response(self) -> Response<Body> {
        let status = match self {
            Self::Host | Self::Target => StatusCode::BAD_REQUEST,
            Self::Connect => StatusCode::NOT_IMPLEMENTED,
        };
        let title = status.canonical_reason().unwrap_or_default();
        let problem = format!(
            "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{},\"detail\":\"{self}\"}}",
            status.as_u16()
        );
        let mut response = Response::new(Body::full(Bytes::from(problem)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// Brings a request into the form that the gates and the upstream see: the target is a path (or `*`),
/// `Host` says whom the client meant, cookies are one header, and what was meant for this hop is gone.
/// Returns whether the request asks for an upgrade that may be passed on.
pub(crate) fn normalise<B>(request: &mut Request<B>) -> Result<bool, Refusal> {
    if request.method() == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    if let Some(authority) = request.uri().authority() {
        // Without a scheme it is the form that only CONNECT has (RFC 9112, 3.2.3).
        if request.uri().scheme().is_none() {
            return Err(Refusal::Target);
        }
        // Absolute form, or HTTP/2's `:authority`: it replaces Host (RFC 9112, 3.2.2; RFC 9113, 8.3.1).
        let host = host_of(authority).ok_or(Refusal::Host)?;
        request.headers_mut().insert(HOST, host);
        let path = request.uri().path_and_query().cloned();
        let path = path.filter(|path| path.as_str().starts_with(['/', '*']));
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    } else {
        let mut hosts = request.headers().get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(host), None) if is_host(host.as_bytes()) => {}
            // Only HTTP/1.0 may do without.
            (None, _) if request.version() < Version::HTTP_11 => {}
            _ => return Err(Refusal::Host),
        }
    }
    let path = request.uri().path();
    let whole_server = path == "*" && request.method() == Method::OPTIONS;
    if !path.starts_with('/') && !whole_server {
        return Err(Refusal::Target);
    }
    if request.version() == Version::HTTP_2 {
        join_cookies(request);
    }
    let may_upgrade = request.version() == Version::HTTP_11;
    Ok(strip_hop_by_hop(request.headers_mut(), may_upgrade))
}

fn host_of(authority: &Authority) -> Option<HeaderValue> {
    let text = authority.as_str();
    is_host(text.as_bytes()).then(|| HeaderValue::from_str(text).ok()).flatten()
}

/// User information has no place here (RFC 9110, 4.2.4).
fn is_host(bytes: &[u8]) -> bool {
    let name_end = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
    let (name, port) = bytes.split_at(name_end);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    // Nearly every host is a name or an IPv4 address with a port: no parser is needed to know that.
    (!name.is_empty() && name.iter().all(plain) && port.iter().skip(1).all(u8::is_ascii_digit))
        || Authority::try_from(bytes).is_ok_and(|authority| {
            let (text, name) = (authority.as_str(), authority.host());
            // The parser lets any port pass; it has digits only (RFC 3986, 3.2.3).
            let port = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default();
            !text.contains('@') && port.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// HTTP/2 may split cookies; HTTP/1.1 wants one header (RFC 9113, 8.2.3).
fn join_cookies<B>(request: &mut Request<B>) {
    let mut values = request.headers().get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (values.next(), values.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for value in std::iter::once(second).chain(values) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(value.as_bytes());
    }
    if let Ok(value) = HeaderValue::from_bytes(&joined) {
        request.headers_mut().insert(COOKIE, value);
    }
}

#[cfg(test)]
mod tests;
