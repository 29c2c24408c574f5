//! The rule set: its model, how it is read, checked, compared and compiled.

pub mod compile;
pub mod conflict;
pub mod diff;
pub mod host;
mod json;
pub mod load;
pub mod model;
mod parse;
pub mod path;
mod percent;
pub mod positions;
pub mod render;
pub mod route;
#[cfg(test)]
mod sample;
pub mod schema;
pub mod take;
#[cfg(test)]
mod tests;
mod validate;
pub mod version;

pub use crate::document::{Diagnostic, Severity, Source, Span};
pub use load::{Deployment, IdempotencyBackend, Loaded, Refused, Shell, load};
pub use model::RuleSet;
pub use parse::attribute::RESERVED as RESERVED_ATTRIBUTES;
pub use parse::values::{MAX_COUNT, MAX_FILL, MAX_SPAN, MIN_PERIOD, MIN_SPAN};
pub use positions::{Finding, Positions};

/// Bounds of rule documents.
pub mod bounds {
    pub use super::load::{MAX_SOURCES, MAX_TOTAL_BYTES};
    pub use super::parse::condition::MAX_REGEXES;
    pub use super::parse::flag::{MAX_PRIORITY, MAX_VARIANTS};
    pub use super::parse::idempotency::{MAX_RESPONSE, REPLAY_HEADERS};
    pub use super::parse::limit::{MAX_LOG, MAX_OVERRIDES, MAX_QUEUE};
    pub use super::parse::resource::MAX_ATTRIBUTES;
    pub use super::parse::values::{MAX_COUNT, MAX_FILL, MAX_PARTS, MAX_SPAN, MIN_PERIOD, MIN_SPAN};
    pub use super::parse::{API_VERSION, MAX_RULES};
    pub use crate::breaker::policy::MAX_PROBES;
    pub use crate::document::tree::{MAX_BYTES, MAX_DEPTH, MAX_EXPANDED, MAX_KEY_BYTES, MAX_NODES};
    pub use crate::rollout::condition::{MAX_DEPTH as MAX_CONDITION_DEPTH, MAX_REGEX_BYTES, MAX_TESTS};
}
pub use version::{Digest, ShortDigest, Version, VersionName};
