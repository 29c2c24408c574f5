//! The gates inside a service: layer, claims, guarded calls.

mod builder;
mod crash;
mod guard;
mod idempotency;
mod layer;
mod registrations;
mod world;
