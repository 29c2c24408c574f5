//! State that lives in this process.

pub mod limits;
