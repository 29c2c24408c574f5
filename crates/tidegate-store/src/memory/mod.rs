//! Stores inside one process. What they hold ends with it.

mod idempotency;
pub mod limits;
pub mod rules;

pub use idempotency::{Clock, MemoryIdempotency, MemoryLimits};
