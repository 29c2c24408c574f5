//! What the store's newest version leads to.

use std::sync::Arc;

use tidegate_store::rules::{AuditKind, FileNote, RuleStoreError, StoredVersion};

use super::{Driver, blocking_load};
use crate::rules::compile::{Compile, Refusal};
use crate::rules::source;
use crate::rules::status::{LoadResult, LoadSource, Unusable};

/// How many damaged versions a start passes over to find one that is whole.
const DAMAGED_VERSIONS: usize = 16;
/// Stands for a path where a refused version of the store is remembered, so that it is in the trail once.
const STORED_VERSION: &str = "(stored version)";

impl<C: Compile> Driver<C> {
    /// Takes the store's newest version if it is newer than what is in force.
    pub(super) async fn take_newest(&mut self) -> Result<bool, RuleStoreError> {
        self.newest = self.store.latest_number().await?;
        self.store_answered();
        let in_force = self.in_force.map(|(number, _)| number);
        let set_back = self.newest < in_force;
        if set_back && !self.set_back {
            tracing::error!(
                newest = self.newest,
                in_force,
                "the rule store was set back; the version in force stays, a restart takes what the store holds"
            );
        }
        self.set_back = set_back;
        if self.newest <= in_force.max(self.unusable()) {
            return Ok(false);
        }
        let Some(version) = self.store.latest().await? else { return Ok(false) };
        self.newest = self.newest.max(Some(version.number));
        Ok(self.take(version).await)
    }

    /// Goes back to the highest version that is whole, past versions that were damaged in the store. What
    /// is whole but has faults here is not passed over: older rules would let through what it forbids.
    pub(super) async fn take_last_whole(&mut self) -> Result<(), RuleStoreError> {
        let Some(newest) = self.status.unusable.clone().filter(|newest| newest.damaged) else {
            return Ok(());
        };
        for head in self.store.history(DAMAGED_VERSIONS).await? {
            if head.number >= newest.version {
                continue;
            }
            let Some(version) = self.store.get(head.number).await? else { break };
            if self.take(version).await || self.status.unusable.as_ref().is_some_and(|seen| !seen.damaged) {
                break;
            }
        }
        // The newest is the one to tell about.
        self.status.unusable = Some(newest);
        Ok(())
    }

    /// Loads a stored version and brings it in force; a version that cannot be loaded is remembered as
    /// unusable.
    async fn take(&mut self, version: StoredVersion) -> bool {
        let number = version.number;
        let damaged = source::sha256(version.canonical.as_bytes()) != version.digest;
        let loaded = if damaged {
            Err(damage(number))
        } else {
            let canonical = version.canonical.clone();
            let compile = Arc::clone(&self.compile);
            blocking_load(move || compile.from_canonical(&canonical)).await
        };
        let refusal = match loaded {
            Ok(candidate) => {
                self.count(LoadSource::Store, LoadResult::Applied);
                self.apply(&version, candidate);
                return true;
            }
            Err(refusal) => refusal,
        };
        tracing::error!(
            version = number,
            faults = refusal.faults,
            "a stored version is refused: {}",
            refusal.rendered
        );
        self.count(LoadSource::Store, LoadResult::Refused);
        let entry = self.entry(AuditKind::Refused, Some(number), Some(version.digest), &refusal.rendered);
        let note = FileNote::Refused(source::hash(b"version", &[(&number.to_string(), &version.canonical)]));
        if let Err(error) = self.store.note_file(&self.node, STORED_VERSION, note, entry).await {
            self.store_failed(&error);
        }
        self.status.unusable = Some(Unusable { version: number, damaged, refused: self.refused(refusal) });
        false
    }
}

fn damage(version: u64) -> Refusal {
    let rendered = format!(
        "version {version}: the stored text does not have the digest that it was published with: it was changed in the store; publish the rules again"
    );
    Refusal { rendered, faults: 1 }
}
