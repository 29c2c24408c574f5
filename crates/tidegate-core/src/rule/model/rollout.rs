//! Flags, segments and percentages.

use super::Condition;

/// A named condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Unique among segments.
    pub id: String,
    /// When a request is in it.
    pub when: Condition,
}

/// A flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Flag {
    /// Unique among flags, without `:`.
    pub key: String,
    /// Variants in document order: name and value.
    pub variants: Vec<(String, serde_json::Value)>,
    /// The variant when no rule decides.
    pub default: String,
    /// Whether a session keeps its first result.
    pub sticky: Sticky,
    /// Highest priority first; document order among equals.
    pub rules: Vec<FlagRule>,
}

impl Flag {
    /// The value of the variant called `name`.
    pub fn value(&self, name: &str) -> Option<&serde_json::Value> {
        self.variants.iter().find(|(variant, _)| variant == name).map(|(_, value)| value)
    }
}

/// Whether a session keeps its first result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sticky {
    /// Evaluated each time.
    #[default]
    None,
    /// Kept in a signed cookie.
    Session,
}

/// One rule of a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagRule {
    /// Unique in its flag.
    pub id: String,
    /// Higher is asked first.
    pub priority: i64,
    /// Whom it is for; everybody when absent.
    pub when: Option<Condition>,
    /// The share of subjects; all of them when absent.
    pub percentage: Option<Percentage>,
    /// What they get.
    pub serve: Serve,
}

/// What a flag rule serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serve {
    /// One variant.
    Variant(String),
    /// Shares in document order, which add up to 100 %.
    Split(Vec<(String, Percentage)>),
}

/// Hundredths of a percent, 0 to 10000, parsed from text and never through a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentage(u16);

impl Percentage {
    /// 100 %.
    pub const FULL: Self = Self(10_000);

    /// From hundredths of a percent; `None` above 10000.
    pub const fn from_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths <= 10_000 { Some(Self(hundredths)) } else { None }
    }

    /// Hundredths of a percent, which is also how many of the 10000 buckets are hit.
    pub const fn hundredths(self) -> u16 {
        self.0
    }
}
