//! Circuit breakers: is the dependency healthy enough to be called?
//!
//! | file | subject |
//! |---|---|
//! | `window` | counts of the recent past, lock-free |
//! | `histogram` | latencies of the recent past, lock-free |
//! | `policy` | a rule ready for use: what is a failure, what is slow, what trips |
//! | `state` | closed, open, half-open: who may call now |
//! | `degrade` | what answers instead |

pub mod degrade;
pub mod good;
pub mod histogram;
pub mod policy;
pub mod state;
pub mod window;

pub use degrade::Answer;
pub use good::{Good, Shape};
pub use histogram::Histogram;
pub use policy::{CallResult, Class, Policy, Tally};
pub use state::{Cause, Change, Decision, Kind, Permit, State};
pub use window::Window;

#[cfg(test)]
mod test;
