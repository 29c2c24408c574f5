//! What one idempotency record holds, and how long it counts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fingerprint::Fingerprint;
use super::key::hex;
use crate::Timestamp;
use crate::rule::model::{CommitMode, OnUnknown};
use crate::token::is_token;

/// The random name of one attempt. Whoever makes one draws 128 random bits for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub [u8; 16]);

impl Owner {
    /// From 32 hexadecimal digits, as [`fmt::Display`] writes it.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|bits| Self(bits.to_be_bytes()))
    }
}

/// 32 lower-case hexadecimal digits: the form in stores and headers.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

/// What every later statement of an attempt is conditional on, beside `PROCESSING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Grows with every claim for as long as the row lives; from 1.
    pub token: u64,
    /// The attempt. It differs even where a row was purged and its tokens start again.
    pub owner: Owner,
}

/// What became of the latest attempt so far.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// It runs, or ran and was never heard of again.
    Processing,
    /// It ended with this result.
    Finished(Arc<StoredResponse>),
    /// It ended without effect; the next one may execute.
    Released,
}

impl Stage {
    /// Its name. A finished record's depends on its result.
    pub fn state(&self) -> State {
        match self {
            Self::Processing => State::Processing,
            Self::Finished(response) => response.state(),
            Self::Released => State::Released,
        }
    }
}

/// The name of a [`Stage`], as it is stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// [`Stage::Processing`].
    Processing,
    /// [`Stage::Finished`] with a status below 400.
    Succeeded,
    /// [`Stage::Finished`] with a status from 400.
    Failed,
    /// [`Stage::Released`].
    Released,
}

impl State {
    /// As it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "PROCESSING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Released => "RELEASED",
        }
    }

    /// Reads [`State::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Processing, Self::Succeeded, Self::Failed, Self::Released]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// The parts of a rule that a record keeps from its claim: these, not the rule now in force, judge
/// every retry. (The fingerprint keeps its fields itself.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When it is completed.
    pub commit: CommitMode,
    /// What a retry gets when the lease is over and the outcome is not known.
    pub on_unknown: OnUnknown,
    /// How long it counts after its last transition. Renewals are not transitions.
    pub retention: Duration,
    /// For a derived key: how long it means one intent, from the first claim.
    pub window: Option<Duration>,
}

impl Policy {
    /// Whether effects are bound to the record's token, so that a takeover cannot double them.
    pub const fn is_fenced(&self) -> bool {
        matches!(self.commit, CommitMode::WithEffects | CommitMode::OneTransaction)
    }

    /// Whether a retry may take over once the lease is over.
    pub const fn may_take_over(&self) -> bool {
        self.is_fenced() || matches!(self.on_unknown, OnUnknown::Retry)
    }
}

/// What the first try at an intent saw, so that later tries see the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstTry {
    /// The rule set version.
    pub version: u64,
    /// Its flag results, in a form that only the pipeline reads.
    pub flags: Arc<str>,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where it stands, and the result if there is one.
    pub stage: Stage,
    /// Who holds it, or held it last.
    pub fence: Fence,
    /// What must be equal on a retry.
    pub fingerprint: Fingerprint,
    /// What judges retries.
    pub policy: Policy,
    /// What the first try saw.
    pub first: FirstTry,
    /// Claims of this intent so far, from 1.
    pub attempts: u32,
    /// When this intent was first claimed.
    pub first_claimed_at: Timestamp,
    /// When the latest attempt claimed it.
    pub claimed_at: Timestamp,
    /// No renewal reaches beyond this.
    pub execution_until: Timestamp,
    /// The latest attempt holds the record before this.
    pub lease_until: Timestamp,
    /// The last transition: claim, completion, release, resolution.
    pub changed_at: Timestamp,
}

impl Record {
    /// Whether an attempt holds it.
    pub fn is_leased(&self, now: Timestamp) -> bool {
        self.stage == Stage::Processing && now < self.lease_until
    }

    /// When it stops to count, unless it is leased then. A derived key's window ends a finished
    /// record; a `PROCESSING` one outlives it, and is kept for the longer of window and retention.
    pub fn expires_at(&self) -> Timestamp {
        let retained = self.changed_at + self.policy.retention;
        match self.policy.window.map(|window| self.first_claimed_at + window) {
            Some(end) if matches!(self.stage, Stage::Finished(_)) => end,
            Some(end) => retained.max(end),
            None => retained,
        }
    }

    /// Whether it counts no longer: a claim starts anew, and a purge may delete it.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at() && !self.is_leased(now)
    }
}

/// Headers that no replay repeats, whatever the rule lists: they belong to one exchange or one
/// client, or are made anew for each answer.
const NEVER_REPLAYED: &[&str] = &[
    "age",
    "connection",
    "content-length",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "set-cookie",
    "set-cookie2",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// The same by how they begin.
const NEVER_REPLAYED_PREFIXES: &[&str] = &["ratelimit-", "x-ratelimit", "tidegate-"];

/// A result as it is kept: what a replay says again, byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredResponse {
    status: u16,
    headers: Vec<(Box<str>, Box<[u8]>)>,
    body: Option<Bytes>,
}

/// Why a response cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// Only a final status is a result.
    #[error("{status} is no final status: a result has one from 200 to 599")]
    Status {
        /// What came.
        status: u16,
    },
    /// An empty name, or one with other than token characters.
    #[error("{name:?} is no header name")]
    Name {
        /// What came.
        name: String,
    },
    /// CR, LF or NUL.
    #[error("the value of header {name} contains a line break or a NUL")]
    Value {
        /// Whose value.
        name: String,
    },
}

impl StoredResponse {
    /// From what is to be kept, as it stands. `body: None` means that it was too large to keep.
    pub fn new<N: AsRef<str>, V: AsRef<[u8]>>(
        status: u16,
        headers: impl IntoIterator<Item = (N, V)>,
        body: Option<Bytes>,
    ) -> Result<Self, ResponseError> {
        if !(200..600).contains(&status) {
            return Err(ResponseError::Status { status });
        }
        let mut kept = Vec::new();
        for (name, value) in headers {
            let (name, value) = (name.as_ref(), value.as_ref());
            if !is_token(name) {
                return Err(ResponseError::Name { name: name.to_owned() });
            }
            if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                return Err(ResponseError::Value { name: name.to_owned() });
            }
            kept.push((name.into(), value.into()));
        }
        Ok(Self { status, headers: kept, body })
    }

    /// From a response: only the headers named in `replay_headers` (lower case), each value on its
    /// own and in order, without those that belong to one exchange (`Set-Cookie`, `Date`,
    /// hop-by-hop fields, `RateLimit`…) even if they are listed.
    pub fn keep<'a>(
        status: u16,
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        body: Option<Bytes>,
        replay_headers: &[String],
    ) -> Result<Self, ResponseError> {
        let kept = headers.into_iter().filter(|(name, _)| {
            replay_headers.iter().any(|listed| listed.eq_ignore_ascii_case(name)) && is_replayable(name)
        });
        Self::new(status, kept, body)
    }

    /// 200 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Names and values, in order; a name may come several times.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The body; `None` when it was too large to keep.
    pub fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// The state of a record that ends with it.
    pub fn state(&self) -> State {
        if self.status < 400 { State::Succeeded } else { State::Failed }
    }

    /// Bytes in memory, roughly: for stores that bound them.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        headers + self.body.as_ref().map_or(0, Bytes::len)
    }

    /// The headers in their stored form: `name: value` lines, each ended by CRLF. One space stands
    /// after the colon, and every other byte of the value is kept.
    pub fn headers_to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in &self.headers {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// From the stored form; `None` when it is none.
    pub fn from_stored(status: u16, headers: &[u8], body: Option<Bytes>) -> Option<Self> {
        let mut pairs = Vec::new();
        let mut rest = headers;
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
            let (line, tail) = (&rest[..end], &rest[end + 2..]);
            let colon = line.windows(2).position(|pair| pair == b": ")?;
            pairs.push((std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 2..]));
            rest = tail;
        }
        Self::new(status, pairs, body).ok()
    }
}

/// Headers can name tenants and bodies hold anything: neither is for logs.
impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(Bytes::len);
        write!(f, "StoredResponse({}, {} headers, body {body:?})", self.status, self.headers.len())
    }
}

/// Whether a replay may repeat a header of this name.
pub(crate) fn is_replayable(name: &str) -> bool {
    let starts =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    !NEVER_REPLAYED.iter().any(|never| never.eq_ignore_ascii_case(name))
        && !NEVER_REPLAYED_PREFIXES.iter().any(starts)
}

#[cfg(test)]
mod tests;
