//! Conditions by walking them as they are written; and two that count as exclusive never both hold.

use std::net::IpAddr;

use tidegate_core::Value;
use tidegate_core::rollout::{Compiled, Segments};
use tidegate_core::rule::RuleSet;
use tidegate_core::rule::conflict::conflicts;
use tidegate_core::rule::model::{
    Condition, Flag, FlagRule, Scalar, ScalarKind, Segment, Serve, Sticky, Test,
};

use super::Input;

/// Deepest nesting.
const MAX_LEVELS: usize = 4;
const MAX_PARTS: usize = 4;
/// Values that are tried with one pair of conditions.
const MAX_TRIES: usize = 24;

const TEXTS: [&str; 30] = [
    "",
    "a",
    "ab",
    "b",
    "ba",
    "abc",
    "true",
    "false",
    "0",
    "1",
    "1.0",
    "-1",
    "1.5",
    "2",
    "10",
    "1.2",
    "1.2.3",
    "1.10.0",
    "2.0.0",
    "v2.1.0",
    "10.0.0.1",
    "10.1.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "::1",
    "2030-01-01T00:00:00Z",
    "2030-01-01T00:00:01Z",
    "2030-01-01T01:00:00+01:00",
    "2031-01-01T00:00:00Z",
    "2030-01-01",
];
const NUMBERS: [&str; 10] = ["0", "-0", "1", "1.0", "-1", "1.5", "2", "10", "10.00", "007"];
const NETWORKS: [&str; 8] = [
    "10.0.0.0/8",
    "10.0.0.1",
    "10.1.0.0/16",
    "0.0.0.0/0",
    "::/0",
    "2001:db8::/32",
    "::ffff:10.0.0.0/104",
    "::1/128",
];
const TIMES: [&str; 3] = ["2030-01-01T00:00:00Z", "2030-01-01T00:00:01Z", "2030-06-01T00:00:00-05:00"];

pub(super) fn run(input: &mut Input<'_>) {
    let segments = vec![Segment { id: "s".to_owned(), when: condition(input, 2, false) }];
    let (left, right) = (condition(input, 0, true), condition(input, 0, true));
    let compiled = Segments::compile(&segments).expect("the tests are well-formed");
    let both = [&left, &right].map(|when| Compiled::new(when, &compiled).expect("the tests are well-formed"));
    let exclusive = exclusive(&segments, &left, &right);
    for _ in 0..MAX_TRIES {
        let attributes: Vec<(&str, Value<'_>)> =
            ["x", "y"].into_iter().filter_map(|name| Some((name, value(input)?))).collect();
        let holds = [(&both[0], &left), (&both[1], &right)].map(|(compiled, condition)| {
            let holds = compiled.holds(&attributes[..]);
            assert_eq!(holds, plainly(condition, &segments, &attributes), "{condition:?} of {attributes:?}");
            assert_eq!(compiled.unmet(&attributes[..]).is_none(), holds, "{condition:?} of {attributes:?}");
            holds
        });
        assert!(!exclusive || holds != [true; 2], "{left:?} and {right:?} of {attributes:?}");
        if input.is_empty() {
            break;
        }
    }
}

/// Whether two flag rules with these conditions do not conflict.
fn exclusive(segments: &[Segment], left: &Condition, right: &Condition) -> bool {
    let rule = |id: &str, when: &Condition| FlagRule {
        id: id.to_owned(),
        priority: 0,
        when: Some(when.clone()),
        percentage: None,
        serve: Serve::Variant(id.to_owned()),
    };
    let flag = Flag {
        key: "f".to_owned(),
        variants: vec![("a".to_owned(), true.into()), ("b".to_owned(), false.into())],
        default: "a".to_owned(),
        sticky: Sticky::None,
        rules: vec![rule("a", left), rule("b", right)],
    };
    conflicts(&RuleSet { segments: segments.to_vec(), flags: vec![flag], ..RuleSet::default() }).is_empty()
}

fn value(input: &mut Input<'_>) -> Option<Value<'static>> {
    match input.below(8) {
        0 => None,
        1 => Some(Value::Bool(input.below(2) == 0)),
        2 => Some(Value::Compound),
        3 | 4 => Some(Value::Number(input.pick(&NUMBERS))),
        _ => Some(Value::Text(input.pick(&TEXTS))),
    }
}

fn condition(input: &mut Input<'_>, level: usize, segments: bool) -> Condition {
    let parts = |input: &mut Input<'_>| {
        (0..input.below(MAX_PARTS)).map(|_| condition(input, level + 1, segments)).collect()
    };
    match input.below(8) {
        0 if level < MAX_LEVELS => Condition::All(parts(input)),
        1 if level < MAX_LEVELS => Condition::Any(parts(input)),
        2 if level < MAX_LEVELS => Condition::Not(Box::new(condition(input, level + 1, segments))),
        3 if segments => Condition::Segment("s".to_owned()),
        _ => Condition::Attribute { name: input.pick(&["x", "y"]).to_owned(), test: test(input) },
    }
}

fn scalar(input: &mut Input<'_>) -> Scalar {
    match input.below(4) {
        0 => Scalar { text: input.pick(&["true", "false"]).to_owned(), kind: ScalarKind::Bool },
        1 => Scalar { text: input.pick(&NUMBERS).to_owned(), kind: ScalarKind::Number },
        _ => Scalar { text: input.pick(&TEXTS).to_owned(), kind: ScalarKind::String },
    }
}

fn test(input: &mut Input<'_>) -> Test {
    let scalars = |input: &mut Input<'_>| (0..input.below(MAX_PARTS)).map(|_| scalar(input)).collect();
    let text = |input: &mut Input<'_>, choices: &[&str]| input.pick(choices).to_owned();
    match input.below(14) {
        0 => Test::Equals(scalar(input)),
        1 => Test::In(scalars(input)),
        2 => Test::NotIn(scalars(input)),
        3 => Test::StartsWith(text(input, &TEXTS)),
        4 => Test::EndsWith(text(input, &TEXTS)),
        5 => Test::Matches(escape(input.pick(&TEXTS))),
        6 => Test::Gt(text(input, &NUMBERS)),
        7 => Test::Gte(text(input, &NUMBERS)),
        8 => Test::Lt(text(input, &NUMBERS)),
        9 => Test::Lte(text(input, &NUMBERS)),
        10 => {
            Test::Semver(text(input, &["<2.0.0", ">=1.2.3", ">=1.0.0 <2.0.0", "=1.10.0", ">1.2.3 <=2.1.0"]))
        }
        11 => Test::Cidr((0..input.below(MAX_PARTS)).map(|_| text(input, &NETWORKS)).collect()),
        12 => Test::Before(text(input, &TIMES)),
        _ => Test::After(text(input, &TIMES)),
    }
}

/// The expression that finds just this text.
fn escape(text: &str) -> String {
    let escaped = |c: char| if c.is_ascii_alphanumeric() { vec![c] } else { vec!['\\', c] };
    text.chars().flat_map(escaped).collect()
}

fn plainly(condition: &Condition, segments: &[Segment], attributes: &[(&str, Value<'_>)]) -> bool {
    match condition {
        Condition::Attribute { name, test } => {
            let value = attributes.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
            holds(test, value)
        }
        Condition::Segment(id) => {
            let segment = segments.iter().find(|segment| segment.id == *id).expect("it is declared");
            plainly(&segment.when, segments, attributes)
        }
        Condition::All(parts) => parts.iter().all(|part| plainly(part, segments, attributes)),
        Condition::Any(parts) => parts.iter().any(|part| plainly(part, segments, attributes)),
        Condition::Not(inner) => !plainly(inner, segments, attributes),
    }
}

fn holds(test: &Test, value: Option<Value<'_>>) -> bool {
    let text = if let Some(Value::Text(text)) = value { Some(text) } else { None };
    let compare = |threshold: &str, holds: fn(&i64, &i64) -> bool| {
        let (Some(Value::Text(text) | Value::Number(text)), Some(to)) = (value, thousandths(threshold))
        else {
            return false;
        };
        thousandths(text).is_some_and(|number| holds(&number, &to))
    };
    match test {
        Test::Equals(scalar) => value.is_some_and(|value| same(scalar, value)),
        Test::In(scalars) => value.is_some_and(|value| scalars.iter().any(|scalar| same(scalar, value))),
        Test::NotIn(scalars) => !value.is_some_and(|value| scalars.iter().any(|scalar| same(scalar, value))),
        Test::StartsWith(start) => text.is_some_and(|text| text.starts_with(start.as_str())),
        Test::EndsWith(end) => text.is_some_and(|text| text.ends_with(end.as_str())),
        Test::Matches(pattern) => text.is_some_and(|text| text.contains(&pattern.replace('\\', ""))),
        Test::Gt(to) => compare(to, i64::gt),
        Test::Gte(to) => compare(to, i64::ge),
        Test::Lt(to) => compare(to, i64::lt),
        Test::Lte(to) => compare(to, i64::le),
        Test::Semver(range) => text.and_then(version).is_some_and(|version| in_range(version, range)),
        Test::Cidr(networks) => text
            .and_then(|text| text.parse::<IpAddr>().ok())
            .is_some_and(|address| networks.iter().any(|network| in_network(address, network))),
        Test::Before(time) => text.and_then(seconds).zip(seconds(time)).is_some_and(|(at, time)| at < time),
        Test::After(time) => text.and_then(seconds).zip(seconds(time)).is_some_and(|(at, time)| at > time),
    }
}

fn same(scalar: &Scalar, value: Value<'_>) -> bool {
    match value {
        Value::Text(text) => scalar.text == text,
        Value::Number(text) => {
            thousandths(&scalar.text).is_some_and(|number| Some(number) == thousandths(text))
        }
        Value::Bool(value) => scalar.kind == ScalarKind::Bool && scalar.text == value.to_string(),
        Value::Compound => false,
    }
}

/// A decimal with at most three places.
fn thousandths(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 || fraction.len() > 3 {
        return None;
    }
    let number: i64 = format!("0{whole}{fraction:0<3}").parse().ok()?;
    Some(if unsigned == text { number } else { -number })
}

fn version(text: &str) -> Option<[u64; 3]> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut version = [0; 3];
    for (at, part) in text.split('.').enumerate() {
        let whole = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        *version.get_mut(at)? = if whole { part.parse().ok()? } else { return None };
    }
    Some(version)
}

fn in_range(version: [u64; 3], range: &str) -> bool {
    range.split(' ').all(|comparator| {
        let operator = comparator.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let bound = self::version(&comparator[operator.len()..]).expect("a whole version");
        match operator {
            "<" => version < bound,
            "<=" => version <= bound,
            ">" => version > bound,
            ">=" => version >= bound,
            _ => version == bound,
        }
    })
}

/// Bit by bit; a mapped IPv4 address or network is the IPv4 one.
fn in_network(address: IpAddr, network: &str) -> bool {
    let (name, length) = network.split_once('/').unwrap_or((network, ""));
    let (name, address) = (name.parse::<IpAddr>().expect("an address"), address.to_canonical());
    let most = if name.is_ipv4() { 32 } else { 128 };
    let mut length: u32 = length.parse().unwrap_or(most);
    if name.is_ipv6() && name.to_canonical().is_ipv4() && length >= 96 {
        length -= 96;
    }
    let bits = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    };
    let (name, address) = (bits(name), bits(address));
    name.len() == address.len() && name[..length as usize] == address[..length as usize]
}

/// The times of this file, in seconds from the start of 2030.
fn seconds(text: &str) -> Option<i64> {
    Some(match text {
        "2030-01-01T00:00:00Z" | "2030-01-01T01:00:00+01:00" => 0,
        "2030-01-01T00:00:01Z" => 1,
        "2030-06-01T00:00:00-05:00" => 151 * 86_400 + 5 * 3_600,
        "2031-01-01T00:00:00Z" => 365 * 86_400,
        _ => return None,
    })
}
