use super::*;

const LIMIT: Param<u64> = Param { name: "limit", about: "", default: 1000, low: 1, high: 5000 };
const LEASE: Param<Duration> = Param {
    name: "lease",
    about: "",
    default: Duration::from_millis(500),
    low: Duration::from_millis(1),
    high: Duration::from_secs(1),
};
const PART: Param<Share> =
    Param { name: "part", about: "", default: Share::percent(10), low: Share(1), high: Share::ALL };

#[track_caller]
fn check(spec: Spec, text: &str, expected: Option<&str>) {
    match (spec.parse(text), expected) {
        (Ok(value), Some(expected)) => assert_eq!(value.to_string(), expected, "{text}"),
        (Err(error), None) => assert!(error.to_string().contains(text), "{error}"),
        (got, _) => panic!("{text}: {got:?}"),
    }
}

#[test]
fn values_are_read_within_their_range() {
    for (text, expected) in [
        ("700", Some("700")),
        ("1", Some("1")),
        ("5000", Some("5000")),
        ("0", None),
        ("5001", None),
        ("-5", None),
        ("7e2", None),
        ("", None),
    ] {
        check(Spec::Count(LIMIT), text, expected);
    }
    for (text, expected) in [("250ms", Some("250ms")), ("1s", Some("1s")), ("2s", None), ("250", None)] {
        check(Spec::Span(LEASE), text, expected);
    }
    for (text, expected) in [
        ("20%", Some("20%")),
        ("20", Some("20%")),
        ("0.5%", Some("0.5%")),
        ("99.99", Some("99.99%")),
        ("100", Some("100%")),
        ("0", None),
        ("100.01", None),
        ("120%", None),
        ("0.005", None),
        (".5", None),
        ("65536", None),
    ] {
        check(Spec::Share(PART), text, expected);
    }
}

#[test]
fn a_pair_has_an_equals_sign() {
    let given = ["limit=700".to_owned(), "lease = 2s".to_owned()];
    let pairs = Params::pairs(&given).unwrap();
    assert_eq!(pairs, [("limit".into(), "700".into()), ("lease".into(), "2s".into())]);
    let error = Params::pairs(&["limit".to_owned()]).unwrap_err();
    assert!(error.to_string().contains("NAME=VALUE"), "{error}");
}
