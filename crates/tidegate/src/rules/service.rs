//! The task that keeps rules up to date, and its handle.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_store::rules::{RuleStore, RuleStoreError, StoredVersion};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::compile::{Compile, Refusal};
use super::driver::{Driver, Look};
use super::status::Status;
use crate::env::Env;
use crate::metrics::Metrics;

/// How many callers may wait for [`RuleService::reload`] before the next has to queue.
const RELOADS: usize = 16;
/// The shortest interval of a poll: a shorter one would only burn the processor.
const SHORTEST_POLL: Duration = Duration::from_millis(10);
/// How often the file is looked at when the system grants no watch, so that a change is still in force
/// within a second.
const UNWATCHED_POLL: Duration = Duration::from_millis(500);

/// What a rule service works with.
pub struct Setup<C> {
    /// Where versions live.
    pub store: Arc<dyn RuleStore>,
    /// A rule file, or a directory whose `*.yaml`, `*.yml` and `*.json` are one document.
    pub path: PathBuf,
    /// This node's name, the same after a restart: what was published from a file is remembered for each
    /// node and path.
    pub node: String,
    /// Turns texts into rules.
    pub compile: C,
    /// The clock.
    pub env: Env,
    /// Where loads are counted.
    pub metrics: Arc<Metrics>,
    /// How often to look.
    pub options: Options,
}

/// How often a rule service looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Look at the file at least this often, whatever the watch says. Default 2 s.
    pub file_poll: Duration,
    /// Ask the store for a newer version this often. Default 1 s.
    pub store_poll: Duration,
    /// How long a changed file must stay as it is before it is read for good. Default 50 ms.
    pub settle: Duration,
    /// Whether to watch the file system; without it, only polls. Default true.
    pub watch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_poll: Duration::from_secs(2),
            store_poll: Duration::from_secs(1),
            settle: Duration::from_millis(50),
            watch: true,
        }
    }
}

/// Why no rules are in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The file has faults, and the store has no version to go on with.
    #[error("{}", .0.rendered)]
    Refused(Refusal),
    /// There is no file, and the store has no version.
    #[error(
        "{path}: there are no rules, and the rule store has no version yet: write the file (see docs/rules.md), or name another"
    )]
    Missing {
        /// Where the file should be.
        path: String,
    },
    /// The newest version cannot be run here, and the file brings nothing new.
    #[error(
        "version {version} of the rule store cannot be run by this node: {rendered}\nmend this node's configuration, or change the rule file so that it is published as the next version"
    )]
    Unusable {
        /// Its number.
        version: u64,
        /// Every fault.
        rendered: String,
    },
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] RuleStoreError),
    /// Others kept publishing first.
    #[error(
        "the rules were not published, because others published first {tries} times in a row: start again"
    )]
    Contended {
        /// How often it was tried.
        tries: usize,
    },
}

/// Keeps rules up to date until it is shut down or dropped.
pub struct RuleService {
    env: Env,
    metrics: Arc<Metrics>,
    status: watch::Receiver<Status>,
    reload: mpsc::Sender<oneshot::Sender<Status>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RuleService {
    /// Brings rules in force, then watches for newer ones.
    ///
    /// `on_version` is the swap: it is called once before this returns, and then once for each newer
    /// version, with numbers that only grow. It must not block.
    pub async fn start<C: Compile>(
        setup: Setup<C>,
        on_version: impl Fn(&StoredVersion, Arc<C::Rules>) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let options = setup.options;
        let (env, metrics) = (setup.env.clone(), Arc::clone(&setup.metrics));
        let dirty = Arc::new(Notify::new());
        let mut driver = Driver::new(setup, Arc::clone(&dirty), Box::new(on_version));
        driver.start().await?;
        let status = driver.subscribe();
        let (reload, requests) = mpsc::channel(RELOADS);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Every write of the driver is one transaction with an id, so it can be left anywhere. A
            // handle that was dropped stops it as well.
            tokio::select! {
                _ = stopped => {}
                () = run(driver, options, &dirty, requests) => {}
            }
        });
        Ok(Self { env, metrics, status, reload, stop, task })
    }

    /// The rules in force and how their sources are.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Changes with every change of the status.
    pub fn subscribe(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Brings `tidegate_rules_stale_seconds` up to date, which else moves only with each look: for the
    /// moment before metrics are rendered.
    pub fn measure(&self) {
        self.status.borrow().measure(&self.metrics, self.env.now());
    }

    /// Looks at the store and the file now, without waiting for an event; returns what came of it.
    pub async fn reload(&self) -> Status {
        let (reply, done) = oneshot::channel();
        if self.reload.send(reply).await.is_err() {
            return self.status();
        }
        done.await.unwrap_or_else(|_| self.status())
    }

    /// Stops looking. What is in force stays in force.
    pub async fn shutdown(self) {
        let Self { stop, task, .. } = self;
        drop(stop);
        if let Err(error) = task.await {
            tracing::error!(%error, "the rule service broke");
        }
    }
}

impl fmt::Debug for RuleService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleService").field("status", &*self.status.borrow()).finish_non_exhaustive()
    }
}

async fn run<C: Compile>(
    mut driver: Driver<C>,
    options: Options,
    dirty: &Notify,
    mut requests: mpsc::Receiver<oneshot::Sender<Status>>,
) {
    let mut store = ticker(options.store_poll);
    let mut file = ticker(options.file_poll);
    let mut unwatched = ticker(options.file_poll.min(UNWATCHED_POLL));
    loop {
        tokio::select! {
            Some(reply) = requests.recv() => {
                driver.look(Look::All).await;
                // Who asked may have gone.
                let _ = reply.send(driver.status());
            }
            () = dirty.notified() => {
                // One save is many events; the first of them starts the wait, so that a file which
                // changes all the time is still read.
                tokio::time::sleep(options.settle).await;
                driver.look(Look::File).await;
            }
            _ = file.tick() => driver.look(Look::File).await,
            _ = unwatched.tick(), if !driver.is_watching() => driver.look(Look::File).await,
            _ = store.tick() => driver.look(Look::Store).await,
        }
    }
}

/// Ticks that start one period from now and are not made up for.
fn ticker(period: Duration) -> tokio::time::Interval {
    let period = period.max(SHORTEST_POLL);
    let mut ticker = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}
