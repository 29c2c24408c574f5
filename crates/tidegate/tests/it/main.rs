//! Tests of the library's parts together.
#![cfg(test)]

mod rules;
