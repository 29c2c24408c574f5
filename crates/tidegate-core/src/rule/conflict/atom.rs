//! One test, prepared for being compared with others.
//!
//! Everything here errs to one side: `Surely` and `Never` are claims about every reading of a value
//! that the evaluation may take, and whatever is not certain is `Maybe`.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use jiff::Timestamp;
use regex::{Regex, RegexBuilder};

use super::decimal::Decimal;
use super::range::{Hull, full_release};
use crate::rule::model::{Scalar, ScalarKind, Test};

/// Most memory for one compiled regular expression; a larger one proves nothing.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A test in a form that others can be held against.
#[derive(Debug)]
pub(super) enum Atom<'a> {
    Finite(Finite<'a>),
    Prefix(&'a str),
    Suffix(&'a str),
    /// Compiled when it is first needed; `None` when it does not compile.
    Pattern(&'a str, OnceCell<Option<Regex>>),
    Number(Bound, Option<Decimal>),
    Version(Option<Hull>),
    Networks(Option<Vec<IpNet>>),
    Before(Option<Timestamp>),
    After(Option<Timestamp>),
}

/// Which numbers a numeric test accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Bound {
    pub(super) fn accepts(self, value: &Decimal, threshold: &Decimal) -> bool {
        match self {
            Self::Above => value > threshold,
            Self::AtLeast => value >= threshold,
            Self::Below => value < threshold,
            Self::AtMost => value <= threshold,
        }
    }

    /// The bound of the numbers that it refuses.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Above => Self::AtMost,
            Self::AtLeast => Self::Below,
            Self::Below => Self::AtLeast,
            Self::AtMost => Self::Above,
        }
    }
}

/// Whether a test holds for a value, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Surely,
    Maybe,
    Never,
}

impl Verdict {
    fn certain(holds: bool) -> Self {
        if holds { Self::Surely } else { Self::Never }
    }

    fn possible(maybe: bool) -> Self {
        if maybe { Self::Maybe } else { Self::Never }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Surely => Self::Never,
            Self::Maybe => Self::Maybe,
            Self::Never => Self::Surely,
        }
    }
}

/// A finite set of scalars, by text and by number.
#[derive(Debug)]
pub(super) struct Finite<'a> {
    scalars: Vec<Listed<'a>>,
    texts: HashMap<&'a str, Kinds>,
    numbers: HashMap<Decimal, Kinds>,
}

#[derive(Debug)]
struct Listed<'a> {
    scalar: &'a Scalar,
    number: Option<Decimal>,
}

/// The kinds in which a scalar is listed.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    string: bool,
    number: bool,
    bool: bool,
}

impl Kinds {
    fn add(&mut self, kind: ScalarKind) {
        match kind {
            ScalarKind::String => self.string = true,
            ScalarKind::Number => self.number = true,
            ScalarKind::Bool => self.bool = true,
        }
    }

    fn has(self, kind: ScalarKind) -> bool {
        match kind {
            ScalarKind::String => self.string,
            ScalarKind::Number => self.number,
            ScalarKind::Bool => self.bool,
        }
    }
}

/// A value for which "equals this listed scalar" may hold, with the text and kind of the scalar.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    /// The same text.
    Text(&'a str, ScalarKind),
    /// Any JSON number equal to this one, however it is written.
    Number(&'a str, &'a Decimal, ScalarKind),
    /// A JSON boolean.
    Bool(&'a str, ScalarKind),
    /// A number that is not understood here.
    Opaque(&'a str, ScalarKind),
}

impl<'a> Finite<'a> {
    fn new(scalars: impl Iterator<Item = &'a Scalar>) -> Self {
        let mut set = Self { scalars: Vec::new(), texts: HashMap::new(), numbers: HashMap::new() };
        for scalar in scalars {
            let number = Decimal::parse(&scalar.text);
            set.texts.entry(&scalar.text).or_default().add(scalar.kind);
            if let Some(number) = &number {
                set.numbers.entry(number.clone()).or_default().add(scalar.kind);
            }
            set.scalars.push(Listed { scalar, number });
        }
        set
    }

    pub(super) fn len(&self) -> usize {
        self.scalars.len()
    }

    /// Every value for which the set may hold.
    pub(super) fn forms(&self) -> impl Iterator<Item = Form<'_>> {
        self.scalars.iter().flat_map(|Listed { scalar, number }| {
            let kind = scalar.kind;
            let text = Form::Text(&scalar.text, kind);
            let number = match number {
                Some(number) => Some(Form::Number(&scalar.text, number, kind)),
                None if kind == ScalarKind::Number => Some(Form::Opaque(&scalar.text, kind)),
                None => None,
            };
            let bool = matches!(&*scalar.text, "true" | "false").then_some(Form::Bool(&scalar.text, kind));
            [Some(text), number, bool].into_iter().flatten()
        })
    }

    /// Certain where the very scalar that the value equals is listed, and for numbers where an equal
    /// one is: how a text meets a scalar of another kind is not decided here.
    fn holds(&self, form: Form<'_>) -> Verdict {
        let (Form::Text(text, kind)
        | Form::Number(text, _, kind)
        | Form::Bool(text, kind)
        | Form::Opaque(text, kind)) = form;
        let by_text = self.texts.get(text);
        if by_text.is_some_and(|kinds| kinds.has(kind)) {
            return Verdict::Surely;
        }
        match form {
            Form::Number(_, number, ScalarKind::Number)
                if self.numbers.get(number).is_some_and(|kinds| kinds.number) =>
            {
                Verdict::Surely
            }
            Form::Number(_, number, _) => {
                Verdict::possible(by_text.is_some() || self.numbers.contains_key(number))
            }
            Form::Text(..) => Verdict::possible(
                by_text.is_some()
                    || Decimal::parse(text).is_some_and(|number| self.numbers.contains_key(&number)),
            ),
            Form::Bool(..) => Verdict::possible(by_text.is_some()),
            Form::Opaque(..) => Verdict::Maybe,
        }
    }
}

impl<'a> Atom<'a> {
    /// The atom of a test, and whether the test is its negation.
    pub(super) fn new(test: &'a Test) -> (Self, bool) {
        let number = |bound, text: &'a str| Self::Number(bound, Decimal::parse(text));
        let atom = match test {
            Test::Equals(scalar) => Self::Finite(Finite::new(std::iter::once(scalar))),
            Test::In(scalars) => Self::Finite(Finite::new(scalars.iter())),
            Test::NotIn(scalars) => return (Self::Finite(Finite::new(scalars.iter())), true),
            Test::StartsWith(text) => Self::Prefix(text),
            Test::EndsWith(text) => Self::Suffix(text),
            Test::Matches(pattern) => Self::Pattern(pattern, OnceCell::new()),
            Test::Gt(text) => number(Bound::Above, text),
            Test::Gte(text) => number(Bound::AtLeast, text),
            Test::Lt(text) => number(Bound::Below, text),
            Test::Lte(text) => number(Bound::AtMost, text),
            Test::Semver(range) => Self::Version(Hull::parse(range)),
            Test::Cidr(nets) => Self::Networks(nets.iter().map(|net| parse_net(net)).collect()),
            Test::Before(time) => Self::Before(time.parse().ok()),
            Test::After(time) => Self::After(time.parse().ok()),
        };
        (atom, false)
    }

    /// Whether it holds for a value of this form.
    pub(super) fn holds(&self, form: Form<'_>) -> Verdict {
        if let Self::Finite(set) = self {
            return set.holds(form);
        }
        match form {
            Form::Text(text, _) => self.holds_for_text(text),
            // Tests of text take these for the wrong type; a reading that looks at their text instead
            // is allowed for.
            Form::Bool(text, _) => match self {
                Self::Number(..) | Self::Version(_) | Self::Networks(_) => Verdict::Never,
                _ => Verdict::possible(self.holds_for_text(text) != Verdict::Never),
            },
            Form::Number(_, number, _) => match self {
                Self::Number(bound, Some(threshold)) => Verdict::certain(bound.accepts(number, threshold)),
                Self::Networks(_) => Verdict::Never,
                // Only characters of numbers can be part of one.
                Self::Prefix(part) | Self::Suffix(part) => Verdict::possible(
                    part.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E')),
                ),
                _ => Verdict::Maybe,
            },
            Form::Opaque(..) => Verdict::Maybe,
        }
    }

    fn holds_for_text(&self, text: &str) -> Verdict {
        match self {
            Self::Finite(_) => Verdict::Maybe,
            Self::Prefix(part) => Verdict::certain(text.starts_with(part)),
            Self::Suffix(part) => Verdict::certain(text.ends_with(part)),
            Self::Pattern(pattern, compiled) => match compiled.get_or_init(|| compile(pattern)) {
                Some(regex) => Verdict::certain(regex.is_match(text)),
                None => Verdict::Maybe,
            },
            Self::Number(bound, threshold) => match (Decimal::parse(text), threshold) {
                (Some(_), None) => Verdict::Maybe,
                (Some(number), Some(threshold)) if bound.accepts(&number, threshold) => {
                    if is_plain_number(text) { Verdict::Surely } else { Verdict::Maybe }
                }
                (None, _) | (Some(_), Some(_)) => Verdict::Never,
            },
            Self::Version(hull) => match (full_release(text), hull) {
                (Some(release), Some(hull)) => Verdict::possible(!hull.excludes(release)),
                _ => Verdict::possible(text.bytes().any(|byte| byte.is_ascii_digit())),
            },
            Self::Networks(nets) => match (parse_ip(text), nets) {
                (Some(address), Some(nets)) => {
                    let host = IpNet::from(address);
                    if nets.iter().any(|net| covers(net, &host)) {
                        Verdict::Surely
                    } else {
                        Verdict::possible(nets.iter().any(|net| overlap(net, &host)))
                    }
                }
                (None, _) => {
                    Verdict::possible(text.bytes().any(|byte| byte.is_ascii_digit() || byte == b':'))
                }
                (Some(_), None) => Verdict::Maybe,
            },
            Self::Before(at) | Self::After(at) => match (text.parse::<Timestamp>().ok(), at) {
                (Some(time), Some(at)) => {
                    let holds = if matches!(self, Self::Before(_)) { time < *at } else { time > *at };
                    Verdict::possible(holds)
                }
                _ => Verdict::possible(text.bytes().any(|byte| byte.is_ascii_digit())),
            },
        }
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).build().ok()
}

/// `-1.5`: what every reading of decimal numbers accepts.
fn is_plain_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

fn parse_net(text: &str) -> Option<IpNet> {
    match text.parse::<IpNet>() {
        Ok(net) => Some(net.trunc()),
        Err(_) => parse_ip(text).map(IpNet::from),
    }
}

/// IPv4 as IPv4-mapped IPv6 (RFC 4291, section 2.5.5.2), so that both spellings of an address meet.
fn mapped(net: &IpNet) -> Option<Ipv6Net> {
    match net {
        IpNet::V6(net) => Some(*net),
        IpNet::V4(net) => {
            let length = net.prefix_len().checked_add(96)?;
            Ipv6Net::new(net.addr().to_ipv6_mapped(), length).ok().map(|net| net.trunc())
        }
    }
}

/// Whether some address may lie in both.
pub(super) fn overlap(left: &IpNet, right: &IpNet) -> bool {
    match (mapped(left), mapped(right)) {
        (Some(left), Some(right)) => left.contains(&right) || right.contains(&left),
        _ => true,
    }
}

/// Whether every address in `inner`, in either spelling of it, surely lies in `outer`.
pub(super) fn covers(outer: &IpNet, inner: &IpNet) -> bool {
    match (outer, inner) {
        (IpNet::V4(outer), IpNet::V4(inner)) => outer.contains(inner),
        (IpNet::V6(outer), IpNet::V6(inner)) => {
            let v4 = IpNet::V4(ipnet::Ipv4Net::default());
            outer.contains(inner) && !overlap(&v4, &IpNet::V6(*inner))
        }
        _ => false,
    }
}
