//! Ranges of semantic versions, as conditions write them: `>=1.2 <2`.
//!
//! Versions are ordered by precedence as Semantic Versioning 2.0.0 §11 defines it: pre-releases come before their
//! release, build metadata counts for nothing. A version may start with `v`.
//!
//! In an attribute, a partial version is filled up with zeros: `1.2` is `1.2.0`. In a range it stands
//! for every release that begins so, and ranges are read as npm desugars them: `=1.2` (or `1.2`) is
//! `>=1.2.0 <1.3.0-0`, `<2` is `<2.0.0-0`, `<=1.2` is `<1.3.0-0`, `>=2` is `>=2.0.0`, `>1.2` is `>=1.3.0`.
//! So `2.0.0-rc.1` is neither in `<2` nor in `>=2`: a pre-release counts for its own version only where a
//! range names a whole one, as `<2.0.0` and `>=2.0.0-0` do.

use std::cmp::Ordering;

use crate::document::diagnostic::quoted;

/// Longest version that is read, in bytes. Longer text is not a version.
pub const MAX_VERSION_BYTES: usize = 256;

/// Most comparators in one range.
pub const MAX_COMPARATORS: usize = 16;

/// A version that borrows from text. Build metadata is checked and dropped.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    core: [u64; 3],
    /// How many numbers were written, 1 to 3.
    written: usize,
    /// Dot-separated identifiers, empty for a release.
    pre: &'a str,
}

impl<'a> Version<'a> {
    /// The version that `text` is, wholly; missing numbers are 0.
    ///
    /// `None` for anything else: leading zeros, an empty identifier, a pre-release of a partial version,
    /// a number above 2⁶⁴ − 1, or text longer than [`MAX_VERSION_BYTES`].
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_VERSION_BYTES {
            return None;
        }
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let text = match text.split_once('+') {
            Some((text, build)) => {
                if !build.split('.').all(is_identifier) {
                    return None;
                }
                text
            }
            None => text,
        };
        let (numbers, pre) = match text.split_once('-') {
            Some((numbers, pre)) => {
                if !pre.split('.').all(|part| is_identifier(part) && !has_leading_zero(part)) {
                    return None;
                }
                (numbers, pre)
            }
            None => (text, ""),
        };
        let mut core = [0; 3];
        let mut written = 0;
        for number in numbers.split('.') {
            if !is_number(number) || has_leading_zero(number) {
                return None;
            }
            *core.get_mut(written)? = number.parse().ok()?;
            written += 1;
        }
        if !pre.is_empty() && written < 3 {
            return None;
        }
        Some(Self { core, written, pre })
    }

    /// How this version stands to `other`, by precedence.
    pub fn compare(self, other: Version<'_>) -> Ordering {
        self.core.cmp(&other.core).then_with(|| compare_pre(self.pre, other.pre))
    }
}

fn is_identifier(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Only numbers may not have one; `0a` is a name.
fn has_leading_zero(part: &str) -> bool {
    part.len() > 1 && part.starts_with('0') && is_number(part)
}

fn compare_pre(left: &str, right: &str) -> Ordering {
    match (left.is_empty(), right.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let mut right = right.split('.');
    for left in left.split('.') {
        let Some(right) = right.next() else { return Ordering::Greater };
        let order = match (is_number(left), is_number(right)) {
            // Without leading zeros, the longer number is the larger one, however long it is.
            (true, true) => left.len().cmp(&right.len()).then_with(|| left.cmp(right)),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => left.cmp(right),
        };
        if order.is_ne() {
            return order;
        }
    }
    if right.next().is_some() { Ordering::Less } else { Ordering::Equal }
}

/// Why text is not a range of versions. `Display` is the problem and a way to mend it, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.problem(), self.help())]
#[non_exhaustive]
pub enum RangeError {
    /// Nothing was written.
    Blank,
    /// An operator that ranges do not have.
    Operator {
        /// As written.
        operator: String,
    },
    /// An operator without a version, or text that is no version.
    Version {
        /// As written.
        text: String,
    },
    /// More comparators than [`MAX_COMPARATORS`].
    TooMany,
    /// The comparators contradict each other.
    Nothing {
        /// The range.
        text: String,
    },
}

impl RangeError {
    /// What is wrong, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::Blank => "the range is empty".to_owned(),
            Self::Operator { operator } => {
                format!("{} is no operator of a version range", quoted(operator))
            }
            Self::Version { text } => format!("{} is not a version", quoted(text)),
            Self::TooMany => format!("the range has more than {MAX_COMPARATORS} comparators"),
            Self::Nothing { text } => format!("no version is in the range {}", quoted(text)),
        }
    }

    /// A way to mend it, in one line.
    pub fn help(&self) -> String {
        match self {
            Self::Blank => "write for example \">=1.2 <2\"",
            Self::Operator { .. } => {
                "write `=`, `>`, `>=`, `<` or `<=`, separated by spaces (for `^1.2` write \">=1.2 <2\", for \
                 alternatives use `any`)"
            }
            Self::Version { .. } => {
                "write for example `1.2`, `1.2.3` or `1.2.3-rc.1`, and spaces between comparators"
            }
            Self::TooMany => "two are always enough",
            Self::Nothing { .. } => "its lower end is above its upper end; exchange or widen them",
        }
        .to_owned()
    }
}

/// One end of a range. `inclusive` ends contain their version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    core: [u64; 3],
    pre: Box<str>,
    inclusive: bool,
}

impl End {
    fn version(&self) -> Version<'_> {
        Version { core: self.core, written: 3, pre: &self.pre }
    }

    /// Before every version that begins with `core`: `-0` is the lowest of all pre-releases.
    fn before(core: [u64; 3]) -> Self {
        Self { core, pre: "0".into(), inclusive: false }
    }

    fn from(core: [u64; 3]) -> Self {
        Self { core, pre: "".into(), inclusive: true }
    }

    fn exactly(version: Version<'_>, inclusive: bool) -> Self {
        Self { core: version.core, pre: version.pre.into(), inclusive }
    }
}

/// A range of versions: all between two ends, either of which may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    lower: Option<End>,
    upper: Option<End>,
}

impl Range {
    /// Reads comparators that are separated by spaces and must all hold.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let mut range = Self { lower: None, upper: None };
        let mut words = text.split_ascii_whitespace();
        let mut count = 0;
        while let Some(word) = words.next() {
            count += 1;
            if count > MAX_COMPARATORS {
                return Err(RangeError::TooMany);
            }
            let start = word.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(word.len());
            let (operator, version) = word.split_at(start);
            // `>= 1.2` is read like `>=1.2`.
            let version = if version.is_empty() { words.next().unwrap_or_default() } else { version };
            range.narrow(operator, version)?;
        }
        if count == 0 {
            return Err(RangeError::Blank);
        }
        if range.is_contradiction() {
            return Err(RangeError::Nothing { text: text.to_owned() });
        }
        Ok(range)
    }

    /// Whether `version` is in it.
    pub fn contains(&self, version: Version<'_>) -> bool {
        let above = self.lower.as_ref().is_none_or(|end| match version.compare(end.version()) {
            Ordering::Greater => true,
            Ordering::Equal => end.inclusive,
            Ordering::Less => false,
        });
        above
            && self.upper.as_ref().is_none_or(|end| match version.compare(end.version()) {
                Ordering::Less => true,
                Ordering::Equal => end.inclusive,
                Ordering::Greater => false,
            })
    }

    /// Whether it is certain that no version is in both.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let mut both = self.clone();
        if let Some(end) = &other.lower {
            both.raise(end.clone());
        }
        if let Some(end) = &other.upper {
            both.cut(end.clone());
        }
        both.is_contradiction()
    }

    fn is_contradiction(&self) -> bool {
        let (Some(lower), Some(upper)) = (&self.lower, &self.upper) else { return false };
        match lower.version().compare(upper.version()) {
            Ordering::Less => false,
            Ordering::Equal => !(lower.inclusive && upper.inclusive),
            Ordering::Greater => true,
        }
    }

    fn narrow(&mut self, operator: &str, text: &str) -> Result<(), RangeError> {
        if !matches!(operator, "" | "=" | ">" | ">=" | "<" | "<=") {
            return Err(RangeError::Operator { operator: operator.to_owned() });
        }
        let no_version = || RangeError::Version { text: text.to_owned() };
        let version = Version::parse(text).ok_or_else(no_version)?;
        if version.written == 3 {
            match operator {
                ">" => self.raise(End::exactly(version, false)),
                ">=" => self.raise(End::exactly(version, true)),
                "<" => self.cut(End::exactly(version, false)),
                "<=" => self.cut(End::exactly(version, true)),
                _ => {
                    self.raise(End::exactly(version, true));
                    self.cut(End::exactly(version, true));
                }
            }
            return Ok(());
        }
        let mut next = version.core;
        next[version.written - 1] = next[version.written - 1].checked_add(1).ok_or_else(no_version)?;
        match operator {
            ">" => self.raise(End::from(next)),
            ">=" => self.raise(End::from(version.core)),
            "<" => self.cut(End::before(version.core)),
            "<=" => self.cut(End::before(next)),
            _ => {
                self.raise(End::from(version.core));
                self.cut(End::before(next));
            }
        }
        Ok(())
    }

    /// Keeps the higher lower end.
    fn raise(&mut self, end: End) {
        let keep = self.lower.as_ref().is_some_and(|old| match old.version().compare(end.version()) {
            Ordering::Greater => true,
            Ordering::Equal => !old.inclusive,
            Ordering::Less => false,
        });
        if !keep {
            self.lower = Some(end);
        }
    }

    /// Keeps the lower upper end.
    fn cut(&mut self, end: End) {
        let keep = self.upper.as_ref().is_some_and(|old| match old.version().compare(end.version()) {
            Ordering::Less => true,
            Ordering::Equal => !old.inclusive,
            Ordering::Greater => false,
        });
        if !keep {
            self.upper = Some(end);
        }
    }
}

#[cfg(test)]
mod tests;
