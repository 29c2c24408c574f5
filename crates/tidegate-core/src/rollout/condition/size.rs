//! How large conditions may grow.

use super::ConditionError;

/// How deep conditions may nest, segments included.
pub const MAX_DEPTH: usize = 32;

/// How many tests one condition may come to once its segments are written out: what one evaluation may
/// cost. Without it, segments that name each other twice would double the work with each level.
pub const MAX_TESTS: usize = 4096;

/// How deep a condition nests and how many tests it comes to, segments written out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Levels: 1 for a test or an empty list.
    pub(super) depth: usize,
    /// Tests; an empty list costs one, too.
    pub(super) tests: usize,
}

impl Size {
    /// One test.
    pub(super) const TEST: Self = Self { depth: 1, tests: 1 };

    /// Whether it is within the bounds.
    pub(super) fn check(self) -> Result<(), ConditionError> {
        if self.depth > MAX_DEPTH {
            Err(ConditionError::TooDeep)
        } else if self.tests > MAX_TESTS {
            Err(ConditionError::TooManyTests)
        } else {
            Ok(())
        }
    }

    /// One level around it: `not`, or a named segment.
    pub(super) fn wrapped(self) -> Self {
        Self { depth: self.depth.saturating_add(1), ..self }
    }

    /// A part of a list, beside those in `self`. Begin with the default and end with
    /// [`listed`](Self::listed).
    pub(super) fn beside(self, part: Self) -> Self {
        Self { depth: self.depth.max(part.depth), tests: self.tests.saturating_add(part.tests) }
    }

    /// The list around the parts in `self`. An empty one costs a step, too.
    pub(super) fn listed(self) -> Self {
        Self { tests: self.tests.max(1), ..self.wrapped() }
    }
}
