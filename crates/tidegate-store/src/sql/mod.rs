//! SQL backends.

pub mod sqlite;
