//! The gates, one a file. A layer goes to its store and to its core function, never to another layer;
//! `pipeline` alone knows their order.

pub(crate) mod breaker;
pub(crate) mod idempotency;
pub(crate) mod limit;
pub(crate) mod rollout;
