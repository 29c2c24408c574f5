//! Permits of concurrency in the shared store: renewed while their calls run, given back when they end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_store::shared::Permit;
use tokio::sync::mpsc;

use super::{Fleet, PERMIT_LIFE};

/// How often permits are renewed: twice may fail before one is lost.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Permits that one request to the store gives back or renews.
const BATCH: usize = 256;

/// A call has begun or ended to hold permits. There are as many of these as calls, so their queue is bounded
/// by the calls in flight.
pub(super) enum Change {
    Began(u64, Vec<Permit>),
    Ended(u64),
}

/// The permits of one call; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    id: u64,
    changes: mpsc::UnboundedSender<Change>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Kept {
    pub(super) fn new(permits: Vec<Permit>, changes: &mpsc::UnboundedSender<Change>) -> Option<Self> {
        if permits.is_empty() {
            return None;
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        // Without the task they end by themselves, in a while.
        let _ = changes.send(Change::Began(id, permits));
        Some(Self { id, changes: changes.clone() })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.changes.send(Change::Ended(self.id));
    }
}

/// Runs until the fleet is gone.
pub(super) async fn run(fleet: Arc<Fleet>) {
    let Some(mut changes) = fleet.kept.lock().take() else { return };
    let mut held: HashMap<u64, Vec<Permit>> = HashMap::new();
    let mut renewal = tokio::time::interval(RENEW_EVERY);
    renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            received = changes.recv_many(&mut batch, BATCH) => {
                if received == 0 {
                    return;
                }
                let mut ended = Vec::new();
                for change in batch.drain(..) {
                    match change {
                        Change::Began(id, permits) => {
                            held.insert(id, permits);
                        }
                        Change::Ended(id) => ended.extend(held.remove(&id).into_iter().flatten()),
                    }
                }
                fleet.release(ended).await;
            }
            _ = renewal.tick() => fleet.renew(held.values().flatten().cloned().collect()).await,
        }
    }
}

impl Fleet {
    async fn release(&self, mut permits: Vec<Permit>) {
        permits.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        for permits in permits.chunks(BATCH) {
            // While the store is closed they are left to end by themselves: asking costs a wait for each.
            if !self.is_up() {
                return;
            }
            if let Err(fault) = self.measured("release", self.store.release(permits)).await {
                self.failed(&fault);
            }
        }
    }

    async fn renew(&self, mut permits: Vec<Permit>) {
        permits.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        for permits in permits.chunks(BATCH) {
            if !self.is_up() {
                return;
            }
            match self.measured("renew", self.store.renew(permits, PERMIT_LIFE)).await {
                Ok(held) => {
                    let lost = held.iter().filter(|held| !**held).count();
                    if lost > 0 {
                        tracing::warn!(
                            lost,
                            "calls run on whose concurrency permits have ended: the limit may be passed by as many"
                        );
                    }
                }
                Err(fault) => self.failed(&fault),
            }
        }
    }
}
