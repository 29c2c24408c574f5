//! Paths and hosts: a normal form is its own normal form and holds nothing that servers read differently.

use tidegate_core::rule::host;
use tidegate_core::rule::path::{EncodedSlash, normalise};

/// The text is a path, and a host.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for slashes in [EncodedSlash::Refuse, EncodedSlash::Keep] {
        path(text, slashes);
    }
    let host = host::normalise(text);
    assert!(!host.bytes().any(|byte| byte.is_ascii_uppercase()), "{host}");
}

fn path(text: &str, slashes: EncodedSlash) {
    let Ok(normal) = normalise(text, slashes) else { return };
    assert_eq!(normalise(&normal, slashes).as_deref(), Ok(&*normal), "{text:?}");
    if normal == "*" {
        assert_eq!(text, "*");
        return;
    }
    let segments: Vec<&str> = normal.strip_prefix('/').expect("it begins with a slash").split('/').collect();
    let (last, before) = segments.split_last().expect("a split gives one part at least");
    assert!(before.iter().all(|segment| !segment.is_empty()), "{text:?} → {normal}");
    for segment in before.iter().chain([last]) {
        // Not even behind an escape or before parameters.
        let name = decoded(segment.split(';').next().unwrap_or_default());
        assert!(name != b"." && name != b"..", "{text:?} → {normal}");
    }
    let bytes = decoded(&normal);
    assert!(!bytes.iter().any(u8::is_ascii_control), "{text:?} → {normal}");
    if slashes == EncodedSlash::Refuse {
        let slashes = bytes.iter().filter(|byte| matches!(byte, b'/' | b'\\')).count();
        assert_eq!(slashes, segments.len(), "{text:?} → {normal}");
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte);
    assert!(normal.bytes().all(legal), "{text:?} → {normal}");
}

/// Every escape decoded; all of them must be well-formed.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit =
                || char::from(bytes.next().unwrap_or_default()).to_digit(16).expect("a whole escape");
            out.push((digit() * 16 + digit()) as u8);
        } else {
            out.push(byte);
        }
    }
    out
}
