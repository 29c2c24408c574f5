//! Flag rules of equal priority that contradict each other.
//!
//! Two rules conflict when they have the same priority, can both hold, and serve different results:
//! document order would then decide silently. "Can both hold" is assumed unless one scalar attribute
//! proves that they cannot, by finite sets, numeric or time intervals, version ranges, networks,
//! beginnings and ends of text, or a test beside its own negation. The proof never errs to the
//! lenient side: rules that some request satisfies together are never taken for disjoint.

mod atom;
mod term;
#[cfg(test)]
mod tests;

use std::fmt;

use self::term::{Space, Terms, TooComplex};
use crate::rule::model::{Flag, FlagRule, RuleSet};

/// Most conflicts that are listed; a document with more is no better understood by reading on.
const MAX_CONFLICTS: usize = 1_000;

/// Two rules of one flag with equal priority that can both hold and differ in result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The flag's key.
    pub flag: String,
    /// The id of the rule that stands first in the document.
    pub first: String,
    /// The id of the other.
    pub second: String,
    /// The priority of both.
    pub priority: i64,
    /// Why both are taken to hold.
    pub why: Why,
}

/// Why two rules are taken to hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// At least one of them has no condition.
    Unconditional,
    /// No single attribute proves that their conditions exclude each other.
    NotExclusive,
    /// The conditions are too large to compare.
    TooComplex,
}

impl Conflict {
    /// What is wrong, in one line.
    pub fn problem(&self) -> String {
        let Self { flag, first, second, priority, why } = self;
        let why = match why {
            Why::Unconditional => "both can hold because one of them has no `when`",
            Why::NotExclusive => "both can hold because no attribute tells them apart",
            Why::TooComplex => "their conditions are too large to prove that they exclude each other",
        };
        format!(
            "rules `{first}` and `{second}` of flag `{flag}` both have priority {priority} and serve different \
             results, and {why}"
        )
    }

    /// A way to mend it, in one line.
    pub fn help(&self) -> &'static str {
        match self.why {
            Why::NotExclusive => {
                "give one of them a higher priority, or make their conditions exclude each other on one attribute"
            }
            Why::Unconditional | Why::TooComplex => "give one of them a higher priority",
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.help())
    }
}

/// All conflicts between flag rules, in document order; at most 1000.
///
/// The work is bounded: what would take more is reported as [`Why::TooComplex`].
pub fn conflicts(rules: &RuleSet) -> Vec<Conflict> {
    let mut space = Space::new(&rules.segments);
    let mut found = Vec::new();
    for flag in &rules.flags {
        flag_conflicts(flag, &mut space, &mut found);
    }
    found
}

fn flag_conflicts<'a>(flag: &'a Flag, space: &mut Space<'a>, found: &mut Vec<Conflict>) {
    let mut rules: Vec<&FlagRule> = flag.rules.iter().filter(|rule| can_hit(rule)).collect();
    rules.sort_by_key(|rule| rule.priority);
    for equals in rules.chunk_by(|left, right| left.priority == right.priority) {
        // One rule alone meets nobody; its condition need not be looked at.
        if equals.len() < 2 {
            continue;
        }
        let unfolded: Vec<(&FlagRule, Result<Terms, TooComplex>)> =
            equals.iter().map(|rule| (*rule, space.unfold(rule.when.as_ref()))).collect();
        let mut rest = unfolded.as_slice();
        while let Some(((first, left), others)) = rest.split_first() {
            rest = others;
            for (second, right) in others {
                if found.len() >= MAX_CONFLICTS {
                    return;
                }
                if first.serve == second.serve {
                    continue;
                }
                let disjoint = match (left, right) {
                    (Ok(left), Ok(right)) => space.disjoint(left, right),
                    // What never holds meets nobody, however large the other is.
                    (Ok(terms), Err(_)) | (Err(_), Ok(terms)) if terms.is_empty() => Ok(true),
                    _ => Err(TooComplex),
                };
                let why = match disjoint {
                    Ok(true) => continue,
                    Ok(false) if first.when.is_none() || second.when.is_none() => Why::Unconditional,
                    Ok(false) => Why::NotExclusive,
                    Err(TooComplex) => Why::TooComplex,
                };
                found.push(Conflict {
                    flag: flag.key.clone(),
                    first: first.id.clone(),
                    second: second.id.clone(),
                    priority: first.priority,
                    why,
                });
            }
        }
    }
}

/// A percentage above 0 hits somebody, and two of them share the lowest bucket.
fn can_hit(rule: &FlagRule) -> bool {
    rule.percentage.is_none_or(|percentage| percentage.hundredths() > 0)
}
