//! Pure decisions: `(state, rule, input, now) -> (decision, new state)`.
//!
//! Nothing in this crate reads a clock, draws a random number, does I/O or is `async`. Time,
//! identifiers and random numbers come in as arguments, so every decision can be replayed.

pub mod attribute;
pub mod breaker;
pub mod document;
pub mod idempotency;
pub mod limit;
pub mod rollout;
pub mod rule;
pub mod time;
mod token;

pub use attribute::{Attributes, Value};
pub use time::Timestamp;
