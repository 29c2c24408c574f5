use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::document::Source;
use crate::rule::load::{Deployment, load};

const SECOND: Duration = Duration::from_secs(1);

fn member(instances: u32, rank: Option<u32>) -> Member {
    Member { instances: NonZeroU32::new(instances).unwrap(), rank }
}

/// Count and period of an algorithm, as far as it has them.
fn numbers(algorithm: &Algorithm) -> (u64, Duration, u64) {
    match *algorithm {
        Algorithm::TokenBucket { capacity, refill } => (capacity, refill.per, refill.count),
        Algorithm::LeakyBucket { rate, queue } => (queue + 1, rate.per, rate.count),
        Algorithm::FixedWindow { limit, window }
        | Algorithm::SlidingWindow { limit, window }
        | Algorithm::SlidingLog { limit, window } => (limit, window, 0),
        Algorithm::Concurrency { max } => (max, Duration::ZERO, 0),
    }
}

fn each(count: u64) -> [Algorithm; 6] {
    let rate = Rate { count: 7, per: SECOND };
    [
        Algorithm::TokenBucket { capacity: count, refill: rate },
        Algorithm::LeakyBucket { rate, queue: count - 1 },
        Algorithm::FixedWindow { limit: count, window: SECOND },
        Algorithm::SlidingWindow { limit: count, window: SECOND },
        Algorithm::SlidingLog { limit: count, window: SECOND },
        Algorithm::Concurrency { max: count },
    ]
}

proptest! {
    #[test]
    fn parts_add_up_to_the_limit_and_never_to_more(count in 1_u64..10_000, instances in 1_u32..200) {
        for algorithm in each(count) {
            let parts = |known: bool| -> Vec<Algorithm> {
                let of = |rank| member(instances, known.then_some(rank)).part(&algorithm);
                (0..instances).filter_map(of).collect()
            };
            let sum: u64 = parts(true).iter().map(|part| numbers(part).0).sum();
            prop_assert_eq!(sum, count);
            let floors: u64 = parts(false).iter().map(|part| numbers(part).0).sum();
            prop_assert!(floors <= count && count - floors < u64::from(instances));
            for part in parts(true) {
                let (_, period, rate) = numbers(&part);
                let longer = if rate > 0 { SECOND * instances } else { numbers(&algorithm).1 };
                prop_assert_eq!((period, rate), (longer, numbers(&algorithm).2));
            }
        }
    }
}

#[test]
fn what_remains_goes_to_those_that_come_first() {
    let limit = Algorithm::FixedWindow { limit: 10, window: SECOND };
    let parts: Vec<u64> =
        (0..4).map(|rank| numbers(&member(4, Some(rank)).part(&limit).unwrap()).0).collect();
    assert_eq!(parts, [3, 3, 2, 2]);
    assert_eq!(numbers(&member(4, None).part(&limit).unwrap()).0, 2);
    assert_eq!(member(11, Some(9)).part(&limit).map(|part| numbers(&part).0), Some(1));
    assert_eq!(member(11, Some(10)).part(&limit), None);
    assert_eq!(Member::ALONE.part(&limit), Some(limit));
}

#[test]
fn a_part_that_no_algorithm_can_count_is_nothing() {
    let slow = Rate { count: 1, per: check::MAX_PERIOD };
    assert_eq!(member(2, Some(0)).part(&Algorithm::TokenBucket { capacity: 10, refill: slow }), None);
}

#[test]
fn a_rule_is_divided_with_its_overrides() {
    let text = "apiVersion: tidegate/v1
resources: [ { id: r, match: { path: /r }, attributes: { tier: { from: header.tier, missing: share } } } ]
limits:
  - id: l
    resources: [r]
    key: [tier]
    fixed_window: { limit: 10, window: 1h }
    overrides: [ { when: { tier: { equals: gold } }, fixed_window: { limit: 101, window: 1h } },
                 { when: { tier: { equals: tin } }, fixed_window: { limit: 3, window: 1h } } ]
";
    let limit =
        load(&[Source::new("rules.yaml", text)], &Deployment::default()).unwrap().rules.limits.remove(0);
    let parts = |rank| {
        let share = member(4, Some(rank)).share(&limit);
        let overrides = share.limit.overrides.iter().map(|other| numbers(&other.algorithm).0);
        let parts: Vec<u64> = std::iter::once(numbers(&share.limit.algorithm).0).chain(overrides).collect();
        (parts, share.nothing)
    };
    assert_eq!(parts(0), (vec![3, 26, 1], vec![false; 3]));
    assert_eq!(parts(2), (vec![2, 25, 1], vec![false; 3]));
    // The last has no part of three; its number there means nothing.
    let (last, nothing) = parts(3);
    assert_eq!((&last[..2], nothing), (&[2, 25][..], vec![false, false, true]));
    // All else is the rule's own.
    let share = member(4, Some(0)).share(&limit);
    let restored =
        Limit { algorithm: limit.algorithm.clone(), overrides: limit.overrides.clone(), ..share.limit };
    assert_eq!(restored, limit);
}
