//! Memory: state that is gone with the process.

pub mod limits;
pub mod rules;
