//! The signs of life of this instance, which are also the probes of the store.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::limit::share::Member;
use tidegate_store::shared::Pulse;

use super::Fleet;
use crate::gates::Gates;

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(1);
/// An instance that was silent for so long is gone: some beats may be lost.
const LIFE: Duration = Duration::from_secs(5);
/// Between two probes of a store that is closed, on average.
const PROBE: Duration = Duration::from_millis(250);

impl Gates {
    /// Asks the shared store for the first time, so that requests find it open: once, whatever comes of it.
    pub async fn join_fleet(&self) {
        if let Some(fleet) = self.fleet() {
            fleet.beat(self).await;
        }
    }
}

/// Tells that this instance lives, and learns who else does, for as long as the runtime lives.
pub(crate) async fn run(gates: Gates) {
    let Some(fleet) = gates.fleet().cloned() else { return };
    let keeper = super::keeper::run(Arc::clone(&fleet));
    let beats = async {
        loop {
            if fleet.is_up() {
                tokio::select! {
                    () = tokio::time::sleep(fleet.jittered(BEAT)) => {}
                    () = fleet.wake.notified() => {}
                }
                if !fleet.is_up() {
                    continue;
                }
            } else {
                tokio::time::sleep(fleet.jittered(PROBE)).await;
            }
            fleet.beat(&gates).await;
        }
    };
    tokio::join!(keeper, beats);
}

impl Fleet {
    async fn beat(&self, gates: &Gates) {
        let known = self.known.lock().pulse.map(|(pulse, _)| pulse);
        let request = self.store.pulse(&self.instance, LIFE, known);
        match self.measured("pulse", request).await {
            Ok(pulse) => self.heard(pulse, gates).await,
            Err(fault) => self.failed(&fault),
        }
    }

    /// What is decided next must know it all: who shares, what was lost, in which order rules were published.
    async fn heard(&self, pulse: Pulse, gates: &Gates) {
        let before = self.member();
        let first = {
            let now = self.env.now();
            let mut known = self.known.lock();
            let was = known.pulse.replace((pulse, now)).map(|(was, _)| was);
            if let Some(was) = was.filter(|was| was.epoch != pulse.epoch) {
                known.losses += 1;
                self.metrics.limit_store_losses.inc();
                tracing::error!(
                    store = self.store.name(),
                    known = format_args!("{:032x}", was.epoch),
                    found = format_args!("{:032x}", pulse.epoch),
                    "the shared store of limits has lost its data: up to one more limit for each key may be \
                     admitted, except where after_store_loss is exhausted"
                );
            }
            was.is_none()
        };
        if first || before != self.member() {
            gates.redivide();
            let instances = self.member().map_or(0, |Member { instances, .. }| instances.get());
            tracing::info!(instances, rank = pulse.rank, "limits are shared by this many instances");
        }
        if let Err(fault) = self.place_versions(gates).await {
            return self.failed(&fault);
        }
        let now = self.env.now();
        let mut known = self.known.lock();
        if known.health.probed(now) {
            known.since = now;
            self.up.store(true, std::sync::atomic::Ordering::Release);
            tracing::info!(store = self.store.name(), "the shared store of limits answers");
        }
    }

    async fn place_versions(&self, gates: &Gates) -> Result<(), tidegate_store::shared::SharedFault> {
        let Some(rules) = gates.in_force() else { return Ok(()) };
        let Some(version) = &rules.fleet else { return Ok(()) };
        if let Some((digest, published)) = version.unplaced() {
            version.place(self.measured("ordinal", self.store.ordinal(digest, published)).await?);
        }
        Ok(())
    }

    /// Between half of it and half as much again, so that instances do not come all at once.
    fn jittered(&self, span: Duration) -> Duration {
        let part = (self.env.random() >> 40) as f64 / f64::from(1 << 24);
        span.mul_f64(0.5 + part)
    }
}
