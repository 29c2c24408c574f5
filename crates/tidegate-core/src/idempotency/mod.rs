//! Idempotency: what a key is, when two requests are the same, what a record holds, and which
//! transitions it may make.
//!
//! A store reads a [`Record`], hands it to a function of [`transition`] with its own time, and makes
//! the outcome durable in one atomic step. No store decides anything else.

pub mod fingerprint;
pub mod id;
pub mod key;
pub mod outcome;
pub mod record;
pub mod transition;

pub use fingerprint::{Fingerprint, PartError, Request};
pub use id::{RecordId, Scope};
pub use key::{Key, KeyError};
pub use outcome::Outcome;
pub use record::{Fence, FirstTry, Owner, Policy, Record, ResponseError, Stage, State, StoredResponse};
pub use transition::{Answer, ClaimAsk, Claimed, Held, How};
