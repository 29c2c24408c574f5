//! The parts of the `tidegate` binary.

pub mod config;
pub mod gateway;
