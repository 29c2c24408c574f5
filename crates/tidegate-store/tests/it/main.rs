//! The stores from outside: real files, real processes, real concurrency.
#![cfg(test)]

mod idempotency;
mod resident;
mod rules;
