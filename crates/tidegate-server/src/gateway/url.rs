//! Where an upstream is.

use std::fmt;
use std::str::FromStr;

use http::HeaderValue;
use http::uri::{Scheme, Uri};

/// `http://HOST[:PORT]`, without a path. The port is 80 unless written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    host: String,
    port: u16,
    authority: String,
}

/// Why a text is no upstream URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is no URL at all.
    #[error("{0:?} is not a URL; write http://HOST:PORT, for example http://127.0.0.1:9000")]
    Malformed(String),
    /// Another scheme than http.
    #[error("{0:?}: upstreams are reached by plain http; write http://HOST:PORT")]
    Scheme(String),
    /// It has a path, a query or user information.
    #[error("{0:?}: only http://HOST:PORT is allowed here, without path, query or user")]
    Extra(String),
}

impl UpstreamUrl {
    /// The host name or address to connect to; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `HOST` or `HOST:PORT`, as written.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// As a `Host` header.
    pub(super) fn host_header(&self) -> HeaderValue {
        // An authority that parsed has only characters that a header may have.
        HeaderValue::from_str(&self.authority).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

impl FromStr for UpstreamUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let uri: Uri = text.parse().map_err(|_| UrlError::Malformed(text.to_owned()))?;
        let Some(scheme) = uri.scheme() else { return Err(UrlError::Malformed(text.to_owned())) };
        if *scheme != Scheme::HTTP {
            return Err(UrlError::Scheme(text.to_owned()));
        }
        let Some(authority) = uri.authority() else { return Err(UrlError::Malformed(text.to_owned())) };
        let extra = uri.path_and_query().is_some_and(|path| path.as_str() != "/");
        if extra || authority.as_str().contains('@') {
            return Err(UrlError::Extra(text.to_owned()));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        // `http` reads a port that is no number from 0 to 65535 as none at all.
        let written_port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match (authority.port_u16(), written_port) {
            (Some(port), _) if port > 0 => port,
            (None, "") => 80,
            _ => return Err(UrlError::Malformed(text.to_owned())),
        };
        if host.is_empty() {
            return Err(UrlError::Malformed(text.to_owned()));
        }
        Ok(Self { host: host.to_owned(), port, authority: authority.as_str().to_owned() })
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

#[cfg(test)]
mod tests;
