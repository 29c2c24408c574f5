use proptest::prelude::*;
use regex::Regex;

use super::{Why, conflicts};
use crate::attribute::Value;
use crate::rule::RuleSet;
use crate::rule::model::{
    Condition, Flag, FlagRule, Percentage, Scalar, ScalarKind, Segment, Serve, Sticky, Test,
};

// ---- builders ------------------------------------------------------------------------------------

fn text(text: &str) -> Scalar {
    Scalar { text: text.to_owned(), kind: ScalarKind::String }
}

fn number(text: &str) -> Scalar {
    Scalar { text: text.to_owned(), kind: ScalarKind::Number }
}

fn a(test: Test) -> Condition {
    Condition::Attribute { name: "a".to_owned(), test }
}

fn b(test: Test) -> Condition {
    Condition::Attribute { name: "b".to_owned(), test }
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn eq(value: &str) -> Test {
    Test::Equals(text(value))
}

fn one_of(values: &[&str]) -> Test {
    Test::In(values.iter().map(|value| text(value)).collect())
}

fn none_of(values: &[&str]) -> Test {
    Test::NotIn(values.iter().map(|value| text(value)).collect())
}

fn cidr(nets: &[&str]) -> Test {
    Test::Cidr(nets.iter().map(|&net| net.to_owned()).collect())
}

macro_rules! of_text {
    ($($name:ident $variant:ident),*) => {
        $(fn $name(value: &str) -> Test { Test::$variant(value.to_owned()) })*
    };
}
of_text!(gt Gt, gte Gte, lt Lt, lte Lte, starts StartsWith, ends EndsWith, matches_re Matches, semver Semver,
    before Before, after After);

fn rule(id: &str, when: Option<Condition>, serve: &str) -> FlagRule {
    let serve = Serve::Variant(serve.to_owned());
    FlagRule { id: id.to_owned(), priority: 10, when, percentage: None, serve }
}

fn flag(rules: Vec<FlagRule>) -> Flag {
    Flag {
        key: "f".to_owned(),
        variants: vec![("on".to_owned(), true.into()), ("off".to_owned(), false.into())],
        default: "off".to_owned(),
        sticky: Sticky::None,
        rules,
    }
}

fn rule_set(rules: Vec<FlagRule>) -> RuleSet {
    let segment = |id: &str, when| Segment { id: id.to_owned(), when };
    RuleSet {
        segments: vec![
            segment("staff", a(ends("@example.com"))),
            segment("not-staff", not(Condition::Segment("staff".to_owned()))),
            segment("loop", Condition::Segment("loop".to_owned())),
        ],
        flags: vec![flag(rules)],
        ..RuleSet::default()
    }
}

fn why(left: Option<Condition>, right: Option<Condition>) -> Option<Why> {
    let found = conflicts(&rule_set(vec![rule("x", left, "on"), rule("y", right, "off")]));
    found.first().map(|conflict| conflict.why)
}

// ---- single cases --------------------------------------------------------------------------------

#[track_caller]
fn check(left: &Condition, right: &Condition, can_both_hold: bool) {
    for (one, two) in [(left, right), (right, left)] {
        let found = why(Some(one.clone()), Some(two.clone())).is_some();
        assert_eq!(found, can_both_hold, "{one:?} beside {two:?}");
    }
}

#[test]
fn r14_rules_of_equal_priority_that_can_both_hold_must_agree() {
    let different_attributes = || (Some(a(eq("acme"))), Some(b(eq("pro"))));
    let (left, right) = different_attributes();
    let found = conflicts(&rule_set(vec![rule("x", left, "on"), rule("y", right, "off")]));
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "rules `x` and `y` of flag `f` both have priority 10 and serve different results, and both can hold \
         because no attribute tells them apart; give one of them a higher priority, or make their conditions \
         exclude each other on one attribute"
    );

    let (left, right) = different_attributes();
    assert_eq!(conflicts(&rule_set(vec![rule("x", left, "on"), rule("y", right, "on")])), []);

    check(&a(eq("acme")), &a(eq("umbrella")), false);

    let (left, right) = different_attributes();
    let mut higher = rule("x", left, "on");
    higher.priority = 11;
    assert_eq!(conflicts(&rule_set(vec![higher, rule("y", right, "off")])), []);
}

#[test]
fn a_rule_without_a_condition_meets_every_other() {
    assert_eq!(why(None, None), Some(Why::Unconditional));
    assert_eq!(why(None, Some(a(eq("x")))), Some(Why::Unconditional));
    assert_eq!(why(None, Some(Condition::Any(vec![]))), None, "never holds");
    assert_eq!(why(None, Some(a(one_of(&[])))), None, "never holds");
}

#[test]
fn only_a_percentage_of_zero_never_holds() {
    for (hundredths, meets) in [(0, false), (1, true), (10_000, true)] {
        let mut ramp = rule("x", None, "on");
        ramp.percentage = Percentage::from_hundredths(hundredths);
        let mut other = rule("y", None, "off");
        other.percentage = Percentage::from_hundredths(1);
        assert_eq!(!conflicts(&rule_set(vec![ramp, other])).is_empty(), meets, "{hundredths}");
    }
}

#[test]
fn equal_serves_are_one_result_and_others_are_not() {
    let split = |left, right| {
        let share = |hundredths| Percentage::from_hundredths(hundredths).unwrap();
        Serve::Split(vec![("on".to_owned(), share(left)), ("off".to_owned(), share(right))])
    };
    for (one, two, conflict) in [
        (split(5_000, 5_000), split(5_000, 5_000), false),
        (split(5_000, 5_000), split(6_000, 4_000), true),
        (split(5_000, 5_000), Serve::Variant("on".to_owned()), true),
    ] {
        let (mut x, mut y) = (rule("x", None, "on"), rule("y", None, "on"));
        (x.serve, y.serve) = (one, two);
        assert_eq!(!conflicts(&rule_set(vec![x, y])).is_empty(), conflict);
    }
}

#[test]
fn finite_sets_exclude_what_none_of_their_values_passes() {
    for (left, right, meet) in [
        (one_of(&["x", "y"]), one_of(&["z"]), false),
        (one_of(&["x", "y"]), one_of(&["y", "z"]), true),
        (one_of(&["x", "y"]), none_of(&["y", "x", "z"]), false),
        (one_of(&["x", "y"]), none_of(&["x"]), true),
        (none_of(&["x"]), none_of(&["y"]), true),
        (one_of(&["acme-1", "acme-2"]), starts("acme-"), true),
        (one_of(&["acme-1", "acme-2"]), starts("umbrella-"), false),
        (one_of(&["42"]), starts("acme-"), false),
        (one_of(&["42"]), starts("4"), true),
        (eq("a@example.com"), ends("@example.org"), false),
        (eq("abc"), matches_re("^a.c$"), true),
        (eq("abc"), matches_re("^c"), false),
        (eq("abc"), matches_re("("), true),
        (eq("5"), gt("5"), false),
        (eq("5"), gte("5"), true),
        (eq("five"), gte("5"), false),
        (eq("1.2.3"), semver(">=2"), false),
        (eq("1.2.3"), semver(">=1 <2"), true),
        (eq("1.2.3-rc.1"), semver(">=2"), false),
        (eq("10.1.2.3"), cidr(&["10.0.0.0/8"]), true),
        (eq("10.1.2.3"), cidr(&["192.168.0.0/16", "fe80::/10"]), false),
        (eq("2024-05-01T00:00:00Z"), before("2024-01-01T00:00:00Z"), false),
        (eq("2024-05-01T02:00:00+02:00"), after("2024-04-30T23:59:59Z"), true),
        (Test::Equals(number("1")), Test::Equals(number("1.0")), true),
        (Test::Equals(number("1")), Test::Equals(number("2")), false),
        (Test::Equals(number("1")), Test::Equals(text("1")), true),
        (Test::Equals(number("1")), Test::NotIn(vec![number("1.0")]), true),
        (Test::Equals(Scalar { text: "true".to_owned(), kind: ScalarKind::Bool }), eq("false"), false),
    ] {
        check(&a(left), &a(right), meet);
    }
}

#[test]
fn intervals_prefixes_ranges_and_networks_exclude_each_other() {
    for (left, right, meet) in [
        (gte("5"), lt("5"), false),
        (gte("5"), lte("5.0"), true),
        (gt("5"), lt("5.0000000000000000000000001"), true),
        (gte("9007199254740993"), lte("9007199254740992"), false),
        (gt("-1"), lt("-2e0"), false),
        (gt("5"), starts("x"), true),
        (starts("acme-"), starts("acme-eu-"), true),
        (starts("acme-"), starts("umbrella-"), false),
        (ends("@a.example"), ends("@b.example"), false),
        (starts("x"), ends("y"), true),
        (semver(">=1.2 <2"), semver(">=2"), false),
        (semver(">=1.2  < 2"), semver(">=1.9"), true),
        (semver("<2"), semver(">=2.0.0"), false),
        // 2.0.0-rc.1 is below 2.0.0, and not in 2.
        (semver("<2.0.0"), semver(">=2"), false),
        (semver("<2.0.0"), semver(">=2.0.0-0"), true),
        (semver("<1.2.3"), semver("=1.2.3"), false),
        (semver("1.2"), semver("1.3"), false),
        (semver("1.2"), semver("=1.2.7"), true),
        (semver(">1.2"), semver("<1.3"), false),
        (semver("<=1.2"), semver(">1.2"), false),
        (semver("1.2 || 3"), semver(">=5"), true),
        (semver("<=1.2.3-rc.1"), semver(">=5"), false),
        (semver("<=1.2"), semver(">1.2.5"), true),
        (semver("<= 1.2"), semver(">= 1.3"), false),
        (cidr(&["10.0.0.0/8"]), cidr(&["10.2.0.0/16"]), true),
        (cidr(&["10.0.0.0/8"]), cidr(&["11.0.0.0/8", "2001:db8::/32"]), false),
        (cidr(&["10.0.0.0/8"]), cidr(&["::ffff:10.0.0.0/120"]), true),
        (before("2024-01-01T00:00:00Z"), after("2024-01-01T00:00:00Z"), false),
        (before("2024-01-01T00:00:00Z"), after("2024-01-01T00:30:00+01:00"), true),
    ] {
        check(&a(left), &a(right), meet);
    }
}

#[test]
fn a_test_excludes_its_own_negation_and_what_follows_from_it() {
    for (held, denied, meet) in [
        (eq("x"), eq("x"), false),
        (matches_re("x+"), matches_re("x+"), false),
        (matches_re("x+"), matches_re("x"), true),
        (gte("5"), gte("5"), false),
        (gte("7"), gte("5"), false),
        (lt("5"), gte("5"), true),
        (gt("5"), gte("7"), true),
        (starts("acme-eu"), starts("acme"), false),
        (starts("acme"), starts("acme-eu"), true),
        (ends(".example.com"), ends("example.com"), false),
        (cidr(&["10.2.0.0/16"]), cidr(&["10.0.0.0/8"]), false),
        (cidr(&["10.0.0.0/8"]), cidr(&["10.2.0.0/16"]), true),
        (cidr(&["10.0.0.0/8"]), cidr(&["::/0"]), true),
        (before("2024-01-01T00:00:00Z"), before("2024-06-01T00:00:00Z"), false),
        (semver(">=1"), semver(">=1"), false),
        (none_of(&["x"]), none_of(&["x"]), false),
    ] {
        check(&a(held), &not(a(denied)), meet);
    }
    // Both denials hold for an absent value.
    check(&not(a(gte("5"))), &not(a(lt("5"))), true);
    check(&not(a(starts("a"))), &not(a(gte("5"))), true);
}

#[test]
fn trees_and_segments_are_looked_into() {
    let staff = || Condition::Segment("staff".to_owned());
    let all = |parts| Condition::All(parts);
    let any = |parts| Condition::Any(parts);
    check(&staff(), &not(staff()), false);
    check(&staff(), &Condition::Segment("not-staff".to_owned()), false);
    check(&staff(), &a(eq("x@example.org")), false);
    check(&all(vec![staff(), b(eq("1"))]), &all(vec![b(eq("1")), a(ends("@example.com"))]), true);
    check(
        &any(vec![a(eq("x")), a(eq("y"))]),
        &any(vec![a(eq("z")), all(vec![a(eq("x")), b(eq("1"))])]),
        true,
    );
    check(&any(vec![a(eq("x")), a(eq("y"))]), &a(none_of(&["x", "y"])), false);
    // Two attributes only together tell these apart, and they do so in each alternative.
    check(
        &any(vec![all(vec![a(eq("x")), b(eq("1"))]), all(vec![a(eq("y")), b(eq("2"))])]),
        &any(vec![all(vec![a(eq("x")), b(eq("2"))]), all(vec![a(eq("y")), b(eq("1"))])]),
        false,
    );
    check(&not(any(vec![a(eq("x")), b(eq("1"))])), &any(vec![a(eq("x")), b(eq("1"))]), false);
}

#[test]
fn what_is_not_known_or_too_large_is_taken_to_hold() {
    assert_eq!(why(Some(Condition::Segment("nobody".to_owned())), Some(a(eq("x")))), Some(Why::NotExclusive));
    assert_eq!(why(Some(Condition::Segment("loop".to_owned())), Some(a(eq("x")))), Some(Why::TooComplex));

    let mut deep = a(eq("x"));
    for _ in 0..200 {
        deep = not(deep);
    }
    assert_eq!(why(Some(deep), Some(a(eq("x")))), Some(Why::TooComplex));

    // 2^20 alternatives.
    let wide = Condition::All(
        (0..20)
            .map(|n| {
                let attribute = |test| Condition::Attribute { name: format!("c{n}"), test };
                Condition::Any(vec![attribute(eq("x")), attribute(starts("y"))])
            })
            .collect(),
    );
    assert_eq!(why(Some(wide.clone()), Some(a(eq("x")))), Some(Why::TooComplex));
    assert_eq!(why(Some(wide), Some(a(one_of(&[])))), None);
}

#[test]
fn a_denied_list_of_tests_is_met_by_each_that_fails() {
    let both = |second: &str| Condition::All(vec![a(eq("x")), b(eq(second))]);
    assert_eq!(why(Some(not(both("y"))), Some(both("z"))), Some(Why::NotExclusive));
    assert_eq!(why(Some(not(both("y"))), Some(both("y"))), None);
    let either = || Condition::Any(vec![a(eq("x")), b(eq("y"))]);
    assert_eq!(why(Some(not(either())), Some(a(eq("x")))), None);
    assert_eq!(why(Some(not(either())), Some(a(eq("z")))), Some(Why::NotExclusive));
}

#[test]
fn a_number_listed_in_another_spelling_is_denied_with_it() {
    let one = Condition::All(vec![a(Test::Equals(number("1.0"))), not(a(matches_re("^1")))]);
    assert_eq!(why(Some(one.clone()), Some(not(a(Test::Equals(number("1")))))), None);
    assert_eq!(why(Some(one), Some(not(a(Test::Equals(number("2")))))), Some(Why::NotExclusive));
    let huge = |text: &str| Some(a(Test::Equals(number(text))));
    assert_eq!(
        why(huge("1e99999999999"), huge("10e99999999998")),
        Some(Why::NotExclusive),
        "beyond decimals"
    );
}

#[test]
fn instants_are_compared_however_they_are_written() {
    let (noon, same) = ("2030-01-01T12:00:00Z", "2030-01-01T13:00:00+01:00");
    let all = |parts: Vec<Condition>| Some(Condition::All(parts));
    for (left, right, exclusive) in [
        (a(after(noon)), a(before(same)), true),
        (a(after(noon)), not(a(after(same))), true),
        (a(before(noon)), not(a(before(same))), true),
        (a(after(noon)), not(a(after("2030-01-01T11:59:59Z"))), true),
        (a(after(noon)), not(a(after("2030-01-01T12:00:01Z"))), false),
        (a(after(noon)), a(before("2030-01-01T12:00:01Z")), false),
        // Noon itself is neither before nor after noon, and there before one o'clock.
        (
            not(a(before(noon))),
            Condition::All(vec![not(a(after(same))), a(before("2030-01-01T13:00:00Z"))]),
            false,
        ),
        (not(a(before(noon))), Condition::All(vec![not(a(after(same))), a(before(noon))]), true),
        // What is no time at all passes both.
        (not(a(before(noon))), not(a(after("2029-01-01T00:00:00Z"))), false),
    ] {
        let expected = if exclusive { None } else { Some(Why::NotExclusive) };
        assert_eq!(why(Some(left.clone()), Some(right.clone())), expected, "{left:?} {right:?}");
        assert_eq!(why(all(vec![left.clone()]), all(vec![right.clone()])), expected, "{left:?} {right:?}");
    }
}

#[test]
fn every_pair_of_one_priority_is_looked_at_once() {
    let rules = |serves: &[&str]| {
        serves.iter().enumerate().map(|(n, serve)| rule(&format!("r{n}"), None, serve)).collect()
    };
    for (serves, pairs) in [
        (&["on"][..], &[][..]),
        (&["on", "on"], &[]),
        (&["on", "off"], &[("r0", "r1")]),
        (&["on", "off", "on"], &[("r0", "r1"), ("r1", "r2")]),
        (&["on", "on", "off"], &[("r0", "r2"), ("r1", "r2")]),
    ] {
        let found = conflicts(&rule_set(rules(serves)));
        let found: Vec<_> = found.iter().map(|pair| (pair.first.as_str(), pair.second.as_str())).collect();
        assert_eq!(found, pairs, "{serves:?}");
    }
}

#[test]
fn many_rules_and_long_lists_stay_within_bounds() {
    let list = |from: usize, count: usize| {
        Test::In((from..from + count).map(|n| text(&format!("tenant-{n}"))).collect())
    };
    let serve = |n: usize| if n.is_multiple_of(2) { "on" } else { "off" };
    let apart = (0..200).map(|n| rule(&format!("r{n}"), Some(a(list(n * 100, 100))), serve(n))).collect();
    assert_eq!(conflicts(&rule_set(apart)), []);

    let same = (0..200).map(|n| rule(&format!("r{n}"), Some(a(list(0, 10))), serve(n))).collect();
    assert_eq!(conflicts(&rule_set(same)).len(), super::MAX_CONFLICTS);
}

// ---- against a plain evaluation ------------------------------------------------------------------

/// How a value of one kind meets a scalar of another; the proof must not depend on it.
#[derive(Clone, Copy, Debug)]
struct Reading {
    kinds_must_match: bool,
}

fn decimal(text: &str) -> Option<f64> {
    // The domain below holds small numbers only, which floats keep exactly.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
    if plain { text.parse().ok() } else { None }
}

fn same(value: Value<'_>, scalar: &Scalar, reading: Reading) -> bool {
    match value {
        Value::Text(text) => {
            text == scalar.text && (!reading.kinds_must_match || scalar.kind == ScalarKind::String)
        }
        Value::Number(number) => {
            if reading.kinds_must_match && scalar.kind != ScalarKind::Number {
                return false;
            }
            number == scalar.text
                || matches!((decimal(number), decimal(&scalar.text)), (Some(one), Some(two)) if one.total_cmp(&two).is_eq())
        }
        Value::Bool(bool) => {
            scalar.text == bool.to_string() && (!reading.kinds_must_match || scalar.kind == ScalarKind::Bool)
        }
        Value::Compound => false,
    }
}

fn version(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split('.').map(str::parse::<u64>);
    let mut number = || parts.next().unwrap_or(Ok(0)).ok();
    let version = (number()?, number()?, number()?);
    if parts.next().is_none() { Some(version) } else { None }
}

/// A network of mapped IPv4 addresses is one of IPv4 addresses, as every such address is.
fn network(text: &str) -> ipnet::IpNet {
    let network = if text == "::ffff:0:0/96" { "0.0.0.0/0" } else { text };
    network.parse().unwrap()
}

fn passes(value: Option<Value<'_>>, test: &Test, reading: Reading) -> bool {
    if let Test::NotIn(list) = test {
        return !value.is_some_and(|value| list.iter().any(|scalar| same(value, scalar, reading)));
    }
    let Some(value) = value else { return false };
    let as_text = || if let Value::Text(text) = value { Some(text) } else { None };
    let compare = |threshold: &str, accepts: fn(&f64, &f64) -> bool| {
        let (Value::Text(written) | Value::Number(written)) = value else { return false };
        matches!((decimal(written), decimal(threshold)), (Some(one), Some(two)) if accepts(&one, &two))
    };
    let time = || as_text().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    match test {
        Test::Equals(scalar) => same(value, scalar, reading),
        Test::In(list) => list.iter().any(|scalar| same(value, scalar, reading)),
        Test::NotIn(_) => unreachable!(),
        Test::StartsWith(part) => as_text().is_some_and(|text| text.starts_with(part.as_str())),
        Test::EndsWith(part) => as_text().is_some_and(|text| text.ends_with(part.as_str())),
        Test::Matches(pattern) => as_text().is_some_and(|text| Regex::new(pattern).unwrap().is_match(text)),
        Test::Gt(at) => compare(at, f64::gt),
        Test::Gte(at) => compare(at, f64::ge),
        Test::Lt(at) => compare(at, f64::lt),
        Test::Lte(at) => compare(at, f64::le),
        Test::Semver(range) => as_text().and_then(version).is_some_and(|have| {
            range.split(' ').all(|word| {
                let wanted = |operator: &str| word.strip_prefix(operator).and_then(version);
                if let Some(at) = wanted(">=") { have >= at } else { have < wanted("<").unwrap() }
            })
        }),
        Test::Cidr(nets) => as_text()
            .and_then(|text| text.parse::<std::net::IpAddr>().ok())
            .is_some_and(|ip| nets.iter().any(|net| network(net).contains(&ip.to_canonical()))),
        Test::Before(at) => time().is_some_and(|time| time < at.parse().unwrap()),
        Test::After(at) => time().is_some_and(|time| time > at.parse().unwrap()),
    }
}

fn holds(condition: &Condition, values: [Option<Value<'_>>; 2], rules: &RuleSet, reading: Reading) -> bool {
    match condition {
        Condition::Attribute { name, test } => passes(values[usize::from(name == "b")], test, reading),
        Condition::Segment(id) => {
            let segment = rules.segments.iter().find(|segment| segment.id == *id).unwrap();
            holds(&segment.when, values, rules, reading)
        }
        Condition::All(parts) => parts.iter().all(|part| holds(part, values, rules, reading)),
        Condition::Any(parts) => parts.iter().any(|part| holds(part, values, rules, reading)),
        Condition::Not(inner) => !holds(inner, values, rules, reading),
    }
}

const TEXTS: [&str; 21] = [
    "",
    "a",
    "ab",
    "b",
    "ba",
    "x@example.com",
    "1",
    "1.0",
    "2",
    "3",
    "5",
    "true",
    "false",
    "1.2.3",
    "2.0.0",
    "10.0.0.1",
    "10.1.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "2024-01-01T00:00:00Z",
    "2024-02-01T00:00:00Z",
];

fn domain() -> Vec<Option<Value<'static>>> {
    let numbers = ["1", "1.0", "2", "3", "4", "5", "-1"].map(Value::Number);
    let others = [Value::Bool(true), Value::Bool(false), Value::Compound];
    let values = TEXTS.map(Value::Text).into_iter().chain(numbers).chain(others).map(Some);
    values.chain([None]).collect()
}

fn any_scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        proptest::sample::select(TEXTS.to_vec()).prop_map(text),
        proptest::sample::select(vec!["1", "1.0", "2", "3", "5", "-1"]).prop_map(number),
        proptest::sample::select(vec!["true", "false"])
            .prop_map(|text| Scalar { text: text.to_owned(), kind: ScalarKind::Bool }),
    ]
}

fn any_test() -> impl Strategy<Value = Test> {
    let list = || proptest::collection::vec(any_scalar(), 0..4);
    let pick = |values: &'static [&'static str]| proptest::sample::select(values);
    let limits: &[&str] = &["1", "1.0", "2", "3", "5", "-1"];
    let times: &[&str] = &["2024-01-01T00:00:00Z", "2024-01-15T01:00:00+01:00", "2024-02-01T00:00:00Z"];
    let parts: &[&str] = &["", "a", "ab", "b", "1", "10.", "x@", ".com", "e"];
    let nets: &[&str] = &["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "::/0", "2001:db8::/32", "::ffff:0:0/96"];
    let ranges: &[&str] = &[">=1", "<2", ">=1.2 <2", ">=2", "<1.2.3", ">=1.2.3"];
    prop_oneof![
        3 => any_scalar().prop_map(Test::Equals),
        3 => list().prop_map(Test::In),
        3 => list().prop_map(Test::NotIn),
        2 => pick(parts).prop_map(starts),
        2 => pick(parts).prop_map(ends),
        1 => pick(&["^a", "b$", "\\.", "^$"]).prop_map(matches_re),
        1 => pick(limits).prop_map(gt),
        1 => pick(limits).prop_map(gte),
        1 => pick(limits).prop_map(lt),
        1 => pick(limits).prop_map(lte),
        2 => pick(ranges).prop_map(semver),
        2 => proptest::collection::vec(pick(nets), 0..3).prop_map(|nets| cidr(&nets)),
        1 => pick(times).prop_map(before),
        1 => pick(times).prop_map(after),
    ]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let leaf = prop_oneof![
        4 => any_test().prop_map(a),
        2 => any_test().prop_map(b),
        1 => proptest::sample::select(vec!["staff", "not-staff"])
            .prop_map(|id| Condition::Segment(id.to_owned())),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Condition::All),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Condition::Any),
            inner.prop_map(not),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn rules_that_some_values_satisfy_together_are_never_disjoint(left in any_condition(), right in any_condition()) {
        let rules = rule_set(vec![rule("x", Some(left.clone()), "on"), rule("y", Some(right.clone()), "off")]);
        if !conflicts(&rules).is_empty() {
            return Ok(());
        }
        let domain = domain();
        for reading in [Reading { kinds_must_match: false }, Reading { kinds_must_match: true }] {
            for one in &domain {
                for two in &domain {
                    let both = [&left, &right].iter().all(|when| holds(when, [*one, *two], &rules, reading));
                    prop_assert!(!both, "a = {one:?}, b = {two:?}, {reading:?}");
                }
            }
        }
    }
}
