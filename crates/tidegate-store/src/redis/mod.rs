//! Shared state on Redis: one server, Sentinel or Cluster.
//!
//! [`Redis`] is one handle over all three. It sends scripts and says what became of each: it was never sent,
//! the server refused it, or it may have run. Nothing that may have run is ever sent again by itself.

mod client;

pub use ::redis::{ToRedisArgs, Value};

pub use client::Redis;
pub use client::config::{Address, RedisConfig, RedisConfigError};
pub use client::fault::{ConnectFault, Lost, NotSent, RedisFault, Refusal, RefusalCode};
pub use client::info::{Role, ServerInfo};
pub use client::script::Script;
pub use client::slots::slot_of;

pub mod limits;
