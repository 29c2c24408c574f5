//! Buckets of any numbers against plain arithmetic on big integers.

use tidegate_core::limit::{MAX_COUNT, MAX_PERIOD};

use super::agreement::Random;
use super::*;

/// A debt in `c`ths of a microsecond, of which a token is `b`.
struct Exact {
    b: u128,
    c: u128,
    full: u128,
    at: u64,
    debt: u128,
}

impl Exact {
    fn new(numbers: &Numbers) -> Self {
        let (b, c) = (u128::from(numbers.b), u128::from(numbers.c));
        Self { b, c, full: u128::from(numbers.a) * b, at: 0, debt: 0 }
    }

    fn owed(&self, now: u64) -> u128 {
        if now >= self.at {
            self.debt.saturating_sub(u128::from(now - self.at) * self.c)
        } else {
            self.debt + u128::from(self.at - now) * self.c
        }
    }

    fn admits(&mut self, cost: u64, now: u64) -> bool {
        let mut debt = self.owed(now);
        if debt > self.full && self.owed(now + SECOND) > self.full {
            (self.at, self.debt) = (now, self.full);
            debt = self.full;
        }
        let after = debt + u128::from(cost) * self.b;
        let admitted = after <= self.full;
        if admitted && cost > 0 {
            (self.at, self.debt) = (now, after);
        }
        admitted
    }
}

#[test]
fn every_rate_over_whole_microseconds_is_exact() {
    let mut server = Server::start();
    let day = Duration::from_hours(24);
    let sets = [
        (1_000, 1_000_003, day),
        (MAX_COUNT, 1, MAX_PERIOD),
        (MAX_COUNT, 999_999_999_989, MAX_PERIOD),
        (MAX_COUNT, 999_999_999_999_989, MAX_PERIOD),
        (7, 1_000_003, MAX_PERIOD),
        (999_983, 86_399_999, day),
        ((1 << 32) + 1, 1, day),
        ((1 << 32) + 1, (1 << 32) + 1, day),
        (10, 999_999_937, Duration::from_micros(31_622_399_999_981)),
        (3, 31_622_399_999_980_000, Duration::from_micros(31_622_399_999_981)),
        (1, 999, Duration::from_micros(1)),
        (100, 11, Duration::from_secs(1)),
    ];
    for (seed, (capacity, count, per)) in sets.into_iter().enumerate() {
        let counter = server.counter(&token_bucket(capacity, count, per));
        let mut exact = Exact::new(&counter.numbers);
        let mut random = Random(seed as u64);
        let mut now = TODAY;
        for _ in 0..8 {
            let (mut commands, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..500 {
                let missing = (exact.owed(now) + exact.b).saturating_sub(exact.full).div_ceil(exact.c);
                let missing = u64::try_from(missing).unwrap_or(u64::MAX).min(300 * DAY);
                now = match random.below(12) {
                    0..4 => now,
                    4..7 => now + missing,
                    7 => (now + missing).max(now + 1) - 1,
                    8 => now + random.below(DAY),
                    9 => now - random.below(SECOND + 2),
                    10 => now - random.below(2 * DAY),
                    _ => now + random.below(300 * DAY),
                };
                let cost = match random.below(4) {
                    0 => 1 + random.below(capacity),
                    1 => capacity,
                    _ => 1,
                };
                commands.push((
                    encode(std::slice::from_ref(&counter), &[call("x", &[cost])], Purpose::Charge),
                    now,
                ));
                expected.push((cost, exact.admits(cost, now)));
            }
            for (at, (reply, (cost, expected))) in server.run_all(&commands).iter().zip(expected).enumerate()
            {
                let calls = [call("x", &[cost])];
                let decided = decode(std::slice::from_ref(&counter), &calls, Purpose::Charge, reply).unwrap();
                let said = || format!("{capacity} {count}/{per:?} at {}: {reply:?}", commands[at].1);
                assert_eq!(decided.calls[0].admitted, expected, "{}", said());
            }
        }
    }
}

#[test]
fn intervals_are_in_lowest_terms_and_never_too_short() {
    let check = |count, per: Duration, expected: (u64, u64)| {
        let numbers = Numbers::new(&token_bucket(1, count, per), PERMIT_LIFE);
        assert_eq!((numbers.b, numbers.c), expected, "{count} in {per:?}");
    };
    check(10, Duration::from_secs(1), (100_000, 1));
    check(3, Duration::from_secs(1), (1_000_000, 3));
    check(1_000_000_000, Duration::from_secs(1), (1, 1000));
    check(1, Duration::from_nanos(1), (1, 1000));
    check(2, Duration::from_nanos(1_001), (1_001, 2_000));
    check(1, MAX_PERIOD, (31_622_400_000_000, 1));
    // No whole number of microseconds, and too fine to be exact: rounded up.
    check(1, Duration::from_nanos(31_622_399_999_999_999), (31_622_400_000_000, 1));
    check(0, Duration::ZERO, (1, 1000));
}
