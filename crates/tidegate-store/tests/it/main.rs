//! The stores' tests: one suite of assertions, run on each backend.
#![cfg(test)]

mod rules;
