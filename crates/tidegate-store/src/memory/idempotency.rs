//! Idempotency records in memory: exact, fast, bounded, and gone with the process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::Timestamp;
use tidegate_core::idempotency::RecordId;
use tidegate_core::idempotency::record::{Fence, Owner, Record, StoredResponse};
use tidegate_core::idempotency::transition::{
    self, ClaimAsk, Claimed, Ended, Held, Renewal, Resolved, Verdict,
};

use crate::traits::{
    BoxFuture, Fenced, IdempotencyStore, ListAsk, Listed, MAX_LISTED, MAX_PURGED, Renewed, Settled, Shown,
    StoreError, weight,
};

/// What the store takes for its own time. It should not run backwards.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Expired records that a claim at the bound clears away before it gives up.
const CLEARED_BY_CLAIM: u32 = 64;
const STORE: &str = "memory";

/// How much a [`MemoryIdempotency`] holds. At either bound a new key is refused with
/// [`StoreError::Full`]; records that exist keep working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Records at most.
    pub records: usize,
    /// Bytes of records and kept responses, roughly. Responses to calls already admitted may exceed
    /// it.
    pub bytes: usize,
}

impl Default for MemoryLimits {
    /// 100,000 records and 256 MiB.
    fn default() -> Self {
        Self { records: 100_000, bytes: 256 << 20 }
    }
}

/// An [`IdempotencyStore`] in memory.
pub struct MemoryIdempotency {
    clock: Clock,
    limits: MemoryLimits,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_id: HashMap<RecordId, Record>,
    by_expiry: BTreeSet<(Timestamp, RecordId)>,
    bytes: usize,
}

impl MemoryIdempotency {
    /// An empty store with its own time.
    pub fn new(clock: Clock, limits: MemoryLimits) -> Self {
        Self { clock, limits, records: Mutex::default() }
    }

    /// Runs one step under the lock, at a time read under the lock.
    fn step<T: Send>(&self, step: impl FnOnce(&mut Records, Timestamp) -> T) -> T {
        let mut records = self.records.lock();
        let now = (self.clock)();
        step(&mut records, now)
    }

    fn claim_now(&self, id: &RecordId, ask: &ClaimAsk) -> Result<Claimed, StoreError> {
        self.step(|records, now| {
            let found = records.by_id.get(id);
            let grant = match transition::claim(found, ask, now) {
                Ok(grant) => grant,
                Err(answer) => return Ok(Claimed::Answer(answer)),
            };
            if found.is_none() {
                self.make_room(records, now)?;
            }
            let (held, record) = grant.stored(id.clone());
            records.put(id, record);
            Ok(Claimed::Held(held))
        })
    }

    fn make_room(&self, records: &mut Records, now: Timestamp) -> Result<(), StoreError> {
        let full = |records: &Records| {
            records.by_id.len() >= self.limits.records || records.bytes >= self.limits.bytes
        };
        if full(records) {
            records.purge(CLEARED_BY_CLAIM, now);
        }
        if full(records) {
            let MemoryLimits { records, bytes } = self.limits;
            let limit = format!("{records} records or {bytes} bytes").into();
            return Err(StoreError::Full { store: STORE, limit });
        }
        Ok(())
    }
}

impl Records {
    fn put(&mut self, id: &RecordId, record: Record) {
        self.bytes += weight(id, &record);
        self.by_expiry.insert((record.expires_at(), id.clone()));
        if let Some(old) = self.by_id.insert(id.clone(), record) {
            self.bytes -= weight(id, &old);
            let (old, new) = (old.expires_at(), self.by_id.get(id).map(Record::expires_at));
            if new != Some(old) {
                self.by_expiry.remove(&(old, id.clone()));
            }
        }
    }

    fn purge(&mut self, batch: u32, now: Timestamp) -> u32 {
        let expired: Vec<RecordId> = self
            .by_expiry
            .iter()
            .take_while(|(expires_at, _)| *expires_at <= now)
            .filter(|(_, id)| self.by_id.get(id).is_none_or(|record| record.has_expired(now)))
            .take(batch as usize)
            .map(|(_, id)| id.clone())
            .collect();
        for id in &expired {
            if let Some(record) = self.by_id.remove(id) {
                self.bytes -= weight(id, &record);
                self.by_expiry.remove(&(record.expires_at(), id.clone()));
            }
        }
        expired.len() as u32
    }

    fn end(&mut self, id: &RecordId, ended: Ended) -> Fenced {
        match ended {
            Ended::Now(record) => {
                self.put(id, *record);
                Fenced::Done
            }
            Ended::Before => Fenced::Done,
            Ended::Superseded => Fenced::Superseded,
        }
    }

    fn settle(&mut self, id: &RecordId, resolved: Resolved) -> Settled {
        match resolved {
            Resolved::Now(record) => {
                self.put(id, *record);
                Settled::Done
            }
            Resolved::Before => Settled::Done,
            Resolved::Leased { left } => Settled::Leased { left },
            Resolved::Changed => Settled::Changed,
        }
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl IdempotencyStore for MemoryIdempotency {
    fn claim<'a>(
        &'a self,
        id: &'a RecordId,
        ask: &'a ClaimAsk,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        // In the future, not before it: one that is dropped unpolled claims nothing.
        Box::pin(async move { self.claim_now(id, ask) })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Renewed, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| {
                match transition::renew(records.by_id.get(held.id()), held.fence(), held.lease(), now) {
                    Renewal::Renewed(record) => {
                        let left = record.lease_until.since(now);
                        records.put(held.id(), *record);
                        Renewed::Held { left }
                    }
                    Renewal::Exhausted => Renewed::Exhausted,
                    Renewal::Superseded => Renewed::Superseded,
                }
            }))
        })
    }

    fn complete<'a>(
        &'a self,
        held: &'a Held,
        response: &'a Arc<StoredResponse>,
    ) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| {
                let found = records.by_id.get(held.id());
                let ended = transition::complete(found, held.fence(), response, now);
                records.end(held.id(), ended)
            }))
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| {
                let ended = transition::release(records.by_id.get(held.id()), held.fence(), now);
                records.end(held.id(), ended)
            }))
        })
    }

    fn abandon<'a>(&'a self, id: &'a RecordId, owner: Owner) -> BoxFuture<'a, Result<Fenced, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| {
                let ended = transition::abandon(records.by_id.get(id), owner, now);
                records.end(id, ended)
            }))
        })
    }

    fn read<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<Shown>, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| records.by_id.get(id).cloned().map(|record| Shown { record, now })))
        })
    }

    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
        verdict: &'a Verdict,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| {
                let resolved = transition::resolve(records.by_id.get(id), seen, by, verdict, now);
                records.settle(id, resolved)
            }))
        })
    }

    fn force_release<'a>(
        &'a self,
        id: &'a RecordId,
        seen: Fence,
        by: Owner,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(async move {
            Ok(self.step(|records, now| {
                let resolved = transition::force_release(records.by_id.get(id), seen, by, now);
                records.settle(id, resolved)
            }))
        })
    }

    fn list<'a>(&'a self, ask: &'a ListAsk) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>> {
        let mut listed: Vec<Listed> = self.step(|records, _| {
            let after = |id: &RecordId| ask.after.as_ref().is_none_or(|after| id > after);
            let matching = records.by_id.iter().filter(|(id, record)| {
                after(id) && ask.state.is_none_or(|state| record.stage.state() == state)
            });
            matching
                .map(|(id, record)| Listed {
                    id: id.clone(),
                    state: record.stage.state(),
                    fence: record.fence,
                    attempts: record.attempts,
                    first_claimed_at: record.first_claimed_at,
                    lease_until: record.lease_until,
                    expires_at: record.expires_at(),
                })
                .collect()
        });
        listed.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        listed.truncate(ask.limit.min(MAX_LISTED) as usize);
        ready(Ok(listed))
    }

    fn purge(&self, batch: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async move { Ok(self.step(|records, now| records.purge(batch.min(MAX_PURGED), now))) })
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        ready(Ok((self.clock)()))
    }
}

impl fmt::Debug for MemoryIdempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records.lock();
        write!(f, "MemoryIdempotency({} records, {} bytes)", records.by_id.len(), records.bytes)
    }
}

#[cfg(test)]
mod tests;
