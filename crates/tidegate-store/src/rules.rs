//! Where rule versions live: an append-only history, an audit trail, and what each node remembers of
//! its rule file.
//!
//! A version's number is given at publish and grows by one within a store. Nothing is edited in
//! place: a rollback publishes old rules under a new number.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tidegate_core::Timestamp;

/// A boxed future, so that [`RuleStore`] can be used as a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A SHA-256: of a version's canonical form, or of a file's content.
pub type Sha256 = [u8; 32];

/// The most that the canonical form and the source texts of one version may take together, in bytes.
pub const MAX_DOCUMENT: usize = 16 << 20;
/// The most that an author, a reason, a node or a path may take, in bytes.
pub const MAX_NOTE: usize = 4 << 10;
/// The most of an audit entry's detail that is kept, in bytes: enough for some hundred faults.
pub const MAX_DETAIL: usize = 64 << 10;
/// The most entries that one call of [`RuleStore::history`] or [`RuleStore::audit_log`] returns.
pub const MAX_LISTED: usize = 1000;

/// An append-only history of rule versions with its audit trail.
///
/// Every method is safe to cancel: what it writes is written whole or not at all.
pub trait RuleStore: Send + Sync + 'static {
    /// The highest number published so far; `None` in an empty store. Cheap enough to poll.
    fn latest_number(&self) -> BoxFuture<'_, Result<Option<u64>, RuleStoreError>>;

    /// The version with the highest number.
    fn latest(&self) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>>;

    /// One version; `None` when there is none with this number.
    fn get(&self, number: u64) -> BoxFuture<'_, Result<Option<StoredVersion>, RuleStoreError>>;

    /// The newest versions without their texts, newest first, at most [`MAX_LISTED`].
    fn history(&self, limit: usize) -> BoxFuture<'_, Result<Vec<VersionHead>, RuleStoreError>>;

    /// Publishes the next version, if the newest is still the one that the author saw.
    ///
    /// The version, its audit entry and, for [`Origin::File`], the memory of the file are written in
    /// one transaction. A publish with an id that the store has seen is the same publish, repeated
    /// because its answer was lost: it returns the version it made then, which need not be the newest
    /// any more.
    fn publish(&self, publish: Publish) -> BoxFuture<'_, Result<StoredVersion, PublishError>>;

    /// What `node` remembers of the file at `path`.
    fn file_state<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<FileState, RuleStoreError>>;

    /// Remembers something about a file, together with its audit entry.
    ///
    /// Returns whether it is news. What was remembered already changes nothing and adds no entry, so
    /// a file that stays bad is in the trail once, however often it is looked at.
    fn note_file<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
        note: FileNote,
        entry: NewAuditEntry,
    ) -> BoxFuture<'a, Result<bool, RuleStoreError>>;

    /// Appends to the audit trail; returns the entry's id. Ids grow.
    fn audit(&self, entry: NewAuditEntry) -> BoxFuture<'_, Result<u64, RuleStoreError>>;

    /// The newest audit entries, newest first, at most [`MAX_LISTED`]; with `before`, only those whose
    /// id is lower.
    fn audit_log(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> BoxFuture<'_, Result<Vec<AuditEntry>, RuleStoreError>>;
}

/// A published version, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// From 1; compared only within one store.
    pub number: u64,
    /// SHA-256 of `canonical`; what nodes with separate stores compare.
    pub digest: Sha256,
    /// The rules in canonical form.
    pub canonical: String,
    /// The texts they were loaded from.
    pub source: Vec<SourceText>,
    /// By the store's clock, in whole milliseconds.
    pub published_at: Timestamp,
    /// Who published it.
    pub author: String,
    /// Why.
    pub reason: String,
    /// The version that it replaced; `None` for the first.
    pub parent: Option<u64>,
    /// How it came about.
    pub origin: Origin,
}

impl StoredVersion {
    /// Everything but the texts.
    pub fn head(&self) -> VersionHead {
        VersionHead {
            number: self.number,
            digest: self.digest,
            published_at: self.published_at,
            author: self.author.clone(),
            reason: self.reason.clone(),
            parent: self.parent,
            origin: self.origin.clone(),
        }
    }
}

/// A published version without its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionHead {
    /// From 1; compared only within one store.
    pub number: u64,
    /// SHA-256 of the canonical form.
    pub digest: Sha256,
    /// By the store's clock, in whole milliseconds.
    pub published_at: Timestamp,
    /// Who published it.
    pub author: String,
    /// Why.
    pub reason: String,
    /// The version that it replaced; `None` for the first.
    pub parent: Option<u64>,
    /// How it came about.
    pub origin: Origin,
}

/// One text that rules were loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The name that faults carry: usually a path.
    pub name: String,
    /// The text, as it was written.
    pub text: String,
}

/// How a version came about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// From a rule file that a node watches.
    File {
        /// The node that watches it.
        node: String,
        /// Its absolute path.
        path: String,
        /// SHA-256 of its content, remembered as the content last accepted.
        content: Sha256,
    },
    /// Old rules again.
    Rollback {
        /// The version whose rules they are.
        of: u64,
    },
    /// By a person or a program that asked for it.
    Request,
}

/// Tells one publish from another, so that a repeated one recognises itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublishId(pub [u8; 16]);

/// A request to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The same in every repetition of this publish, and in no other publish.
    pub id: PublishId,
    /// The newest version that the author saw; `None` for an empty store.
    pub expected: Option<u64>,
    /// SHA-256 of `canonical`.
    pub digest: Sha256,
    /// The rules in canonical form.
    pub canonical: String,
    /// The texts they were loaded from.
    pub source: Vec<SourceText>,
    /// The node through which it is published.
    pub node: String,
    /// Who publishes.
    pub author: String,
    /// Why.
    pub reason: String,
    /// How it comes about.
    pub origin: Origin,
}

impl Publish {
    /// The rules of an old version again, as a new one.
    pub fn rollback(
        id: PublishId,
        expected: Option<u64>,
        old: &StoredVersion,
        node: impl Into<String>,
        author: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            id,
            expected,
            digest: old.digest,
            canonical: old.canonical.clone(),
            source: old.source.clone(),
            node: node.into(),
            author: author.into(),
            reason: reason.into(),
            origin: Origin::Rollback { of: old.number },
        }
    }

    /// Refuses what is larger than a store takes.
    pub(crate) fn check(&self) -> Result<(), PublishError> {
        let texts: usize = self.source.iter().map(|source| source.name.len() + source.text.len()).sum();
        let sizes = [
            ("the rules", self.canonical.len().saturating_add(texts), MAX_DOCUMENT),
            ("the node", self.node.len(), MAX_NOTE),
            ("the author", self.author.len(), MAX_NOTE),
            ("the reason", self.reason.len(), MAX_NOTE),
        ];
        for (what, bytes, limit) in sizes {
            if bytes > limit {
                return Err(PublishError::TooLarge { what, bytes, limit });
            }
        }
        Ok(())
    }

    /// The audit entry of this publish, once it is version `number`.
    pub(crate) fn entry(&self, number: u64) -> NewAuditEntry {
        let (kind, detail) = match &self.origin {
            Origin::File { path, .. } => (AuditKind::Published, format!("from {path}: {}", self.reason)),
            Origin::Rollback { of } => {
                (AuditKind::RolledBack, format!("to the rules of version {of}: {}", self.reason))
            }
            Origin::Request => (AuditKind::Published, self.reason.clone()),
        };
        NewAuditEntry {
            node: self.node.clone(),
            kind,
            version: Some(number),
            digest: Some(self.digest),
            who: self.author.clone(),
            detail,
        }
    }
}

/// What a node remembers of its rule file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// SHA-256 of the content that was last accepted: published, or found to be in force already.
    pub accepted: Option<Sha256>,
    /// SHA-256 of the content that was refused last, if nothing has been accepted since.
    pub refused: Option<Sha256>,
    /// The version in force that last differed from the file, if nothing has been accepted since.
    pub drift: Option<u64>,
}

impl FileState {
    /// Takes a note; returns whether it is news.
    pub(crate) fn take(&mut self, note: FileNote) -> bool {
        let before = *self;
        match note {
            FileNote::Accepted(content) => *self = Self { accepted: Some(content), ..Self::default() },
            FileNote::Refused(content) => self.refused = Some(content),
            FileNote::Drift(version) => self.drift = Some(version),
        }
        *self != before
    }
}

/// Something to remember about a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNote {
    /// This content was accepted. Ends what was refused and what drifted.
    Accepted(Sha256),
    /// This content was refused.
    Refused(Sha256),
    /// The content last accepted differs from this version, which is in force.
    Drift(u64),
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditKind {
    /// A new version.
    Published,
    /// Old rules as a new version.
    RolledBack,
    /// Rules that were not taken; the detail lists the faults.
    Refused,
    /// A file that differs from what is in force, and is not to be published again.
    Drift,
    /// A file whose new content says what is in force already: no new version.
    Unchanged,
    /// An idempotency record whose outcome an operator settled.
    IdempotencyResolved,
    /// An idempotency record that an operator released.
    IdempotencyReleased,
    /// A shared counter that an operator reset.
    LimitReset,
}

impl AuditKind {
    const ALL: [Self; 8] = [
        Self::Published,
        Self::RolledBack,
        Self::Refused,
        Self::Drift,
        Self::Unchanged,
        Self::IdempotencyResolved,
        Self::IdempotencyReleased,
        Self::LimitReset,
    ];

    /// The name in stores and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::RolledBack => "rolled_back",
            Self::Refused => "refused",
            Self::Drift => "drift",
            Self::Unchanged => "unchanged",
            Self::IdempotencyResolved => "idempotency_resolved",
            Self::IdempotencyReleased => "idempotency_released",
            Self::LimitReset => "limit_reset",
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for AuditKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An audit entry that is still to be written. The store adds the id and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAuditEntry {
    /// Where it happened.
    pub node: String,
    /// What happened.
    pub kind: AuditKind,
    /// The version it is about, if it has a number.
    pub version: Option<u64>,
    /// The digest of the rules it is about, if they have one.
    pub digest: Option<Sha256>,
    /// Who did it.
    pub who: String,
    /// In words; cut after [`MAX_DETAIL`] bytes.
    pub detail: String,
}

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Grows with each entry of a store.
    pub id: u64,
    /// By the store's clock, in whole milliseconds.
    pub at: Timestamp,
    /// What happened.
    pub entry: NewAuditEntry,
}

/// Why a rule store did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleStoreError {
    /// A newer Tidegate has been here.
    #[error(
        "the rule store's schema is version {found}, and this program knows up to {known}: run the newer Tidegate, or name another store"
    )]
    Newer {
        /// What stands there.
        found: i64,
        /// What this program knows.
        known: i64,
    },
    /// It cannot be written.
    #[error(
        "the rule store can only be read: give this user write permission on the database file and its directory, or name another store"
    )]
    ReadOnly,
    /// Another writer kept it for too long.
    #[error("the rule store is busy with another writer: try again")]
    Busy,
    /// There is no room left.
    #[error("the rule store has no room left: free some space on its disk, then try again")]
    Full,
    /// What is stored makes no sense.
    #[error("the rule store is damaged ({detail}): restore it from a backup, or name another store")]
    Damaged {
        /// What was found.
        detail: String,
    },
    /// Anything else.
    #[error("the rule store cannot be reached: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Somebody else published first.
    #[error(
        "the newest version is {}, and not {} as the author saw: look at what it changed, then publish again",
        Number(*latest),
        Number(*expected)
    )]
    Conflict {
        /// What the author saw.
        expected: Option<u64>,
        /// The newest version now.
        latest: Option<u64>,
    },
    /// The publish id belongs to other rules.
    #[error("this publish id was used for version {number}, which has other rules: use a fresh id")]
    IdReused {
        /// The version it was used for.
        number: u64,
    },
    /// It is larger than a store takes.
    #[error("{what} takes {bytes} bytes, and may take at most {limit}: make it smaller")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The store did not answer. Whether the version was published is not known; a repetition with the
    /// same id settles it.
    #[error(transparent)]
    Store(#[from] RuleStoreError),
}

/// A version number in a message.
struct Number(Option<u64>);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("none"),
        }
    }
}

/// `text`, or as much of it as fits into `limit` bytes with a note of what is left out.
pub(crate) fn bounded(text: &str, limit: usize) -> String {
    /// Room for the note.
    const NOTE: usize = 48;
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(NOTE));
    let (kept, left) = text.split_at(end);
    format!("{kept}\n({} more bytes are left out)", left.len())
}

#[cfg(test)]
mod tests;
