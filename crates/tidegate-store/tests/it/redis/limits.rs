//! Limits as instances share them: each instance has a client of its own, and all ask at once.

use std::sync::Arc;

use kit::redis::Cluster;
use tidegate_core::limit::share::Member;
use tidegate_core::limit::{Decision, Retry};
use tidegate_core::rule::model::{Algorithm, Mode, Rate};
use tidegate_store::redis::limits::RedisLimits;
use tidegate_store::shared::{
    Counter, KeySpace, Kind, Numbers, Permit, Purpose, SharedAsk, SharedFault, SharedLimitStore as _,
    SharedOutcome,
};
use tokio::task::JoinSet;

use super::*;

/// Nothing comes back by itself while a test runs.
const YEAR: Duration = Duration::from_hours(24 * 366);

fn instance(url: &str) -> Arc<RedisLimits> {
    Arc::new(RedisLimits::new(client(url)))
}

fn counter(rule: &str, algorithm: &Algorithm) -> Counter {
    let numbers = Numbers::new(algorithm, YEAR);
    let key = KeySpace::new::<&str>(rule, &[]).counter([], &numbers);
    Counter { key, numbers, ordinal: 1, mode: Mode::Enforce }
}

fn ask(counter: &Counter, cost: u64) -> SharedAsk {
    SharedAsk { counter: counter.clone(), cost }
}

fn bucket(capacity: u64, count: u64, per: Duration) -> Algorithm {
    Algorithm::TokenBucket { capacity, refill: Rate { count, per } }
}

fn window(limit: u64) -> Algorithm {
    Algorithm::FixedWindow { limit, window: YEAR }
}

/// One of each kind that holds `limit` units.
fn one_of_each(limit: u64) -> [Algorithm; 6] {
    [
        bucket(limit, 1, YEAR),
        Algorithm::LeakyBucket { rate: Rate { count: 1, per: YEAR }, queue: limit - 1 },
        window(limit),
        Algorithm::SlidingWindow { limit, window: YEAR },
        Algorithm::SlidingLog { limit, window: YEAR },
        Algorithm::Concurrency { max: limit },
    ]
}

/// `calls` at once from all instances in turn; each has an id of its own. What they got, and the commands.
async fn crowd(instances: &[Arc<RedisLimits>], asks: &[SharedAsk], calls: usize) -> (Vec<bool>, usize) {
    let mut all = JoinSet::new();
    for call in 0..calls {
        let (store, asks) = (Arc::clone(&instances[call % instances.len()]), asks.to_vec());
        all.spawn(
            async move { store.decide(&asks, &format!("call-{call}"), Purpose::Charge).await.unwrap() },
        );
    }
    let said = all.join_all().await;
    let commands = said.iter().map(|said| said.commands).sum();
    (said.iter().map(|said| said.admitted).collect(), commands)
}

fn passed(said: &[bool]) -> usize {
    said.iter().filter(|admitted| **admitted).count()
}

async fn decide(store: &RedisLimits, asks: &[SharedAsk], id: &str) -> SharedOutcome {
    store.decide(asks, id, Purpose::Charge).await.unwrap()
}

async fn one(store: &RedisLimits, counter: &Counter, cost: u64) -> Decision {
    let id = format!("{:032x}", rand_id());
    decide(store, &[ask(counter, cost)], &id).await.verdicts[0].decision.unwrap()
}

fn rand_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l14_of_a_hundred_concurrent_calls_exactly_one_passes() {
    let server = kit::Redis::start();
    let instances: Vec<_> = (0..4).map(|_| instance(&server.url())).collect();
    for algorithm in one_of_each(1) {
        let counter = counter("one", &algorithm);
        let (said, commands) = crowd(&instances, &[ask(&counter, 1)], 100).await;
        assert_eq!(passed(&said), 1, "{algorithm:?}");
        assert!(commands <= 100, "{algorithm:?} {commands}");
    }
    // On a hot key and on many others at once, from all instances.
    let hot = counter("hot", &window(300));
    let others: Vec<_> = (0..50).map(|at| counter(&format!("cool-{at}"), &bucket(3, 1, YEAR))).collect();
    let mut all = JoinSet::new();
    for (at, counter) in std::iter::once(hot).chain(others).enumerate() {
        let instances = instances.clone();
        let calls = if at == 0 { 1000 } else { 8 };
        all.spawn(async move { (at, passed(&crowd(&instances, &[ask(&counter, 1)], calls).await.0)) });
    }
    for (at, passed) in all.join_all().await {
        assert_eq!(passed, if at == 0 { 300 } else { 3 }, "{at}");
    }
}

#[tokio::test]
async fn l1_to_l9_hold_for_instances_that_share_a_bucket() {
    let server = kit::Redis::start();
    let [one_instance, other] = [instance(&server.url()), instance(&server.url())];
    // L1: a burst is the capacity, whoever asks.
    let small = counter("l1", &bucket(2, 1, YEAR));
    for (store, expected) in [(&one_instance, true), (&other, true), (&one_instance, false), (&other, false)]
    {
        assert_eq!(one(store, &small, 1).await.admitted(), expected);
    }
    // L3: beyond 32 bits.
    let large = counter("l3", &bucket((1 << 32) + 1, 1, YEAR));
    assert_eq!(one(&one_instance, &large, 1 << 32).await.remaining, 1);
    assert!(one(&other, &large, 1).await.admitted() && !one(&one_instance, &large, 1).await.admitted());
    // L9 and L21: what was refused was not charged, so that a raised limit is there at once, for all.
    let low = counter("l9", &window(10));
    let instances = [one_instance, other];
    assert_eq!(passed(&crowd(&instances, &[ask(&low, 1)], 50).await.0), 10);
    let raised = Counter { ordinal: 2, numbers: counter("l9", &window(20)).numbers, ..low.clone() };
    assert_eq!(passed(&crowd(&instances[..1], &[ask(&raised, 1)], 5).await.0), 5);
    // The other instance is still on the older version, and is decided by the newer one.
    assert_eq!(passed(&crowd(&instances[1..], &[ask(&low, 1)], 50).await.0), 5);
}

#[tokio::test]
async fn l4_sub_millisecond_intervals_admit_what_time_has_paid_for() {
    let server = kit::Redis::start();
    let store = instance(&server.url());
    let counter = counter("l4", &bucket(20, 2000, Duration::from_secs(1)));
    let clock = async || {
        let asks = [ask(&counter, 0)];
        let look = store.pulse("clock", YEAR, None).await.unwrap();
        assert!(store.decide(&asks, "look", Purpose::Peek).await.unwrap().admitted);
        look.now
    };
    let begin = clock().await;
    let (said, _) = crowd(&[Arc::clone(&store)], &[ask(&counter, 1)], 3000).await;
    let took = clock().await.since(begin);
    let paid = took.as_micros() as usize / 500 + 1;
    assert!((20..=20 + paid).contains(&passed(&said)), "{} in {took:?}", passed(&said));
}

#[tokio::test]
async fn l5_a_call_passes_at_the_moment_that_a_refused_one_was_told() {
    let server = kit::Redis::start();
    let store = instance(&server.url());
    let counter = counter("l5", &bucket(1, 1, Duration::from_millis(40)));
    assert!(one(&store, &counter, 1).await.admitted());
    let wait = one(&store, &counter, 1).await.retry_after();
    // A slow machine may have let that time pass already.
    if let Some(wait) = wait {
        assert!(wait <= Duration::from_millis(40), "{wait:?}");
        tokio::time::sleep(wait).await;
        assert!(one(&store, &counter, 1).await.admitted());
    }
    // L15: what can never pass is told so.
    let never = one(&store, &counter, 2).await;
    assert_eq!(never.answer, tidegate_core::limit::Answer::Denied(Retry::Never));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l10_a_call_that_one_limit_refuses_is_charged_by_none() {
    let server = kit::Redis::start();
    let instances: Vec<_> = (0..3).map(|_| instance(&server.url())).collect();
    for (at, algorithm) in one_of_each(100).into_iter().enumerate() {
        let [free, full] =
            [counter(&format!("free-{at}"), &algorithm), counter(&format!("full-{at}"), &window(7))];
        let (said, _) = crowd(&instances, &[ask(&free, 1), ask(&full, 1)], 60).await;
        assert_eq!(passed(&said), 7, "{algorithm:?}");
        assert_eq!(one(&instances[0], &free, 0).await.remaining, 93, "{algorithm:?}");
    }
}

#[tokio::test]
async fn l17_ten_instances_know_their_parts_when_the_store_goes() {
    let mut server = kit::Redis::start();
    let instances: Vec<_> = (0..10).map(|_| instance(&server.url())).collect();
    let life = Duration::from_mins(1);
    let name = |at: usize| format!("gateway-{at}");
    for (at, store) in instances.iter().enumerate() {
        store.pulse(&name(at), life, None).await.unwrap();
    }
    let mut known = Vec::new();
    for (at, store) in instances.iter().enumerate() {
        known.push(store.pulse(&name(at), life, None).await.unwrap());
    }
    server.kill();
    let counter = counter("l17", &window(100));
    let mut parts = Vec::new();
    for (store, pulse) in instances.iter().zip(known) {
        assert!(store.decide(&[ask(&counter, 1)], "x", Purpose::Charge).await.is_err());
        let member = Member { instances: pulse.instances.try_into().unwrap(), rank: Some(pulse.rank) };
        let Some(Algorithm::FixedWindow { limit, .. }) = member.part(&window(100)) else { panic!("nothing") };
        parts.push(limit);
        let Some(Algorithm::FixedWindow { limit, .. }) = member.part(&window(103)) else { panic!("nothing") };
        parts.push(limit);
    }
    let (even, uneven): (Vec<_>, Vec<_>) = parts.chunks(2).map(|part| (part[0], part[1])).unzip();
    assert_eq!(even, [10; 10]);
    assert_eq!(uneven.iter().sum::<u64>(), 103);
}

#[tokio::test]
async fn l19_a_key_has_a_time_to_live_from_the_first_call_on() {
    let server = kit::Redis::start();
    let store = instance(&server.url());
    for (at, algorithm) in one_of_each(5).into_iter().enumerate() {
        let counter = counter(&format!("l19-{at}"), &algorithm);
        assert!(one(&store, &counter, 1).await.admitted());
        let life = server.command(&["PTTL", counter.key.as_str()]).number();
        assert!(life > 0, "{algorithm:?}: {life}");
    }
    // Also those of no rule: heartbeats, the epoch, the order of versions.
    store.pulse("gateway", Duration::from_secs(10), None).await.unwrap();
    store.ordinal("digest", true).await.unwrap();
    let keys = server.command(&["KEYS", "*"]);
    assert_eq!(keys.list().len(), 9, "{keys:?}");
    for key in keys.list() {
        assert!(server.command(&["PTTL", key.text()]).number() > 0, "{key:?}");
    }
}

#[tokio::test]
async fn l22_the_time_of_a_decision_is_the_stores() {
    let server = kit::Redis::start();
    // No instance has a way to tell the store its own time: what it is told is the store's.
    let [one_instance, other] = [instance(&server.url()), instance(&server.url())];
    let clock = || {
        let time = server.command(&["TIME"]);
        let part = |at: usize| time.list()[at].text().parse::<u64>().unwrap();
        part(0) * 1_000_000 + part(1)
    };
    let counter =
        counter("l22", &Algorithm::FixedWindow { limit: 1 << 40, window: Duration::from_micros(1) });
    for store in [&one_instance, &other, &one_instance] {
        let before = clock();
        let said = decide(store, &[ask(&counter, 1)], "x").await;
        let window = said.verdicts[0].window.unwrap().as_nanos() / 1000;
        assert!((before..=clock()).contains(&window), "{window}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l24_instances_on_a_cluster_admit_what_limits_in_different_slots_both_allow() {
    let cluster = Cluster::start();
    let url = format!("redis+cluster://{}", cluster.addresses()[0]);
    let instances: Vec<_> = (0..3).map(|_| instance(&url)).collect();
    let [wide, narrow] = [counter("wide", &window(40)), counter("narrow", &bucket(25, 1, YEAR))];
    assert_ne!(slot(&wide), slot(&narrow));
    let (said, _) = crowd(&instances, &[ask(&wide, 1), ask(&narrow, 1)], 150).await;
    // Never more than both allow. A call may find the one limit taken by another that the other limit then
    // refuses, so that fewer pass at once; none of it stays charged.
    let first = passed(&said);
    assert!((1..=25).contains(&first), "{first}");
    assert_eq!(one(&instances[0], &wide, 0).await.remaining, 40 - first as u64);
    let mut more = 0;
    while decide(&instances[1], &[ask(&wide, 1), ask(&narrow, 1)], &format!("more-{more}")).await.admitted {
        more += 1;
    }
    // What is given back to a bucket is less than was taken by what time has paid meanwhile: a part of a token.
    assert!((24..=25).contains(&(first + more)), "{first} and {more}");
}

fn slot(counter: &Counter) -> u16 {
    tidegate_store::redis::slot_of(counter.key.as_str().as_bytes())
}

async fn fault(store: &RedisLimits, counter: &Counter) -> SharedFault {
    store.decide(&[ask(counter, 1)], "x", Purpose::Charge).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l28_a_store_that_fails_is_a_fault_for_every_caller_and_no_refusal_of_the_limit() {
    let mut server = kit::Redis::start();
    let store = instance(&server.url());
    let counter = counter("l28", &window(1000));
    assert!(one(&store, &counter, 1).await.admitted());
    let set = |name: &str, value: &str| assert!(server.command(&["CONFIG", "SET", name, value]).is_ok());
    set("maxmemory", "1");
    let mut all = JoinSet::new();
    for _ in 0..100 {
        let (store, counter) = (Arc::clone(&store), counter.clone());
        all.spawn(async move { fault(&store, &counter).await });
    }
    // Whether a call was in the command that was refused or behind it: it was not counted, and says so.
    for fault in all.join_all().await {
        assert!(!fault.may_have_run, "{fault}");
    }
    set("maxmemory", "0");
    assert_eq!(one(&store, &counter, 0).await.remaining, 999);
    // A paused store: those who were sent do not know.
    let hasty = RedisLimits::new(hasty(&server.url()));
    assert!(hasty.pulse("x", YEAR, None).await.is_ok());
    server.pause();
    assert!(fault(&hasty, &counter).await.may_have_run);
    server.resume();
    server.kill();
    let deadline = Deadline::after(DEADLINE);
    while fault(&hasty, &counter).await.may_have_run {
        assert!(!deadline.passed(), "the end of the server is not noticed");
    }
}

#[tokio::test]
async fn callers_that_give_up_leave_each_counter_within_what_was_asked() {
    let server = kit::Redis::start();
    let store = instance(&server.url());
    let counter = counter("gone", &Algorithm::Concurrency { max: 1000 });
    let mut all = JoinSet::new();
    for call in 0..200 {
        let (store, counter) = (Arc::clone(&store), counter.clone());
        all.spawn(async move { decide(&store, &[ask(&counter, 1)], &format!("call-{call}")).await.permits });
    }
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let mut held: Vec<Permit> = Vec::new();
    let mut answered = 0;
    while answered < 50
        && let Some(permits) = all.join_next().await
    {
        held.extend(permits.unwrap());
        answered += 1;
    }
    all.shutdown().await;
    assert_eq!((held.len(), counter.numbers.kind), (50, Kind::Concurrency));
    // Nobody lost theirs, and nobody has one twice.
    assert_eq!(store.renew(&held, YEAR).await.unwrap(), [true; 50]);
    assert_eq!(store.release(&held).await.unwrap(), [true; 50]);
    assert_eq!(store.release(&held).await.unwrap(), [false; 50]);
    assert!(one(&store, &counter, 0).await.remaining >= 1000 - 150);
    // The counter goes on.
    assert_eq!(passed(&crowd(&[store], &[ask(&counter, 1)], 100).await.0), 100);
}
