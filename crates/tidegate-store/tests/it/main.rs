//! The stores from outside: real files, real processes, real concurrency.
#![cfg(test)]

mod idempotency;
#[cfg(feature = "redis")]
mod redis;
mod resident;
mod rules;
