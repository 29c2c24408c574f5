//! Limits counted on Redis, by one script for each algorithm.
//!
//! A script decides a batch of calls in turn on one or several counters, all or none, by the server's own
//! clock in whole microseconds. Its reply holds the counters' states before the first call and one digit
//! for each call; what each call is told follows from them by the core's arithmetic, so that it equals
//! what a local limit would have said.
//!
//! Calls in flight for the same counters share a command. One limit, which is what nearly all requests ask,
//! is decided by a straight line of the same steps that decide several.
//!
//! Every key lives until its counter equals a fresh one, and a second longer. A refused call writes
//! nothing, with two exceptions that each write once: a clock that was set back, and numbers that changed;
//! kept for later, both would start anew with every refused call.

mod batch;
mod combine;
pub mod exact;
mod returns;
mod runner;
mod script;
mod store;

#[cfg(test)]
mod tests;

pub use batch::{Call, CallDecided, Command, Decided, MAX_BATCH, Malformed, decode, encode};
pub use returns::{answers, give_back, release, renew};
pub use runner::RedisRunner;
pub use script::Script;
pub use store::RedisLimits;
