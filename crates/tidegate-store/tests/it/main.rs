//! The stores' tests: one suite of assertions, run on each backend, and what needs a process of its own.
#![cfg(test)]

mod resident;
mod rules;
