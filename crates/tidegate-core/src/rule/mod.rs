//! The rule set: its model, how it is read, checked, compared and compiled.

pub mod model;

pub use model::RuleSet;
