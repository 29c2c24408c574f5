//! Limits counted on Redis, by one script for each algorithm.
mod batch;
pub mod exact;
mod key;
mod numbers;
mod returns;
mod rule;
mod runner;
mod script;

#[cfg(test)]
mod tests;

pub use batch::{
    Call, CallDecided, Command, Counter, Decided, MAX_BATCH, Malformed, Purpose, decode, encode,
};
pub use key::{CounterKey, KeySpace, MAX_TAG};
pub use numbers::{Kind, MAX_LOG_RUNS, Numbers};
pub use returns::{Permit, answers, give_back, release, renew};
pub use rule::SharedRule;
pub use runner::RedisRunner;
pub use script::Script;
