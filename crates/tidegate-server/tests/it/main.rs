//! The gateway's transport, tested over real sockets against a scripted origin.

mod drain;
mod exchange;
mod limits;
mod support;
mod upstream;
