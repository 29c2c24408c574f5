//! The stores from outside: real files, real processes, real concurrency.

mod idempotency;
