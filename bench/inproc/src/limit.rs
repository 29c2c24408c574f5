//! Token buckets: one key, and a million of them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use governor::{Quota, RateLimiter};
use tidegate::env::Env;
use tidegate_core::limit::key;
use tidegate_core::rule::{Deployment, Source, load};
use tidegate_store::memory::limits::{Ask, LimitVersion, LocalLimits, LocalLimitsConfig};

use crate::{Case, case, repeat};

const KEYS: usize = 1 << 20;

pub fn limits(document: &str) -> LimitVersion {
    let sources = [Source::new("bench.yaml", document)];
    let loaded = load(&sources, &Deployment::default()).expect("rules");
    let config = LocalLimitsConfig { max_keys: KEYS * 2, ..LocalLimitsConfig::default() };
    LocalLimits::new(config).apply(&loaded.rules.limits)
}

/// A cheap generator, the same for all: the keys are drawn, not walked in order.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize & (KEYS - 1)
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let slot = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    cases.push(case("bucket, one key", "floor: clock + compare-and-set", move |n, _| {
        repeat(n, |_| {
            let now = start.elapsed().as_nanos() as u64;
            slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| Some(at.max(now) + 1)).is_ok()
        })
    }));
    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
    let governor = Arc::new(RateLimiter::direct(quota));
    cases.push(case("bucket, one key", "governor", move |n, _| repeat(n, |_| governor.check().is_ok())));
    let env = Env::system();
    let version = Arc::new(limits(
        "apiVersion: tidegate/v1\nresources: [ { id: r } ]\nlimits: [ { id: l, resources: [r], token_bucket: { capacity: 1000000000, refill: 1000000000/s } } ]",
    ));
    cases.push(case("bucket, one key", "tidegate", move |n, _| {
        repeat(n, |_| version.decide(&[Ask { rule: 0, variant: 0, key: &[], cost: 1 }], env.now()).admitted)
    }));

    let names: Arc<Vec<String>> = Arc::new((0..KEYS).map(|i| format!("user-{i:07}")).collect());
    let table: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let (keyed, hasher) = (Arc::clone(&names), RandomState::new());
    cases.push(case("bucket, 1 M keys", "floor: SipHash + array + compare-and-set", move |n, thread| {
        let mut state = 0x9e37_79b9 + thread as u64;
        repeat(n, |_| {
            let at = hasher.hash_one(&keyed[next(&mut state)]) as usize & (KEYS - 1);
            let now = start.elapsed().as_nanos() as u64;
            table[at]
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| Some(seen.max(now) + 1))
                .is_ok()
        })
    }));
    let governor = Arc::new(RateLimiter::dashmap(quota));
    let keyed = Arc::clone(&names);
    cases.push(case("bucket, 1 M keys", "governor, dashmap of String", move |n, thread| {
        let mut state = 0x9e37_79b9 + thread as u64;
        repeat(n, |_| governor.check_key(&keyed[next(&mut state)]).is_ok())
    }));
    let env = Env::system();
    // Slow enough that every key is still in debt: no entry can be forgotten.
    let version = Arc::new(limits(
        "apiVersion: tidegate/v1\nresources: [ { id: r, attributes: { user: { from: header.x-user } } } ]\nlimits: [ { id: l, resources: [r], key: [user], token_bucket: { capacity: 1000000000, refill: 1000000/s } } ]",
    ));
    cases.push(case("bucket, 1 M keys", "tidegate", move |n, thread| {
        let mut state = 0x9e37_79b9 + thread as u64;
        repeat(n, |_| {
            let key = key::encode([Some(names[next(&mut state)].as_str())]);
            version.decide(&[Ask { rule: 0, variant: 0, key: &key, cost: 1 }], env.now()).admitted
        })
    }));
    cases
}
