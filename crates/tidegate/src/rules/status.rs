//! What there is to know about the rules in force.

use std::path::PathBuf;

use tidegate_core::Timestamp;
use tidegate_store::rules::Sha256;

use crate::metrics::Metrics;

/// The rules in force, and how their sources are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The version in force.
    pub version: u64,
    /// Its digest.
    pub digest: Sha256,
    /// Since when this process runs it.
    pub loaded_at: Timestamp,
    /// What is allowed in it and probably not meant.
    pub warnings: Vec<String>,
    /// The rule file or directory.
    pub path: PathBuf,
    /// Why the file as it stands was not taken; `None` once it is.
    pub refusal: Option<Refused>,
    /// How the file, which was taken once, differs from what is in force.
    pub drift: Option<Drift>,
    /// A newer version in the store that this node cannot run.
    pub unusable: Option<Unusable>,
    /// Since when the file is missing or cannot be read.
    pub file_stale_since: Option<Timestamp>,
    /// Since when the store does not answer.
    pub store_stale_since: Option<Timestamp>,
    /// What keeps a change of the file from being published; it is tried again.
    pub pending: Option<String>,
    /// How often rules were loaded, by source and result.
    pub loads: Loads,
}

impl Status {
    /// Sets `tidegate_rules_stale_seconds` to what it is `now`.
    pub(super) fn measure(&self, metrics: &Metrics, now: Timestamp) {
        for (source, since) in
            [(LoadSource::File, self.file_stale_since), (LoadSource::Store, self.store_stale_since)]
        {
            let seconds = since.map_or(0.0, |since| now.since(since).as_secs_f64());
            metrics.rules_stale.get_or_create(&vec![("source", source.as_str().to_owned())]).set(seconds);
        }
    }
}

/// Rules that were not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When.
    pub at: Timestamp,
    /// Every fault, as for a person.
    pub rendered: String,
    /// How many.
    pub faults: usize,
}

/// A file that differs from what is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The version in force.
    pub version: u64,
    /// The digest of the rules in the file.
    pub file_digest: Sha256,
}

/// A stored version that this node cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Its number.
    pub version: u64,
    /// Whether its text was changed in the store; if not, it is whole and has faults on this node.
    pub damaged: bool,
    /// Why.
    pub refused: Refused,
}

/// Where rules were loaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadSource {
    /// The rule file or directory.
    File,
    /// The rule store.
    Store,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadResult {
    /// Published as a new version, and in force.
    Published,
    /// A version of the store that came in force.
    Applied,
    /// Nothing new: in force already, or taken before.
    Unchanged,
    /// Refused; what was in force stays.
    Refused,
    /// There is nothing to load.
    Missing,
    /// The store did not answer.
    Failed,
}

impl LoadSource {
    /// Every source.
    pub const ALL: [Self; 2] = [Self::File, Self::Store];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Store => "store",
        }
    }
}

impl LoadResult {
    /// Every result.
    pub const ALL: [Self; 6] =
        [Self::Published, Self::Applied, Self::Unchanged, Self::Refused, Self::Missing, Self::Failed];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

/// Counts of loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads([[u64; LoadResult::ALL.len()]; LoadSource::ALL.len()]);

impl Loads {
    /// How often loading from `source` ended in `result`.
    pub const fn get(&self, source: LoadSource, result: LoadResult) -> u64 {
        self.0[source as usize][result as usize]
    }

    pub(super) const fn add(&mut self, source: LoadSource, result: LoadResult) {
        self.0[source as usize][result as usize] += 1;
    }
}
