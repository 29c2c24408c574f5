//! Why a flag has its result: what became of each rule.

use std::fmt;

use super::condition::{AttributeTest, Node};
use super::evaluate::{EvaluateError, Evaluation, Flags, Matched};
use crate::attribute::{Attributes, Value};
use crate::rule::model::{Percentage, Scalar, Test};

/// How many entries of a list are written out; the others are counted.
const SHOWN: usize = 8;

/// How much of one text is written out, in characters.
const SHOWN_CHARS: usize = 120;

/// What became of each rule, and the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// The flag's key.
    pub flag: &'a str,
    /// Its rules in the order in which they are asked.
    pub rules: Vec<RuleTrace<'a>>,
    /// What evaluating gives.
    pub result: Result<Evaluation<'a>, EvaluateError>,
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleTrace<'a> {
    /// The rule's id.
    pub rule: &'a str,
    /// Its priority.
    pub priority: i64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It decided.
    Decided,
    /// Its condition does not hold.
    ConditionFalse(Unmet),
    /// The subject is not in its share.
    OutsideShare {
        /// The subject's bucket.
        bucket: u16,
        /// The share, whose hundredths are the buckets that it takes.
        percentage: Percentage,
    },
    /// It draws by subject, and the request has none.
    SubjectMissing,
    /// A rule before it decided.
    NotAsked,
}

/// Why a condition does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmet {
    /// A test is false.
    Test {
        /// The attribute.
        attribute: String,
        /// The test as people read it: `in [acme, umbrella]`.
        test: String,
        /// What the attribute is.
        found: Found,
    },
    /// The request is not in a segment.
    Segment {
        /// Its id.
        id: String,
        /// Why not.
        because: Box<Unmet>,
    },
    /// None of these holds. Empty for an `any` of nothing.
    NoneOf(Vec<Unmet>),
    /// What a `not` turns around does hold.
    Negated(String),
}

/// What an attribute is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Absent, or null.
    Absent,
    /// Text.
    Text(String),
    /// A JSON number, as it was written.
    Number(String),
    /// A JSON boolean.
    Bool(bool),
    /// An object or an array.
    Compound,
}

impl Flags {
    /// What becomes of each rule of the flag called `key`; an error when there is no such flag.
    pub fn explain<A: Attributes + ?Sized>(
        &self,
        key: &str,
        subject: Option<&str>,
        attributes: &A,
    ) -> Result<Explanation<'_>, EvaluateError> {
        let flag = self.flag(key)?;
        let mut over = false;
        let mut drawn = None;
        let trace = |rule: &'_ super::evaluate::Rule| {
            if over {
                return Outcome::NotAsked;
            }
            match rule.matches(&flag.key, subject, attributes, &mut drawn) {
                Matched::Decides => {
                    over = true;
                    Outcome::Decided
                }
                Matched::NoSubject => {
                    over = true;
                    Outcome::SubjectMissing
                }
                Matched::Unmet => {
                    let unmet = rule.when.as_ref().and_then(|when| when.unmet(attributes));
                    Outcome::ConditionFalse(unmet.unwrap_or_else(|| Unmet::NoneOf(Vec::new())))
                }
                Matched::Outside => Outcome::OutsideShare {
                    bucket: drawn.unwrap_or_default(),
                    percentage: rule.percentage.unwrap_or(Percentage::FULL),
                },
            }
        };
        let outcomes: Vec<Outcome> = flag.rules.iter().map(trace).collect();
        let rules = flag.rules.iter().zip(outcomes).map(|(rule, outcome)| RuleTrace {
            rule: &rule.id,
            priority: rule.priority,
            outcome,
        });
        Ok(Explanation {
            flag: &flag.key,
            rules: rules.collect(),
            result: flag.evaluate(subject, attributes),
        })
    }
}

impl Unmet {
    pub(super) fn test(test: &AttributeTest, value: Option<Value<'_>>) -> Self {
        let found = match value {
            None => Found::Absent,
            Some(Value::Text(text)) => Found::Text(text.to_owned()),
            Some(Value::Number(text)) => Found::Number(text.to_owned()),
            Some(Value::Bool(value)) => Found::Bool(value),
            Some(Value::Compound) => Found::Compound,
        };
        Self::Test { attribute: test.name.to_string(), test: Described(&test.source).to_string(), found }
    }
}

// ---- in words ------------------------------------------------------------------------------------

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trace in &self.rules {
            writeln!(f, "{trace}")?;
        }
        match &self.result {
            Ok(result) => {
                write!(f, "{} = {} ({})", self.flag, result.variant, result.reason)
            }
            Err(error) => write!(f, "{} has no result: {error}", self.flag),
        }
    }
}

impl fmt::Display for RuleTrace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (priority {}): {}", self.rule, self.priority, self.outcome)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided => f.write_str("decided"),
            Self::ConditionFalse(unmet) => write!(f, "passed over, {unmet}"),
            Self::OutsideShare { bucket, percentage } => {
                let below = percentage.hundredths();
                write!(f, "passed over, bucket {bucket} is not below {below} ({})", Percent(*percentage))
            }
            Self::SubjectMissing => f.write_str("draws by subject, and there is none"),
            Self::NotAsked => f.write_str("not asked, an earlier rule decided"),
        }
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test { attribute, test, found } => write!(f, "{attribute} {test} is false: it is {found}"),
            Self::Segment { id, because } => write!(f, "not in segment {id}: {because}"),
            Self::NoneOf(all) if all.is_empty() => f.write_str("`any` of nothing never holds"),
            Self::NoneOf(all) => {
                f.write_str("none holds: ")?;
                list(f, all.iter(), "; ")
            }
            Self::Negated(condition) => write!(f, "not ({condition}) is false"),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Text(text) => write!(f, "{}", Quoted(text)),
            Self::Number(text) => write!(f, "the number {}", Short(text)),
            Self::Bool(value) => write!(f, "the boolean {value}"),
            Self::Compound => f.write_str("an object or array"),
        }
    }
}

/// A condition as people read it.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(test) => write!(f, "{} {}", test.name, Described(&test.source)),
            Self::Segment { id, .. } => write!(f, "segment {id}"),
            Self::All(nodes) if nodes.is_empty() => f.write_str("always"),
            Self::Any(nodes) if nodes.is_empty() => f.write_str("never"),
            Self::All(nodes) => {
                f.write_str("(")?;
                list(f, nodes.iter(), " and ")?;
                f.write_str(")")
            }
            Self::Any(nodes) => {
                f.write_str("(")?;
                list(f, nodes.iter(), " or ")?;
                f.write_str(")")
            }
            Self::Not(node) => write!(f, "not {node}"),
        }
    }
}

/// A test as people read it, without its attribute.
struct Described<'a>(&'a Test);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scalars = |f: &mut fmt::Formatter<'_>, name: &str, scalars: &[Scalar]| {
            write!(f, "{name} [")?;
            list(f, scalars.iter().map(|scalar| Short(&scalar.text)), ", ")?;
            f.write_str("]")
        };
        match self.0 {
            Test::Equals(scalar) => write!(f, "equals {}", Short(&scalar.text)),
            Test::In(list) => scalars(f, "in", list),
            Test::NotIn(list) => scalars(f, "not_in", list),
            Test::StartsWith(text) => write!(f, "starts_with {}", Short(text)),
            Test::EndsWith(text) => write!(f, "ends_with {}", Short(text)),
            Test::Matches(text) => write!(f, "matches {}", Short(text)),
            Test::Gt(text) => write!(f, "gt {}", Short(text)),
            Test::Gte(text) => write!(f, "gte {}", Short(text)),
            Test::Lt(text) => write!(f, "lt {}", Short(text)),
            Test::Lte(text) => write!(f, "lte {}", Short(text)),
            Test::Semver(text) => write!(f, "semver {}", Quoted(text)),
            Test::Cidr(networks) => {
                f.write_str("cidr [")?;
                list(f, networks.iter().map(|network| Short(network)), ", ")?;
                f.write_str("]")
            }
            Test::Before(text) => write!(f, "before {}", Short(text)),
            Test::After(text) => write!(f, "after {}", Short(text)),
        }
    }
}

/// At most [`SHOWN`] entries, and how many are left out.
fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    entries: impl ExactSizeIterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    let count = entries.len();
    for (at, entry) in entries.take(SHOWN).enumerate() {
        write!(f, "{}{entry}", if at == 0 { "" } else { separator })?;
    }
    if count > SHOWN { write!(f, "{separator}{} more", count - SHOWN) } else { Ok(()) }
}

/// At most [`SHOWN_CHARS`] characters; control characters escaped.
struct Short<'a>(&'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for (at, character) in self.0.chars().enumerate() {
            if at == SHOWN_CHARS {
                return f.write_str("…");
            }
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Short(self.0))
    }
}

/// Hundredths as people write percentages: `10 %`, `0.5 %`, `12.34 %`.
struct Percent(Percentage);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0.hundredths() / 100, self.0.hundredths() % 100);
        match part {
            0 => write!(f, "{whole} %"),
            part if part % 10 == 0 => write!(f, "{whole}.{} %", part / 10),
            part => write!(f, "{whole}.{part:02} %"),
        }
    }
}

#[cfg(test)]
mod tests;
