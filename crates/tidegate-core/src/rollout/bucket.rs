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

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

use crate::rule::model::Percentage;

/// How many buckets there are: one for each hundredth of a percent.
pub const BUCKETS: u16 = 10_000;

/// The bucket, from 0 to 9999, that decides percentages of the flag called `flag` for `subject`.
pub fn bucket(flag: &str, subject: &str) -> u16 {
    reduce(head([flag, ":", subject]))
}

/// The bucket, from 0 to 9999, that decides which variant of a split `subject` gets.
///
/// It has a salt of its own, `:split:flag:subject`: subjects who were chosen by a percentage all sit in
/// low buckets of [`bucket`], and drawn from those, only the first variants would ever be served. No
/// flag's key contains `:`, so this text is never that of a percentage.
pub fn split_bucket(flag: &str, subject: &str) -> u16 {
    reduce(head([":split:", flag, ":", subject]))
}

/// Whether a share of `percentage` takes `bucket`.
#[inline]
pub const fn hits(percentage: Percentage, bucket: u16) -> bool {
    bucket < percentage.hundredths()
}

fn reduce(head: u32) -> u16 {
    (head % u32::from(BUCKETS)) as u16
}

/// The initial hash value of SHA-256 (FIPS 180-4, section 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
const BLOCK: usize = 64;
/// The most text that leaves room in a block for the mark and the length that pad it.
const SHORT: usize = BLOCK - 9;

/// The first four bytes, big-endian, of SHA-256 over the parts in a row.
///
/// Nearly all texts fit into one block. It is padded here (FIPS 180-4, section 5.1.1), which leaves out
/// the hasher's own buffer and the seven words of the digest that nobody asks for.
#[inline]
fn head<const PARTS: usize>(parts: [&str; PARTS]) -> u32 {
    let mut block = [0; BLOCK];
    let mut length = 0_usize;
    for part in parts {
        let end = length.saturating_add(part.len());
        let Some(room) = block[..SHORT].get_mut(length..end) else { return long(&parts) };
        room.copy_from_slice(part.as_bytes());
        length = end;
    }
    block[length.min(SHORT)] = 0x80;
    block[BLOCK - 1] = (length << 3) as u8;
    block[BLOCK - 2] = (length >> 5) as u8;
    let mut state = INITIAL;
    compress256(&mut state, &[block]);
    state[0]
}

#[cold]
fn long(parts: &[&str]) -> u32 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    let digest = hasher.finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests;
