//! Sentinel and Cluster.

use kit::RedisOptions;
use kit::redis::{Cluster, Sentinel};
use tidegate_store::redis::{NotSent, RefusalCode, Role, slot_of};

use super::*;

fn hosts(addresses: &[std::net::SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A group of its own for each failover: sentinels let time pass between two.
async fn group() -> (Sentinel, Redis) {
    let mut group = Sentinel::with(RedisOptions::new().password("secret"));
    let url = format!("redis+sentinel://:secret@{}/{}", hosts(&group.addresses()), group.name());
    let redis = client(&url);
    assert_eq!(run(&redis, &count(), "a").await, Ok(1));
    let info = redis.info().await.unwrap();
    assert_eq!((info[0].role, info[0].address.port), (Role::Master, group.master().address().port()));
    (group, redis)
}

#[tokio::test]
async fn the_master_is_looked_up_again_after_a_failover() {
    let (mut group, redis) = group().await;
    let first = redis.info().await.unwrap();
    group.failover();
    let counted = settles(&redis).await;
    let second = redis.info().await.unwrap();
    assert_eq!(second[0].address.port, group.master().address().port());
    assert_ne!(second[0].address, first[0].address);
    assert_eq!(group.master().command(&["GET", "a"]).number(), counted);
}

#[tokio::test]
async fn the_master_is_looked_up_again_after_it_was_killed() {
    let (mut group, redis) = group().await;
    let next = group.replica().address().port();
    group.master().kill();
    settles(&redis).await;
    assert_eq!(redis.info().await.unwrap()[0].address.port, next);
}

/// Runs until it succeeds. That a call is lost with its connection is part of a failover.
async fn settles(redis: &Redis) -> i64 {
    let deadline = Deadline::after(DEADLINE);
    loop {
        match run(redis, &count(), "a").await {
            Ok(number) => return number,
            Err(fault) => assert!(!deadline.passed(), "{fault}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn sentinels_that_know_no_such_master_are_told_by_name() {
    let group = Sentinel::start();
    let redis = client(&format!("redis+sentinel://{}/nobody", hosts(&group.addresses())));
    let fault = run(&redis, &count(), "a").await.unwrap_err();
    assert!(matches!(fault, RedisFault::NotSent(NotSent::Connect(_))), "{fault}");
    assert!(fault.to_string().contains("nobody"), "{fault}");
}

#[tokio::test]
async fn scripts_follow_their_slot_while_it_moves() {
    let mut cluster = Cluster::start();
    // One node is enough to find the others.
    let redis = client(&format!("redis+cluster://{}", cluster.addresses()[0]));
    let infos = redis.info().await.unwrap();
    assert_eq!(infos.len(), 3);
    assert!(infos.iter().all(|info| info.role == Role::Master), "{infos:?}");

    for tag in 0..20 {
        let key = format!("{{{tag}}}a");
        assert_eq!(slot_of(key.as_bytes()), cluster.slot(&key));
        assert_eq!(run(&redis, &count(), &key).await, Ok(1));
    }
    let crossed = redis.run::<_, &str>(&count(), &["a", "b"], &[]).await.unwrap_err();
    assert_eq!(crossed, RedisFault::NotSent(NotSent::NoCommonSlot));

    let key = "{move}a";
    let slot = slot_of(key.as_bytes());
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    assert_eq!(run(&redis, &count(), key).await, Ok(1));
    cluster.begin_move(slot, to);
    // Still there; a new key is asked for at the other node, which must be given the script first.
    assert_eq!(run(&redis, &count(), key).await, Ok(2));
    assert_eq!(run(&redis, &count(), "{move}new").await, Ok(1));
    let split = redis.run::<_, &str>(&count(), &[key, "{move}new"], &[]).await.unwrap_err();
    assert_eq!(split.refusal(), Some(RefusalCode::TryAgain), "{split}");
    cluster.move_keys(slot, to);
    assert_eq!(run(&redis, &count(), key).await, Ok(3));
    cluster.finish_move(slot, to);
    // The client's map is old: the former owner says where the slot is.
    assert_eq!(run(&redis, &count(), key).await, Ok(4));
    assert_eq!(run(&redis, &count(), "{move}new").await, Ok(2));
    assert_eq!(cluster.node(to).command(&["GET", key]).number(), 4);

    // Without its node a slot is lost; with it, the client finds it again by itself.
    cluster.node(to).kill();
    assert!(!run_until_not_sent(&redis, key).await.may_have_run());
    cluster.node(to).restart_empty();
    assert_eq!(settles_at(&redis, key).await, 1);
}

async fn run_until_not_sent(redis: &Redis, key: &str) -> RedisFault {
    let deadline = Deadline::after(DEADLINE);
    loop {
        let fault = run(redis, &count(), key).await.unwrap_err();
        if matches!(fault, RedisFault::NotSent(_)) {
            return fault;
        }
        assert!(!deadline.passed(), "{fault}");
    }
}

async fn settles_at(redis: &Redis, key: &str) -> i64 {
    recovers(redis, &count(), key).await
}
