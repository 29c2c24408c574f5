//! The normal form of a host, as rules and requests name it.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Longest host that can match a rule, in bytes: the longest DNS name and its final dot.
pub const MAX_HOST_BYTES: usize = 254;

/// The host of a `Host` field or an authority: lower case, without user information, port and final dot.
///
/// IPv6 literals keep their brackets and get the one spelling of RFC 5952. What is no host at all comes
/// back in lower case and matches no rule that names a host. Borrowed when nothing has to be rewritten.
pub fn normalise(host: &str) -> Cow<'_, str> {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if let Some(literal) = host.strip_prefix('[') {
        let address = literal.split_once(']').map_or(literal, |(address, _)| address);
        return match address.parse::<Ipv6Addr>() {
            Ok(address) => Cow::Owned(format!("[{address}]")),
            Err(_) => lower(host),
        };
    }
    let host = match host.split_once(':') {
        // More colons: an address without its brackets, which is no host.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    };
    lower(host.strip_suffix('.').unwrap_or(host))
}

fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (host, expected) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.COM", "api.example.com"),
            ("api.example.com:8080", "api.example.com"),
            ("api.example.com:", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("api.example.com.:443", "api.example.com"),
            ("api.example.com..", "api.example.com."),
            ("user:pw@api.example.com:1", "api.example.com"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[::1]:8080", "[::1]"),
            ("[2001:DB8:0:0:0:0:0:1]", "[2001:db8::1]"),
            ("[::1", "[::1]"),
            ("[Nonsense]:1", "[nonsense]:1"),
            ("::1", "::1"),
            ("", ""),
            (".", ""),
            (":80", ""),
            ("É.example", "É.example"),
        ] {
            assert_eq!(normalise(host), expected, "{host}");
        }
        assert!(matches!(normalise("api.example.com:80"), Cow::Borrowed(_)));
    }
}
