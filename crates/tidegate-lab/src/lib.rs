//! The experiments: the naive way, really run, beside Tidegate's own engine, with the figures that
//! must come out.
//!
//! [`EXPERIMENTS`] is the registry and [`select`] picks from it. An [`Experiment`] takes [`Params`] and
//! a [`Run`] and gives a [`Report`]. "= n" must be met exactly; "> n" is what a race shows, and depends
//! on scheduling.
//!
//! Each experiment's module says which part of the engine it goes through. Nothing is simulated: the
//! limits and idempotency experiments send requests through the pipeline that the gateway runs, under
//! rules that its loader loaded and its rule service put in force.

mod breaker;
pub mod child;
mod error;
mod experiment;
mod idempotency;
mod limit;
mod node;
pub mod params;
mod random;
mod redis;
pub mod report;
mod rollout;
pub mod run;

pub use error::LabError;
pub use experiment::{EXPERIMENTS, Experiment, UnknownExperiment, find, select};
pub use params::{Params, ParamsError};
pub use report::{Cell, Expectation, Figure, Report, Row, Verdict};
pub use run::Run;
