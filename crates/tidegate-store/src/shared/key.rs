//! Redis keys that a person can read and that no other counter has.
//!
//! ```text
//! tg:{pay-per-channel|channel=3:app|user=-}:token_bucket
//! ```
//!
//! Between the braces, which are what Redis Cluster chooses the slot by: the rule's id and each attribute
//! of its key with its value, as the value's length in bytes, a colon and its text. A missing value is
//! `-`. Bytes that are no printable ASCII, and the marks that the key itself uses, are written as `%XX`.
//! What comes out longer than [`MAX_TAG`] is cut, and `~` and 128 bits of the whole's SHA-256 put behind.
//! After the braces: the algorithm and, where there is one, its window.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::numbers::Numbers;

/// Bytes between the braces at most.
pub const MAX_TAG: usize = 200;
/// What every key begins with.
const PREFIX: &str = "tg:";
/// Bytes of the hash that a cut key carries.
const HASH_BYTES: usize = 16;

/// What the keys of a rule's counters have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    rule: String,
    attributes: Box<[String]>,
}

/// The Redis keys of one counter, and of what is kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey(String);

impl KeySpace {
    /// For the rule `id`, with counters by the values of `attributes`.
    pub fn new<A: AsRef<str>>(id: &str, attributes: &[A]) -> Self {
        let mut rule = String::new();
        escape(&mut rule, id);
        let escaped = attributes.iter().map(|name| {
            let mut text = String::new();
            escape(&mut text, name.as_ref());
            text
        });
        Self { rule, attributes: escaped.collect() }
    }

    /// The key of the counter with these values, in the order of the attributes, that counts by `numbers`.
    pub fn counter<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a str>>,
        numbers: &Numbers,
    ) -> CounterKey {
        let mut tag = self.rule.clone();
        let mut names = self.attributes.iter();
        for value in values {
            tag.push('|');
            tag.push_str(names.next().map_or("", String::as_str));
            tag.push('=');
            match value {
                None => tag.push('-'),
                Some(value) => {
                    // Writing to a string does not fail.
                    let _ = write!(tag, "{}:", value.len());
                    escape(&mut tag, value);
                }
            }
        }
        shorten(&mut tag);
        CounterKey(format!("{PREFIX}{{{tag}}}:{}", numbers.suffix()))
    }

    /// The same from values that [`tidegate_core::limit::key::encode`] has made one key of. `None` when
    /// these bytes are not its work.
    pub fn counter_of(&self, mut key: &[u8], numbers: &Numbers) -> Option<CounterKey> {
        let mut values = Vec::with_capacity(self.attributes.len());
        while !key.is_empty() {
            let (value, rest) = split(key)?;
            values.push(value);
            key = rest;
        }
        Some(self.counter(values, numbers))
    }
}

impl CounterKey {
    /// The counter's own key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What Redis Cluster chooses its slot by.
    pub fn tag(&self) -> &str {
        let inside = self.0.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        inside.map_or(&self.0, |(tag, _)| tag)
    }

    /// Where reserved calls are remembered. It lies in the same slot.
    pub fn reservations(&self) -> String {
        format!("{}:reserved", self.0)
    }
}

/// Cuts what is too long, and tells it apart by its hash.
fn shorten(tag: &mut String) {
    if tag.len() <= MAX_TAG {
        return;
    }
    let hash = Sha256::digest(tag.as_bytes());
    // All of it is ASCII, and a part of an escape does no harm.
    tag.truncate(MAX_TAG - 1 - 2 * HASH_BYTES);
    tag.push('~');
    for byte in hash.iter().take(HASH_BYTES) {
        let _ = write!(tag, "{byte:02x}");
    }
}

fn escape(text: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'%' | b'{' | b'}' | b'|' | b'=' | b'~' => {
                let _ = write!(text, "%{byte:02X}");
            }
            0x21..=0x7e => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
}

/// The first value of an encoded key, and what follows it.
fn split(key: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let mut length = 0_u64;
    let mut at = 0;
    loop {
        let byte = *key.get(at)?;
        length |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let rest = key.get(at..)?;
    let Some(length) = length.checked_sub(1) else {
        return Some((None, rest));
    };
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((Some(std::str::from_utf8(value).ok()?), rest))
}
