//! Async adapters: where state and rule versions live.
//!
//! A backend decides nothing on its own: it brings the state to a pure function of `tidegate-core`
//! and makes the answer durable in one atomic step.

pub mod conformance;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
pub mod rules;
pub mod shared;
pub mod sql;
pub mod traits;

pub use traits::{IdempotencyStore, StoreError};
