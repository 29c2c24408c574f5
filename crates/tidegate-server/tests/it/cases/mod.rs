//! The cases met in the field, through a real gateway process in front of a scripted origin.

mod bad_input;
mod breaker;
mod crash;
mod gateway;
mod idempotency;
mod limits;
mod outcomes;
mod rollout;
mod rules_file;
mod shared;
