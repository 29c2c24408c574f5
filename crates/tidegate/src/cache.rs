//! The last good answers, for `fallback: [ { cache: … } ]`: what a resource said when its dependency
//! was still there.
//!
//! This is no HTTP cache: it never answers while the dependency can be asked. What it keeps and hands
//! out obeys RFC 9111 all the same, as a shared cache that was disconnected from its origin.

mod lru;
mod storable;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AGE, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use parking_lot::Mutex;
use tidegate_core::Timestamp;

use crate::Body;
use lru::Lru;
pub use storable::{NotStored, Storable, examine};

/// `Cache-Status`, RFC 9211.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Answers.
    pub entries: usize,
    /// Bytes of all answers together, with their headers and keys.
    pub bytes: usize,
    /// Bytes of one answer's body. Bodies that are longer need not be collected.
    pub body: usize,
}

impl Default for Limits {
    /// 10,000 answers, 64 MiB in all, 1 MiB each.
    fn default() -> Self {
        Self { entries: 10_000, bytes: 64 << 20, body: 1 << 20 }
    }
}

/// Whose answer to what it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(Arc<[u8]>);

/// The last good answers, bounded; the one used longest ago goes first.
#[derive(Debug)]
pub struct Cache {
    limits: Limits,
    answers: Mutex<Lru<Key, Arc<Stored>>>,
}

#[derive(Debug)]
struct Stored {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    storable: Storable,
    at: Timestamp,
}

/// A last good answer that may be given.
#[derive(Clone, Debug)]
pub struct Hit {
    stored: Arc<Stored>,
    age: Duration,
}

impl Key {
    /// The key of a request. `target` is its path and query as forwarded, and `attributes` are the
    /// resource's, in document order. The host belongs to it, because one resource may have several.
    pub fn request<'a>(
        resource: &str,
        method: &http::Method,
        host: &str,
        target: &str,
        subject: Option<&str>,
        attributes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Self {
        let what = [Some(resource), Some(method.as_str()), Some(host), Some(target)];
        Self::of(0, &what, subject, attributes)
    }

    /// The key of a library call.
    pub fn call<'a>(
        resource: &str,
        subject: Option<&str>,
        attributes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Self {
        Self::of(1, &[Some(resource)], subject, attributes)
    }

    /// Each part with its length, so that no two lists of parts make one key; absent differs from
    /// empty.
    fn of<'a>(
        kind: u8,
        what: &[Option<&str>],
        subject: Option<&str>,
        attributes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Self {
        let mut key = vec![kind];
        let mut push = |part: Option<&str>| match part {
            None => key.push(0),
            Some(part) => {
                key.push(1);
                key.extend_from_slice(&(part.len() as u64).to_le_bytes());
                key.extend_from_slice(part.as_bytes());
            }
        };
        for part in what {
            push(*part);
        }
        push(subject);
        for (name, value) in attributes {
            push(Some(name));
            push(value);
        }
        Self(key.into())
    }
}

impl Cache {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self { limits, answers: Mutex::new(Lru::new(limits.entries, limits.bytes)) }
    }

    /// How long a body may be, in bytes, to be worth collecting.
    pub fn most_body(&self) -> usize {
        self.limits.body
    }

    /// Keeps an answer that [`examine`] found fit, in the place of an older one.
    pub fn put(
        &self,
        key: Key,
        storable: Storable,
        head: &response::Parts,
        body: Bytes,
        now: Timestamp,
    ) -> Result<(), NotStored> {
        if body.len() > self.limits.body {
            return Err(NotStored::TooLarge { limit: self.limits.body });
        }
        let headers = storable::kept_headers(&head.headers, storable.head);
        let size = key.0.len()
            + body.len()
            + storable.size()
            + headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>();
        let stored = Arc::new(Stored { status: head.status, headers, body, storable, at: now });
        if self.answers.lock().put(key, stored, size) {
            Ok(())
        } else {
            Err(NotStored::TooLarge { limit: self.limits.bytes })
        }
    }

    /// The last good answer to a request with these headers, whatever its age; the caller compares
    /// [`Hit::age`] with the `ttl` of its rule.
    pub fn get(&self, key: &Key, request: &HeaderMap, now: Timestamp) -> Option<Hit> {
        let stored = Arc::clone(self.answers.lock().get(key)?);
        Self::hit(stored, request, now)
    }

    /// The same without effect: the answer is not kept any longer for it.
    pub fn peek(&self, key: &Key, request: &HeaderMap, now: Timestamp) -> Option<Hit> {
        let stored = Arc::clone(self.answers.lock().peek(key)?);
        Self::hit(stored, request, now)
    }

    fn hit(stored: Arc<Stored>, request: &HeaderMap, now: Timestamp) -> Option<Hit> {
        let age = stored.storable.received_age.saturating_add(now.since(stored.at));
        let usable = stored.storable.usable_for.is_none_or(|span| age < span);
        (usable && stored.storable.answers(request)).then_some(Hit { stored, age })
    }

    /// How many answers there are, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        self.answers.lock().size()
    }
}

/// With the default limits.
impl Default for Cache {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Hit {
    /// How old the answer is: what it was when it came, and the time since.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// The answer, with `Age` (RFC 9111, 5.1) and `Cache-Status` (RFC 9211); `ttl` is what the rule
    /// allows.
    pub fn respond(self, ttl: Duration) -> Response<Body> {
        let mut response = Response::new(Body::full(self.stored.body.clone()));
        *response.status_mut() = self.stored.status;
        let headers = response.headers_mut();
        headers.clone_from(&self.stored.headers);
        headers.insert(AGE, HeaderValue::from(self.age.as_secs()));
        // RFC 9211, 2: the member of the cache nearest to the client comes last; `hit` and `fwd`
        // exclude each other, and `ttl` is what is left of the lifetime that this cache grants.
        let left = ttl.saturating_sub(self.age).as_secs();
        let status = format!("tidegate; hit; ttl={left}; detail=breaker-open");
        if let Ok(status) = HeaderValue::from_str(&status) {
            headers.append(CACHE_STATUS, status);
        }
        if !self.stored.storable.head {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(self.stored.body.len()));
        }
        response
    }
}

#[cfg(test)]
mod tests;
