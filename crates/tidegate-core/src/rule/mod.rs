//! The rule set: its model, how it is read, checked, compared and compiled.

pub mod conflict;
pub mod diff;
mod json;
pub mod model;
pub mod render;
#[cfg(test)]
mod sample;
pub mod schema;
pub mod version;

pub use model::RuleSet;
pub use version::{Digest, ShortDigest, Version, VersionName};
