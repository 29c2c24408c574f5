//! One compiled test of one attribute's value.

use std::cmp::Ordering;
use std::net::IpAddr;

use ipnet::IpNet;
use regex::Regex;

use super::condition::ConditionError;
use super::decimal::{Decimal, OwnedDecimal};
use super::range::{Range, Version};
use crate::attribute::Value;
use crate::rule::model::{Scalar, ScalarKind, Test};

/// Most memory that one compiled regular expression may take, and its search cache once more, in bytes.
pub const MAX_REGEX_BYTES: usize = 1 << 20;

/// A test that is ready to run. It allocates nothing, and nothing in it can fail.
#[derive(Debug)]
pub(crate) enum Matcher {
    OneOf(Scalars),
    NotOneOf(Scalars),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    Matches(Regex),
    Compare(Bound, OwnedDecimal),
    Semver(Range),
    Cidr(Box<[IpNet]>),
    Before(jiff::Timestamp),
    After(jiff::Timestamp),
}

/// Which numbers a numeric test accepts, beside its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Bound {
    /// Whether a number that stands so to the threshold is accepted.
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Above => order.is_gt(),
            Self::AtLeast => order.is_ge(),
            Self::Below => order.is_lt(),
            Self::AtMost => order.is_le(),
        }
    }

    /// The bound of the numbers that it refuses.
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Above => Self::AtMost,
            Self::AtLeast => Self::Below,
            Self::Below => Self::AtLeast,
            Self::AtMost => Self::Above,
        }
    }
}

impl Matcher {
    pub(crate) fn compile(test: &Test) -> Result<Self, ConditionError> {
        let compare = |bound, text: &String| match Decimal::parse(text) {
            Some(to) => Ok(Self::Compare(bound, to.to_owned())),
            None => Err(ConditionError::Number { text: text.clone() }),
        };
        let time =
            |text: &String| parse_time(text).ok_or_else(|| ConditionError::Time { text: text.clone() });
        Ok(match test {
            Test::Equals(scalar) => Self::OneOf(Scalars::new(std::slice::from_ref(scalar))),
            Test::In(scalars) => Self::OneOf(Scalars::new(scalars)),
            Test::NotIn(scalars) => Self::NotOneOf(Scalars::new(scalars)),
            Test::StartsWith(text) => Self::StartsWith(text.as_str().into()),
            Test::EndsWith(text) => Self::EndsWith(text.as_str().into()),
            Test::Matches(pattern) => Self::Matches(compile_regex(pattern)?),
            Test::Gt(text) => compare(Bound::Above, text)?,
            Test::Gte(text) => compare(Bound::AtLeast, text)?,
            Test::Lt(text) => compare(Bound::Below, text)?,
            Test::Lte(text) => compare(Bound::AtMost, text)?,
            Test::Semver(text) => Self::Semver(Range::parse(text)?),
            Test::Cidr(networks) => Self::Cidr(
                networks
                    .iter()
                    .map(|text| {
                        parse_network(text).ok_or_else(|| ConditionError::Network { text: text.clone() })
                    })
                    .collect::<Result<_, _>>()?,
            ),
            Test::Before(text) => Self::Before(time(text)?),
            Test::After(text) => Self::After(time(text)?),
        })
    }

    /// Absent (or null) and wrong-typed values make every test false, so that `NotOneOf` alone is true.
    pub(crate) fn matches(&self, value: Option<Value<'_>>) -> bool {
        let text = match value {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        };
        match self {
            Self::OneOf(scalars) => value.is_some_and(|value| scalars.contain(value)),
            Self::NotOneOf(scalars) => !value.is_some_and(|value| scalars.contain(value)),
            Self::StartsWith(start) => text.is_some_and(|text| text.starts_with(&**start)),
            Self::EndsWith(end) => text.is_some_and(|text| text.ends_with(&**end)),
            Self::Matches(regex) => text.is_some_and(|text| regex.is_match(text)),
            Self::Compare(bound, to) => match value {
                Some(Value::Number(text) | Value::Text(text)) => {
                    Decimal::parse(text).is_some_and(|number| bound.accepts(number.compare(to.borrowed())))
                }
                _ => false,
            },
            Self::Semver(range) => {
                text.and_then(Version::parse).is_some_and(|version| range.contains(version))
            }
            Self::Cidr(networks) => text
                .and_then(parse_address)
                .is_some_and(|address| networks.iter().any(|network| network.contains(&address))),
            Self::Before(time) => text.and_then(parse_time).is_some_and(|at| at < *time),
            Self::After(time) => text.and_then(parse_time).is_some_and(|at| at > *time),
        }
    }
}

/// A set of scalars from the document.
///
/// Text is compared with the source text of every scalar, whatever it would be in YAML: a header has no
/// types. A JSON number equals every scalar that is the same number, a JSON boolean only `true` or
/// `false` written without quotes.
#[derive(Debug)]
pub(crate) struct Scalars {
    texts: Box<[Box<str>]>,
    numbers: Box<[OwnedDecimal]>,
    with_true: bool,
    with_false: bool,
}

impl Scalars {
    fn new(scalars: &[Scalar]) -> Self {
        let mut texts: Vec<Box<str>> = scalars.iter().map(|scalar| scalar.text.as_str().into()).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut numbers: Vec<OwnedDecimal> =
            scalars.iter().filter_map(|scalar| Decimal::parse(&scalar.text)).map(Decimal::to_owned).collect();
        numbers.sort_unstable_by(|left, right| left.borrowed().compare(right.borrowed()));
        let with = |text| scalars.iter().any(|scalar| scalar.kind == ScalarKind::Bool && scalar.text == text);
        Self {
            with_true: with("true"),
            with_false: with("false"),
            texts: texts.into(),
            numbers: numbers.into(),
        }
    }

    fn contain(&self, value: Value<'_>) -> bool {
        let written = |text: &str| self.texts.binary_search_by(|other| (**other).cmp(text)).is_ok();
        match value {
            Value::Text(text) => written(text),
            Value::Number(text) => match Decimal::parse(text) {
                Some(number) => {
                    self.numbers.binary_search_by(|other| other.borrowed().compare(number)).is_ok()
                }
                // Beyond the bounds of a decimal, only what was written alike is surely equal.
                None => written(text),
            },
            Value::Bool(true) => self.with_true,
            Value::Bool(false) => self.with_false,
            Value::Compound => false,
        }
    }
}

/// A regular expression, unanchored, of at most [`MAX_REGEX_BYTES`].
pub(crate) fn compile_regex(pattern: &str) -> Result<Regex, ConditionError> {
    let builder = &mut regex::RegexBuilder::new(pattern);
    builder.size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
        let pattern = pattern.to_owned();
        if matches!(error, regex::Error::CompiledTooBig(_)) {
            return ConditionError::RegexTooLarge { pattern };
        }
        // The last line says what is wrong, those above draw a caret.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        ConditionError::Regex { pattern, message: last.trim_start_matches("error: ").to_owned() }
    })
}

/// An IP address, a mapped IPv4 one as IPv4.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// A network, or one address. A mapped IPv4 network becomes the IPv4 one, as addresses do.
pub(crate) fn parse_network(text: &str) -> Option<IpNet> {
    let network = match text.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    match (network.addr().to_canonical(), network.prefix_len()) {
        (IpAddr::V4(address), length) if matches!(network, IpNet::V6(_)) && length >= 96 => {
            IpNet::new(IpAddr::V4(address), length - 96).ok()
        }
        _ => Some(network),
    }
}

/// A point in time as RFC 3339 §5.6 writes it, with at most nine digits of a second's fraction.
pub(crate) fn parse_time(text: &str) -> Option<jiff::Timestamp> {
    // The parser below takes more than RFC 3339: signed years, zone names, hours without minutes.
    const SHAPE: &[u8] = b"dddd-dd-ddtdd:dd:dd";
    let bytes = text.as_bytes();
    let head = bytes.get(..SHAPE.len())?;
    let fits = |shape: &[u8], bytes: &[u8]| {
        shape.len() == bytes.len()
            && shape.iter().zip(bytes).all(|(shape, byte)| match shape {
                b'd' => byte.is_ascii_digit(),
                b's' => matches!(byte, b'+' | b'-'),
                b't' => matches!(byte, b'T' | b't' | b' '),
                other => other == byte,
            })
    };
    let mut tail = &bytes[SHAPE.len()..];
    if let Some(fraction) = tail.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        tail = &fraction[digits..];
    }
    if fits(SHAPE, head) && (matches!(tail, b"Z" | b"z") || fits(b"sdd:dd", tail)) {
        text.parse().ok()
    } else {
        None
    }
}
