//! The rule set: its model, how it is read, checked, compared and compiled.

pub mod compile;
pub mod conflict;
pub mod host;
pub mod model;
pub mod path;
mod percent;
pub mod route;
pub mod take;

pub use model::RuleSet;
