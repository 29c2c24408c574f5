//! The parts of the `tidegate` binary.

pub mod admin;
pub mod cli;
pub mod config;
pub mod gateway;
pub mod serve;
