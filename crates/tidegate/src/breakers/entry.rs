//! The breakers of one rule: one, or one for each upstream host.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_core::breaker::{Kind, Policy, State};
use tidegate_core::rule::model::Breaker;

use super::cell::Cell;

/// The most hosts with a breaker of their own, for each rule; later ones share one. Hosts come from
/// the configured upstreams, so a longer list is a mistake somewhere, not traffic.
pub(super) const MAX_HOSTS: usize = 1_000;

pub(super) struct Entry {
    pub(super) id: Arc<str>,
    per_host: bool,
    policy: Mutex<Arc<Policy>>,
    /// The rule's only breaker; with one for each host, that of the hosts past [`MAX_HOSTS`].
    shared: Cell,
    hosts: ArcSwap<Hosts>,
    /// What a host's breaker starts from: closed, unless the rule's only breaker was not when the
    /// rule was changed to have one for each host.
    seed: State,
}

/// Grows only, so a place in it stays good.
#[derive(Clone, Default)]
struct Hosts {
    places: HashMap<Arc<str>, u32>,
    cells: Vec<(Arc<str>, Arc<Cell>)>,
}

/// Which of a rule's breakers: 0 for the shared one, then the hosts'.
pub(super) type Slot = u32;

impl Entry {
    pub(super) fn new(rule: &Breaker) -> Self {
        Self::seeded(rule, State::new(Timestamp::EPOCH))
    }

    /// The entry for an edited rule. The same key keeps its breakers as they are; another key starts
    /// anew, but never closed where it was not.
    pub(super) fn edited(self: &Arc<Self>, rule: &Breaker) -> Arc<Self> {
        if self.per_host != rule.per_upstream_host {
            return Arc::new(Self::seeded(rule, self.worst().fork()));
        }
        let mut current = self.policy.lock();
        let policy = Policy::new(rule);
        if **current != policy {
            let policy = Arc::new(policy);
            *current = Arc::clone(&policy);
            self.shared.edit(Arc::clone(&policy));
            // Under the same lock a host is added, so none is left with the old policy.
            for (_, cell) in &self.hosts.load().cells {
                cell.edit(Arc::clone(&policy));
            }
        }
        drop(current);
        Arc::clone(self)
    }

    /// The breaker for calls to `host`, made if need be.
    #[inline]
    pub(super) fn slot(&self, host: &str) -> Slot {
        if self.per_host { self.find(host).unwrap_or_else(|| self.add(host)) } else { 0 }
    }

    /// The breaker for calls to `host`, if it has one yet.
    pub(super) fn find(&self, host: &str) -> Option<Slot> {
        if !self.per_host {
            return Some(0);
        }
        let hosts = self.hosts.load();
        let full = (hosts.cells.len() >= MAX_HOSTS).then_some(0);
        hosts.places.get(host).copied().or(full)
    }

    #[inline]
    pub(super) fn with<T>(&self, slot: Slot, read: impl FnOnce(&Cell) -> T) -> T {
        if slot == 0 {
            return read(&self.shared);
        }
        let hosts = self.hosts.load();
        match hosts.cells.get(slot as usize - 1) {
            Some((_, cell)) => read(cell),
            None => read(&self.shared),
        }
    }

    /// The host that a slot is for; `None` for the shared one.
    pub(super) fn host(&self, slot: Slot) -> Option<Arc<str>> {
        let place = (slot as usize).checked_sub(1)?;
        self.hosts.load().cells.get(place).map(|(host, _)| Arc::clone(host))
    }

    /// The hosts that have breakers.
    pub(super) fn hosts(&self) -> Vec<Arc<str>> {
        self.hosts.load().cells.iter().map(|(host, _)| Arc::clone(host)).collect()
    }

    /// What a host without a breaker would start from.
    pub(super) fn unborn(&self) -> Cell {
        Cell::new(Arc::clone(&self.policy.lock()), self.seed.clone())
    }

    fn seeded(rule: &Breaker, seed: State) -> Self {
        let policy = Arc::new(Policy::new(rule));
        Self {
            id: rule.id.as_str().into(),
            per_host: rule.per_upstream_host,
            policy: Mutex::new(Arc::clone(&policy)),
            shared: Cell::new(policy, seed.clone()),
            hosts: ArcSwap::default(),
            seed,
        }
    }

    #[cold]
    fn add(&self, host: &str) -> Slot {
        let policy = self.policy.lock();
        if let Some(slot) = self.find(host) {
            return slot;
        }
        let mut hosts = Hosts::clone(&self.hosts.load());
        let cell = Arc::new(Cell::new(Arc::clone(&policy), self.seed.clone()));
        let host: Arc<str> = host.into();
        hosts.cells.push((Arc::clone(&host), cell));
        let slot = hosts.cells.len() as Slot;
        hosts.places.insert(host, slot);
        self.hosts.store(Arc::new(hosts));
        slot
    }

    /// The state that is furthest from closed: open the longest, else half-open.
    fn worst(&self) -> State {
        let hosts = self.hosts.load();
        let own = (!self.per_host || hosts.cells.len() >= MAX_HOSTS).then(|| self.shared.state());
        hosts
            .cells
            .iter()
            .map(|(_, cell)| cell.state())
            .chain(own)
            .max_by_key(|state| {
                let until = state.open_until().map(|(_, until)| until);
                (state.kind() != Kind::Closed, until)
            })
            .unwrap_or_else(|| self.seed.clone())
    }
}
