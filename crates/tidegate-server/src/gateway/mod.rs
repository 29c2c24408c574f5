//! The gateway's transport: a listener in front, an upstream behind. What happens in between is a
//! [`Handler`]'s affair.
//!
//! Each worker is one thread with a runtime of its own; a connection stays on its worker for life,
//! and so do the upstream connections that its requests use, wherever possible.

mod body;
mod connection;
pub mod drain;
pub mod headers;
mod inbound;
mod interim;
mod io;
pub mod listener;
mod pool;
pub mod route;
mod splice;
pub mod upstream;
pub mod url;
mod worker;

pub use body::StreamError;
pub use drain::{Token, Tracker};
pub(crate) use inbound::normalise;
pub use listener::{BindError, Drained, Handler, Listener, ListenerConfig, Server};
pub use route::Route;
pub use upstream::{HostHeader, Upstream, UpstreamConfig};
pub use url::{UpstreamUrl, UrlError};
