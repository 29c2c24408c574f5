//! The instances that count limits together in one store, and this one's place among them.
//!
//! Requests ask the store only while it answers: the first failure closes it for all of them, and a task in
//! the background finds out when it is back. Until then each rule does what its `on_store_failure` says.

mod keeper;
pub(crate) mod pulse;
mod version;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_core::limit::outage::StoreHealth;
use tidegate_core::limit::share::Member;
use tidegate_store::shared::{
    Permit, Pulse, Purpose, SharedAsk, SharedFault, SharedLimitStore, SharedOutcome,
};
use tokio::sync::{Notify, mpsc};

use crate::env::Env;
use crate::metrics::Metrics;

pub(crate) use keeper::Kept;
pub(crate) use version::FleetVersion;

/// A silent holder of a concurrency permit counts as gone after this time; permits are renewed three times
/// within it.
pub const PERMIT_LIFE: Duration = Duration::from_secs(30);

/// The store that instances share, and how this one takes part.
pub struct FleetSetup {
    /// Where limits are counted together.
    pub store: Arc<dyn SharedLimitStore>,
    /// This instance's name, and no other's: not the same after a restart.
    pub instance: String,
    /// How many instances there are, where heartbeats are not to say so. What remains of a division is then
    /// nobody's.
    pub instances: Option<NonZeroU32>,
}

/// How the store is doing, for people and probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetStatus {
    /// Where it is, without secrets.
    pub store: String,
    /// Whether requests ask it.
    pub up: bool,
    /// Since when it is as it is.
    pub since: Timestamp,
    /// Why it was last closed.
    pub fault: Option<Arc<str>>,
    /// How many instances share it; `None` while nobody knows.
    pub instances: Option<u32>,
    /// Times that it was found to have lost its data.
    pub losses: u64,
}

/// One instance's part.
pub(crate) struct Fleet {
    store: Arc<dyn SharedLimitStore>,
    instance: String,
    instances: Option<NonZeroU32>,
    env: Env,
    metrics: Arc<Metrics>,
    up: AtomicBool,
    known: Mutex<Known>,
    /// Told when the store was closed, and when there is something new to tell it.
    wake: Notify,
    changes: mpsc::UnboundedSender<keeper::Change>,
    /// Taken by the task that keeps the permits.
    kept: Mutex<Option<mpsc::UnboundedReceiver<keeper::Change>>>,
}

struct Known {
    health: StoreHealth,
    since: Timestamp,
    fault: Option<Arc<str>>,
    /// What the store said last, and when that was here.
    pulse: Option<(Pulse, Timestamp)>,
    losses: u64,
}

impl Fleet {
    pub(crate) fn new(setup: FleetSetup, env: Env, metrics: Arc<Metrics>) -> Arc<Self> {
        let (changes, kept) = mpsc::unbounded_channel();
        let known =
            Known { health: StoreHealth::UNKNOWN, since: env.now(), fault: None, pulse: None, losses: 0 };
        Arc::new(Self {
            store: setup.store,
            instance: setup.instance,
            instances: setup.instances,
            env,
            metrics,
            up: AtomicBool::new(false),
            known: Mutex::new(known),
            wake: Notify::new(),
            changes,
            kept: Mutex::new(Some(kept)),
        })
    }

    /// Whether requests ask the store.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    pub(crate) fn status(&self) -> FleetStatus {
        let instances = self.member().map(|member| member.instances.get());
        let known = self.known.lock();
        FleetStatus {
            store: self.store.name(),
            up: known.health.is_up(),
            since: known.since,
            fault: known.fault.clone(),
            instances,
            losses: known.losses,
        }
    }

    /// This instance's place, as it is set or was heard last.
    pub(crate) fn member(&self) -> Option<Member> {
        if let Some(instances) = self.instances {
            return Some(Member { instances, rank: None });
        }
        let known = self.known.lock();
        let (pulse, _) = known.pulse.as_ref()?;
        Some(Member { instances: NonZeroU32::new(pulse.instances)?, rank: Some(pulse.rank) })
    }

    /// What the store's clock says now, as far as this instance can tell, and since when its data is known to
    /// be incomplete; `None` while it is whole.
    pub(crate) fn lost_since(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let known = self.known.lock();
        let (pulse, heard) = known.pulse.as_ref().filter(|(pulse, _)| pulse.lost)?;
        Some((pulse.now + now.since(*heard), pulse.since))
    }

    /// Decides one request in the store. A failure closes it, and has been told.
    pub(crate) async fn decide(
        &self,
        asks: &[SharedAsk],
        id: &str,
        purpose: Purpose,
    ) -> Option<SharedOutcome> {
        let decided = self.measured("decide", self.store.decide(asks, id, purpose)).await;
        match decided {
            Ok(outcome) => {
                self.metrics.limit_commands.inc_by(outcome.commands as u64);
                Some(outcome)
            }
            Err(fault) => {
                self.failed(&fault);
                None
            }
        }
    }

    /// Gives back what a request was charged that another gate's counter refused.
    pub(crate) async fn give_back(&self, asks: &[SharedAsk], id: &str) {
        if let Err(fault) = self.measured("give_back", self.store.give_back(asks, id)).await {
            // It stays charged until its window ends: less is admitted, never more.
            self.failed(&fault);
        }
    }

    /// There is something to tell the store, which need not wait for the next sign of life.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Holds permits until the value is dropped.
    pub(crate) fn keep(&self, permits: Vec<Permit>) -> Option<Kept> {
        Kept::new(permits, &self.changes)
    }

    /// The store gave no answer: nobody asks it until a probe has.
    fn failed(&self, fault: &SharedFault) {
        let now = self.env.now();
        let mut known = self.known.lock();
        if known.health.failed(now) {
            self.up.store(false, Ordering::Release);
            known.since = now;
            tracing::error!(
                store = self.store.name(),
                %fault,
                "the shared store of limits does not answer; each limit does what its on_store_failure says"
            );
            self.wake.notify_one();
        }
        known.fault = Some(Arc::clone(&fault.message));
    }

    async fn measured<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, SharedFault>>,
    ) -> Result<T, SharedFault> {
        let started = self.env.now();
        let answer = request.await;
        let took = self.env.now().since(started);
        self.metrics.store_request("limits", operation, answer.is_ok(), took);
        answer
    }
}
