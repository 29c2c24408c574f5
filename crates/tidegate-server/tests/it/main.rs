//! The gateway's transport, tested over real sockets against a scripted origin.

#![expect(clippy::unwrap_used, reason = "clippy does not know the helpers of tests as tests")]

mod admin;
mod cases;
mod cli;
mod drain;
mod exchange;
mod lab;
mod limits;
mod support;
mod upstream;
