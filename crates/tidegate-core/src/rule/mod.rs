//! The rule set: its model, how it is read, checked, compared and compiled.

pub mod conflict;
pub mod model;

pub use model::RuleSet;
