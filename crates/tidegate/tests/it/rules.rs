//! The life of rule versions: a toy language of rules, real files, real stores.

mod file;
mod life;
mod store;
mod walk;
mod world;
