use std::time::Duration;

use proptest::prelude::*;

use super::*;

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
