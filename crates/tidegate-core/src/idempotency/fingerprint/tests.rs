use proptest::prelude::*;

use super::*;
use crate::Value;

const NONE: &[(&str, Value<'_>)] = &[];

/// `[(&str, Value)]` is unsized; a reference to it is what `dyn Attributes` needs.
struct Pairs<'a>(&'a [(&'a str, Value<'a>)]);

impl Attributes for Pairs<'_> {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        Attributes::get(self.0, name)
    }
}

fn with<T>(body: &[u8], attributes: &[(&str, Value<'_>)], then: impl FnOnce(&Request<'_>) -> T) -> T {
    let attributes = Pairs(attributes);
    then(&Request { method: "POST", path: "/pay", query: None, body, attributes: &attributes })
}

fn pointer(text: &str) -> FingerprintPart {
    FingerprintPart::BodyPointer(text.to_owned())
}

fn attribute(name: &str) -> FingerprintPart {
    FingerprintPart::Attribute(name.to_owned())
}

fn of_body(part: &FingerprintPart, body: &str) -> Fingerprint {
    with(body.as_bytes(), NONE, |request| Fingerprint::of(std::slice::from_ref(part), request).unwrap())
}

fn check(part: &FingerprintPart, one: &str, other: &str, equal: bool) {
    let (stored, now) = (of_body(part, one), of_body(part, other));
    let expected = if equal { Comparison::Same } else { Comparison::Differs(vec![part.clone()]) };
    assert_eq!(stored.compare(&now, &Fingerprint::default()), expected, "{part:?}: {one} and {other}");
}

#[test]
fn i6_pointers_ignore_order_and_spacing_and_raw_bodies_do_not() {
    let (one, other) = (r#"{"a":{"x":1,"y":[1,2]},"b":2}"#, r#"{ "b": 2, "a": { "y": [1, 2], "x": 1 } }"#);
    check(&pointer("/a"), one, other, true);
    check(&pointer(""), one, other, true);
    check(&FingerprintPart::Body, one, other, false);
    check(&FingerprintPart::Body, one, one, true);

    let a = pointer("/a");
    for (one, other, equal) in [
        (r#"{"a":1}"#, r#"{"a":2}"#, false),
        (r#"{"a":1,"z":1}"#, r#"{"a":1,"z":2}"#, true),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false),
        (r#"{"a":1.10}"#, r#"{"a":1.10}"#, true),
        (r#"{"a":1.10}"#, r#"{"a":1.1}"#, false),
        (r#"{"a":12345678901234567890123}"#, r#"{"a":12345678901234567890124}"#, false),
        (r#"{"a":1}"#, r#"{"a":"1"}"#, false),
        (r#"{"a":"\u00e9"}"#, r#"{"a":"é"}"#, true),
        (r#"{"a":null}"#, "{}", false),
        ("{}", r#"{"b":1}"#, true),
        (r#"{"a":null}"#, r#"{"a":"null"}"#, false),
        (r#"{"a":false}"#, r#"{"a":null}"#, false),
        (r#"{"a":{}}"#, r#"{"a":[]}"#, false),
        (r#"{"a":["b","c"]}"#, r#"{"a":["bc"]}"#, false),
        (r#"{"a":{"b":1,"c":1}}"#, r#"{"a":{"b":1}}"#, false),
        ("not json", "not json", true),
        ("not json", "nor this", false),
        ("", "{}", false),
    ] {
        check(&a, one, other, equal);
    }
}

#[test]
fn deep_nesting_is_compared_as_bytes() {
    let deep = |tail: &str| format!("{}{tail}{}", "[".repeat(100_000), "]".repeat(100_000));
    check(&pointer("/0"), &deep("1"), &deep("1"), true);
    check(&pointer("/0"), &deep("1"), &deep("2"), false);
}

#[test]
fn a_mismatch_names_every_field_that_differs() {
    let parts =
        [FingerprintPart::Method, FingerprintPart::Body, attribute("channel"), FingerprintPart::Query];
    let of = |body: &str, channel: Option<&str>, query: Option<&str>| {
        let pairs: Vec<_> = channel.map(|text| ("channel", Value::Text(text))).into_iter().collect();
        let attributes = Pairs(&pairs);
        let request =
            Request { method: "POST", path: "/", query, body: body.as_bytes(), attributes: &attributes };
        Fingerprint::of(&parts, &request).unwrap()
    };
    let stored = of("1", Some("app"), None);
    let compare = |now: &Fingerprint| match stored.compare(now, &Fingerprint::default()) {
        Comparison::Differs(parts) => parts.iter().map(label).collect(),
        Comparison::Same => Vec::new(),
        Comparison::NotComputed(parts) => panic!("{parts:?}"),
    };
    assert_eq!(compare(&of("1", Some("app"), None)), Vec::<String>::new());
    assert_eq!(compare(&of("2", Some("app"), None)), ["body"]);
    assert_eq!(compare(&of("2", None, None)), ["body", "channel"]);
    assert_eq!(compare(&of("1", Some(""), Some(""))), ["channel", "query"]);
    assert_eq!(label(&pointer("/a/b")), "body./a/b");
}

#[test]
fn the_stored_fields_judge_whatever_the_rule_now_says() {
    with(br#"{"a":1}"#, NONE, |request| {
        let of = |parts: &[FingerprintPart]| Fingerprint::of(parts, request).unwrap();
        let stored = of(&[FingerprintPart::Method, pointer("/a")]);
        let now = of(&[FingerprintPart::Method, FingerprintPart::Body]);
        let nothing = Fingerprint::default();
        assert_eq!(stored.compare(&now, &nothing), Comparison::NotComputed(vec![pointer("/a")]));
        assert_eq!(stored.compare(&now, &of(&[pointer("/a")])), Comparison::Same);
        assert_eq!(nothing.compare(&now, &nothing), Comparison::Same);
    });
}

#[test]
fn compound_attributes_are_refused() {
    let parts = [attribute("order")];
    let refused = with(b"", &[("order", Value::Compound)], |request| Fingerprint::of(&parts, request));
    assert_eq!(refused, Err(PartError::Compound { part: attribute("order") }));
}

#[test]
fn keys_are_derived_from_what_is_there() {
    let parts = [attribute("tenant"), pointer("/sku")];
    let derive = |tenant: Option<&str>, body: &str| {
        let pairs: Vec<_> = tenant.map(|text| ("tenant", Value::Text(text))).into_iter().collect();
        with(body.as_bytes(), &pairs, |request| derive_key(&parts, request))
    };
    let key = derive(Some("acme"), r#"{"sku":"a1","n":1}"#).unwrap();
    assert_eq!(derive(Some("acme"), r#"{ "n": 2, "sku": "a1" }"#).unwrap(), key);
    assert_ne!(derive(Some("acme"), r#"{"sku":"a2"}"#).unwrap(), key);
    assert_ne!(derive(Some("acm"), r#"{"sku":"ea1"}"#).unwrap(), key);
    let absent = |part| Err(PartError::Absent { part });
    assert_eq!(derive(None, r#"{"sku":"a1"}"#), absent(attribute("tenant")));
    assert_eq!(derive(Some("acme"), "{}"), absent(pointer("/sku")));
    assert_eq!(derive(Some("acme"), r#"{"sku":null}"#), absent(pointer("/sku")));
    assert_eq!(derive(Some("acme"), "sku=a1"), absent(pointer("/sku")));
}

#[test]
fn unreadable_stored_forms_are_none() {
    let good = of_body(&pointer("/a"), "{}").to_bytes();
    assert_eq!(good[..6], [1, b'j', 0, 2, b'/', b'a']);
    assert_eq!(good.len(), 6 + 16);
    for cut in [0, 2, 3, 5, 6, 21] {
        assert_eq!(Fingerprint::from_bytes(&good[..cut]), None, "{cut}");
    }
    assert_eq!(Fingerprint::from_bytes(&[1]), Some(Fingerprint::default()));
    assert_eq!(Fingerprint::from_bytes(&[2]), None);
    let mut unknown = good.clone();
    unknown[1] = b'?';
    assert_eq!(Fingerprint::from_bytes(&unknown), None);

    let long = of_body(&pointer(&format!("/{}", "é".repeat(40_000))), "{}");
    assert_eq!(Fingerprint::from_bytes(&long.to_bytes()).map(|read| read.0.len()), Some(1));
}

#[test]
fn every_part_has_a_stored_form_and_a_name() {
    let parts = [
        (FingerprintPart::Method, "method"),
        (FingerprintPart::Path, "path"),
        (FingerprintPart::Query, "query"),
        (FingerprintPart::Body, "body"),
        (pointer("/a"), "body./a"),
        (attribute("tenant"), "tenant"),
    ];
    let all: Vec<_> = parts.iter().map(|(part, _)| part.clone()).collect();
    let fingerprint = with(b"{}", NONE, |request| Fingerprint::of(&all, request)).unwrap();
    assert_eq!(fingerprint.parts().cloned().collect::<Vec<_>>(), all);
    assert_eq!(Fingerprint::from_bytes(&fingerprint.to_bytes()), Some(fingerprint));
    for (part, name) in &parts {
        assert_eq!(label(part), *name);
    }
    // Only pointers and attributes have a name.
    for kind in *b"mpqb" {
        let mut named = vec![FORMAT, kind, 0, 1, b'x'];
        named.extend_from_slice(&[0; HASH_BYTES]);
        assert_eq!(Fingerprint::from_bytes(&named), None, "{}", char::from(kind));
    }
}

#[test]
fn a_request_shows_no_more_than_its_size() {
    let shown = with(b"secret", &[("token", Value::Text("secret"))], |request| format!("{request:?}"));
    assert_eq!(shown, "Request(POST /pay, 6 bytes)");
}

proptest! {
    #[test]
    fn the_stored_form_round_trips(names in proptest::collection::vec("[a-z/é]{0,20}", 0..8), body: Vec<u8>) {
        let mut parts: Vec<_> = names.iter().map(|name| attribute(name)).collect();
        parts.extend(names.iter().map(|name| pointer(name)));
        parts.extend([FingerprintPart::Path, FingerprintPart::Query, FingerprintPart::Body]);
        let fingerprint = with(&body, NONE, |request| Fingerprint::of(&parts, request)).unwrap();
        prop_assert_eq!(Fingerprint::from_bytes(&fingerprint.to_bytes()), Some(fingerprint));
    }

    #[test]
    fn decoding_never_panics(bytes: Vec<u8>) {
        let _ = Fingerprint::from_bytes(&bytes);
    }
}
