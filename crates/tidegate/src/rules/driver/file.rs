//! What the rule file leads to.

use std::sync::Arc;

use tidegate_store::rules::{
    AuditKind, FileNote, Origin, Publish, PublishError, PublishId, RuleStoreError, Sha256, SourceText,
};

use super::{Driver, blocking_load, hex};
use crate::rules::compile::{Candidate, Compile, Refusal};
use crate::rules::source::{self, Seen, Snapshot};
use crate::rules::status::{LoadResult, LoadSource};

/// How often a lost race is decided again before it is left to the next look.
pub(super) const PUBLISH_TRIES: usize = 8;
/// How often a file that keeps changing is read before it is taken as it is.
const SETTLE_READS: usize = 8;

/// Why a look at the file brought nothing in force.
pub(super) enum Trouble {
    /// The file is not there.
    Missing,
    /// Its content has faults, or cannot be read.
    Refused(Refusal),
    /// To be tried again.
    Store(RuleStoreError),
    /// To be tried again.
    Contended,
    /// The store was set back: what is published would come before what is in force.
    SetBack { newest: Option<u64>, in_force: u64 },
}

impl From<RuleStoreError> for Trouble {
    fn from(error: RuleStoreError) -> Self {
        Self::Store(error)
    }
}

impl<C: Compile> Driver<C> {
    pub(super) async fn read(&self) -> Seen {
        let watch = Arc::clone(&self.watch);
        let path = self.path.clone();
        let look = move || {
            watch.lock().refresh();
            source::read(&path)
        };
        let broke = |error: tokio::task::JoinError| Seen::Unreadable(error.to_string());
        tokio::task::spawn_blocking(look).await.unwrap_or_else(broke)
    }

    /// Reads until two looks in a row find the same, so that a file is not taken while it is written.
    pub(super) async fn read_settled(&self) -> Seen {
        let mut seen = self.read().await;
        for _ in 0..SETTLE_READS {
            if self.decided == Some(seen.id()) {
                break;
            }
            tokio::time::sleep(self.options.settle).await;
            let again = self.read().await;
            if again == seen {
                break;
            }
            seen = again;
        }
        seen
    }

    /// Decides on what was seen, and puts into the status what is wrong with it.
    pub(super) async fn decide(&mut self, seen: Seen) -> Result<(), Trouble> {
        let id = seen.id();
        let readable = matches!(seen, Seen::Texts(_));
        let decision = match seen {
            Seen::Texts(snapshot) => self.decide_texts(snapshot).await,
            Seen::Missing => Err(Trouble::Missing),
            Seen::Unreadable(why) => Err(Trouble::Refused(Refusal { rendered: why, faults: 1 })),
        };
        self.decided = Some(id);
        self.status.file_stale_since =
            if readable { None } else { self.status.file_stale_since.or_else(|| Some(self.env.now())) };
        let pending = match &decision {
            Ok(()) => {
                self.status.refusal = None;
                None
            }
            Err(Trouble::Missing) => {
                // Without a version in force there is no start, and who started it is told why.
                if self.in_force.is_some() {
                    tracing::warn!(path = self.key, "the rule file is gone; the version in force stays");
                }
                self.count(LoadSource::File, LoadResult::Missing);
                self.status.refusal = None;
                self.accepted = None;
                None
            }
            Err(Trouble::Refused(refusal)) => {
                self.accepted = None;
                self.file_refused(id, refusal.clone()).await.err().map(|error| error.to_string())
            }
            Err(Trouble::Store(error)) => {
                self.store_failed(error);
                Some(error.to_string())
            }
            Err(Trouble::Contended) => Some(format!("others published first {PUBLISH_TRIES} times in a row")),
            Err(Trouble::SetBack { newest, in_force }) => Some(format!(
                "the rule store was set back to version {} while version {in_force} is in force: restart this node to take what the store holds",
                newest.unwrap_or(0)
            )),
        };
        if let Some(why) = &pending
            && pending != self.status.pending
        {
            tracing::warn!(path = self.key, "the rule file is not settled yet: {why}");
        }
        self.status.pending = pending;
        decision
    }

    async fn decide_texts(&mut self, snapshot: Snapshot) -> Result<(), Trouble> {
        let Snapshot { content, sources } = snapshot;
        let compile = Arc::clone(&self.compile);
        let texts = sources.clone();
        let candidate = blocking_load(move || compile.load(&texts)).await.map_err(Trouble::Refused)?;
        // What is stored under another digest could not be taken back after a restart.
        if candidate.digest != source::sha256(candidate.canonical.as_bytes()) {
            let rendered =
                format!("{}: the digest is not that of the rules, which is a fault of Tidegate", self.key);
            return Err(Trouble::Refused(Refusal { rendered, faults: 1 }));
        }
        let digest = candidate.digest;
        for _ in 0..PUBLISH_TRIES {
            let remembered = self.store.file_state(&self.node, &self.key).await?;
            let in_force = self.in_force;
            if remembered.accepted == Some(content) && self.newest.is_some() {
                self.accepted = Some(digest);
                if remembered.refused.is_some() {
                    self.accept(content, digest, "as it was accepted before").await?;
                }
                self.count(LoadSource::File, LoadResult::Unchanged);
                return Ok(());
            }
            if let Some((number, _)) = in_force
                && self.newest < Some(number)
            {
                return Err(Trouble::SetBack { newest: self.newest, in_force: number });
            }
            if in_force == self.newest.map(|number| (number, digest)) && in_force.is_some() {
                self.accept(content, digest, "says what is in force already").await?;
                self.count(LoadSource::File, LoadResult::Unchanged);
                return Ok(());
            }
            match self.store.publish(self.request(content, &sources, &candidate)).await {
                Ok(version) => {
                    self.newest = self.newest.max(Some(version.number));
                    self.accepted = Some(digest);
                    self.count(LoadSource::File, LoadResult::Published);
                    tracing::info!(version = version.number, path = self.key, "rules are published");
                    self.apply(&version, candidate);
                    return Ok(());
                }
                Err(PublishError::Conflict { .. }) => {
                    self.take_newest().await?;
                }
                Err(PublishError::Store(error)) => return Err(Trouble::Store(error)),
                Err(error) => {
                    let rendered = format!("{}: {error}", self.path.display());
                    return Err(Trouble::Refused(Refusal { rendered, faults: 1 }));
                }
            }
        }
        Err(Trouble::Contended)
    }

    fn request(
        &self,
        content: Sha256,
        sources: &[(String, String)],
        candidate: &Candidate<C::Rules>,
    ) -> Publish {
        let source = |(name, text): &(String, String)| SourceText { name: name.clone(), text: text.clone() };
        Publish {
            id: self.publish_id(content),
            expected: self.newest,
            digest: candidate.digest,
            canonical: candidate.canonical.clone(),
            source: sources.iter().map(source).collect(),
            node: self.node.clone(),
            author: self.node.clone(),
            reason: "the rule file changed".to_owned(),
            origin: Origin::File { node: self.node.clone(), path: self.key.clone(), content },
        }
    }

    /// The same for a repetition and for nothing else: only one publish can ever succeed on the version
    /// that it expects, so node, path, content and that version name it, even over a restart.
    fn publish_id(&self, content: Sha256) -> PublishId {
        let expected = self.newest.map_or_else(String::new, |number| number.to_string());
        let parts = [(self.node.as_str(), self.key.as_str()), (expected.as_str(), &hex(&content))];
        let hash = source::hash(b"publish", &parts);
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        PublishId(id)
    }

    async fn accept(&mut self, content: Sha256, digest: Sha256, why: &str) -> Result<(), RuleStoreError> {
        let version = self.in_force.map(|(number, _)| number);
        let entry = self.entry(AuditKind::Unchanged, version, Some(digest), &format!("{}: {why}", self.key));
        self.store.note_file(&self.node, &self.key, FileNote::Accepted(content), entry).await?;
        self.accepted = Some(digest);
        Ok(())
    }

    /// Tells of a refusal once, however often it is tried to put it into the trail.
    async fn file_refused(&mut self, content: Sha256, refusal: Refusal) -> Result<(), RuleStoreError> {
        let told = self.status.refusal.as_ref().is_some_and(|told| told.rendered == refusal.rendered);
        let entry = self.entry(AuditKind::Refused, None, None, &refusal.rendered);
        if !told {
            // Without a version the start ends with this very text. It has no field behind it, which would
            // seem to belong to its last line.
            if self.in_force.is_some() {
                tracing::error!("the rule file is refused: {}", refusal.rendered);
            }
            self.count(LoadSource::File, LoadResult::Refused);
            self.status.refusal = Some(self.refused(refusal));
        }
        let noted = self.store.note_file(&self.node, &self.key, FileNote::Refused(content), entry).await;
        noted.map(|_| ()).inspect_err(|error| self.store_failed(error))
    }
}
