//! What the tests of Tidegate share: real processes on free ports (Redis among them), a plain HTTP/1.1 client, and
//! an origin server that does what a script says.
//!
//! Nothing here sleeps to be right: everything waits on a condition, with a deadline.
#![allow(clippy::panic, clippy::expect_used, reason = "a test kit reports a failed expectation by panicking")]

pub mod client;
pub mod closed_port;
pub mod origin;
pub mod program;
pub mod proxy;
pub mod redis;
pub mod wait;
mod wire;

pub use client::{Connection, Response, request, try_request};
pub use closed_port::ClosedPort;
pub use origin::{Exchange, Origin};
pub use program::Program;
pub use proxy::Proxy;
pub use redis::{Redis, RedisOptions};
pub use wait::{DEADLINE, Gate, wait_for, wait_until};

/// A fresh directory that is removed when the value is dropped.
pub fn temp_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("tidegate-test-").tempdir().expect("a temporary directory")
}
