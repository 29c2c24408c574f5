//! Why a condition cannot be used, and how to mend it.

use crate::document::diagnostic::quoted;

use super::super::decimal::{MAX_DECIMAL_BYTES, MAX_EXPONENT};
use super::super::range::RangeError;
use super::{MAX_DEPTH, MAX_REGEX_BYTES, MAX_TESTS};

/// Why a condition cannot be compiled. `Display` is the problem and a way to mend it, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.problem(), self.help())]
#[non_exhaustive]
pub enum ConditionError {
    /// No regular expression.
    Regex {
        /// As written.
        pattern: String,
        /// What is wrong with it, in one line.
        message: String,
    },
    /// A regular expression that compiles to more than [`MAX_REGEX_BYTES`].
    RegexTooLarge {
        /// As written.
        pattern: String,
    },
    /// No number, or one beyond the bounds of [`decimal`](crate::rollout::decimal).
    Number {
        /// As written.
        text: String,
    },
    /// No network.
    Network {
        /// As written.
        text: String,
    },
    /// No time.
    Time {
        /// As written.
        text: String,
    },
    /// No range of versions.
    Range(#[from] RangeError),
    /// No segment has this id.
    UnknownSegment {
        /// As written.
        id: String,
    },
    /// Two segments have this id.
    DuplicateSegment {
        /// As written.
        id: String,
    },
    /// Segments that need each other.
    SegmentCycle {
        /// From a segment back to itself.
        path: Vec<String>,
    },
    /// Deeper than [`MAX_DEPTH`].
    TooDeep,
    /// More than [`MAX_TESTS`].
    TooManyTests,
}

impl ConditionError {
    /// What is wrong, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::Regex { pattern, message } => {
                format!("{} is not a regular expression: {message}", quoted(pattern))
            }
            Self::RegexTooLarge { pattern } => {
                format!("{} compiles to more than {MAX_REGEX_BYTES} bytes", quoted(pattern))
            }
            Self::Number { text } => format!("{} is not a usable decimal number", quoted(text)),
            Self::Network { text } => format!("{} is not a network", quoted(text)),
            Self::Time { text } => format!("{} is not a time of RFC 3339", quoted(text)),
            Self::Range(error) => error.problem(),
            Self::UnknownSegment { id } => format!("there is no segment {}", quoted(id)),
            Self::DuplicateSegment { id } => format!("two segments are called {}", quoted(id)),
            Self::SegmentCycle { path } => {
                format!("segments need each other in a circle: {}", path.join(" → "))
            }
            Self::TooDeep => {
                format!("the condition nests deeper than {MAX_DEPTH} levels, segments included")
            }
            Self::TooManyTests => {
                format!("with its segments written out, the condition has more than {MAX_TESTS} tests")
            }
        }
    }

    /// A way to mend it, in one line.
    pub fn help(&self) -> String {
        match self {
            Self::Regex { .. } => "mend it, or escape the character with \\".to_owned(),
            Self::RegexTooLarge { .. } => "use smaller repetitions".to_owned(),
            Self::Number { .. } => format!(
                "write for example 10, 0.5 or 1e6; at most {MAX_DECIMAL_BYTES} bytes, with an exponent of at most \
                 {MAX_EXPONENT}"
            ),
            Self::Network { .. } => {
                "write an address and a prefix length, such as 10.0.0.0/8 or 2001:db8::/32, or one address"
                    .to_owned()
            }
            Self::Time { .. } => {
                "write a date, a time and an offset, such as 2030-01-31T08:00:00Z".to_owned()
            }
            Self::Range(error) => error.help(),
            Self::UnknownSegment { .. } => "declare it under `segments`".to_owned(),
            Self::DuplicateSegment { .. } => "rename one".to_owned(),
            Self::SegmentCycle { .. } => "take one reference out".to_owned(),
            Self::TooDeep => "flatten it, or shorten the chain of segments".to_owned(),
            Self::TooManyTests => "use `in` with a list, or fewer segments".to_owned(),
        }
    }
}
