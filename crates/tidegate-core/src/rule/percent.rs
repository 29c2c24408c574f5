//! Percent-encoding (RFC 3986 §2.1).

use std::borrow::Cow;

/// The byte that `%` and two hexadecimal digits stand for; `None` for anything else.
pub(super) fn escape(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            Some((digit(*high)? * 16 + digit(*low)?) as u8)
        }
        _ => None,
    }
}

/// Appends `%` and two upper-case hexadecimal digits.
pub(super) fn push_escape(out: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// Everything decoded. A `%` that begins no escape stays, as does the whole text if it would not be
/// UTF-8: two texts that differ may not both become one replacement character.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    decode_bytes(text, |byte| byte)
}

/// As forms write it: `+` is a space, too.
pub(super) fn decode_form(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        return Cow::Owned(decode_bytes(text, |byte| if byte == b'+' { b' ' } else { byte }).into_owned());
    }
    decode(text)
}

fn decode_bytes(text: &str, literal: impl Fn(u8) -> u8) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| *byte == b'%' || literal(*byte) != *byte) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if let Some(decoded) = escape(&bytes[at..]) {
            out.push(decoded);
            at += 3;
        } else {
            out.push(literal(*byte));
            at += 1;
        }
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding() {
        for (text, plain, form) in [
            ("", "", ""),
            ("abc", "abc", "abc"),
            ("a%20b", "a b", "a b"),
            ("a+b", "a+b", "a b"),
            ("a%2Bb+c", "a+b+c", "a+b c"),
            ("%C3%A9%c3%a9", "éé", "éé"),
            ("100%", "100%", "100%"),
            ("%2", "%2", "%2"),
            ("%zz%41", "%zzA", "%zzA"),
            ("%2541", "%41", "%41"),
            ("é%41", "éA", "éA"),
            // Not UTF-8: as it stands.
            ("%FF%41", "%FF%41", "%FF%41"),
            ("%C3", "%C3", "%C3"),
            ("%+1", "%+1", "% 1"),
        ] {
            assert_eq!(decode(text), plain, "{text}");
            assert_eq!(decode_form(text), form, "{text} as a form");
        }
        assert!(matches!(decode("abc"), Cow::Borrowed(_)));
        assert!(matches!(decode_form("abc"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes() {
        for (text, expected) in [
            ("%41", Some(0x41)),
            ("%fFx", Some(0xff)),
            ("%4", None),
            ("41", None),
            ("%g1", None),
            ("%+1", None),
        ] {
            assert_eq!(escape(text.as_bytes()), expected, "{text}");
        }
        let mut out = String::new();
        for byte in [0, 0x0a, 0xff] {
            push_escape(&mut out, byte);
        }
        assert_eq!(out, "%00%0A%FF");
    }
}
