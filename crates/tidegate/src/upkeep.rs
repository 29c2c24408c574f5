//! What runs beside the requests.

use std::sync::Arc;
use std::time::Duration;

use tidegate_store::IdempotencyStore;
use tokio::task::AbortHandle;

use crate::fleet::pulse;
use crate::gates::Gates;

/// How long a purge waits once it has found little to do.
const PURGE_EVERY: Duration = Duration::from_secs(10);
/// Rows that one purge deletes; its transaction holds up the claims behind it.
const PURGE_BATCH: u32 = 500;
/// How often limits forget keys that are as good as fresh.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Deletes expired records and forgets keys that are as good as fresh, now and then. The handles stop it;
/// else it lives as long as the runtime.
pub fn start(gates: &Gates) -> Vec<AbortHandle> {
    let purge = tokio::spawn(purge(Arc::clone(gates.records())));
    let sweep = tokio::spawn(sweep(gates.clone()));
    let pulse = tokio::spawn(pulse::run(gates.clone()));
    vec![purge.abort_handle(), sweep.abort_handle(), pulse.abort_handle()]
}

/// Deletes expired records in small batches, so that no claim waits behind a long transaction.
async fn purge(records: Arc<dyn IdempotencyStore>) {
    loop {
        tokio::time::sleep(PURGE_EVERY).await;
        loop {
            match records.purge(PURGE_BATCH).await {
                Ok(purged) if purged == PURGE_BATCH => tokio::task::yield_now().await,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "purge failed; it is tried again");
                    break;
                }
            }
        }
    }
}

async fn sweep(gates: Gates) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        gates.sweep();
    }
}
