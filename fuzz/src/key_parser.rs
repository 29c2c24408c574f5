//! `Idempotency-Key` fields: a key is 1 to 255 visible ASCII characters, and its quoted and bare forms
//! are the same.

use tidegate_core::idempotency::key::{Key, KeyError, MAX_KEY_BYTES};

/// Fields are separated by line feeds, which no header value holds.
pub fn run(data: &[u8]) {
    let fields: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    assert_eq!(Key::parse_header(&[]), Err(KeyError::Missing));
    if fields.len() > 1 {
        assert_eq!(Key::parse_header(&fields), Err(KeyError::Repeated { count: fields.len() }));
    }
    for field in fields {
        let found = Key::parse_header(&[field]);
        assert_eq!(found.as_ref().ok().map(Key::as_str), plainly(field).as_deref(), "{found:?}");
        let Ok(key) = found else { continue };
        let escaped = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
        assert_eq!(Key::parse_header(&[format!("\"{escaped}\"").as_bytes()]).as_ref(), Ok(&key));
        assert_eq!(Key::from_text(key.as_str()).as_ref(), Ok(&key));
        assert_ne!(Key::derived([field]), key, "no client can send a derived key");
    }
}

/// The same in the plainest words (RFC 9651 section 3.3.3 for the quoted form).
fn plainly(field: &[u8]) -> Option<String> {
    let mut text = String::new();
    if field.first() == Some(&b'"') {
        let mut rest = field[1..].iter();
        loop {
            match rest.next()? {
                b'"' => break,
                b'\\' => match rest.next()? {
                    escaped @ (b'"' | b'\\') => text.push(char::from(*escaped)),
                    _ => return None,
                },
                byte => text.push(char::from(*byte)),
            }
        }
        if rest.next().is_some() {
            return None;
        }
    } else {
        text.extend(field.iter().map(|byte| char::from(*byte)));
    }
    let fits = (1..=MAX_KEY_BYTES).contains(&text.chars().count());
    (fits && text.chars().all(|c| ('!'..='~').contains(&c))).then_some(text)
}
