//! Where a service keeps idempotency records and rule versions.

use std::sync::Arc;

use sqlx::SqlitePool;
pub use tidegate_core::rule::IdempotencyBackend;
pub use tidegate_store::IdempotencyStore;
use tidegate_store::memory::rules::MemoryRules;
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tidegate_store::rules::{RuleStore, RuleStoreError};
use tidegate_store::sql::sqlite::{SetupError, SqliteIdempotency, SqliteRules};

use crate::env::Env;

/// A store: [`memory`], [`sqlite`], or [`opened`] elsewhere.
#[derive(Clone)]
pub struct Store(Kind);

#[derive(Clone)]
enum Kind {
    Memory,
    Sqlite(SqlitePool),
}

/// In this process, and gone with it. Nothing to install; for tests and for limits and breakers alone.
pub const fn memory() -> Store {
    Store(Kind::Memory)
}

/// The SQLite database of `pool`: for idempotency records, the one that holds the business rows, so that
/// [`Claim::commit`](crate::Claim::commit) can complete a record in their transaction. The tables are
/// made at the start.
pub const fn sqlite(pool: SqlitePool) -> Store {
    Store(Kind::Sqlite(pool))
}

/// Idempotency records behind the store's own trait.
#[derive(Clone)]
pub struct Records(pub(crate) RecordsKind);

#[derive(Clone)]
pub(crate) enum RecordsKind {
    Named(Store),
    Opened(Arc<dyn IdempotencyStore>, IdempotencyBackend),
}

impl From<Store> for Records {
    fn from(store: Store) -> Self {
        Self(RecordsKind::Named(store))
    }
}

/// Records in a store that was opened already. `backend` says what rules may ask of it.
pub fn opened(store: Arc<dyn IdempotencyStore>, backend: IdempotencyBackend) -> Records {
    Records(RecordsKind::Opened(store, backend))
}

impl Records {
    pub(crate) async fn open(
        self,
        env: &Env,
    ) -> Result<(Arc<dyn IdempotencyStore>, IdempotencyBackend), SetupError> {
        Ok(match self.0 {
            RecordsKind::Named(Store(Kind::Memory)) => {
                let clock = env.clone();
                let store = MemoryIdempotency::new(Arc::new(move || clock.now()), MemoryLimits::default());
                (Arc::new(store), IdempotencyBackend::Memory)
            }
            RecordsKind::Named(Store(Kind::Sqlite(pool))) => {
                (Arc::new(SqliteIdempotency::open(pool).await?), IdempotencyBackend::Sqlite)
            }
            RecordsKind::Opened(store, backend) => (store, backend),
        })
    }
}

impl Store {
    pub(crate) async fn open_rules(self, env: &Env) -> Result<Arc<dyn RuleStore>, RuleStoreError> {
        Ok(match self.0 {
            Kind::Memory => {
                let clock = env.clone();
                Arc::new(MemoryRules::new(move || clock.now()))
            }
            Kind::Sqlite(pool) => Arc::new(SqliteRules::new(pool).await?),
        })
    }
}
