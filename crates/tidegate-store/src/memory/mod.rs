//! Memory: gone with the process.

pub mod rules;
