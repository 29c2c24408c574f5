//! The bucket that a subject falls into, the same on every node and in every version.
//!
//! A bucket is the first four bytes, big-endian, of SHA-256 over `flag:subject`, modulo 10000. A flag's
//! key has no `:`, so two pairs never hash the same text. The text is hashed as it stands: no Unicode
//! normalisation, no folding, no trimming.
//!
//! A share of `p` % takes the buckets below `p` × 100. Raising it therefore only adds subjects, and two
//! flags, whose keys differ, take independent ones.
//!
//! The modulo is not perfectly even (2³² is no multiple of 10000): the first 7296 buckets are likelier
//! than the others by 1 in 429,496, far below the resolution of a bucket.

use sha2::{Digest, Sha256};

use crate::rule::model::Percentage;

/// How many buckets there are: one for each hundredth of a percent.
pub const BUCKETS: u16 = 10_000;

/// The bucket, from 0 to 9999, that decides percentages of the flag called `flag` for `subject`.
pub fn bucket(flag: &str, subject: &str) -> u16 {
    reduce(Sha256::new().chain_update(flag).chain_update(b":").chain_update(subject))
}

/// The bucket, from 0 to 9999, that decides which variant of a split `subject` gets.
///
/// It has a salt of its own, `:split:flag:subject`: subjects who were chosen by a percentage all sit in
/// low buckets of [`bucket`], and drawn from those, only the first variants would ever be served. No
/// flag's key contains `:`, so this text is never that of a percentage.
pub fn split_bucket(flag: &str, subject: &str) -> u16 {
    reduce(Sha256::new().chain_update(b":split:").chain_update(flag).chain_update(b":").chain_update(subject))
}

/// Whether a share of `percentage` takes `bucket`.
#[inline]
pub const fn hits(percentage: Percentage, bucket: u16) -> bool {
    bucket < percentage.hundredths()
}

fn reduce(hasher: Sha256) -> u16 {
    let digest = hasher.finalize();
    let head = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    (head % u32::from(BUCKETS)) as u16
}

#[cfg(test)]
mod tests;
