//! The bytes that name one counter of a rule.

use smallvec::SmallVec;

/// Keys up to this length are kept inline: a few identifiers, or an address and a UUID.
pub const INLINE_KEY: usize = 64;

/// An encoded key.
pub type KeyBytes = SmallVec<[u8; INLINE_KEY]>;

/// The marker of a missing value. A present one starts with its length + 1, which is never 0.
const MISSING: u8 = 0;

/// Encodes attribute values, in the order of the rule's `key`, with their lengths.
///
/// Two lists have the same bytes only when they are the same list: `(a, b_c)` and `(a_b, c)` differ, a
/// missing value differs from an empty one, and lists of different lengths differ. No list at all, the
/// key of a rule with one counter, is empty.
pub fn encode<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> KeyBytes {
    let mut key = KeyBytes::new();
    for value in values {
        push(&mut key, value);
    }
    key
}

/// Appends one more value to an encoded key.
pub fn push(key: &mut KeyBytes, value: Option<&str>) {
    let Some(value) = value else {
        key.push(MISSING);
        return;
    };
    // LEB128: seven bits a byte, lowest first, the top bit on all but the last.
    let mut length = (value.len() as u64).saturating_add(1);
    while length >= 0x80 {
        key.push(length as u8 | 0x80);
        length >>= 7;
    }
    key.push(length as u8);
    key.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn l11_values_are_encoded_with_their_lengths() {
        // One attribute "b_c_d" and two attributes "b", "d" once shared a counter by concatenation.
        let different: [&[Option<&str>]; 11] = [
            &[],
            &[None],
            &[Some("")],
            &[Some("b_c_d")],
            &[Some("b"), Some("d")],
            &[Some("b_"), Some("d")],
            &[Some("b"), Some("_d")],
            &[None, Some("d")],
            &[Some("d"), None],
            &[Some(""), Some("")],
            &[None, None],
        ];
        for (i, left) in different.iter().enumerate() {
            for (j, right) in different.iter().enumerate() {
                let same = encode(left.iter().copied()) == encode(right.iter().copied());
                assert_eq!(same, i == j, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn lengths_are_written_in_groups_of_seven_bits() {
        for (length, written) in [
            (0, &[1_u8][..]),
            (126, &[0x7f]),
            (127, &[0x80, 0x01]),
            (128, &[0x81, 0x01]),
            (300, &[0xad, 0x02]),
            (16_382, &[0xff, 0x7f]),
            (16_383, &[0x80, 0x80, 0x01]),
        ] {
            let key = encode([Some("x".repeat(length).as_str())]);
            assert_eq!(key[..key.len() - length], *written, "{length}");
        }
        assert_eq!(encode([None, Some("a")]).as_slice(), [0, 2, b'a']);
    }

    proptest! {
        #[test]
        fn equal_bytes_mean_equal_lists(
            left in prop::collection::vec(prop::option::of("[a\u{0}\u{1}\u{2}]{0,3}"), 0..4),
            right in prop::collection::vec(prop::option::of("[a\u{0}\u{1}\u{2}]{0,3}"), 0..4),
        ) {
            let bytes = |list: &[Option<String>]| encode(list.iter().map(Option::as_deref));
            prop_assert_eq!(bytes(&left) == bytes(&right), left == right);
        }

        #[test]
        fn long_values_do_not_run_into_their_neighbours(length in 0..40_000_usize) {
            let long = "x".repeat(length);
            let key = encode([Some(long.as_str()), Some("y")]);
            prop_assert!(key.len() > length + 2);
            prop_assert_ne!(key, encode([Some(format!("{long}y").as_str()), None]));
        }
    }
}
