//! Tidegate: rate limiting, idempotency keys, circuit breaking and progressive delivery in front of
//! a service, from one versioned rule set.

pub mod body;
pub mod breakers;
mod builder;
pub mod cache;
pub mod call;
pub mod context;
pub mod env;
mod event;
mod exchange;
pub mod explain;
pub mod gates;
mod guard;
mod layer;
pub mod loader;
pub mod metrics;
mod nesting;
pub mod pipeline;
pub mod request;
pub mod respond;
pub mod rules;
mod runtime;
mod service;
mod shard;
pub mod source;
pub mod stats;
pub mod store;
mod timed;
mod tx;
mod upkeep;

pub use body::Body;
pub use builder::{Builder, StartError, Tidegate};
pub use gates::{Gates, Settings};
pub use guard::{Blocked, Guarded, ResourceCall, Verdict};
pub use service::{ClientAddr, GateLayer, GateService};
pub use tidegate_core::idempotency::Outcome;
pub use tx::{Claim, CommitError};
