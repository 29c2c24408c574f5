//! The innermost step: the call that all gates protect.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;

use crate::Body;

/// What a resource has unless its rule says otherwise.
const UNMATCHED_TIMEOUT: Duration = Duration::from_secs(30);

/// The names of the headers that [`Call::tell`] may set.
pub const TOLD: [&str; 4] = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "via"];

/// Makes the call: a gateway's upstream, or a service's own handler.
///
/// It never sends one request twice, and never retries: what may have been applied is for the
/// idempotency gate to judge.
pub trait Call: Clone + Send + Sync + 'static {
    /// Sends the request and returns once the response head is there, within `timeout`.
    fn call(
        &self,
        request: Request<Body>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Response<Body>, CallError>> + Send;

    /// Adds to a request's headers what only the one called is told about the client, under the names of
    /// [`TOLD`]. Asked once for each request that goes on, so that one that a limit refuses costs nothing;
    /// before anything reads these names.
    fn tell(&self, headers: &mut HeaderMap) {
        let _ = headers;
    }

    /// The host that a call for this request would go to, for breakers with a key by host.
    fn host(&self) -> &str;

    /// The timeout of a request that no resource matches.
    fn unmatched_timeout(&self) -> Duration {
        UNMATCHED_TIMEOUT
    }
}

/// On a request, as an extension: it is for [`Call::host`] and no other, because a breaker of that host
/// has let it through and hears how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneHost;

/// On a `101` response, as an extension: whoever carries the switched stream holds a clone until the
/// stream has ended, and with it the call's concurrency permits. A response without it gives them back
/// with its head.
#[derive(Clone, Default)]
pub struct Switched(Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>);

impl Switched {
    /// Holds `what` for as long as the stream lives.
    pub(crate) fn hold(&self, what: Arc<dyn Any + Send + Sync>) {
        *self.0.lock() = Some(what);
    }
}

impl fmt::Debug for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switched")
    }
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[error("{kind:?}: {message}")]
pub struct CallError {
    /// What broke.
    pub kind: CallErrorKind,
    /// Whether a byte of the request may have been written; if not, nothing can have been applied.
    pub sent: bool,
    /// For the log, never for the client.
    pub message: String,
}

impl CallError {
    /// The answer broke off, or cannot be understood, after the request was sent.
    pub(crate) fn broken(why: &dyn fmt::Display) -> Self {
        Self { kind: CallErrorKind::Reset, sent: true, message: why.to_string() }
    }
}

/// What broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// No connection.
    Connect,
    /// No response head within the timeout.
    Timeout,
    /// The connection broke, or what came was no HTTP.
    Reset,
    /// The request's own body could not be read to its end: the client's fault.
    RequestBody,
}
