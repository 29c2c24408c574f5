//! What each fuzz target does with its input. Each panics when something is wrong, and nothing else.
//!
//! The tests of tidegate-core include this file, and run every body over `corpus-seed`.

pub mod input;
pub mod key_parser;
pub mod matchers;
pub mod path_normaliser;
pub mod rule_parser;
