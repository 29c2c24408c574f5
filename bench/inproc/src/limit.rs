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

/// Draws keys by a cheap generator, the same for all.
struct Draw {
    state: u64,
    walked: usize,
    /// For a skewed draw: keys in the proportions of a Zipf distribution, drawn beforehand.
    zipf: Option<Arc<Vec<u32>>>,
}

impl Draw {
    fn new(thread: usize, zipf: Option<&Arc<Vec<u32>>>) -> Self {
        Self { state: 0x9e37_79b9 + thread as u64, walked: thread * KEYS / 2, zipf: zipf.cloned() }
    }

    fn next(&mut self) -> usize {
        let state = &mut self.state;
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let at = *state as usize & (KEYS - 1);
        // The draws themselves are read in order, so that reading them costs next to nothing.
        match &self.zipf {
            Some(draws) => {
                self.walked = (self.walked + 1) & (KEYS - 1);
                draws[self.walked] as usize
            }
            None => at,
        }
    }
}

/// `KEYS` draws with exponent 1.1, scattered over the keys.
fn zipf() -> Arc<Vec<u32>> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += (rank as f64).powf(-1.1);
            sum
        })
        .collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let draws = (0..KEYS).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = cumulated.partition_point(|reached| *reached < at);
        // An odd factor scatters neighbours in rank.
        (rank.wrapping_mul(0x9e37_79b1) & (KEYS - 1)) as u32
    });
    Arc::new(draws.collect())
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

    let clock = quanta::Clock::new();
    let slot = Arc::new(AtomicU64::new(0));
    let start_raw = clock.raw();
    cases.push(case("bucket, one key", "floor with quanta's clock", move |n, _| {
        repeat(n, |_| {
            let now = clock.delta_as_nanos(start_raw, clock.raw());
            slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| Some(at.max(now) + 1)).is_ok()
        })
    }));

    let zipf = zipf();
    for (group, draws) in [("bucket, 1 M keys", None), ("bucket, 1 M, zipf", Some(&zipf))] {
        cases.extend(keyed(group, quota, start, draws));
    }
    cases
}

fn keyed(group: &'static str, quota: Quota, start: Instant, draws: Option<&Arc<Vec<u32>>>) -> Vec<Case> {
    let mut cases = Vec::new();
    let zipf = || draws.cloned();
    let names: Arc<Vec<String>> = Arc::new((0..KEYS).map(|i| format!("user-{i:07}")).collect());
    let table: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let (keyed, hasher, drawn) = (Arc::clone(&names), RandomState::new(), zipf());
    cases.push(case(group, "floor: SipHash + array + compare-and-set", move |n, thread| {
        let mut draw = Draw::new(thread, drawn.as_ref());
        repeat(n, |_| {
            let at = hasher.hash_one(&keyed[draw.next()]) as usize & (KEYS - 1);
            let now = start.elapsed().as_nanos() as u64;
            table[at]
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| Some(seen.max(now) + 1))
                .is_ok()
        })
    }));
    let (governor, drawn) = (Arc::new(RateLimiter::dashmap(quota)), zipf());
    cases.push(case(group, "governor, dashmap of u64", move |n, thread| {
        let mut draw = Draw::new(thread, drawn.as_ref());
        repeat(n, |_| governor.check_key(&(draw.next() as u64)).is_ok())
    }));
    let (governor, drawn) = (Arc::new(RateLimiter::dashmap(quota)), zipf());
    let keyed = Arc::clone(&names);
    cases.push(case(group, "governor, dashmap of String", move |n, thread| {
        let mut draw = Draw::new(thread, drawn.as_ref());
        repeat(n, |_| governor.check_key(&keyed[draw.next()]).is_ok())
    }));
    let (env, drawn) = (Env::system(), zipf());
    // Slow enough that every key is still in debt: no entry can be forgotten.
    let version = Arc::new(limits(
        "apiVersion: tidegate/v1\nresources: [ { id: r, attributes: { user: { from: header.x-user } } } ]\nlimits: [ { id: l, resources: [r], key: [user], token_bucket: { capacity: 1000000000, refill: 1000000/s } } ]",
    ));
    cases.push(case(group, "tidegate", move |n, thread| {
        let mut draw = Draw::new(thread, drawn.as_ref());
        repeat(n, |_| {
            let key = key::encode([Some(names[draw.next()].as_str())]);
            version.decide(&[Ask { rule: 0, variant: 0, key: &key, cost: 1 }], env.now()).admitted
        })
    }));
    cases
}
