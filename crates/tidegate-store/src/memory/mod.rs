//! Stores inside one process. What they hold ends with it.

mod idempotency;

pub use idempotency::{Clock, MemoryIdempotency, MemoryLimits};
