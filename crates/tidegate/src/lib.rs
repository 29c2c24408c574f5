//! Tidegate: rate limiting, idempotency keys, circuit breaking and progressive delivery in front of
//! a service, from one versioned rule set.
//!
//! Inside a service, [`Tidegate`] is the handle:
//!
//! ```no_run
//! use axum::response::{IntoResponse as _, Response};
//! use axum::{Extension, Router, http::StatusCode, routing::post};
//! use tidegate::{Claim, Tidegate, source, store};
//!
//! # async fn start(db: sqlx::SqlitePool) -> Result<Router, tidegate::StartError> {
//! let gates = Tidegate::builder()
//!     .rules(source::file("rules.yaml")) // watched; a bad edit changes nothing
//!     .idempotency(store::sqlite(db.clone())) // where the business rows live
//!     .start()
//!     .await?; // bad rules: every fault, with line and column
//! # Ok(
//! Router::new().route("/pay", post(pay)).route_layer(gates.layer()).layer(Extension(db))
//! # )
//! # }
//!
//! async fn pay(Extension(db): Extension<sqlx::SqlitePool>, Extension(claim): Extension<Claim>) -> Response {
//!     # let result: Result<Response, Box<dyn std::error::Error>> = async {
//!     let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
//!     sqlx::query("INSERT INTO payments …").execute(&mut *tx).await?;
//!     // Consumes both: neither row is there without the other.
//!     let paid = claim.commit(tx, StatusCode::CREATED.into_response()).await?;
//!     # Ok(paid.into_response()) }.await;
//!     # result.unwrap()
//! }
//! ```
//!
//! - [`Tidegate::layer`] puts all four gates around handlers.
//! - [`Tidegate::resource`] puts limits and breakers around any call, a dependency above all.
//! - [`Claim`] completes an idempotency record in the handler's own transaction.

pub mod body;
pub mod breakers;
mod builder;
pub mod cache;
pub mod call;
pub mod context;
pub mod env;
mod event;
mod exchange;
pub mod explain;
pub mod fleet;
pub mod gates;
mod guard;
mod layer;
pub mod loader;
pub mod metrics;
mod nesting;
pub mod pipeline;
pub mod request;
pub mod respond;
pub mod rules;
mod runtime;
mod series;
mod service;
mod shard;
pub mod source;
pub mod stats;
pub mod store;
mod timed;
mod tx;
pub mod upkeep;

pub use body::Body;
pub use builder::{Builder, StartError, Tidegate};
pub use gates::{Gates, Settings};
pub use guard::{Blocked, Guarded, ResourceCall, Verdict};
pub use service::{ClientAddr, GateLayer, GateService};
pub use tidegate_core::Timestamp;
pub use tidegate_core::idempotency::{Key, Outcome, RecordId};
pub use tidegate_core::rule::model;
pub use tx::{Claim, CommitError};
