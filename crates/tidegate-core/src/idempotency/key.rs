//! The idempotency key: what a client may send, and what is derived when it sends none.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The longest key, in bytes. It bounds what one client can make a store keep in its index.
pub const MAX_KEY_BYTES: usize = 255;

/// A valid key: 1 to 255 bytes of visible ASCII, compared byte by byte.
///
/// A derived key never equals one that came from outside, whatever the client sends: where the key
/// comes from is part of it (see [`RecordId`](super::RecordId)).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    text: Box<str>,
    origin: Origin,
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Named by the caller.
    Sent,
    /// Hashed from parts of the request.
    Derived,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No header at all. Whether that is an error is for the rule to say.
    #[error("there is no idempotency key: send one, of 1 to {MAX_KEY_BYTES} visible ASCII characters")]
    Missing,
    /// More than one header field.
    #[error("the idempotency key was sent {count} times: send exactly one")]
    Repeated {
        /// How many fields there were.
        count: usize,
    },
    /// Nothing between the quotes, or nothing at all.
    #[error("the idempotency key is empty: send 1 to {MAX_KEY_BYTES} visible ASCII characters")]
    Empty,
    /// Longer than [`MAX_KEY_BYTES`].
    #[error("the idempotency key is longer than {MAX_KEY_BYTES} characters: send a shorter one")]
    TooLong,
    /// A space, a control character, or a byte outside ASCII.
    #[error(
        "character {position} of the idempotency key is a space, a control character or not ASCII: use visible ASCII (0x21 to 0x7e) only"
    )]
    Invisible {
        /// Counted from 1, without the quotes.
        position: usize,
    },
    /// It starts with a quote and is not one quoted string.
    #[error(
        "the quoted idempotency key is malformed: write \"KEY\" with nothing after it, and escape only \\\" and \\\\"
    )]
    Quoting,
}

impl Key {
    /// Reads the values of every `Idempotency-Key` field of one request.
    ///
    /// The quoted form (a string of RFC 9651 section 3.3.3) and the bare form are the same key. A
    /// value that starts with `"` is always read as the quoted form. Parameters after it are
    /// refused, not ignored: nobody defines any, so two requests that differ there differ in a way
    /// that the sender meant.
    pub fn parse_header(values: &[&[u8]]) -> Result<Self, KeyError> {
        match values {
            [] => Err(KeyError::Missing),
            [value] => match value.strip_prefix(b"\"") {
                Some(rest) => Self::sent(unquote(rest)),
                None => Self::sent(value.iter().map(|byte| Ok(*byte))),
            },
            _ => Err(KeyError::Repeated { count: values.len() }),
        }
    }

    /// Takes a key from code, or from another place than the header (a query or body attribute):
    /// as it stands, without quotes, trimming or folding. `k1 ` is an error, not `k1`.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        Self::sent(text.bytes().map(Ok))
    }

    /// A key made of parts: SHA-256 over each part with its length before it, in hex, so that
    /// `(a, bc)` and `(ab, c)` differ.
    pub fn derived<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        Self { text: hex(&digest).into(), origin: Origin::Derived }
    }

    /// The key itself, without quotes.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where it comes from.
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    fn sent(bytes: impl Iterator<Item = Result<u8, KeyError>>) -> Result<Self, KeyError> {
        let mut text = String::new();
        for byte in bytes {
            let byte = byte?;
            if !byte.is_ascii_graphic() {
                return Err(KeyError::Invisible { position: text.len() + 1 });
            }
            if text.len() == MAX_KEY_BYTES {
                return Err(KeyError::TooLong);
            }
            text.push(char::from(byte));
        }
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { text: text.into(), origin: Origin::Sent })
    }
}

/// The bytes of a quoted string, whose opening quote is already gone (RFC 9651 section 4.2.5).
fn unquote(mut rest: &[u8]) -> impl Iterator<Item = Result<u8, KeyError>> {
    let mut closed = false;
    std::iter::from_fn(move || {
        if closed {
            return None;
        }
        let step = match rest {
            [b'"'] => {
                closed = true;
                return None;
            }
            [b'\\', escaped @ (b'"' | b'\\'), tail @ ..] => {
                rest = tail;
                Ok(*escaped)
            }
            [] | [b'"' | b'\\', ..] => Err(KeyError::Quoting),
            [byte, tail @ ..] => {
                rest = tail;
                Ok(*byte)
            }
        };
        closed = step.is_err();
        Some(step)
    })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {})", self.origin, self.text)
    }
}

#[cfg(test)]
mod tests;
