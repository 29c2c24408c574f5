//! Headers that end at this hop, and those that tell the upstream who asked.

use std::io::Write as _;
use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Removes what is meant for this hop only (RFC 9110, 7.6.1), from a request or a response.
///
/// Kept, in a plain form: `TE: trailers`, and `Connection: upgrade` with `Upgrade` when `upgrade`
/// allows it. `Host` and `Content-Length` stay even when `Connection` names them: without them the
/// message would be another one. Returns whether an upgrade is left.
pub fn strip_hop_by_hop(headers: &mut HeaderMap, upgrade: bool) -> bool {
    // Most messages have none of these: look before touching anything.
    if !headers.keys().any(ends_here) {
        return false;
    }
    let mut named = Vec::new();
    let mut wants_upgrade = false;
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"upgrade") {
                wants_upgrade = true;
            } else if let Ok(name) = HeaderName::from_bytes(option)
                && name != HOST
                && name != CONTENT_LENGTH
            {
                named.push(name);
            }
        }
    }
    let trailers = headers
        .get_all(TE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"));
    let protocol =
        headers.get(UPGRADE).filter(|protocol| upgrade && wants_upgrade && !is_h2c(protocol)).cloned();

    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }

    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let options = match (&protocol, trailers) {
        (Some(_), true) => "upgrade, te",
        (Some(_), false) => "upgrade",
        (None, true) => "te",
        (None, false) => return false,
    };
    headers.insert(CONNECTION, HeaderValue::from_static(options));
    protocol.map(|protocol| headers.insert(UPGRADE, protocol)).is_some()
}

/// Removes from trailers what Tidegate says in headers: some services merge the two, and would take
/// another's word for ours.
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    let ours = |name: &HeaderName| {
        let name = name.as_str();
        name.strip_prefix("tidegate").is_some_and(|rest| rest.starts_with(['-', '_']))
            || name == "idempotent-replayed"
            || name == "x-request-id"
            || [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, VIA].iter().any(|one| name == one)
    };
    while let Some(name) = trailers.keys().find(|name| ours(name)).cloned() {
        trailers.remove(name);
    }
}

fn ends_here(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == TE
        || *name == UPGRADE
        || *name == PROXY_AUTHENTICATE
        || *name == PROXY_AUTHORIZATION
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// An upgrade to HTTP/2 is never passed on: what came after it would run past every gate.
fn is_h2c(protocol: &HeaderValue) -> bool {
    protocol
        .as_bytes()
        .split(|byte| *byte == b',')
        .any(|name| name.trim_ascii().to_ascii_lowercase().starts_with(b"h2"))
}

/// Headers that a request gets on its way to the upstream: those of [`add_forwarded`], the request id
/// and the flags.
const ADDED: usize = 6;
/// The longest text of an address: eight groups of four digits.
const MAX_IP_TEXT: usize = 39;

/// The text of an address.
fn ip_text(ip: IpAddr, text: &mut [u8; MAX_IP_TEXT]) -> &[u8] {
    let mut rest = &mut text[..];
    // Writing fails only where there is no room.
    let _ = write!(rest, "{ip}");
    let left = rest.len();
    &text[..MAX_IP_TEXT - left]
}

/// Tells the upstream who asked: `X-Forwarded-For` (the peer is appended), `X-Forwarded-Host`,
/// `X-Forwarded-Proto`, and `Via` (RFC 9110, 7.6.3).
///
/// With no trusted hop in front, host and protocol are what this gateway saw, whatever the client
/// claims; with one, what that hop said is kept.
pub fn add_forwarded(headers: &mut HeaderMap, peer: IpAddr, trusted_hops: u8) {
    // At once, instead of growing twice on the way to the upstream.
    headers.reserve(ADDED);
    let mut text = [0; MAX_IP_TEXT];
    let peer = ip_text(peer.to_canonical(), &mut text);
    let value = if headers.contains_key(&FORWARDED_FOR) {
        let mut list = Vec::with_capacity(64);
        for value in headers.get_all(&FORWARDED_FOR) {
            if let Ok(value) = value.to_str().map(str::trim)
                && !value.is_empty()
            {
                list.extend_from_slice(value.as_bytes());
                list.extend_from_slice(b", ");
            }
        }
        list.extend_from_slice(peer);
        HeaderValue::try_from(list)
    } else {
        HeaderValue::from_bytes(peer)
    };
    if let Ok(value) = value {
        headers.insert(FORWARDED_FOR, value);
    }
    if trusted_hops == 0 || !headers.contains_key(&FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if trusted_hops == 0 || !headers.contains_key(&FORWARDED_HOST) {
        match headers.get(HOST).cloned() {
            Some(host) => headers.insert(FORWARDED_HOST, host),
            None => headers.remove(&FORWARDED_HOST),
        };
    }
    headers.append(VIA, HeaderValue::from_static("1.1 tidegate"));
}

#[cfg(test)]
mod tests;
