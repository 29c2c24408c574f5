//! Whether two requests with one key are the same request.
//!
//! Each field is hashed on its own, so that a mismatch can say which fields differ without anyone
//! having kept their values.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::key::Key;
use crate::Attributes;
use crate::rule::model::FingerprintPart;

/// Bytes kept of each field's SHA-256. 128 bits: no two requests of an honest client meet, and who
/// spends 2^64 hashes to make two of his own meet gets the first one's answer.
const HASH_BYTES: usize = 16;
/// First byte of the stored form.
const FORMAT: u8 = 1;

/// What fingerprints and derived keys are made of.
pub struct Request<'a> {
    /// As received; compared with its case.
    pub method: &'a str,
    /// The normalised path.
    pub path: &'a str,
    /// The raw query without its `?`; `None` when there is no `?`.
    pub query: Option<&'a str>,
    /// All bytes of the body.
    pub body: &'a [u8],
    /// The attributes of the resource.
    pub attributes: &'a (dyn Attributes + Sync),
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} {}, {} bytes)", self.method, self.path, self.body.len())
    }
}

/// Why a part of a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// It is not there (or null, or the body is no JSON), and a key must be made of it.
    #[error("{} is missing, and the idempotency key is derived from it", label(part))]
    Absent {
        /// The part.
        part: FingerprintPart,
    },
    /// An object or array where a scalar attribute is needed.
    #[error("{} is a JSON object or array: send a string, number or boolean", label(part))]
    Compound {
        /// The part.
        part: FingerprintPart,
    },
}

/// The hashes of the fields that must be equal on a retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(FingerprintPart, [u8; HASH_BYTES])>);

/// How a request compares with a stored fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal in every field.
    Same,
    /// These fields differ.
    Differs(Vec<FingerprintPart>),
    /// These fields of the stored one have not been computed for the request.
    NotComputed(Vec<FingerprintPart>),
}

impl Fingerprint {
    /// The fingerprint of `request` over `parts`.
    ///
    /// - Bodies count byte by byte; a [`FingerprintPart::BodyPointer`] without regard to key order and
    ///   spacing, numbers by their source text (`1.0` is not `1`), an absent value as itself, which is
    ///   not `null`. A body that is not JSON, or is nested deeper than 128, counts byte by byte here too.
    /// - An absent attribute equals an absent (or null) one only. A compound one is an error.
    pub fn of(parts: &[FingerprintPart], request: &Request<'_>) -> Result<Self, PartError> {
        let json = Json::parse(parts, request.body);
        let mut fields = Vec::with_capacity(parts.len());
        for part in parts {
            if fields.iter().all(|(known, _)| known != part) {
                let mut kept = [0; HASH_BYTES];
                kept.copy_from_slice(&digest(part, request, &json)?.0[..HASH_BYTES]);
                fields.push((part.clone(), kept));
            }
        }
        Ok(Self(fields))
    }

    /// The fields, in the rule's order.
    pub fn parts(&self) -> impl Iterator<Item = &FingerprintPart> {
        self.0.iter().map(|(part, _)| part)
    }

    /// Compares this, the stored one, with what is known of a request: `now`, over the fields of
    /// the rule in force, and `also`, over fields that only this one has. Further fields of the
    /// request do not count.
    pub fn compare(&self, now: &Self, also: &Self) -> Comparison {
        let mut differs = Vec::new();
        let mut missing = Vec::new();
        for (part, hash) in &self.0 {
            match now.get(part).or_else(|| also.get(part)) {
                None => missing.push(part.clone()),
                Some(other) if other != hash => differs.push(part.clone()),
                Some(_) => {}
            }
        }
        match (missing.is_empty(), differs.is_empty()) {
            (false, _) => Comparison::NotComputed(missing),
            (true, false) => Comparison::Differs(differs),
            (true, true) => Comparison::Same,
        }
    }

    fn get(&self, part: &FingerprintPart) -> Option<&[u8; HASH_BYTES]> {
        self.0.iter().find(|(known, _)| known == part).map(|(_, hash)| hash)
    }

    /// The stored form: a format byte, then for each field its kind, the length of its name in two
    /// bytes (big-endian), the name, and its hash. A name longer than 64 KiB is cut, which only
    /// changes how it is called.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        for (part, hash) in &self.0 {
            let (kind, name) = kind_and_name(part);
            let name = &name.as_bytes()[..name.floor_char_boundary(usize::from(u16::MAX))];
            bytes.push(kind);
            bytes.extend_from_slice(&(name.len() as u16).to_be_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(hash);
        }
        bytes
    }

    /// Reads the stored form; `None` when it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, mut rest) = bytes.split_first()? else { return None };
        let mut fields = Vec::new();
        while let Some((&kind, tail)) = rest.split_first() {
            let (length, tail) = tail.split_first_chunk::<2>()?;
            let (name, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let (hash, tail) = tail.split_first_chunk::<HASH_BYTES>()?;
            fields.push((part_of(kind, std::str::from_utf8(name).ok()?)?, *hash));
            rest = tail;
        }
        Some(Self(fields))
    }
}

/// A key made of `parts`. Every part must be there: absent and null are errors.
pub fn derive_key(parts: &[FingerprintPart], request: &Request<'_>) -> Result<Key, PartError> {
    let json = Json::parse(parts, request.body);
    let mut hashed = Vec::with_capacity(parts.len() * 2);
    for part in parts {
        let (digest, presence) = digest(part, request, &json)?;
        if presence == Presence::Absent {
            return Err(PartError::Absent { part: part.clone() });
        }
        // With its name: keys of another rule text are other keys.
        hashed.push(label(part).into_bytes());
        hashed.push(digest.to_vec());
    }
    Ok(Key::derived(hashed.iter().map(Vec::as_slice)))
}

/// How a part is called in rules and in problem details.
pub fn label(part: &FingerprintPart) -> String {
    let (_, name) = kind_and_name(part);
    match part {
        FingerprintPart::BodyPointer(pointer) => format!("body.{pointer}"),
        FingerprintPart::Attribute(_) => name.to_owned(),
        FingerprintPart::Method => "method".to_owned(),
        FingerprintPart::Path => "path".to_owned(),
        FingerprintPart::Query => "query".to_owned(),
        FingerprintPart::Body => "body".to_owned(),
    }
}

fn kind_and_name(part: &FingerprintPart) -> (u8, &str) {
    match part {
        FingerprintPart::Method => (b'm', ""),
        FingerprintPart::Path => (b'p', ""),
        FingerprintPart::Query => (b'q', ""),
        FingerprintPart::Body => (b'b', ""),
        FingerprintPart::BodyPointer(pointer) => (b'j', pointer),
        FingerprintPart::Attribute(name) => (b'a', name),
    }
}

fn part_of(kind: u8, name: &str) -> Option<FingerprintPart> {
    Some(match (kind, name) {
        (b'm', "") => FingerprintPart::Method,
        (b'p', "") => FingerprintPart::Path,
        (b'q', "") => FingerprintPart::Query,
        (b'b', "") => FingerprintPart::Body,
        (b'j', pointer) => FingerprintPart::BodyPointer(pointer.to_owned()),
        (b'a', name) => FingerprintPart::Attribute(name.to_owned()),
        _ => return None,
    })
}

// ---- hashing -------------------------------------------------------------------------------------

/// The body as JSON, read once and only when a part points into it.
enum Json {
    Value(serde_json::Value),
    /// Not JSON, or not asked for.
    Raw,
}

impl Json {
    fn parse(parts: &[FingerprintPart], body: &[u8]) -> Self {
        let asked = parts.iter().any(|part| matches!(part, FingerprintPart::BodyPointer(_)));
        // The parser stops at a depth of 128, which also bounds the recursion in `hash_json`.
        match asked.then(|| serde_json::from_slice(body)) {
            Some(Ok(value)) => Self::Value(value),
            _ => Self::Raw,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Absent,
    Present,
}

/// The hash of one part. The first byte hashed says what follows, so that absent, empty and null
/// are three things.
fn digest(
    part: &FingerprintPart,
    request: &Request<'_>,
    json: &Json,
) -> Result<([u8; 32], Presence), PartError> {
    let mut hash = Sha256::new();
    let mut presence = Presence::Present;
    let mut text = |bytes: Option<&[u8]>| {
        if let Some(bytes) = bytes {
            hash.update(b"+");
            hash.update(bytes);
        } else {
            hash.update(b"-");
            presence = Presence::Absent;
        }
    };
    match part {
        FingerprintPart::Method => text(Some(request.method.as_bytes())),
        FingerprintPart::Path => text(Some(request.path.as_bytes())),
        FingerprintPart::Query => text(request.query.map(str::as_bytes)),
        FingerprintPart::Body => text(Some(request.body)),
        FingerprintPart::Attribute(name) => match request.attributes.get(name) {
            None => text(None),
            Some(value) => match value.text() {
                Some(value) => text(Some(value.as_bytes())),
                None => return Err(PartError::Compound { part: part.clone() }),
            },
        },
        FingerprintPart::BodyPointer(pointer) => match json {
            Json::Value(document) => match document.pointer(pointer) {
                None => text(None),
                Some(value) => {
                    if value.is_null() {
                        presence = Presence::Absent;
                    }
                    hash.update(b"j");
                    hash_json(&mut hash, value);
                }
            },
            Json::Raw => {
                hash.update(b"r");
                hash.update(request.body);
                presence = Presence::Absent;
            }
        },
    }
    Ok((hash.finalize().into(), presence))
}

/// Feeds a value as one unambiguous sequence: a tag, then lengths before contents, and the members
/// of an object sorted by name.
fn hash_json(hash: &mut Sha256, value: &serde_json::Value) {
    fn text(hash: &mut Sha256, tag: u8, text: &str) {
        hash.update([tag]);
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    match value {
        serde_json::Value::Null => hash.update(b"n"),
        serde_json::Value::Bool(true) => hash.update(b"t"),
        serde_json::Value::Bool(false) => hash.update(b"f"),
        serde_json::Value::Number(number) => text(hash, b'#', number.as_str()),
        serde_json::Value::String(string) => text(hash, b'"', string),
        serde_json::Value::Array(items) => {
            hash.update(b"[");
            hash.update((items.len() as u64).to_be_bytes());
            for item in items {
                hash_json(hash, item);
            }
        }
        serde_json::Value::Object(members) => {
            hash.update(b"{");
            hash.update((members.len() as u64).to_be_bytes());
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, member) in sorted {
                text(hash, b':', name);
                hash_json(hash, member);
            }
        }
    }
}

#[cfg(test)]
mod tests;
