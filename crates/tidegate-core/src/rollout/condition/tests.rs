use proptest::prelude::*;

use super::*;
use crate::attribute::Value;
use crate::rule::RuleSet;
use crate::rule::model::{Scalar, ScalarKind};

fn string(text: &str) -> Scalar {
    Scalar { text: text.to_owned(), kind: ScalarKind::String }
}

fn number(text: &str) -> Scalar {
    Scalar { text: text.to_owned(), kind: ScalarKind::Number }
}

fn boolean(value: bool) -> Scalar {
    Scalar { text: value.to_string(), kind: ScalarKind::Bool }
}

fn on(name: &str, test: Test) -> Condition {
    Condition::Attribute { name: name.to_owned(), test }
}

fn compile_alone(condition: &Condition) -> Result<Compiled, ConditionError> {
    Compiled::new(condition, &Segments::default())
}

/// The test of attribute `x` with this value; the explanation must agree with the answer.
fn check(test: &Test, value: Option<Value<'_>>, expected: bool) {
    let compiled = compile_alone(&on("x", test.clone())).unwrap();
    let pairs: Vec<(&str, Value<'_>)> = value.map(|value| ("x", value)).into_iter().collect();
    assert_eq!(compiled.holds(&pairs[..]), expected, "{test:?} of {value:?}");
    assert_eq!(compiled.unmet(&pairs[..]).is_none(), expected, "explanation of {test:?} of {value:?}");
}

use Value::{Bool, Compound, Number, Text};

#[test]
fn equality_of_text_is_equality_of_source_text() {
    for (scalar, value, expected) in [
        (string("app"), Text("app"), true),
        (string("app"), Text("App"), false),
        (string("app"), Text(" app"), false),
        (string(""), Text(""), true),
        (number("1.10"), Text("1.10"), true),
        (number("1.10"), Text("1.1"), false),
        (number("0123"), Text("0123"), true),
        (number("0123"), Text("123"), false),
        (boolean(true), Text("true"), true),
        (boolean(true), Text("True"), false),
        (string("true"), Text("true"), true),
        (string("on"), Text("on"), true),
        (string("e\u{301}"), Text("\u{e9}"), false),
    ] {
        check(&Test::Equals(scalar.clone()), Some(value), expected);
        check(&Test::In(vec![string("other"), scalar.clone(), string("x")]), Some(value), expected);
        check(&Test::NotIn(vec![string("other"), scalar, string("x")]), Some(value), !expected);
    }
}

#[test]
fn json_numbers_and_booleans_compare_by_value() {
    for (scalar, value, expected) in [
        (number("1"), Number("1.0"), true),
        (number("1.0"), Number("1"), true),
        (number("100"), Number("1e2"), true),
        (string("1"), Number("1"), true),
        (string("one"), Number("1"), false),
        (number("1.1"), Number("1.10"), true),
        (number("9007199254740993"), Number("9007199254740992"), false),
        (number("0123"), Number("123"), true),
        (number("1e2000000000"), Number("1e2000000000"), true),
        (number("1e2000000000"), Number("10e1999999999"), false),
        (boolean(true), Bool(true), true),
        (boolean(false), Bool(false), true),
        (boolean(true), Bool(false), false),
        (boolean(false), Bool(true), false),
        (string("true"), Bool(true), false),
        (string("false"), Bool(false), false),
        (number("1"), Bool(true), false),
        (boolean(true), Number("1"), false),
        (string("[]"), Compound, false),
    ] {
        check(&Test::Equals(scalar.clone()), Some(value), expected);
        check(&Test::In(vec![number("77"), scalar.clone(), string("x")]), Some(value), expected);
        check(&Test::NotIn(vec![number("77"), scalar, string("x")]), Some(value), !expected);
    }
}

#[test]
fn r7_not_in_is_not_in_whatever_the_attribute_is() {
    let list = vec![string("acme"), number("1"), boolean(true)];
    for (value, within) in [
        (None, false), // absent, and JSON null, which attributes give as absent
        (Some(Text("")), false),
        (Some(Text("acme")), true),
        (Some(Text("umbrella")), false),
        (Some(Text("1")), true),
        (Some(Number("1.0")), true),
        (Some(Number("2")), false),
        (Some(Bool(true)), true),
        (Some(Bool(false)), false),
        (Some(Compound), false),
    ] {
        check(&Test::In(list.clone()), value, within);
        check(&Test::NotIn(list.clone()), value, !within);
    }
    // The empty text can be listed, and absence is still not it.
    check(&Test::NotIn(vec![string("")]), Some(Text("")), false);
    check(&Test::NotIn(vec![string("")]), None, true);
    // Nothing is in an empty list.
    check(&Test::NotIn(vec![]), None, true);
    check(&Test::NotIn(vec![]), Some(Text("x")), true);
    check(&Test::In(vec![]), Some(Text("x")), false);
    // JSON null, through a document.
    let document: serde_json::Map<String, serde_json::Value> = serde_json::from_str(r#"{"x":null}"#).unwrap();
    let compiled = compile_alone(&on("x", Test::NotIn(list))).unwrap();
    assert!(compiled.holds(&document));
}

#[test]
fn every_other_test_is_false_without_a_value_of_its_type() {
    let tests = [
        Test::Equals(string("null")),
        Test::In(vec![string("null"), string("")]),
        Test::StartsWith(String::new()),
        Test::EndsWith(String::new()),
        Test::Matches(String::new()),
        Test::Gt("-1e9".into()),
        Test::Gte("-1e9".into()),
        Test::Lt("1e9".into()),
        Test::Lte("1e9".into()),
        Test::Semver(">=0".into()),
        Test::Cidr(vec!["0.0.0.0/0".into(), "::/0".into()]),
        Test::Before("9999-12-30T00:00:00Z".into()),
        Test::After("0001-01-01T00:00:00Z".into()),
    ];
    for test in tests {
        for value in [None, Some(Compound), Some(Bool(true))] {
            check(&test, value, false);
        }
    }
    for test in [Test::StartsWith("1".into()), Test::EndsWith("1".into()), Test::Matches("1".into())] {
        check(&test, Some(Number("1")), false);
        check(&test, Some(Text("1")), true);
    }
    check(&Test::Semver(">=0".into()), Some(Number("1")), false);
}

#[test]
fn text_tests() {
    for (test, text, expected) in [
        (Test::StartsWith("ab".into()), "abc", true),
        (Test::StartsWith("ab".into()), "a", false),
        (Test::StartsWith("ab".into()), "cab", false),
        (Test::EndsWith("@example.com".into()), "a@example.com", true),
        (Test::EndsWith("@example.com".into()), "a@example.com.evil", false),
        (Test::Matches("b+".into()), "abbc", true),
        (Test::Matches("^b+$".into()), "abbc", false),
        (Test::Matches("^\\p{Lu}".into()), "Éa", true),
    ] {
        check(&test, Some(Text(text)), expected);
    }
}

#[test]
fn order_of_numbers_in_text_and_json() {
    for (value, [gt, gte, lt, lte]) in [
        ("10", [false, true, false, true]),
        ("10.0", [false, true, false, true]),
        ("1e1", [false, true, false, true]),
        ("9", [false, false, true, true]),
        ("9.999999999999999999999", [false, false, true, true]),
        ("100", [true, true, false, false]),
        ("10.000000000000000000001", [true, true, false, false]),
        ("1e999999", [true, true, false, false]),
        ("-1e999999", [false, false, true, true]),
        // No number: every test is false.
        ("", [false; 4]),
        ("ten", [false; 4]),
        ("10 ", [false; 4]),
        ("NaN", [false; 4]),
        ("0x0a", [false; 4]),
    ] {
        for (test, expected) in [
            (Test::Gt("10".into()), gt),
            (Test::Gte("10".into()), gte),
            (Test::Lt("10".into()), lt),
            (Test::Lte("10".into()), lte),
        ] {
            check(&test, Some(Text(value)), expected);
            check(&test, Some(Number(value)), expected);
        }
    }
}

#[test]
fn r12_semver_conditions() {
    let test = Test::Semver(">=1.2 <2".into());
    for (version, expected) in [
        ("1.2", true),
        ("v1.9.3+linux", true),
        ("2.0.0-rc.1", false),
        ("1.1.9", false),
        ("latest", false),
        ("", false),
    ] {
        check(&test, Some(Text(version)), expected);
    }
}

#[test]
fn addresses_in_networks() {
    let test = Test::Cidr(vec![
        "10.0.0.0/8".into(),
        "192.0.2.7".into(),
        "2001:db8::/32".into(),
        "::ffff:198.51.100.0/120".into(),
    ]);
    for (address, expected) in [
        ("10.255.0.1", true),
        ("::ffff:10.255.0.1", true),
        ("11.0.0.1", false),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        ("2001:db8:1::5", true),
        ("2001:0DB8:0:0:0:0:0:1", true),
        ("2001:db9::", false),
        ("198.51.100.9", true),
        ("::ffff:198.51.100.9", true),
        ("198.51.101.9", false),
        ("10.0.0.1:80", false),
        ("[2001:db8::1]", false),
        ("10.0.0", false),
        ("010.0.0.1", false),
        ("fe80::1%eth0", false),
        ("", false),
    ] {
        check(&test, Some(Text(address)), expected);
    }
    // Host bits that are set count for nothing; a whole family is a network too.
    check(&Test::Cidr(vec!["10.1.2.3/8".into()]), Some(Text("10.9.9.9")), true);
    check(&Test::Cidr(vec!["::/0".into()]), Some(Text("10.0.0.1")), false);
    check(&Test::Cidr(vec![]), Some(Text("10.0.0.1")), false);
    // A network of IPv6 that holds all mapped addresses, and more, stays one of IPv6.
    check(&Test::Cidr(vec!["::ffff:0:0/95".into()]), Some(Text("10.0.0.1")), false);
    check(&Test::Cidr(vec!["::ffff:0:0/95".into()]), Some(Text("::fffe:10.0.0.1")), true);
    check(&Test::Cidr(vec!["::ffff:0:0/96".into()]), Some(Text("10.0.0.1")), true);
}

#[test]
fn times_before_and_after() {
    for (value, before, after) in [
        ("2029-12-31T23:59:59.999999999Z", true, false),
        ("2030-01-01T00:00:00Z", false, false),
        ("2030-01-01T02:00:00+02:00", false, false),
        ("2030-01-01T00:00:00.000000001Z", false, true),
        ("2029-12-31T23:00:00-01:30", false, true),
        ("2029-12-31t23:59:59z", true, false),
        ("2029-12-31 23:59:59Z", true, false),
        // Not RFC 3339, or no such time.
        ("2029-12-31", false, false),
        ("2029-12-31T23:59:59", false, false),
        ("2029-12-31T23:59Z", false, false),
        ("2029-12-31T23:59:59.Z", false, false),
        ("2029-12-31T23:59:59.1234567890Z", false, false),
        ("2029-12-31T23:59:59+01", false, false),
        ("2029-12-31T23:59:59+0100", false, false),
        ("2029-12-31T23:59:59Z[UTC]", false, false),
        ("2029-12-31T23:59:59[UTC]", false, false),
        ("2029-02-30T00:00:00Z", false, false),
        ("2029-12-31T24:00:00Z", false, false),
        ("+002029-12-31T23:59:59Z", false, false),
        ("20291231T235959Z", false, false),
        ("1893455999", false, false),
        ("", false, false),
    ] {
        check(&Test::Before("2030-01-01T00:00:00Z".into()), Some(Text(value)), before);
        check(&Test::After("2030-01-01T00:00:00Z".into()), Some(Text(value)), after);
    }
}

#[test]
fn bad_tests_say_how_to_mend_them() {
    for (test, expected) in [
        (Test::Matches("(".into()), "`(` is not a regular expression: unclosed group; mend it"),
        (
            Test::Matches("(a{1000}){1000}".into()),
            "`(a{1000}){1000}` compiles to more than 1048576 bytes; use",
        ),
        (Test::Gt("ten".into()), "`ten` is not a usable decimal number; write"),
        (Test::Gte(".inf".into()), "not a usable decimal number"),
        (Test::Lt("0x10".into()), "not a usable decimal number"),
        (Test::Lte(String::new()), "not a usable decimal number"),
        (Test::Semver("^1".into()), "is no operator"),
        (
            Test::Cidr(vec!["10.0.0.0/8".into(), "10.0.0.0/33".into()]),
            "`10.0.0.0/33` is not a network; write",
        ),
        (Test::Cidr(vec!["localhost".into()]), "not a network"),
        (Test::Before("2030-01-01".into()), "`2030-01-01` is not a time of RFC 3339; write"),
        (Test::After("tomorrow".into()), "not a time"),
    ] {
        let message = check_error(&test);
        assert!(message.contains(expected), "{test:?}: {message}");
    }
    assert_eq!(super::check(&Test::Semver("1".into())), Ok(()));
}

fn check_error(test: &Test) -> String {
    let error = super::check(test).unwrap_err();
    assert_eq!(compile_alone(&on("x", test.clone())).unwrap_err(), error);
    assert!(!error.problem().is_empty() && !error.help().is_empty() && !error.to_string().contains('\n'));
    error.to_string()
}

#[test]
fn combinations() {
    let yes = || on("x", Test::Equals(string("1")));
    let no = || on("x", Test::Equals(string("2")));
    let absent = || on("y", Test::Gt("1".into()));
    for (condition, expected) in [
        (Condition::All(vec![]), true),
        (Condition::Any(vec![]), false),
        (Condition::All(vec![yes(), yes()]), true),
        (Condition::All(vec![yes(), no()]), false),
        (Condition::Any(vec![no(), yes()]), true),
        (Condition::Any(vec![no(), no()]), false),
        (Condition::Not(Box::new(no())), true),
        (Condition::Not(Box::new(yes())), false),
        // Two-valued: a test without its attribute is false, and its negation true.
        (Condition::Not(Box::new(absent())), true),
        (Condition::Any(vec![absent(), yes()]), true),
    ] {
        let compiled = compile_alone(&condition).unwrap();
        let attributes: &[(&str, Value<'_>)] = &[("x", Text("1"))];
        assert_eq!(compiled.holds(attributes), expected, "{condition:?}");
        assert_eq!(compiled.unmet(attributes).is_none(), expected, "{condition:?}");
    }
}

fn segment(id: &str, when: Condition) -> Segment {
    Segment { id: id.to_owned(), when }
}

fn named(id: &str) -> Condition {
    Condition::Segment(id.to_owned())
}

#[test]
fn segments_are_resolved_whatever_their_order_and_shared() {
    // A diamond: top needs left and right, both need base.
    let segments = [
        segment("top", Condition::All(vec![named("left"), named("right")])),
        segment("left", named("base")),
        segment("right", Condition::Not(Box::new(Condition::Not(Box::new(named("base")))))),
        segment("base", on("x", Test::Equals(string("1")))),
    ];
    let segments = Segments::compile(&segments).unwrap();
    let compiled = Compiled::new(&named("top"), &segments).unwrap();
    let holds = |text| {
        let attributes: &[(&str, Value<'_>)] = &[("x", Text(text))];
        compiled.holds(attributes)
    };
    assert!(holds("1"));
    assert!(!holds("2"));
    let error = Compiled::new(&named("bottom"), &segments).unwrap_err();
    assert_eq!(error, ConditionError::UnknownSegment { id: "bottom".into() });
}

#[test]
fn every_faulty_segment_is_reported_once() {
    let faults = Segments::compile(&[
        segment("entry", named("a")),
        segment("a", named("b")),
        segment("b", Condition::Any(vec![named("fine"), named("a")])),
        segment("fine", Condition::All(vec![])),
        segment("self", Condition::Not(Box::new(named("self")))),
        segment("lost", named("nowhere")),
        segment("bad", on("x", Test::Gt("ten".into()))),
        segment("needs-bad", named("bad")),
        segment("fine", Condition::All(vec![])),
    ])
    .unwrap_err();
    let mut messages: Vec<String> = faults.iter().map(|(id, error)| format!("{id}: {error}")).collect();
    messages.sort();
    assert_eq!(messages.len(), 5, "{messages:#?}");
    for expected in [
        "a → b → a",
        "bad: `ten`",
        "fine: two segments are called `fine`",
        "lost: there is no segment `nowhere`",
        "self: segments need each other in a circle: self → self",
    ] {
        assert!(messages.iter().any(|message| message.contains(expected)), "{expected}: {messages:#?}");
    }
}

#[test]
fn depth_and_work_are_bounded() {
    let nest =
        |levels: usize| (1..levels).fold(Condition::All(vec![]), |inner, _| Condition::Not(Box::new(inner)));
    assert!(compile_alone(&nest(MAX_DEPTH)).is_ok());
    assert_eq!(compile_alone(&nest(MAX_DEPTH + 1)).unwrap_err(), ConditionError::TooDeep);
    // What lies deeper is not even looked at.
    let wrap: [fn(Condition) -> Condition; 3] = [
        |inner| Condition::Not(Box::new(inner)),
        |inner| Condition::All(vec![inner]),
        |inner| Condition::Any(vec![inner]),
    ];
    for wrap in wrap {
        let deep = (0..=MAX_DEPTH).fold(named("x"), |inner, _| wrap(inner));
        let found = compile(&deep, 0, &mut |id, depth| panic!("{id} at {depth}"));
        assert_eq!(found.unwrap_err(), ConditionError::TooDeep);
    }

    // A chain of segments is as deep as it is long, whichever end comes first.
    let mut chain: Vec<Segment> = (0..1000)
        .map(|n| {
            segment(
                &format!("s{n}"),
                if n == 0 { Condition::All(vec![]) } else { named(&format!("s{}", n - 1)) },
            )
        })
        .collect();
    assert!(Segments::compile(&chain[..MAX_DEPTH]).is_ok());
    for _ in 0..2 {
        let faults = Segments::compile(&chain).unwrap_err();
        assert!(faults.iter().all(|(_, error)| *error == ConditionError::TooDeep), "{faults:?}");
        chain.reverse();
    }

    // Segments that name each other twice double the work with each level.
    let doubling: Vec<Segment> = (0..20)
        .map(|n| {
            let below = || named(&format!("d{}", n - 1));
            let when =
                if n == 0 { on("x", Test::Lt("0".into())) } else { Condition::Any(vec![below(), below()]) };
            segment(&format!("d{n}"), when)
        })
        .collect();
    assert!(Segments::compile(&doubling[..13]).is_ok(), "2^12 tests are the bound");
    let faults = Segments::compile(&doubling).unwrap_err();
    assert_eq!(faults, [("d13".to_owned(), ConditionError::TooManyTests)]);
}

#[test]
fn sizes_count_levels_and_tests() {
    let leaf = |name| on(name, Test::Lt("0".into()));
    let lists =
        |parts| Condition::Any(vec![Condition::All(parts), Condition::Not(Box::new(Condition::All(vec![])))]);
    for (condition, depth, tests) in [
        (Condition::All(vec![]), 1, 1),
        (leaf("x"), 1, 1),
        (lists(vec![]), 3, 2),
        (lists(vec![leaf("x"), leaf("y")]), 3, 3),
    ] {
        assert_eq!(compile_alone(&condition).unwrap().size, Size { depth, tests });
    }
    let wide = |tests| Condition::All(vec![leaf("x"); tests]);
    assert_eq!(compile_alone(&wide(MAX_TESTS)).unwrap().size.tests, MAX_TESTS);
    assert_eq!(compile_alone(&wide(MAX_TESTS + 1)).unwrap_err(), ConditionError::TooManyTests);
}

fn test() -> impl Strategy<Value = Test> {
    let scalar = prop_oneof![
        "[a-c]?".prop_map(|text| string(&text)),
        "[0-2]".prop_map(|text| number(&text)),
        any::<bool>().prop_map(boolean),
    ];
    prop_oneof![
        scalar.clone().prop_map(Test::Equals),
        proptest::collection::vec(scalar.clone(), 0..4).prop_map(Test::In),
        proptest::collection::vec(scalar, 0..4).prop_map(Test::NotIn),
        "[a-c]?".prop_map(Test::StartsWith),
        "[0-2]".prop_map(Test::Gte),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let leaf = ("[xy]", test()).prop_map(|(name, test)| on(&name, test));
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Condition::All),
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Condition::Any),
            inner.prop_map(|inner| Condition::Not(Box::new(inner))),
        ]
    })
}

/// The plain model: no compiling, no sorting, no sharing.
fn plainly(condition: &Condition, attributes: &[(&str, Value<'_>)]) -> bool {
    let same = |scalar: &Scalar, value: Value<'_>| match value {
        Text(text) => scalar.text == text,
        Number(text) => scalar.text.parse() == text.parse::<i64>(),
        Bool(value) => *scalar == boolean(value),
        Compound => false,
    };
    match condition {
        Condition::Attribute { name, test } => {
            let value = Attributes::get(attributes, name);
            match test {
                Test::Equals(scalar) => value.is_some_and(|value| same(scalar, value)),
                Test::In(list) => value.is_some_and(|value| list.iter().any(|scalar| same(scalar, value))),
                Test::NotIn(list) => {
                    !value.is_some_and(|value| list.iter().any(|scalar| same(scalar, value)))
                }
                Test::StartsWith(start) => {
                    matches!(value, Some(Text(text)) if text.starts_with(start.as_str()))
                }
                Test::Gte(bound) => match value {
                    Some(Text(text) | Number(text)) => {
                        text.parse::<i64>().is_ok_and(|number| number >= bound.parse().unwrap())
                    }
                    _ => false,
                },
                other => unreachable!("{other:?} is not generated"),
            }
        }
        Condition::Segment(_) => unreachable!("not generated"),
        Condition::All(all) => all.iter().all(|inner| plainly(inner, attributes)),
        Condition::Any(any) => any.iter().any(|inner| plainly(inner, attributes)),
        Condition::Not(inner) => !plainly(inner, attributes),
    }
}

fn value() -> impl Strategy<Value = Option<Value<'static>>> {
    proptest::sample::select(vec![
        None,
        Some(Text("")),
        Some(Text("a")),
        Some(Text("b")),
        Some(Text("1")),
        Some(Text("true")),
        Some(Number("1")),
        Some(Number("2")),
        Some(Bool(true)),
        Some(Bool(false)),
        Some(Compound),
    ])
}

proptest! {
    #[test]
    fn compiled_conditions_agree_with_the_plain_model(condition in condition(), x in value(), y in value()) {
        let attributes: Vec<(&str, Value<'_>)> =
            [("x", x), ("y", y)].into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let expected = plainly(&condition, &attributes);
        let compiled = compile_alone(&condition).unwrap();
        prop_assert_eq!(compiled.holds(&attributes[..]), expected);
        prop_assert_eq!(compiled.unmet(&attributes[..]).is_none(), expected);
    }
}

/// Tests of every kind whose boundaries meet, and values on both sides of them.
fn neighbours() -> (Vec<Test>, Vec<Option<Value<'static>>>) {
    let text = |text: &&str| (*text).to_owned();
    let numbers = ["1", "1.0", "2", "-0", "1e0"];
    let versions = ["1.2", "1.2.0", "1.2.1", "1.3", "2", "2.0.0", "2.0.0-rc.1"];
    let networks = ["10.0.0.0/8", "10.1.0.0/16", "::ffff:10.1.0.0/112", "::/0", "0.0.0.0/0", "10.1.0.1"];
    let times = ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00+01:00", "2031-01-01T00:00:00Z"];
    let mut tests = Vec::new();
    for bound in &numbers {
        tests.extend([Test::Gt, Test::Gte, Test::Lt, Test::Lte].map(|test| test(text(bound))));
    }
    for version in versions {
        let operators = ["<", "<=", "=", "", ">=", ">"];
        tests.extend(operators.map(|operator| Test::Semver(format!("{operator}{version}"))));
    }
    for network in &networks {
        tests.push(Test::Cidr(vec![text(network)]));
    }
    for time in &times {
        tests.extend([Test::Before(text(time)), Test::After(text(time))]);
    }
    for part in ["", "1", "1.", "tr"] {
        tests.extend([
            Test::StartsWith(part.into()),
            Test::EndsWith(part.into()),
            Test::Matches(format!("^{part}")),
        ]);
    }
    let scalars = [
        string("1"),
        number("1"),
        number("1.0"),
        number("0"),
        string("true"),
        boolean(true),
        string("10.1.0.1"),
        string("1.2.0"),
        string(""),
    ];
    for pair in scalars.windows(2) {
        tests.extend([Test::Equals(pair[0].clone()), Test::In(pair.to_vec()), Test::NotIn(pair.to_vec())]);
    }
    let mut values = vec![None, Some(Bool(true)), Some(Bool(false)), Some(Compound)];
    values.extend(numbers.iter().chain(&["0", "1.5", "3", "-1"]).map(|text| Some(Number(text))));
    let others = [
        "",
        "x",
        "true",
        "0",
        "3",
        "-1",
        "1.9.9",
        "v1.2.0",
        "1.2.0-rc.1",
        "1.3.0-0",
        "3.0.0",
        "10.1.0.1",
        "::ffff:10.1.0.1",
        "10.2.0.0",
        "::1",
    ];
    values.extend(numbers.iter().chain(&versions).chain(&times).chain(&others).map(|text| Some(Text(text))));
    (tests, values)
}

#[test]
fn conditions_that_count_as_exclusive_never_both_hold() {
    use crate::rule::model::{Flag, FlagRule, Serve, Sticky};
    let (tests, values) = neighbours();
    let conditions: Vec<Condition> = tests
        .iter()
        .flat_map(|test| [on("x", test.clone()), Condition::Not(Box::new(on("x", test.clone())))])
        .collect();
    let holds: Vec<Vec<bool>> = conditions
        .iter()
        .map(|condition| {
            let compiled = compile_alone(condition).unwrap();
            let one = |value: &Option<Value<'_>>| match value {
                Some(value) => compiled.holds(&[("x", *value)][..]),
                None => compiled.holds(&[] as &[(&str, Value<'_>)]),
            };
            values.iter().map(one).collect()
        })
        .collect();
    let (mut exclusive, mut rules) = (0, RuleSet::default());
    for (at, left) in conditions.iter().enumerate() {
        // One flag for each pair: a pair that is no conflict was proved exclusive.
        rules.flags = conditions[..at]
            .iter()
            .enumerate()
            .map(|(other, right)| {
                let rule = |id: &str, when: &Condition| FlagRule {
                    id: id.to_owned(),
                    priority: 0,
                    when: Some(when.clone()),
                    percentage: None,
                    serve: Serve::Variant(id.to_owned()),
                };
                let rules = vec![rule("a", left), rule("b", right)];
                Flag {
                    key: other.to_string(),
                    variants: vec![],
                    default: "a".into(),
                    sticky: Sticky::None,
                    rules,
                }
            })
            .collect();
        let mut conflicting = vec![false; at];
        for conflict in crate::rule::conflict::conflicts(&rules) {
            conflicting[conflict.flag.parse::<usize>().unwrap()] = true;
        }
        for (other, conflicting) in conflicting.into_iter().enumerate() {
            if conflicting {
                continue;
            }
            exclusive += 1;
            let both = holds[at].iter().zip(&holds[other]).position(|(left, right)| *left && *right);
            assert_eq!(both.map(|at| values[at]), None, "{left:?} and {:?} both hold", conditions[other]);
        }
    }
    assert!(exclusive > 500, "{exclusive}");
}
