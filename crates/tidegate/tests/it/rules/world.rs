//! A place for one test: a directory, a database in it, and what the services there swapped in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tidegate::env::Env;
use tidegate::metrics::Metrics;
use tidegate::rules::{Candidate, Compile, Options, Refusal, RuleService, Setup, StartError, Status};
use tidegate_core::Timestamp;
use tidegate_store::memory::rules::MemoryRules;
use tidegate_store::rules::{
    AuditEntry, AuditKind, BoxFuture, FileNote, FileState, NewAuditEntry, Publish, PublishError, PublishId,
    RuleStore, RuleStoreError, StoredVersion, VersionHead,
};
use tidegate_store::sql::sqlite::{SqliteRules, open};

/// Long enough for a machine that does much else; reached only when a test fails.
pub(super) const DEADLINE: Duration = Duration::from_mins(1);
const NEVER: Duration = Duration::from_hours(1);

/// A document: `rules`, lines in any order, `end`. `bad` on a line of its own is a fault. `#` begins a
/// comment. What is cut off has no `end`.
pub(super) fn document(body: &str) -> String {
    format!("rules\n{body}\nend\n")
}

/// Loads those documents. A switch makes every text refused, as a changed deployment would.
#[derive(Clone, Default)]
pub(super) struct Toy {
    pub(super) refuse_all: Arc<AtomicBool>,
}

impl Compile for Toy {
    type Rules = String;

    fn load(&self, sources: &[(String, String)]) -> Result<Candidate<String>, Refusal> {
        let mut faults = Vec::new();
        let mut lines = Vec::new();
        for (name, text) in sources {
            let all: Vec<&str> = text.lines().collect();
            if all.first() != Some(&"rules") {
                faults.push(format!("{name}:1:1: begin with `rules`"));
            }
            if all.last() != Some(&"end") {
                faults.push(format!("{name}:{}:1: finish with `end`", all.len()));
            }
            for (at, line) in all.iter().enumerate().filter(|(_, line)| **line == "bad") {
                faults.push(format!("{name}:{}:1: {line} is not good", at + 1));
            }
            lines.extend(all.into_iter().filter(|line| !matches!(*line, "rules" | "end")));
        }
        if self.refuse_all.load(Ordering::Relaxed) {
            faults.push("deployment: nothing goes here".to_owned());
        }
        if !faults.is_empty() {
            return Err(Refusal { rendered: faults.join("\n"), faults: faults.len() });
        }
        lines.retain(|line| !line.starts_with('#') && !line.is_empty());
        lines.sort_unstable();
        Ok(candidate(&lines.join("\n")))
    }

    fn from_canonical(&self, canonical: &str) -> Result<Candidate<String>, Refusal> {
        if self.refuse_all.load(Ordering::Relaxed) {
            return Err(Refusal { rendered: "deployment: nothing goes here".to_owned(), faults: 1 });
        }
        Ok(candidate(canonical))
    }
}

fn candidate(canonical: &str) -> Candidate<String> {
    let warnings = canonical.lines().filter(|line| line.starts_with("odd")).map(str::to_owned).collect();
    Candidate {
        rules: canonical.to_owned(),
        canonical: canonical.to_owned(),
        digest: Sha256::digest(canonical).into(),
        warnings,
    }
}

/// Each (number, rules) that was swapped in, in order.
pub(super) type Swaps = Arc<Mutex<Vec<(u64, String)>>>;

pub(super) struct World {
    pub(super) dir: TempDir,
    pub(super) toy: Toy,
    pub(super) swaps: Swaps,
    pub(super) metrics: Arc<Metrics>,
    pub(super) options: Options,
}

impl World {
    /// Watches, and never polls: what is seen is seen through the watch.
    pub(super) fn watching() -> Self {
        let options = Options { file_poll: NEVER, store_poll: NEVER, ..Options::default() };
        Self::with(options)
    }

    /// Looks only when it is told to.
    pub(super) fn on_request() -> Self {
        let settle = Duration::ZERO;
        Self::with(Options { file_poll: NEVER, store_poll: NEVER, settle, watch: false })
    }

    /// Polls all the time, and does not watch.
    pub(super) fn polling() -> Self {
        let poll = Duration::from_millis(20);
        Self::with(Options {
            file_poll: poll,
            store_poll: poll,
            settle: Duration::from_millis(5),
            watch: false,
        })
    }

    fn with(options: Options) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            toy: Toy::default(),
            swaps: Swaps::default(),
            metrics: Arc::new(Metrics::new()),
            options,
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a text under this name in one step.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        let hidden = path.with_file_name(".new");
        std::fs::write(&hidden, text).unwrap();
        std::fs::rename(hidden, path).unwrap();
    }

    /// Empties the file, then writes the text into it, as a plain `>` does.
    pub(super) fn overwrite(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The store in the database beside the rules, through a pool of its own.
    pub(super) async fn sqlite(&self) -> Arc<dyn RuleStore> {
        Arc::new(SqliteRules::new(open(&self.path("tidegate.db")).await.unwrap()).await.unwrap())
    }

    pub(super) fn memory() -> Arc<dyn RuleStore> {
        Arc::new(MemoryRules::new(|| Timestamp::from_secs(1_700_000_000)))
    }

    pub(super) async fn try_start(
        &self,
        store: &Arc<dyn RuleStore>,
        path: &Path,
        node: &str,
    ) -> Result<RuleService, StartError> {
        let setup = Setup {
            store: Arc::clone(store),
            path: path.to_owned(),
            node: node.to_owned(),
            compile: self.toy.clone(),
            env: Env::manual(Timestamp::from_secs(1_700_000_000)).0,
            metrics: Arc::clone(&self.metrics),
            options: self.options,
        };
        let swaps = Arc::clone(&self.swaps);
        let newest = AtomicU64::new(0);
        let on_version = move |version: &StoredVersion, rules: Arc<String>| {
            let before = newest.swap(version.number, Ordering::Relaxed);
            assert!(before < version.number, "{} came after {before}", version.number);
            swaps.lock().push((version.number, String::clone(&rules)));
        };
        RuleService::start(setup, on_version).await
    }

    /// Starts on `rules.yaml` as `node-1`.
    pub(super) async fn start(&self, store: &Arc<dyn RuleStore>) -> RuleService {
        self.try_start(store, &self.path("rules.yaml"), "node-1").await.unwrap()
    }

    pub(super) fn swaps(&self) -> Vec<(u64, String)> {
        self.swaps.lock().clone()
    }
}

/// Waits until the status is as `wanted`.
pub(super) async fn until(service: &RuleService, wanted: impl Fn(&Status) -> bool) -> Status {
    within(DEADLINE, service, wanted).await.unwrap_or_else(|| panic!("in vain: {:#?}", service.status()))
}

/// Waits until the status is as `wanted`, at most so long.
pub(super) async fn within(
    deadline: Duration,
    service: &RuleService,
    wanted: impl Fn(&Status) -> bool,
) -> Option<Status> {
    let mut changes = service.subscribe();
    let wait = changes.wait_for(wanted);
    tokio::time::timeout(deadline, wait).await.ok().map(|status| status.unwrap().clone())
}

/// Rolls back to the rules of `of`, as somebody else.
pub(super) async fn roll_back(store: &Arc<dyn RuleStore>, of: u64) -> StoredVersion {
    let latest = store.latest_number().await.unwrap();
    let old = store.get(of).await.unwrap().unwrap();
    let mut id = [0xfe; 16];
    id[..8].copy_from_slice(&latest.unwrap_or(0).to_be_bytes());
    store.publish(Publish::rollback(PublishId(id), latest, &old, "cli", "bob", "errors")).await.unwrap()
}

/// Kinds of the audit trail, oldest first.
pub(super) async fn trail(store: &Arc<dyn RuleStore>) -> Vec<AuditKind> {
    let entries = store.audit_log(1000, None).await.unwrap();
    entries.into_iter().rev().map(|entry| entry.entry.kind).collect()
}

/// What a store may do instead of what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// Answers nothing.
    Down,
    /// Publishes, and then does not say so.
    LosesAnswers,
    /// Shows the history only up to this version.
    SetBackTo(u64),
}

/// A store with moods, and with others who publish just before each publish.
pub(super) struct Moody {
    pub(super) inner: Arc<dyn RuleStore>,
    pub(super) mood: Mutex<Mood>,
    pub(super) rivals: AtomicU32,
}

impl Moody {
    pub(super) fn new(inner: Arc<dyn RuleStore>) -> Arc<Self> {
        Arc::new(Self { inner, mood: Mutex::new(Mood::Well), rivals: AtomicU32::new(0) })
    }

    fn up(&self) -> Result<(), RuleStoreError> {
        if *self.mood.lock() == Mood::Down {
            Err(RuleStoreError::Unavailable("it is down".into()))
        } else {
            Ok(())
        }
    }
}

impl RuleStore for Moody {
    fn latest_number(&self) -> BoxFuture<'_, Result<Option<u64>, RuleStoreError>> {
        Box::pin(async {
            self.up()?;
            let mood = *self.mood.lock();
            if let Mood::SetBackTo(number) = mood {
                Ok(Some(number))
            } else {
                self.inner.latest_number().await
            }
        })
    }

    fn latest(&self) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>> {
        Box::pin(async {
            self.up()?;
            let mood = *self.mood.lock();
            if let Mood::SetBackTo(number) = mood {
                self.inner.get(number).await
            } else {
                self.inner.latest().await
            }
        })
    }

    fn get(&self, number: u64) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.get(number).await
        })
    }

    fn history(&self, limit: usize) -> BoxFuture<'_, Result<Vec<VersionHead>, RuleStoreError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.history(limit).await
        })
    }

    fn publish(&self, publish: Publish) -> BoxFuture<'_, Result<StoredVersion, PublishError>> {
        Box::pin(async move {
            self.up()?;
            let rivals = self.rivals.load(Ordering::Relaxed);
            if rivals > 0 {
                self.rivals.store(rivals - 1, Ordering::Relaxed);
                roll_back(&self.inner, 1).await;
            }
            let published = self.inner.publish(publish).await;
            if *self.mood.lock() == Mood::LosesAnswers {
                return Err(RuleStoreError::Unavailable("the connection broke".into()).into());
            }
            published
        })
    }

    fn file_state<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<FileState, RuleStoreError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.file_state(node, path).await
        })
    }

    fn note_file<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
        note: FileNote,
        entry: NewAuditEntry,
    ) -> BoxFuture<'a, Result<bool, RuleStoreError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.note_file(node, path, note, entry).await
        })
    }

    fn audit(&self, entry: NewAuditEntry) -> BoxFuture<'_, Result<u64, RuleStoreError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.audit(entry).await
        })
    }

    fn audit_log(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> BoxFuture<'_, Result<Vec<AuditEntry>, RuleStoreError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.audit_log(limit, before).await
        })
    }
}
