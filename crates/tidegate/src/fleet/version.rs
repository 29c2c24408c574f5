//! What one version of the rules needs to count in the shared store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::limit::share::Member;
use tidegate_core::rule::model::{Limit, OnStoreFailure, Sharing};
use tidegate_store::shared::{SharedAsk, SharedRule};

use super::{Fleet, PERMIT_LIFE};

/// The shared limits of one version, and this instance's parts of them.
pub(crate) struct FleetVersion {
    pub(crate) fleet: Arc<Fleet>,
    rules: Arc<Rules>,
    /// By rule and variant, whether this instance's part is nothing.
    nothing: Vec<Vec<bool>>,
}

struct Rules {
    digest: String,
    /// Whether the version was published while this process ran, so that it is newer than all before.
    published: bool,
    /// Its place among all versions that instances have published; 0 while the store has not said.
    ordinal: AtomicU64,
    /// By rule; `None` for a local one.
    shared: Vec<Option<SharedRule>>,
}

impl FleetVersion {
    /// For `limits`, and the limits as this instance counts them on its own.
    pub(crate) fn new(
        fleet: &Arc<Fleet>,
        limits: &[Limit],
        digest: String,
        published: bool,
        last_ordinal: u64,
    ) -> (Self, Vec<Limit>) {
        let shared = limits.iter().map(|limit| {
            let local = limit.sharing == Sharing::Local;
            (!local).then(|| SharedRule::new(limit, PERMIT_LIFE))
        });
        // Until the store has given it a place, it has that of the version before.
        let ordinal = AtomicU64::new(last_ordinal << 1);
        let rules = Rules { digest, published, ordinal, shared: shared.collect() };
        Self::divided(fleet, Arc::new(rules), limits)
    }

    /// The same for another place among the instances.
    pub(crate) fn redivided(&self, limits: &[Limit]) -> (Self, Vec<Limit>) {
        Self::divided(&self.fleet, Arc::clone(&self.rules), limits)
    }

    fn divided(fleet: &Arc<Fleet>, rules: Arc<Rules>, limits: &[Limit]) -> (Self, Vec<Limit>) {
        let member = fleet.member();
        let (mut own, mut nothing) = (Vec::with_capacity(limits.len()), Vec::with_capacity(limits.len()));
        for limit in limits {
            let falls_back = limit.on_store_failure == Some(OnStoreFailure::LocalFallback);
            if limit.sharing == Sharing::Local || !falls_back {
                own.push(limit.clone());
                nothing.push(Vec::new());
                continue;
            }
            let share = member.unwrap_or(Member::ALONE).share(limit);
            own.push(share.limit);
            // Who does not know how many share a limit cannot take a part of it.
            nothing.push(share.nothing.into_iter().map(|nothing| nothing || member.is_none()).collect());
        }
        (Self { fleet: Arc::clone(fleet), rules, nothing }, own)
    }

    /// Whether the rule counts in the store.
    pub(crate) fn is_shared(&self, rule: usize) -> bool {
        self.rules.shared.get(rule).is_some_and(Option::is_some)
    }

    /// Whether this instance has no part of these numbers.
    pub(crate) fn has_nothing(&self, rule: usize, variant: usize) -> bool {
        self.nothing.get(rule).and_then(|variants| variants.get(variant)).copied().unwrap_or(false)
    }

    /// The question to the store; `None` for a local rule.
    pub(crate) fn ask(&self, rule: usize, variant: usize, key: &[u8], cost: u64) -> Option<SharedAsk> {
        let ordinal = self.rules.ordinal.load(Ordering::Acquire) >> 1;
        let counter = self.rules.shared.get(rule)?.as_ref()?.counter(variant, key, ordinal)?;
        Some(SharedAsk { counter, cost })
    }

    /// The place among all versions, so far.
    pub(crate) fn ordinal(&self) -> u64 {
        self.rules.ordinal.load(Ordering::Acquire) >> 1
    }

    /// What the store is still to be told: the digest, and whether it was published.
    pub(super) fn unplaced(&self) -> Option<(&str, bool)> {
        let placed = self.rules.ordinal.load(Ordering::Acquire) & 1 == 1;
        (!placed).then_some((self.rules.digest.as_str(), self.rules.published))
    }

    pub(super) fn place(&self, ordinal: u64) {
        self.rules.ordinal.store(ordinal << 1 | 1, Ordering::Release);
    }
}
