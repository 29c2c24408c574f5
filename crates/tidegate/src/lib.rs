//! Tidegate: rate limiting, idempotency keys, circuit breaking and progressive delivery in front of
//! a service, from one versioned rule set.

pub mod body;
pub mod call;

pub use body::Body;
