//! One trace, the same answers everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_store::IdempotencyStore;
use tidegate_store::conformance::idempotency::{Seen, run};
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tidegate_store::traits::BoxFuture;

use super::World;

const SEEDS: u64 = 6;

fn ready() -> BoxFuture<'static, ()> {
    Box::pin(std::future::ready(()))
}

/// A trace that never met an answer proves nothing about it.
fn check_coverage(seen: &Seen) {
    for answer in [
        "claim: New",
        "claim: Expired",
        "claim: Released",
        "claim: Repeated",
        "claim: TakenOver",
        "claim: Mismatch",
        "claim: NotComputed",
        "claim: Replay",
        "claim: InProgress",
        "claim: OutcomeUnknown",
        "renew: Held",
        "renew: Exhausted",
        "renew: Superseded",
        "complete: Done",
        "complete: Superseded",
        "release: Done",
        "release: Superseded",
        "abandon: Done",
        "abandon: Superseded",
        "resolve: Done",
        "resolve: Leased",
        "resolve: Changed",
        "force release: Done",
        "force release: Changed",
        "read: Some",
        "read: None",
    ] {
        assert!(seen.get(answer).is_some_and(|count| *count > 0), "never {answer}: {seen:?}");
    }
}

fn add(all: &mut Seen, seen: Seen) {
    for (answer, count) in seen {
        *all.entry(answer).or_default() += count;
    }
}

#[tokio::test]
async fn memory_answers_as_the_core_does() {
    let mut all = Seen::new();
    for seed in 0..SEEDS {
        let millis = Arc::new(AtomicU64::new(1_700_000_000_000));
        let time = Arc::clone(&millis);
        let clock = Arc::new(move || Timestamp::from_millis(time.load(Ordering::SeqCst)));
        let store = MemoryIdempotency::new(clock, MemoryLimits::default());
        let advance = |by: Duration| {
            millis.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
            ready()
        };
        add(&mut all, run(&store, &advance, seed, 2000).await.unwrap());
    }
    check_coverage(&all);
}

#[tokio::test]
async fn sqlite_answers_as_the_core_does() {
    let mut all = Seen::new();
    for seed in 0..SEEDS {
        let world = World::new().await;
        let store: &dyn IdempotencyStore = &*world.store;
        let advance = |by: Duration| {
            world.shift.advance(by);
            ready()
        };
        add(&mut all, run(store, &advance, seed, 500).await.unwrap());
    }
    check_coverage(&all);
}
