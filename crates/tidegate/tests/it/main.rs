//! Tests of the library's parts together.
#![cfg(test)]

mod library;
mod rules;
