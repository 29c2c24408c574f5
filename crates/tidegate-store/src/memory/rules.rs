//! Rule versions in memory, for one process.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use parking_lot::Mutex;
use tidegate_core::Timestamp;

use crate::rules::{
    AuditEntry, BoxFuture, FileNote, FileState, MAX_DETAIL, MAX_LISTED, NewAuditEntry, Origin, Publish,
    PublishError, PublishId, RuleStore, RuleStoreError, StoredVersion, VersionHead, bounded,
};

/// How many versions are kept; the oldest go first.
const MAX_VERSIONS: usize = 256;
/// How many audit entries are kept; the oldest go first.
const MAX_AUDIT: usize = 4096;

/// A rule store that is gone with the process.
///
/// It keeps the last 256 versions and the last 4096 audit entries.
pub struct MemoryRules {
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    versions: VecDeque<(PublishId, StoredVersion)>,
    audit: VecDeque<AuditEntry>,
    last_audit: u64,
    files: HashMap<(String, String), FileState>,
}

impl MemoryRules {
    /// An empty store whose times come from `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Box::new(clock), inner: Mutex::default() }
    }

    fn now(&self) -> Timestamp {
        // Whole milliseconds, as every store gives them.
        Timestamp::from_millis((self.clock)().as_millis())
    }
}

impl fmt::Debug for MemoryRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = self.inner.lock().latest().map(|version| version.number);
        f.debug_struct("MemoryRules").field("latest", &latest).finish_non_exhaustive()
    }
}

impl Inner {
    fn latest(&self) -> Option<&StoredVersion> {
        self.versions.back().map(|(_, version)| version)
    }

    fn publish(&mut self, publish: Publish, now: Timestamp) -> Result<StoredVersion, PublishError> {
        publish.check()?;
        if let Some((_, seen)) = self.versions.iter().find(|(id, _)| *id == publish.id) {
            return if seen.digest == publish.digest {
                Ok(seen.clone())
            } else {
                Err(PublishError::IdReused { number: seen.number })
            };
        }
        let latest = self.latest().map(|version| version.number);
        if latest != publish.expected {
            return Err(PublishError::Conflict { expected: publish.expected, latest });
        }
        let number = latest.unwrap_or(0) + 1;
        self.append(publish.entry(number), now);
        if let Origin::File { node, path, content } = &publish.origin {
            self.file(node, path).take(FileNote::Accepted(*content));
        }
        let version = StoredVersion {
            number,
            digest: publish.digest,
            canonical: publish.canonical,
            source: publish.source,
            published_at: now,
            author: publish.author,
            reason: publish.reason,
            parent: latest,
            origin: publish.origin,
        };
        self.versions.push_back((publish.id, version.clone()));
        if self.versions.len() > MAX_VERSIONS {
            self.versions.pop_front();
        }
        Ok(version)
    }

    fn file(&mut self, node: &str, path: &str) -> &mut FileState {
        self.files.entry((node.to_owned(), path.to_owned())).or_default()
    }

    fn append(&mut self, mut entry: NewAuditEntry, at: Timestamp) -> u64 {
        entry.detail = bounded(&entry.detail, MAX_DETAIL);
        self.last_audit += 1;
        self.audit.push_back(AuditEntry { id: self.last_audit, at, entry });
        if self.audit.len() > MAX_AUDIT {
            self.audit.pop_front();
        }
        self.last_audit
    }
}

/// A future that is done.
fn done<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl RuleStore for MemoryRules {
    fn latest_number(&self) -> BoxFuture<'_, Result<Option<u64>, RuleStoreError>> {
        done(Ok(self.inner.lock().latest().map(|version| version.number)))
    }

    fn latest(&self) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>> {
        done(Ok(self.inner.lock().latest().cloned()))
    }

    fn get(&self, number: u64) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>> {
        let inner = self.inner.lock();
        let found = inner.versions.iter().find(|(_, version)| version.number == number);
        done(Ok(found.map(|(_, version)| version.clone())))
    }

    fn history(&self, limit: usize) -> BoxFuture<'_, Result<Vec<VersionHead>, RuleStoreError>> {
        let inner = self.inner.lock();
        let newest = inner.versions.iter().rev().take(limit.min(MAX_LISTED));
        done(Ok(newest.map(|(_, version)| version.head()).collect()))
    }

    fn publish(&self, publish: Publish) -> BoxFuture<'_, Result<StoredVersion, PublishError>> {
        done(self.inner.lock().publish(publish, self.now()))
    }

    fn file_state<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<FileState, RuleStoreError>> {
        done(Ok(*self.inner.lock().file(node, path)))
    }

    fn note_file<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
        note: FileNote,
        entry: NewAuditEntry,
    ) -> BoxFuture<'a, Result<bool, RuleStoreError>> {
        let mut inner = self.inner.lock();
        let news = inner.file(node, path).take(note);
        if news {
            inner.append(entry, self.now());
        }
        done(Ok(news))
    }

    fn audit(&self, entry: NewAuditEntry) -> BoxFuture<'_, Result<u64, RuleStoreError>> {
        done(Ok(self.inner.lock().append(entry, self.now())))
    }

    fn audit_log(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> BoxFuture<'_, Result<Vec<AuditEntry>, RuleStoreError>> {
        let inner = self.inner.lock();
        let older = inner.audit.iter().rev().filter(|entry| before.is_none_or(|id| entry.id < id));
        done(Ok(older.take(limit.min(MAX_LISTED)).cloned().collect()))
    }
}
