//! The breakers of one rule: one, or one for each upstream host.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_core::breaker::{Kind, Policy, State};
use tidegate_core::rule::diff::{BreakerCarry, breaker_effect};
use tidegate_core::rule::model::Breaker;

use super::cell::Cell;

/// The most hosts with a breaker of their own, for each rule; later ones share one. Hosts come from
/// the configured upstreams, so a longer list is a mistake somewhere, not traffic.
pub(super) const MAX_HOSTS: usize = 1_000;

pub(super) struct Entry {
    pub(super) id: Arc<str>,
    per_host: bool,
    current: Mutex<Current>,
    /// The rule's only breaker; with one for each host, that of the hosts past [`MAX_HOSTS`].
    shared: Cell,
    hosts: ArcSwap<Hosts>,
    /// What a host's breaker starts from: closed, unless the rule's only breaker was not when the
    /// rule was changed to have one for each host.
    seed: State,
}

/// The rule as it is in force.
struct Current {
    rule: Breaker,
    policy: Arc<Policy>,
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

    /// The entry for an edited rule, which keeps what [`breaker_effect`] says.
    pub(super) fn edited(self: &Arc<Self>, rule: &Breaker) -> Arc<Self> {
        let mut current = self.current.lock();
        let keep_window = match breaker_effect(&current.rule, rule) {
            BreakerCarry::Untouched => return Arc::clone(self),
            BreakerCarry::Rekeyed => return Arc::new(Self::seeded(rule, self.worst().fork())),
            BreakerCarry::Keep => true,
            BreakerCarry::KeepState => false,
        };
        let policy = Arc::new(Policy::new(rule));
        *current = Current { rule: rule.clone(), policy: Arc::clone(&policy) };
        self.shared.edit(Arc::clone(&policy), keep_window);
        // Under the same lock a host is added, so none is left with the old policy.
        for (_, cell) in &self.hosts.load().cells {
            cell.edit(Arc::clone(&policy), keep_window);
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
        Cell::new(Arc::clone(&self.current.lock().policy), self.seed.clone())
    }

    fn seeded(rule: &Breaker, seed: State) -> Self {
        let policy = Arc::new(Policy::new(rule));
        Self {
            id: rule.id.as_str().into(),
            per_host: rule.per_upstream_host,
            current: Mutex::new(Current { rule: rule.clone(), policy: Arc::clone(&policy) }),
            shared: Cell::new(policy, seed.clone()),
            hosts: ArcSwap::default(),
            seed,
        }
    }

    #[cold]
    fn add(&self, host: &str) -> Slot {
        let current = self.current.lock();
        if let Some(slot) = self.find(host) {
            return slot;
        }
        let mut hosts = Hosts::clone(&self.hosts.load());
        let cell = Arc::new(Cell::new(Arc::clone(&current.policy), self.seed.clone()));
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
