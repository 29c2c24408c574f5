//! What a checked rule document means. A value of these types has passed validation: references
//! resolve, numbers are in range, and no two flag rules of one priority contradict each other.
//!
//! Documents become models in `parse`, and only there do defaults get filled in.

mod breakers;
mod conditions;
mod idempotency;
mod limits;
mod resources;
mod rollout;

pub use breakers::*;
pub use conditions::*;
pub use idempotency::*;
pub use limits::*;
pub use resources::*;
pub use rollout::*;

/// One whole rule document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// What the gates protect, in document order.
    pub resources: Vec<Resource>,
    /// Rate limits, in document order.
    pub limits: Vec<Limit>,
    /// Idempotency rules; at most one for each resource.
    pub idempotency: Vec<Idempotency>,
    /// Circuit breakers.
    pub breakers: Vec<Breaker>,
    /// Named conditions.
    pub segments: Vec<Segment>,
    /// Flags.
    pub flags: Vec<Flag>,
}
