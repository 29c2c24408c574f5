use proptest::prelude::*;

use super::*;

fn header(values: &[&[u8]]) -> Result<String, KeyError> {
    Key::parse_header(values).map(|key| key.to_string())
}

fn check(value: &str, expected: Result<&str, KeyError>) {
    assert_eq!(header(&[value.as_bytes()]), expected.map(str::to_owned), "{value:?}");
}

#[test]
fn i10_only_one_to_255_visible_ascii_characters_are_a_key() {
    let longest = "k".repeat(255);
    check(&longest, Ok(&longest));
    check(&format!("\"{longest}\""), Ok(&longest));
    check(&"k".repeat(256), Err(KeyError::TooLong));
    check(&format!("\"{}\"", "k".repeat(256)), Err(KeyError::TooLong));
    check("", Err(KeyError::Empty));
    check("\"\"", Err(KeyError::Empty));
    check("k 1", Err(KeyError::Invisible { position: 2 }));
    check(" k1", Err(KeyError::Invisible { position: 1 }));
    check("k1\t", Err(KeyError::Invisible { position: 3 }));
    check("k\u{1}", Err(KeyError::Invisible { position: 2 }));
    check("k\u{7f}", Err(KeyError::Invisible { position: 2 }));
    check("k🔑", Err(KeyError::Invisible { position: 2 }));
    check("\"k1 \"", Err(KeyError::Invisible { position: 3 }));
    check("!~", Ok("!~"));
}

#[test]
fn a_key_shows_where_it_comes_from() {
    assert_eq!(format!("{:?}", Key::from_text("k1").unwrap()), "Key(Sent, k1)");
    let derived = Key::derived([b"a".as_slice()]);
    assert_eq!(format!("{derived:?}"), format!("Key(Derived, {derived})"));
}

#[test]
fn i10_keys_are_never_trimmed_or_folded() {
    assert_eq!(Key::from_text("k1 "), Err(KeyError::Invisible { position: 3 }));
    assert_eq!(Key::from_text(""), Err(KeyError::Empty));
    assert_eq!(Key::from_text("k1").unwrap().as_str(), "k1");
    assert_ne!(Key::from_text("ABC").unwrap(), Key::from_text("abc").unwrap());
    assert_eq!(Key::from_text(&"k".repeat(255)).unwrap().as_str().len(), 255);
    assert_eq!(Key::from_text(&"k".repeat(256)), Err(KeyError::TooLong));
}

#[test]
fn i11_the_quoted_and_the_bare_form_are_one_key() {
    assert_eq!(Key::parse_header(&[b"\"abc\""]), Key::parse_header(&[b"abc"]));
    check(r#""a\"b\\c""#, Ok(r#"a"b\c"#));
    // Bare, the same characters stand for themselves.
    check(r#"a"b\c"#, Ok(r#"a"b\c"#));
    check(r#"a\"b"#, Ok(r#"a\"b"#));
    check("\"abc", Err(KeyError::Quoting));
    check("\"", Err(KeyError::Quoting));
    check("\"abc\\\"", Err(KeyError::Quoting));
    check("\"a\\bc\"", Err(KeyError::Quoting));
    check("\"abc\";v=1", Err(KeyError::Quoting));
    check("\"abc\" ", Err(KeyError::Quoting));
    check("\"a\", \"b\"", Err(KeyError::Quoting));
}

#[test]
fn i12_two_headers_are_an_error_even_when_equal() {
    assert_eq!(header(&[b"k1", b"k2"]), Err(KeyError::Repeated { count: 2 }));
    assert_eq!(header(&[b"k1", b"k1", b"k1"]), Err(KeyError::Repeated { count: 3 }));
    // What a proxy makes of two fields when it joins them.
    check("k1, k2", Err(KeyError::Invisible { position: 4 }));
    assert_eq!(header(&[]), Err(KeyError::Missing));
}

#[test]
fn derived_keys_say_where_one_part_ends() {
    let key = |parts: &[&[u8]]| Key::derived(parts.iter().copied());
    assert_eq!(key(&[b"a", b"bc"]), key(&[b"a", b"bc"]));
    assert_ne!(key(&[b"a", b"bc"]), key(&[b"ab", b"c"]));
    assert_ne!(key(&[b"a"]), key(&[b"a", b""]));
    assert_ne!(key(&[]), key(&[b""]));
    // SHA-256 of eight zero bytes and nothing: a stored key must not change between releases.
    assert_eq!(key(&[b""]).as_str(), "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
}

#[test]
fn a_client_cannot_name_a_derived_key() {
    let derived = Key::derived([b"sku".as_slice()]);
    let sent = Key::from_text(derived.as_str()).unwrap();
    assert_eq!(sent.as_str(), derived.as_str());
    assert_ne!(sent, derived);
}

proptest! {
    #[test]
    fn every_valid_key_survives_quoting(text in "[!-~]{1,255}") {
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let key = Key::parse_header(&[quoted.as_bytes()]).unwrap();
        prop_assert_eq!(key.as_str(), text.as_str());
        if !text.starts_with('"') {
            prop_assert_eq!(&Key::parse_header(&[text.as_bytes()]).unwrap(), &key);
        }
        prop_assert_eq!(&Key::from_text(&text).unwrap(), &key);
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(key) = Key::parse_header(&[&bytes]) {
            prop_assert!((1..=255).contains(&key.as_str().len()));
            prop_assert!(key.as_str().bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
        }
    }
}
