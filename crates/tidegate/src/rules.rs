//! The life of rules: a file is watched, validated, published as a version, and swapped in.
//!
//! ```text
//! file ── read, settled ──> load ── every fault ──> refused: kept in the trail, version in force stays
//!                             │
//!                             ├─ says what is in force already: accepted, no new version
//!                             ├─ is what was last published from it: nothing to do, maybe drift
//!                             └─ new: published on the version that was seen ──> swap
//! store ── a newer number ──> load the canonical form ──> swap
//! ```
//!
//! Invariants:
//!
//! 1. Numbers handed to the swap only grow. An older version never replaces a newer one.
//! 2. What cannot be loaded is never swapped in, and never published.
//! 3. A file whose content was accepted before is not published again, so a rollback survives a restart.
//! 4. A file or a store that is away leaves the version in force, and is reported as stale.

mod compile;
mod driver;
mod service;
mod source;
mod status;
mod watch;

pub use compile::{Candidate, Compile, Refusal};
pub use service::{Options, RuleService, Setup, StartError};
pub use source::{MAX_BYTES, MAX_FILES, ReadError, read_sources};
pub use status::{Drift, LoadResult, LoadSource, Loads, Refused, Status, Unusable};
