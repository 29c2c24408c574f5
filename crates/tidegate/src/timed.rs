//! Measures each request to the idempotency store, and bounds how long it may take.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::idempotency::record::Fence;
use tidegate_core::idempotency::transition::{ClaimAsk, Claimed, Held, Verdict};
use tidegate_core::idempotency::{Owner, RecordId, StoredResponse};
use tidegate_store::traits::{
    BoxFuture, Fenced, IdempotencyStore, ListAsk, Listed, Renewed, Settled, Shown, StoreError,
};

use crate::env::Env;
use crate::metrics::Metrics;

/// How long a request may take. Longer than a store itself waits for its locks; what waits in the
/// store's queue behind others that wait must not add up.
const STORE_TIMEOUT: Duration = Duration::from_secs(7);

/// A store whose requests move `tidegate_store_request_duration_seconds`.
pub(crate) struct Timed {
    pub(crate) store: Arc<dyn IdempotencyStore>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) env: Env,
}

impl Timed {
    fn measure<'a, T>(
        &'a self,
        operation: &'static str,
        request: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>>
    where
        T: Send + 'a,
    {
        Box::pin(async move {
            let started = self.env.now();
            // Dropping a request is safe: a claim that is granted all the same is given up by the store,
            // and all others are repeated or need not be.
            let answer = match tokio::time::timeout(STORE_TIMEOUT, request).await {
                Ok(answer) => answer,
                Err(late) => Err(StoreError::Busy { store: "idempotency", source: Arc::new(late) }),
            };
            let took = self.env.now().since(started);
            self.metrics.store_request("idempotency", operation, answer.is_ok(), took);
            answer
        })
    }
}

impl IdempotencyStore for Timed {
    fn claim<'a>(
        &'a self,
        id: &'a RecordId,
        ask: &'a ClaimAsk,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        self.measure("claim", self.store.claim(id, ask))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Renewed, StoreError>> {
        self.measure("renew", self.store.renew(held))
    }

    fn complete<'a>(
        &'a self,
        held: &'a Held,
        response: &'a Arc<StoredResponse>,
    ) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        self.measure("complete", self.store.complete(held, response))
    }

    fn release<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        self.measure("release", self.store.release(held))
    }

    fn abandon<'a>(&'a self, id: &'a RecordId, owner: Owner) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        self.measure("abandon", self.store.abandon(id, owner))
    }

    fn read<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<Shown>, StoreError>> {
        self.measure("read", self.store.read(id))
    }

    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
        verdict: &'a Verdict,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        self.measure("resolve", self.store.resolve(id, seen, by, verdict))
    }

    fn force_release<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        self.measure("force_release", self.store.force_release(id, seen, by))
    }

    fn list<'a>(&'a self, ask: &'a ListAsk) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>> {
        self.measure("list", self.store.list(ask))
    }

    fn purge(&self, batch: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.measure("purge", self.store.purge(batch))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.measure("now", self.store.now())
    }
}
