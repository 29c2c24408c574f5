//! What a record is found by.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::key::{Key, Origin, hex};
use crate::Timestamp;

/// The longest scope that is stored in clear, in bytes; a longer one is stored as its hash.
pub const MAX_SCOPE_BYTES: usize = 512;

/// Whose key it is: the values of the rule's scope attributes, in the rule's order.
///
/// As text it is empty for no attribute, else each value with a `/` before it. Letters, digits, `-`,
/// `.`, `_` and `~` stand for themselves and every other byte is written as `%XX`, so that
/// `(a, b_c)` and `(a_b, c)` differ and the text can travel in a header and in SQL. A text of more
/// than 512 bytes is replaced by `#` and its SHA-256 in hex.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope(Box<str>);

impl Scope {
    /// From the attribute values.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        use fmt::Write as _;
        let mut text = String::new();
        for value in values {
            text.push('/');
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    text.push(char::from(byte));
                } else {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
        if text.len() > MAX_SCOPE_BYTES {
            let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
            text = format!("#{}", hex(&digest));
        }
        Self(text.into())
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a record is found by: one key means one intent inside one operation and scope.
///
/// The three texts are what stands in a store, in the `Tidegate-Operation`, `-Scope` and `-Key`
/// headers, and on an operator's command line. The scope of a derived key has `=` before it, which
/// keeps derived keys apart from those that clients choose.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    operation: Box<str>,
    scope: Box<str>,
    key: Box<str>,
}

impl RecordId {
    /// For a request.
    pub fn new(operation: &str, scope: &Scope, key: &Key) -> Self {
        let scope = match key.origin() {
            Origin::Sent => scope.0.clone(),
            Origin::Derived => format!("={}", scope.as_str()).into(),
        };
        Self { operation: operation.into(), scope, key: key.as_str().into() }
    }

    /// From the three texts as they are stored: for stores and operators.
    pub fn from_stored(operation: &str, scope: &str, key: &str) -> Self {
        Self { operation: operation.into(), scope: scope.into(), key: key.into() }
    }

    /// The operation.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The scope, as stored.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The key, as stored.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A key for one step of the execution, to hand on to a dependency: the same in every attempt
    /// at this intent, and another one when the same key starts a new intent later.
    pub(super) fn key_for(&self, first_claimed_at: Timestamp, step: &str) -> Key {
        // Milliseconds: every store keeps them, and none keeps less.
        let since = first_claimed_at.as_millis().to_be_bytes();
        let parts: [&[u8]; 5] =
            [self.operation.as_bytes(), self.scope.as_bytes(), self.key.as_bytes(), &since, step.as_bytes()];
        Key::derived(parts)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {:?}, scope {:?}, key {:?}", self.operation, self.scope, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_injective_and_readable() {
        let text = |values: &[&str]| Scope::of(values.iter().copied()).as_str().to_owned();
        for (values, expected) in [
            (vec![], ""),
            (vec![""], "/"),
            (vec!["", ""], "//"),
            (vec!["acme"], "/acme"),
            (vec!["a", "b_c"], "/a/b_c"),
            (vec!["a_b", "c"], "/a_b/c"),
            (vec!["a/b"], "/a%2Fb"),
            (vec!["100% é"], "/100%25%20%C3%A9"),
        ] {
            assert_eq!(text(&values), expected, "{values:?}");
        }
        let long = "x".repeat(511);
        assert_eq!(text(&[&long]), format!("/{long}"));
        let hashed = text(&[&"x".repeat(512)]);
        assert!(hashed.starts_with('#') && hashed.len() == 65, "{hashed}");
        assert_ne!(hashed, text(&[&"y".repeat(512)]));
    }

    #[test]
    fn i24_one_key_in_two_operations_is_two_records() {
        let scope = Scope::of(["acme"]);
        let key = Key::from_text("k1").unwrap();
        assert_ne!(RecordId::new("charge", &scope, &key), RecordId::new("refund", &scope, &key));
        assert_eq!(RecordId::new("charge", &scope, &key), RecordId::from_stored("charge", "/acme", "k1"));
    }

    #[test]
    fn derived_and_sent_keys_have_records_of_their_own() {
        let scope = Scope::of([]);
        let derived = Key::derived([b"sku".as_slice()]);
        let sent = Key::from_text(derived.as_str()).unwrap();
        let ids = [RecordId::new("buy", &scope, &derived), RecordId::new("buy", &scope, &sent)];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids[0].scope(), "=");
    }

    #[test]
    fn a_record_is_named_by_its_three_texts() {
        let id = RecordId::from_stored("charge", "/acme", "k1");
        assert_eq!((id.operation(), id.scope(), id.key()), ("charge", "/acme", "k1"));
        assert_eq!(id.to_string(), r#"operation "charge", scope "/acme", key "k1""#);
    }

    #[test]
    fn step_keys_are_stable_within_an_intent() {
        let id = RecordId::from_stored("charge", "/acme", "k1");
        let at = Timestamp::from_secs(1000);
        assert_eq!(id.key_for(at, "hold"), id.key_for(at, "hold"));
        assert_ne!(id.key_for(at, "hold"), id.key_for(at, "capture"));
        assert_ne!(id.key_for(at, "hold"), id.key_for(Timestamp::from_secs(1001), "hold"));
    }
}
