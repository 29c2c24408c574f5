use proptest::prelude::*;
use tidegate_core::limit::key::encode as encode_key;

use super::{
    KeySpace, MAX_TAG, Numbers, PERMIT_LIFE, fixed_window, one_of_each, sliding_log, sliding_window,
};
use std::time::Duration;

fn numbers() -> Numbers {
    Numbers::new(&fixed_window(1, Duration::from_mins(1)), PERMIT_LIFE)
}

#[test]
fn keys_can_be_read() {
    let check = |rule, attributes: &[&str], values: &[Option<&str>], expected| {
        let key = KeySpace::new(rule, attributes).counter(values.iter().copied(), &numbers());
        assert_eq!(key.as_str(), expected);
    };
    check("all", &[], &[], "tg:{all}:fixed_window:1m");
    check("pay", &["channel"], &[Some("app")], "tg:{pay|channel=3:app}:fixed_window:1m");
    check("pay", &["channel"], &[None], "tg:{pay|channel=-}:fixed_window:1m");
    check("pay", &["channel"], &[Some("")], "tg:{pay|channel=0:}:fixed_window:1m");
    check(
        "pay",
        &["tenant", "user"],
        &[Some("a:b"), Some("{x} é|=")],
        "tg:{pay|tenant=3:a:b|user=8:%7Bx%7D%20%C3%A9%7C%3D}:fixed_window:1m",
    );
}

#[test]
fn another_algorithm_or_window_is_another_key() {
    let space = KeySpace::new("pay", &["user"]);
    let minute = Duration::from_mins(1);
    let mut keys: Vec<_> = one_of_each(10)
        .into_iter()
        .chain([fixed_window(10, minute), sliding_window(10, minute), sliding_log(10, minute)])
        .chain([fixed_window(10, Duration::from_micros(1_000_001))])
        .map(|algorithm| space.counter([Some("ana")], &Numbers::new(&algorithm, PERMIT_LIFE)))
        .collect();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count);
    assert!(keys.iter().any(|key| key.as_str() == "tg:{pay|user=3:ana}:fixed_window:1000001us"));
    // Other numbers are not.
    let same = |limit| space.counter([None], &Numbers::new(&fixed_window(limit, minute), PERMIT_LIFE));
    assert_eq!(same(1), same(2));
}

#[test]
fn another_attribute_is_another_key() {
    let key = |attribute| KeySpace::new("pay", &[attribute]).counter([Some("x")], &numbers());
    assert_ne!(key("user"), key("tenant"));
}

#[test]
fn long_keys_are_cut_and_still_told_apart() {
    let space = KeySpace::new("pay", &["user"]);
    let long = "x".repeat(10_000);
    let one = space.counter([Some(long.as_str())], &numbers());
    let other = space.counter([Some(format!("{}y", &long[1..]).as_str())], &numbers());
    assert_ne!(one, other);
    assert!(one.as_str().starts_with("tg:{pay|user=10000:xxxx"), "{one:?}");
    assert!(one.as_str().len() <= MAX_TAG + 40);
}

fn value() -> impl Strategy<Value = Option<String>> + Clone {
    prop::option::of(prop_oneof![
        "[ab:{}|=~%\u{0}\u{1} é-]{0,4}",
        "[0-9]:[a-z|=]{0,5}",
        Just("é€🦀".to_owned()),
        "[x{}]{190,210}",
    ])
}

proptest! {
    #[test]
    fn different_values_have_different_keys(
        left in prop::collection::vec(value(), 0..4),
        right in prop::collection::vec(value(), 0..4),
        rules in ("[a|:={}~]{1,3}", "[a|:={}~]{1,3}"),
    ) {
        let key = |rule: &str, list: &[Option<String>]| {
            KeySpace::new(rule, &["a", "b", "c"]).counter(list.iter().map(Option::as_deref), &numbers())
        };
        let (one, other) = (key(&rules.0, &left), key(&rules.1, &right));
        prop_assert_eq!(one == other, (&rules.0, &left) == (&rules.1, &right));
        for key in [&one, &other] {
            let text = key.as_str();
            let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
            prop_assert!(printable, "{}", text);
            // One hash tag, which holds all but the prefix and the suffix.
            prop_assert_eq!((text.matches('{').count(), text.matches('}').count()), (1, 1));
            let framed = text.starts_with("tg:{") && text.len() <= MAX_TAG + 40;
            prop_assert!(framed, "{}", text);
        }
    }

    #[test]
    fn the_encoded_key_means_the_same(list in prop::collection::vec(value(), 0..4), long in 0..3_000_usize) {
        let long = "y".repeat(long);
        let values = || list.iter().map(Option::as_deref).chain([Some(long.as_str())]);
        let space = KeySpace::new("pay", &["a", "b", "c"]);
        let encoded = encode_key(values());
        prop_assert_eq!(space.counter_of(&encoded, &numbers()), Some(space.counter(values(), &numbers())));
    }

    #[test]
    fn other_bytes_are_no_key_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        let _ = KeySpace::new("pay", &["a"]).counter_of(&bytes, &numbers());
    }
}
