use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::idempotency::record::{FirstTry, Policy};
use tidegate_core::idempotency::{Fingerprint, State};
use tidegate_core::rule::model::{CommitMode, OnUnknown};

use super::*;

const RETENTION: Duration = Duration::from_hours(1);

struct World {
    store: MemoryIdempotency,
    seconds: Arc<AtomicU64>,
}

fn world(records: usize, bytes: usize) -> World {
    let seconds = Arc::new(AtomicU64::new(1_000_000));
    let time = Arc::clone(&seconds);
    let clock: Clock = Arc::new(move || Timestamp::from_secs(time.load(Ordering::SeqCst)));
    World { store: MemoryIdempotency::new(clock, MemoryLimits { records, bytes }), seconds }
}

impl World {
    fn later(&self, span: Duration) {
        self.seconds.fetch_add(span.as_secs(), Ordering::SeqCst);
    }

    fn claim(&self, key: &str, owner: u8) -> Result<Held, StoreError> {
        let ask = ClaimAsk {
            owner: Owner([owner; 16]),
            fingerprint: Fingerprint::default(),
            also: Fingerprint::default(),
            policy: Policy {
                commit: CommitMode::AfterResponse,
                on_unknown: OnUnknown::Hold,
                retention: RETENTION,
                window: None,
            },
            lease: Duration::from_secs(30),
            max_execution: Duration::from_mins(5),
            first: FirstTry::default(),
        };
        match self.store.claim_now(&id(key), &ask)? {
            Claimed::Held(held) => Ok(held),
            Claimed::Answer(answer) => panic!("{answer:?}"),
        }
    }

    async fn complete(&self, held: &Held, body: usize) {
        let response = StoredResponse::new::<&str, &[u8]>(200, [], Some(vec![b'x'; body].into())).unwrap();
        assert_eq!(self.store.complete(held, &Arc::new(response)).await.unwrap(), Fenced::Done);
    }

    /// The bookkeeping against the records it is about.
    fn audit(&self) {
        let records = self.store.records.lock();
        let bytes: usize = records.by_id.iter().map(|(id, record)| weight(id, record)).sum();
        assert_eq!(records.bytes, bytes);
        let expiry: BTreeSet<_> =
            records.by_id.iter().map(|(id, record)| (record.expires_at(), id.clone())).collect();
        assert_eq!(records.by_expiry, expiry);
    }
}

fn id(key: &str) -> RecordId {
    RecordId::from_stored("charge", "/acme", key)
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_keeps_the_old_ones() {
    let world = world(2, usize::MAX);
    let first = world.claim("k1", 1).unwrap();
    world.claim("k2", 2).unwrap();
    assert!(matches!(world.claim("k3", 3), Err(StoreError::Full { .. })));
    world.claim("k1", 1).unwrap();
    world.complete(&first, 10).await;
    assert!(matches!(world.claim("k3", 3), Err(StoreError::Full { .. })));
    world.audit();
    // What has expired makes room; what is finished and retained does not.
    world.later(RETENTION);
    world.claim("k3", 3).unwrap();
    world.audit();
}

#[tokio::test]
async fn bytes_are_bounded_too() {
    let world = world(usize::MAX, 10_000);
    let held = world.claim("k1", 1).unwrap();
    world.claim("k2", 2).unwrap();
    world.complete(&held, 20_000).await;
    assert!(matches!(world.claim("k3", 3), Err(StoreError::Full { .. })));
    world.audit();
    world.later(RETENTION);
    world.claim("k3", 3).unwrap();
    world.audit();
}

#[tokio::test]
async fn purges_are_bounded_and_spare_the_living() {
    let world = world(usize::MAX, usize::MAX);
    for number in 0..20 {
        let held = world.claim(&format!("old{number}"), 1).unwrap();
        world.complete(&held, 1).await;
    }
    world.later(RETENTION / 2);
    world.claim("young", 2).unwrap();
    world.later(RETENTION / 2);
    assert_eq!(world.store.purge(15).await.unwrap(), 15);
    world.audit();
    // One of the expired is claimed again, and survives.
    let alive = world.store.list(&ListAsk { limit: 1, ..ListAsk::default() }).await.unwrap();
    let again = world.claim(alive[0].id.key(), 3).unwrap();
    assert_eq!(again.fence().token, 2);
    assert_eq!(world.store.purge(15).await.unwrap(), 4);
    assert_eq!(world.store.purge(15).await.unwrap(), 0);
    world.audit();
    let left = world.store.list(&ListAsk { limit: 9, ..ListAsk::default() }).await.unwrap();
    assert_eq!(left.iter().map(|line| line.id.key()).collect::<Vec<_>>(), [again.id().key(), "young"]);
    let page = ListAsk { after: Some(left[0].id.clone()), state: Some(State::Processing), limit: 9 };
    assert_eq!(world.store.list(&page).await.unwrap(), left[1..]);
}
