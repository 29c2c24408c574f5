//! One test, prepared for being compared with others.
//!
//! Everything here errs to one side: `Surely` and `Never` are claims that the evaluation bears out, and
//! whatever is not certain is `Maybe`.

use std::cell::OnceCell;
use std::collections::HashMap;

use regex::Regex;

use crate::attribute::Value;
use crate::rollout::decimal::{Decimal, OwnedDecimal};
use crate::rollout::matcher::{Matcher, compile_regex};
use crate::rule::model::{Scalar, ScalarKind, Test};

/// A test in a form that others can be held against.
#[derive(Debug)]
pub(super) enum Atom<'a> {
    /// A finite set of values.
    Finite(Finite<'a>),
    /// Compiled when it is first needed; `None` when it does not compile.
    Pattern(&'a str, OnceCell<Option<Regex>>),
    /// Any other test, as it is evaluated.
    Single(Matcher),
    /// A test that cannot be evaluated, and of which nothing is known.
    Unknown,
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
    numbers: HashMap<OwnedDecimal, Kinds>,
}

#[derive(Debug)]
struct Listed<'a> {
    scalar: &'a Scalar,
    number: Option<OwnedDecimal>,
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
    Number(&'a str, &'a OwnedDecimal, ScalarKind),
    /// A JSON boolean.
    Bool(&'a str, ScalarKind),
    /// A number beyond the bounds of decimals.
    Opaque(&'a str, ScalarKind),
}

impl<'a> Form<'a> {
    fn value(self) -> Value<'a> {
        match self {
            Self::Text(text, _) => Value::Text(text),
            Self::Number(text, ..) | Self::Opaque(text, _) => Value::Number(text),
            Self::Bool(text, _) => Value::Bool(text == "true"),
        }
    }
}

impl<'a> Finite<'a> {
    fn new(scalars: impl Iterator<Item = &'a Scalar>) -> Self {
        let mut set = Self { scalars: Vec::new(), texts: HashMap::new(), numbers: HashMap::new() };
        for scalar in scalars {
            let number = Decimal::parse(&scalar.text).map(Decimal::to_owned);
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
                    || Decimal::parse(text)
                        .is_some_and(|number| self.numbers.contains_key(&number.to_owned())),
            ),
            Form::Bool(..) => Verdict::possible(by_text.is_some()),
            Form::Opaque(..) => Verdict::Maybe,
        }
    }
}

impl<'a> Atom<'a> {
    /// The atom of a test, and whether the test is its negation.
    pub(super) fn new(test: &'a Test) -> (Self, bool) {
        let atom = match test {
            Test::Equals(scalar) => Self::Finite(Finite::new(std::iter::once(scalar))),
            Test::In(scalars) => Self::Finite(Finite::new(scalars.iter())),
            Test::NotIn(scalars) => return (Self::Finite(Finite::new(scalars.iter())), true),
            Test::Matches(pattern) => Self::Pattern(pattern, OnceCell::new()),
            _ => Matcher::compile(test).map_or(Self::Unknown, Self::Single),
        };
        (atom, false)
    }

    /// Whether it holds for a value of this form.
    pub(super) fn holds(&self, form: Form<'_>) -> Verdict {
        match self {
            Self::Finite(set) => set.holds(form),
            Self::Pattern(pattern, compiled) => {
                match (compiled.get_or_init(|| compile_regex(pattern).ok()), form) {
                    (None, _) => Verdict::Maybe,
                    (Some(regex), Form::Text(text, _)) => Verdict::certain(regex.is_match(text)),
                    (Some(_), _) => Verdict::Never,
                }
            }
            Self::Single(matcher) => Verdict::certain(matcher.matches(Some(form.value()))),
            Self::Unknown => Verdict::Maybe,
        }
    }
}

#[cfg(test)]
mod tests;
