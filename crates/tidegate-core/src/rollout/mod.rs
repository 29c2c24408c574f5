//! Progressive delivery: which variant a subject gets, and why.

pub mod bucket;
pub mod condition;
pub mod decimal;
pub mod evaluate;
pub mod explain;
pub(crate) mod matcher;
pub mod range;

pub use condition::{Compiled, ConditionError, Segments};
pub use evaluate::{EvaluateError, Evaluation, FlagIndex, Flags, FlagsFault, Reason};
pub use explain::Explanation;
