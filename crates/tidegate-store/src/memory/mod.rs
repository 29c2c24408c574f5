//! State that lives in this process.

pub mod limits;
//! Memory: gone with the process.

pub mod rules;
