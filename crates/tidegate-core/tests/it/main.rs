//! Tests of tidegate-core from outside.
#![cfg(test)]

mod seeds;
