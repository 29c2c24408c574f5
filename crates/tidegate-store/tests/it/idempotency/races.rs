//! Many at once.

use std::future::poll_fn;
use std::task::Poll;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::record::State;
use tidegate_store::memory::{Clock, MemoryIdempotency, MemoryLimits};
use tidegate_store::traits::ListAsk;
use tokio::task::JoinSet;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i1_of_64_concurrent_calls_one_executes() {
    let world = World::new().await;
    let mut calls = JoinSet::new();
    for number in 0..64 {
        let (store, pool) = (Arc::clone(&world.store), world.pool.clone());
        calls.spawn(async move {
            match claim(&*store, "k1", &fenced(number)).await {
                Claimed::Held(held) => {
                    assert_eq!(pay(&pool, &held, &response("done")).await.unwrap(), Fenced::Done);
                    true
                }
                Claimed::Answer(Answer::InProgress { .. } | Answer::Replay { .. }) => false,
                Claimed::Answer(other) => panic!("{other:?}"),
            }
        });
    }
    let executed = calls.join_all().await.into_iter().filter(|executed| *executed).count();
    assert_eq!((executed, world.payments().await), (1, 1));
    assert!(matches!(answer(&*world.store, "k1", &fenced(100)).await, Answer::Replay { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i1_of_64_concurrent_calls_one_executes_in_memory() {
    let clock: Clock = Arc::new(|| Timestamp::from_secs(1));
    let store = Arc::new(MemoryIdempotency::new(clock, MemoryLimits::default()));
    let mut calls = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&store);
        calls.spawn(async move { matches!(claim(&*store, "k1", &hold(number)).await, Claimed::Held(_)) });
    }
    assert_eq!(calls.join_all().await.into_iter().filter(|executed| *executed).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i4_the_loser_of_an_insert_race_is_answered() {
    let world = World::new().await;
    let stores = [Arc::clone(&world.store), Arc::new(world.another().await)];
    for round in 0..20 {
        let mut calls = JoinSet::new();
        for (number, store) in stores.iter().enumerate() {
            let store = Arc::clone(store);
            calls.spawn(async move { claim(&*store, &format!("k{round}"), &hold(number as u32)).await });
        }
        let claimed = calls.join_all().await;
        let won = claimed.iter().filter(|claimed| matches!(claimed, Claimed::Held(_))).count();
        let told = claimed
            .iter()
            .filter(|claimed| matches!(claimed, Claimed::Answer(Answer::InProgress { .. })))
            .count();
        assert_eq!((won, told), (1, 1), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i18_many_writers_all_get_through() {
    let world = World::new().await;
    let mut stores = vec![Arc::clone(&world.store)];
    for _ in 0..3 {
        stores.push(Arc::new(world.another().await));
    }
    let mut calls = JoinSet::new();
    for number in 0..120_u32 {
        // Most through one queue, some against it from other connections.
        let store = Arc::clone(&stores[if number % 10 == 0 { 1 + number as usize / 10 % 3 } else { 0 }]);
        let pool = world.pool.clone();
        calls.spawn(async move {
            let attempt = held(&*store, &format!("k{number}"), &fenced(number)).await;
            if number % 3 == 0 {
                assert_eq!(pay(&pool, &attempt, &response("done")).await.unwrap(), Fenced::Done);
            } else {
                assert_eq!(store.complete(&attempt, &response("done")).await.unwrap(), Fenced::Done);
            }
        });
    }
    assert_eq!(calls.join_all().await.len(), 120);
    assert_eq!(world.payments().await, 40);
}

#[tokio::test]
async fn a_foreign_write_lock_is_busy_and_then_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    // Kept: what closes a database writes to it, at a time of its own.
    let _made = instance(&path, &ClockShift::default()).await;
    let impatient = SqliteConnectOptions::new().filename(&path).busy_timeout(Duration::from_millis(20));
    let pool = SqlitePoolOptions::new().connect_with(impatient).await.unwrap();
    let store = SqliteIdempotency::open(pool.clone()).await.unwrap();
    let lock = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = store.claim(&id("k1"), &hold(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    lock.rollback().await.unwrap();
    assert_eq!(held(&store, "k1", &hold(2)).await.fence().token, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_a_dropped_claim_leaves_nothing_behind() {
    let world = World::new().await;
    let store = &*world.store;
    let mut answered = 0;
    for polls in 0..60_u32 {
        let key = format!("k{polls}");
        let (id, ask) = (id(&key), hold(1));
        let mut future = store.claim(&id, &ask);
        for _ in 0..polls * polls {
            let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            if let Poll::Ready(claimed) = polled {
                let Claimed::Held(attempt) = claimed.unwrap() else { panic!() };
                assert_eq!(store.release(&attempt).await.unwrap(), Fenced::Done);
                answered += 1;
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(future);
        // Whatever was on its way is through once a later command of the same queue is.
        store.purge(0).await.unwrap();
        let state = store.read(&id).await.unwrap().map(|shown| shown.record.stage.state());
        assert!(matches!(state, None | Some(State::Released)), "after {polls}: {state:?}");
        held(store, &key, &hold(2)).await;
    }
    // Every connection is outside of a transaction: each can begin one.
    let mut connections = Vec::new();
    while let Some(connection) = world.pool.try_acquire() {
        connections.push(connection);
    }
    assert!(!connections.is_empty());
    for connection in &mut connections {
        for statement in ["BEGIN IMMEDIATE", "ROLLBACK"] {
            sqlx::query(statement).execute(&mut **connection).await.unwrap();
        }
    }
    assert!(answered < 60, "no claim was dropped half-way");
}

#[tokio::test]
async fn an_abandoned_claim_is_free_again() {
    let world = World::new().await;
    held(&*world.store, "k1", &hold(1)).await;
    assert_eq!(world.store.abandon(&id("k1"), owner(2)).await.unwrap(), Fenced::Superseded);
    assert_eq!(world.store.abandon(&id("k1"), owner(1)).await.unwrap(), Fenced::Done);
    assert_eq!(held(&*world.store, "k1", &hold(2)).await.fence().token, 2);
    assert_eq!(world.store.abandon(&id("none"), owner(1)).await.unwrap(), Fenced::Superseded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i22_purging_and_claiming_at_once() {
    const EXPIRED: i64 = 3000;
    const BATCH: u32 = 200;
    let world = World::new().await;
    let live = held(&*world.store, "live", &hold(1)).await;
    assert_eq!(world.store.complete(&live, &response("done")).await.unwrap(), Fenced::Done);
    sqlx::query(
        "INSERT INTO tidegate_idempotency (operation, scope, key, state, token, owner, fingerprint,
            commit_mode, on_unknown, retention_ms, rules_version, flags, attempts, first_claimed_at,
            claimed_at, execution_until, lease_until, changed_at, expires_at, status, headers, body)
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
         SELECT 'charge', '/acme', 'old' || i, 'SUCCEEDED', 7, '000000000000000000000000000000ff', x'01',
            'after_response', 'hold', 1000, 1, '', 1, 1, 1, 1, 1, 1, 1001, 200, x'', x'' FROM n",
    )
    .bind(EXPIRED)
    .execute(&world.pool)
    .await
    .unwrap();

    let purging = {
        let store = Arc::clone(&world.store);
        tokio::spawn(async move {
            let mut deleted = 0;
            loop {
                let batch = store.purge(BATCH).await.unwrap();
                assert!(batch <= BATCH);
                deleted += i64::from(batch);
                if batch < BATCH {
                    return deleted;
                }
            }
        })
    };
    let mut claims = JoinSet::new();
    for number in 0..60 {
        let store = Arc::clone(&world.store);
        claims.spawn(async move {
            let key = format!("old{}", i64::from(number) * (EXPIRED / 60));
            let attempt = held(&*store, &key, &hold(number)).await;
            // Found as it was, or deleted just before.
            assert!(matches!(attempt.fence().token, 1 | 8), "{attempt:?}");
            (key, attempt)
        });
    }
    let claimed = claims.join_all().await;
    let deleted = purging.await.unwrap();
    let kept = claimed.iter().filter(|(_, attempt)| attempt.fence().token == 8).count() as i64;
    assert_eq!(deleted, EXPIRED - kept);
    for (key, attempt) in &claimed {
        let shown = world.store.read(&id(key)).await.unwrap().expect("a claimed row survives");
        assert_eq!((shown.record.fence, shown.record.stage.state()), (attempt.fence(), State::Processing));
    }
    assert!(matches!(answer(&*world.store, "live", &hold(2)).await, Answer::Replay { .. }));
    let left = world.store.list(&ListAsk { limit: 1000, ..ListAsk::default() }).await.unwrap();
    assert_eq!(left.len(), claimed.len() + 1);
}
