//! What names a rule set: its canonical form, the digest of that, and the version number that a rule
//! store gave it.

mod canonical;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

pub use self::canonical::canonical;
pub(crate) use self::canonical::{algorithm_fields, condition, document, serve};
use super::RuleSet;

/// SHA-256 of the canonical form. Equal digests mean equal rules, wherever they were published.
///
/// Displayed and parsed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a rule set.
    pub fn of(rules: &RuleSet) -> Self {
        Self::of_canonical(&canonical(rules))
    }

    /// The digest of a text that is already in canonical form.
    pub fn of_canonical(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 48 bits, which headers and messages show.
    pub fn short(&self) -> ShortDigest {
        let mut short = [0; 6];
        short.copy_from_slice(&self.0[..6]);
        ShortDigest(short)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_hex(text).map(Self).ok_or(VersionError::Digest { digits: 64 })
    }
}

/// The beginning of a digest: 12 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortDigest([u8; 6]);

impl fmt::Display for ShortDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ShortDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShortDigest({self})")
    }
}

impl FromStr for ShortDigest {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_hex(text).map(Self).ok_or(VersionError::Digest { digits: 12 })
    }
}

/// A published rule set: the number that its rule store gave it, and what it says.
///
/// Numbers only grow, and are compared only inside one store; nodes with stores of their own agree by
/// digest. Displayed as the `Tidegate-Version` header has it, `12; digest=3f2a9c1b2d4e`, which parses
/// as a [`VersionName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// From 1.
    pub number: u64,
    /// Of the rules themselves.
    pub digest: Digest,
}

impl Version {
    /// What the header says of it.
    pub fn name(&self) -> VersionName {
        VersionName { number: self.number, digest: self.digest.short() }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// A version as headers, logs and problems name it: the number and the beginning of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionName {
    /// From 1.
    pub number: u64,
    /// The beginning of the digest.
    pub digest: ShortDigest,
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; digest={}", self.number, self.digest)
    }
}

impl FromStr for VersionName {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, digest) = text.split_once(';').ok_or(VersionError::Form)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { number.parse().ok() } else { None }.ok_or(VersionError::Form)?;
        let digest = digest.trim_start_matches(' ').strip_prefix("digest=").ok_or(VersionError::Form)?;
        Ok(Self { number, digest: digest.parse()? })
    }
}

/// A digest or a version that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// Not a digest.
    #[error("a digest is {digits} hexadecimal digits, 0-9 and a-f")]
    Digest {
        /// How many it takes.
        digits: usize,
    },
    /// Not a version.
    #[error(
        "a version is written `12; digest=3f2a9c1b2d4e`: its number and the first 12 digits of its digest"
    )]
    Form,
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? * 16 + digit(*low)?;
    }
    Some(bytes)
}
