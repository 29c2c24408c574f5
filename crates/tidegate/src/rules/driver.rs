//! Decides what a look at the file and the store leads to.

mod file;
mod store;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_store::rules::{
    AuditKind, FileNote, NewAuditEntry, RuleStore, RuleStoreError, Sha256, StoredVersion,
};
use tokio::sync::{Notify, watch};

use self::file::{PUBLISH_TRIES, Trouble};
use super::compile::{Candidate, Compile, Refusal};
use super::service::{Options, Setup, StartError};
use super::status::{Drift, LoadResult, LoadSource, Loads, Refused, Status};
use super::watch::Watch;
use crate::env::Env;
use crate::metrics::Metrics;

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    File,
    Store,
    All,
}

type Swap<R> = Box<dyn Fn(&StoredVersion, Arc<R>) + Send + Sync>;

/// The state of one rule service, used by one task.
pub(super) struct Driver<C: Compile> {
    store: Arc<dyn RuleStore>,
    compile: Arc<C>,
    env: Env,
    metrics: Arc<Metrics>,
    options: Options,
    node: String,
    path: PathBuf,
    /// Under which the store remembers the file.
    key: String,
    watch: Arc<Mutex<Watch>>,
    on_version: Swap<C::Rules>,
    in_force: Option<(u64, Sha256)>,
    /// The store's newest number, as it was seen last.
    newest: Option<u64>,
    /// What the last look at the path found, once it was decided on.
    decided: Option<Sha256>,
    /// The digest of the rules in the file that was accepted last.
    accepted: Option<Sha256>,
    /// The version for which drift is in the trail.
    drift_noted: Option<u64>,
    /// Whether the store's newest version is older than the one in force.
    set_back: bool,
    status: Status,
    published: watch::Sender<Status>,
}

impl<C: Compile> Driver<C> {
    pub(super) fn new(setup: Setup<C>, dirty: Arc<Notify>, on_version: Swap<C::Rules>) -> Self {
        let absolute = std::path::absolute(&setup.path).unwrap_or_else(|_| setup.path.clone());
        let key = absolute.to_string_lossy().into_owned();
        let watch = if setup.options.watch { Watch::new(absolute, dirty) } else { Watch::off(absolute) };
        let status = Status {
            version: 0,
            digest: [0; 32],
            loaded_at: Timestamp::EPOCH,
            warnings: Vec::new(),
            path: setup.path.clone(),
            refusal: None,
            drift: None,
            unusable: None,
            file_stale_since: None,
            store_stale_since: None,
            pending: None,
            loads: Loads::default(),
        };
        Self {
            store: setup.store,
            compile: Arc::new(setup.compile),
            env: setup.env,
            metrics: setup.metrics,
            options: setup.options,
            node: setup.node,
            path: setup.path,
            key,
            watch: Arc::new(Mutex::new(watch)),
            on_version,
            in_force: None,
            newest: None,
            decided: None,
            accepted: None,
            drift_noted: None,
            set_back: false,
            published: watch::Sender::new(status.clone()),
            status,
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        self.published.subscribe()
    }

    pub(super) fn status(&self) -> Status {
        self.status.clone()
    }

    pub(super) fn is_watching(&self) -> bool {
        !self.options.watch || self.watch.lock().is_watching()
    }

    /// Brings a first version in force: the store's newest, then what is new in the file.
    pub(super) async fn start(&mut self) -> Result<(), StartError> {
        self.take_newest().await?;
        if self.in_force.is_none() {
            self.take_last_whole().await?;
        }
        let seen = self.read().await;
        let trouble = self.decide(seen).await.err();
        if self.in_force.is_none() {
            return Err(match (trouble, self.status.unusable.take()) {
                (Some(Trouble::Refused(refusal)), _) => StartError::Refused(refusal),
                (Some(Trouble::Store(error)), _) => StartError::Store(error),
                (_, Some(unusable)) => {
                    StartError::Unusable { version: unusable.version, rendered: unusable.refused.rendered }
                }
                (Some(Trouble::Contended), None) => StartError::Contended { tries: PUBLISH_TRIES },
                (Some(Trouble::Missing | Trouble::SetBack { .. }) | None, None) => {
                    StartError::Missing { path: self.path.display().to_string() }
                }
            });
        }
        self.settle_status().await;
        Ok(())
    }

    /// Looks, decides, and says what came of it.
    pub(super) async fn look(&mut self, what: Look) {
        let mut look_at_file = what != Look::Store;
        if what != Look::File {
            match self.take_newest().await {
                // The file may already say what another node has just published from its own copy: look
                // before that is called drift.
                Ok(applied) => look_at_file |= applied,
                Err(error) => self.store_failed(&error),
            }
        }
        if look_at_file {
            let seen = self.read_settled().await;
            if self.decided != Some(seen.id()) || self.status.pending.is_some() {
                // What went wrong is in the status by now.
                let _ = self.decide(seen).await;
            }
        }
        self.settle_status().await;
    }

    // ---- what came of it -------------------------------------------------------------------------

    /// The swap. Ignores what is not newer than what is in force.
    fn apply(&mut self, version: &StoredVersion, candidate: Candidate<C::Rules>) {
        if self.in_force.is_some_and(|(number, _)| version.number <= number) {
            return;
        }
        crate::loader::warn(&candidate.warnings);
        (self.on_version)(version, Arc::new(candidate.rules));
        let digest = hex(&version.digest);
        tracing::info!(version = version.number, digest = &digest[..12], "rules are in force");
        self.metrics.set_version(version.number, &digest[..12]);
        self.in_force = Some((version.number, version.digest));
        if self.unusable() < Some(version.number) {
            self.status.unusable = None;
        }
        self.status.version = version.number;
        self.status.digest = version.digest;
        self.status.loaded_at = self.env.now();
        self.status.warnings = candidate.warnings;
    }

    /// Reports drift once for each version, refreshes the gauges, and publishes the status if it changed.
    async fn settle_status(&mut self) {
        let drift = self.accepted.zip(self.in_force).filter(|(file, (_, digest))| file != digest);
        self.status.drift = drift.map(|(file_digest, (version, _))| Drift { version, file_digest });
        if let Some(Drift { version, file_digest }) = self.status.drift
            && self.drift_noted != Some(version)
        {
            self.note_drift(version, file_digest).await;
        }
        self.status.measure(&self.metrics, self.env.now());
        let status = &self.status;
        self.published.send_if_modified(|published| {
            let changed = published != status;
            if changed {
                published.clone_from(status);
            }
            changed
        });
    }

    async fn note_drift(&mut self, version: u64, file_digest: Sha256) {
        let detail = format!("{}: differs from version {version}, which is in force", self.key);
        let entry = self.entry(AuditKind::Drift, Some(version), Some(file_digest), &detail);
        match self.store.note_file(&self.node, &self.key, FileNote::Drift(version), entry).await {
            Ok(_) => {
                tracing::warn!(
                    version,
                    path = self.key,
                    "the rule file differs from the version in force, and stays as it was published before: change it to publish it again"
                );
                self.drift_noted = Some(version);
            }
            Err(error) => self.store_failed(&error),
        }
    }

    fn unusable(&self) -> Option<u64> {
        self.status.unusable.as_ref().map(|unusable| unusable.version)
    }

    fn refused(&self, refusal: Refusal) -> Refused {
        Refused { at: self.env.now(), rendered: refusal.rendered, faults: refusal.faults }
    }

    /// It answers again; unless something still waits to be written to it.
    fn store_answered(&mut self) {
        let unnoted = self.status.drift.is_some_and(|drift| self.drift_noted != Some(drift.version));
        if self.status.pending.is_none() && !unnoted {
            self.status.store_stale_since = None;
        }
    }

    /// Logged when it begins, not at each poll.
    fn store_failed(&mut self, error: &RuleStoreError) {
        self.count(LoadSource::Store, LoadResult::Failed);
        if self.status.store_stale_since.is_none() {
            tracing::error!(%error, "the rule store does not answer; the version in force stays");
            self.status.store_stale_since = Some(self.env.now());
        }
    }

    fn count(&mut self, source: LoadSource, result: LoadResult) {
        self.status.loads.add(source, result);
        let labels = vec![("source", source.as_str().to_owned()), ("result", result.as_str().to_owned())];
        self.metrics.rules_loads.get_or_create(&labels).inc();
    }

    fn entry(
        &self,
        kind: AuditKind,
        version: Option<u64>,
        digest: Option<Sha256>,
        detail: &str,
    ) -> NewAuditEntry {
        let node = self.node.clone();
        NewAuditEntry { who: node.clone(), node, kind, version, digest, detail: detail.to_owned() }
    }
}

/// Loading takes a while for a large document, so it has a thread of its own.
async fn blocking_load<R: Send + 'static>(
    load: impl FnOnce() -> Result<Candidate<R>, Refusal> + Send + 'static,
) -> Result<Candidate<R>, Refusal> {
    tokio::task::spawn_blocking(load).await.unwrap_or_else(|error| {
        Err(Refusal {
            rendered: format!("loading the rules broke, which is a fault of Tidegate: {error}"),
            faults: 1,
        })
    })
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
