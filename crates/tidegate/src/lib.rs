//! Tidegate: rate limiting, idempotency keys, circuit breaking and progressive delivery in front of
//! a service, from one versioned rule set.

pub mod body;
pub mod breakers;
pub mod call;
pub mod context;
pub mod env;
pub mod metrics;
pub mod respond;
mod shard;
pub mod rules;

pub use body::Body;
