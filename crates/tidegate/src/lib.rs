//! Tidegate: rate limiting, idempotency keys, circuit breaking and progressive delivery in front of
//! a service, from one versioned rule set.

pub mod body;
pub mod breakers;
pub mod cache;
pub mod call;
pub mod context;
pub mod env;
mod event;
mod exchange;
pub mod explain;
pub mod gates;
mod layer;
pub mod loader;
pub mod metrics;
pub mod pipeline;
pub mod request;
pub mod respond;
pub mod rules;
mod runtime;
mod shard;
pub mod stats;
mod timed;

pub use body::Body;
pub use gates::{Gates, Settings};
