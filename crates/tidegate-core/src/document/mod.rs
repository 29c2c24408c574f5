//! Configuration documents: YAML 1.2 or JSON text becomes a tree of nodes that know where they
//! stand and how they were spelled, and readers turn nodes into values. Nothing stops at the first
//! fault: every reader adds what it found to a [`Report`] and goes on.
//!
//! The rule documents and the program's own configuration are read by the same means.

pub mod diagnostic;
pub mod fields;
pub mod quantity;
pub mod report;
pub mod scalar;
pub mod source;
pub mod suggest;
pub mod tree;

pub use diagnostic::{Diagnostic, Refused, Severity};
pub use fields::{At, Fields, Got, List};
pub use report::Report;
pub use source::{Source, Span};
pub use tree::{Entry, Kind, Node};
