use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limit::tests::{Bench, SECOND, TODAY, ms, per, secs};

fn bucket(capacity: u64, count: u64, span: Duration) -> Bench<TokenBucket> {
    Bench::new(TokenBucket::new(capacity, per(count, span)), TODAY)
}

fn after(span: Duration) -> Timestamp {
    TODAY + span
}

#[test]
fn a_rate_counts_alike_however_it_is_written() {
    for (count, seconds, n, p) in
        [(30, 10, 3, 1_000_000_000), (700, 100, 7, 1_000_000_000), (40, 60, 1, 1_500_000_000)]
    {
        let rule = TokenBucket::new(5, per(count, seconds * SECOND));
        assert_eq!(rule, TokenBucket::new(5, per(n, Duration::from_nanos(p))), "{count} in {seconds} s");
        assert_eq!((rule.scale, rule.per_token), (Scale::Times(n), p), "exact");
    }
}

#[test]
fn l1_a_burst_of_two_and_then_no_more() {
    for start in [Timestamp::EPOCH, TODAY] {
        let mut bench = Bench::new(TokenBucket::new(2, per(1, SECOND)), start);
        let passed = [0, 0, 1].map(|at| bench.ask(1, start + Duration::from_nanos(at)).admitted());
        assert_eq!(passed, [true, true, false], "{start:?}");
    }
}

#[test]
fn l2_a_full_bucket_never_holds_more_than_its_capacity() {
    let mut bench = bucket(10, 10, 60 * SECOND);
    assert!(bench.ask(1, TODAY).admitted());
    assert_eq!(bench.burst(30, after(Duration::from_millis(53_900))), 10);
}

#[test]
fn l3_counts_around_two_to_the_32_work_exactly() {
    const DAY: Duration = Duration::from_hours(24);
    for capacity in [(1_u64 << 32) - 1, 1 << 32, (1 << 32) + 1] {
        let mut bench = bucket(capacity, capacity, DAY);
        assert_eq!(bench.ask(capacity + 1, TODAY).answer, Answer::Denied(Retry::Never));
        let all = bench.ask(capacity, TODAY);
        assert_eq!((all.answer, all.remaining, all.limit), (NOW, 0, capacity));
        assert!(!bench.ask(1, TODAY).admitted());
        // An interval is 20.1 µs: two and a half of them give two tokens.
        let interval = DAY.as_nanos() as u64 / capacity;
        let later = after(Duration::from_nanos(interval * 5 / 2));
        assert_eq!(bench.burst(10, later), 2);
        // A whole day after it was empty it is full, and holds not one more.
        let full = later + DAY;
        assert_eq!(bench.rule.peek(&bench.state, 1, full).remaining, capacity - 1);
        assert!(bench.ask(capacity, full).admitted());
        assert!(!bench.ask(1, full).admitted());
    }
}

#[test]
fn l4_sub_millisecond_interval_admits_exactly_capacity() {
    assert_eq!(bucket(20, 2000, SECOND).burst(3000, TODAY), 20);
    for count in [1, 3, 7, 11, 1999, 999_983, 1_000_000_000] {
        assert_eq!(bucket(20, count, SECOND).burst(3000, TODAY), 20, "{count}/s");
    }
}

#[test]
fn l5_retry_after_is_rounded_up_and_a_call_at_that_moment_passes() {
    let mut bench = bucket(1, 1, 2 * SECOND);
    assert!(bench.ask(1, TODAY).admitted());
    let denied = bench.ask(1, after(Duration::from_millis(100)));
    let wait = denied.retry_after().expect("passes later");
    assert_eq!(wait, Duration::from_millis(1900));
    assert_eq!(crate::time::ceil_secs(wait), 2);
    bench.check_retry(1, after(Duration::from_millis(100)));
    assert!(bench.ask(1, after(2 * SECOND)).admitted());
}

#[test]
fn l6_after_a_long_idle_time_the_bucket_is_full() {
    let mut bench = bucket(1_000_000, 1_000_000, Duration::from_hours(1));
    assert!(bench.ask(1_000_000, TODAY).admitted());
    for idle in [Duration::from_hours(12), Duration::from_hours(10 * 366 * 24)] {
        let decision = bench.rule.peek(&bench.state, 1_000_000, after(idle));
        assert!(decision.admitted(), "{idle:?}");
        assert!(!bench.rule.peek(&bench.state, 1_000_001, after(idle)).admitted());
    }
}

#[test]
fn l7_traffic_never_stalls_the_refill() {
    let mut bench = bucket(10, 10, 30 * SECOND);
    let left: Vec<u64> = (0..12).map(|at| bench.ask(1, after(at * SECOND)).remaining).collect();
    assert_eq!(left, [9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2, 1]);
}

#[test]
fn l8_three_a_second_for_ten_seconds() {
    let mut bench = bucket(3, 3, SECOND);
    let passed =
        (0..=100_u32).filter(|at| bench.ask(1, after(*at * Duration::from_millis(100))).admitted()).count();
    assert_eq!(passed, 33);
}

#[test]
fn l27_twenty_a_second_sustains_twenty_a_second() {
    let mut bench = bucket(1, 20, SECOND);
    let passed = (0..200_u32).filter(|n| bench.ask(1, after(*n * Duration::from_millis(50))).admitted());
    assert_eq!(passed.count(), 200);
    let mut bench = bucket(20, 20, SECOND);
    let each_second: Vec<usize> = (0..5).map(|at| bench.burst(100, after(at * SECOND))).collect();
    assert_eq!(each_second, [20; 5]);
}

#[test]
fn boundary_burst_is_capacity_and_what_ten_milliseconds_refill() {
    let mut bench = Bench::new(TokenBucket::new(100, per(100, SECOND)), ms(0));
    assert_eq!((bench.burst(100, ms(990)), bench.burst(100, ms(1000))), (100, 1));
}

#[test]
fn a_changed_bucket_keeps_its_debt() {
    // (old capacity, tokens left, new capacity) -> tokens
    for (old, tokens, new, expected) in [
        (1000, 400, 800, 200),
        (1000, 400, 500, 0),
        (1000, 1000, 50, 50),
        (10, 0, 100, 90),
        (10, 10, 100, 100),
        (10, 3, 10, 3),
    ] {
        for (from, to) in [(1, 1), (1, 1000), (1000, 7), (7, 1000), (999_983, 11)] {
            let mut bench = bucket(old, from, SECOND);
            assert!(bench.ask(old - tokens, TODAY).admitted());
            bench.change(TokenBucket::new(new, per(to, SECOND)), TODAY);
            let left = bench.rule.peek(&bench.state, 0, TODAY).remaining;
            assert_eq!(left, expected, "{old} with {tokens} at {from}/s becomes {new} at {to}/s");
        }
    }
}

#[test]
fn an_unchanged_bucket_keeps_its_state_bit_by_bit() {
    for count in [1, 3, 11, 999_983] {
        let mut bench = bucket(10, count, SECOND);
        bench.burst(4, TODAY);
        let before = bench.state;
        bench.change(bench.rule, after(Duration::from_nanos(123)));
        assert_eq!(bench.state, before);
    }
}

#[test]
fn a_day_far_ahead_and_the_epoch_are_days_like_any_other() {
    for start in [Timestamp::EPOCH, secs(16_000_000_000), secs(18_000_000_000)] {
        for count in [1, 8, 3_000, 999_983] {
            let mut bench = Bench::new(TokenBucket::new(5, per(count, SECOND)), start);
            assert_eq!(bench.burst(9, start), 5, "{start:?} {count}/s");
            assert_eq!(bench.burst(9, start + 10 * SECOND), 5, "{start:?} {count}/s");
        }
    }
}

/// A bucket in rational numbers: tokens × `per` nanoseconds, refilled by `count` each nanosecond.
struct Model {
    capacity: u128,
    count: u128,
    per: u128,
    /// Tokens × per.
    level: u128,
    at: u64,
}

impl Model {
    fn ask(&mut self, cost: u64, now: u64) -> bool {
        let refill = u128::from(now - self.at) * self.count;
        self.level = (self.level + refill).min(self.capacity * self.per);
        self.at = now;
        let price = u128::from(cost) * self.per;
        let enough = price <= self.level;
        if enough {
            self.level -= price;
        }
        enough
    }
}

fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![3 => Just(0_u64), 3 => 0..2_000_000_u64, 2 => 0..400_000_000_u64, 1 => 0..20_000_000_000_u64];
    prop::collection::vec((gap, 1..5_u64), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Wherever a whole number of units fits, the bucket and rational arithmetic agree on every call.
    #[test]
    fn agrees_with_rational_arithmetic(
        capacity in 1..40_u64,
        (count, span) in prop_oneof![
            (Just(1_u64), 1..3_000_000_000_u64),
            (1..9_u64, 1_000_000..3_000_000_000_u64),
            (prop::sample::select(vec![10_u64, 100, 1000, 2000, 60, 600, 3600]), Just(1_000_000_000_u64)),
        ],
        calls in calls(),
    ) {
        let mut bench = Bench::new(TokenBucket::new(capacity, per(count, Duration::from_nanos(span))), TODAY);
        prop_assume!(matches!(bench.rule.scale, Scale::Times(_)));
        let (capacity, count, span) = (u128::from(capacity), u128::from(count), u128::from(span));
        let mut model = Model { capacity, count, per: span, level: capacity * span, at: TODAY.as_nanos() };
        let mut now = TODAY;
        for (gap, cost) in calls {
            now = now + Duration::from_nanos(gap);
            bench.check_retry(cost, now);
            let decision = bench.ask(cost, now);
            prop_assert_eq!(decision.admitted(), model.ask(cost, now.as_nanos()));
            prop_assert_eq!(u128::from(decision.remaining), model.level / span);
            let missing = capacity * span - model.level;
            prop_assert_eq!(decision.reset_after().as_nanos(), missing.div_ceil(count));
        }
    }

    /// Elsewhere it never runs behind rational arithmetic, and ahead by less than one unit in any span.
    #[test]
    fn odd_rates_stay_within_one_unit_in_any_span(
        capacity in 1..40_u64,
        count in 9..3_000_000_u64,
        span in 1_000_000_000..90_000_000_000_u64,
        calls in calls(),
    ) {
        let rule = TokenBucket::new(capacity, per(count, Duration::from_nanos(span)));
        prop_assume!(matches!(rule.scale, Scale::Ratio { .. }));
        let mut bench = Bench::new(rule, TODAY);
        let mut now = TODAY;
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (gap, cost) in calls {
            now = now + Duration::from_nanos(gap);
            bench.check_retry(cost, now);
            if bench.ask(cost, now).admitted() {
                admitted.push((now.as_nanos(), cost));
            }
        }
        for first in 0..admitted.len() {
            let mut sum = 0_u128;
            for (at, cost) in &admitted[first..] {
                sum += u128::from(*cost);
                // Two nanoseconds are more than a unit.
                let elapsed = u128::from(at - admitted[first].0 + 2);
                let bound = u128::from(capacity) * u128::from(span) + elapsed * u128::from(count);
                prop_assert!(sum * u128::from(span) <= bound);
            }
        }
    }

    /// Nothing is rounded from call to call: a call at the earliest moment each time, for long, gives
    /// the rate itself.
    #[test]
    fn the_long_run_rate_is_exact(count in 1..2_000_000_u64, span in 1_000_000_000..90_000_000_000_u64) {
        check_long_run(count, span);
    }
}

/// A bucket of two: one of one token is full, and gains nothing, for the part of a nanosecond that is left
/// until the clock shows that a call may pass.
#[track_caller]
fn check_long_run(count: u64, span: u64) {
    const CAPACITY: u64 = 2;
    const CALLS: u64 = 3000;
    let mut bench = Bench::new(TokenBucket::new(CAPACITY, per(count, Duration::from_nanos(span))), TODAY);
    let mut now = TODAY;
    for _ in 0..CALLS {
        while let Some(wait) =
            Some(bench.ask(1, now)).filter(|it| !it.admitted()).and_then(|it| it.retry_after())
        {
            now = now + wait;
        }
    }
    let exact = u128::from(CALLS - CAPACITY) * u128::from(span) / u128::from(count);
    let took = u128::from(now.as_nanos() - TODAY.as_nanos());
    assert!(took.abs_diff(exact) <= 2, "{count} in {span} ns: {took} ns, exactly {exact}");
}

#[test]
fn the_long_run_rate_is_exact_where_a_unit_is_a_part_of_a_nanosecond() {
    // 5 in 1,160,483,468 ns when reduced: an interval ends three fifths into a nanosecond.
    check_long_run(305, 70_789_491_548);
    for (count, span) in [(2, 1_000_000_001), (7, 1_000_000_000), (8, 89_999_999_999)] {
        check_long_run(count, span);
    }
}

#[test]
fn what_is_taken_untested_is_owed_and_never_past() {
    for rule in [TokenBucket::new(5, per(1, SECOND)), TokenBucket::new(5, per(999_983, SECOND))] {
        for cost in [u64::MAX, MAX_DEBT, MAX_DEBT / 2 * 3] {
            let mut state = rule.fresh(TODAY);
            rule.take(&mut state, cost, TODAY);
            rule.take(&mut state, cost, TODAY);
            assert_eq!(TokenBucket::debt(state, rule.units(TODAY)), MAX_DEBT, "{cost}");
            assert!(!rule.is_fresh(&state, TODAY));
        }
    }
}

#[test]
fn half_the_circle_ahead_is_the_past() {
    for at in [0, 1, WRAP / 2, WRAP - 1, u64::MAX] {
        for (ahead, debt) in
            [(0, 0), (1, 1), (WRAP / 2 - 1, WRAP / 2 - 1), (WRAP / 2, 0), (WRAP - 1, 0), (WRAP, 0)]
        {
            let state = Arrival::new(at.wrapping_add(ahead));
            assert_eq!(TokenBucket::debt(state, at), debt, "{at} {ahead}");
        }
    }
}

#[test]
fn a_state_is_one_word_below_2_to_the_63() {
    let rule = TokenBucket::new(5, per(1, SECOND));
    let mut state = rule.fresh(TODAY);
    rule.take(&mut state, 3, TODAY);
    let word = TokenBucket::to_word(&state).unwrap();
    assert_eq!(word, TODAY.as_nanos() + 3_000_000_000);
    assert_eq!(TokenBucket::from_word(word), Some(state));
    assert_eq!(TokenBucket::from_word(word + WRAP), Some(state), "the 64th bit is not part of it");
    assert_eq!(
        TokenBucket::from_word(u64::MAX).and_then(|state| TokenBucket::to_word(&state)),
        Some(WRAP - 1)
    );
}

/// What [`TokenBucket::step`] must do: the three steps one by one, unless they would settle the state.
fn check_step(rule: &TokenBucket, state: Arrival, cost: u64, now: Timestamp) {
    let full = TokenBucket::debt(state, rule.units(now)) <= rule.full_debt;
    let one_by_one = rule.decide(state, cost, now);
    assert_eq!(rule.step(state, cost, now), full.then_some(one_by_one), "{rule:?} {state:?} {cost} {now:?}");
}

#[test]
fn one_step_is_the_three_in_turn() {
    for rule in [TokenBucket::new(5, per(1, SECOND)), TokenBucket::new(5, per(999_983, SECOND))] {
        let at = rule.units(TODAY);
        for owed in [0, 1, rule.per_token, rule.full_debt - 1, rule.full_debt, rule.full_debt + 1] {
            for cost in [0, 1, 4, 5, 6, u64::MAX] {
                check_step(&rule, Arrival::new(at + owed), cost, TODAY);
                check_step(&rule, Arrival::new(at.wrapping_sub(owed)), cost, TODAY);
            }
        }
    }
}

proptest! {
    /// The quick division is the division.
    #[test]
    fn what_is_left_is_counted_in_whole_tokens(
        capacity in 1..2_000_000_000_u64, count in 1..2_000_000_u64, span in 1..90_000_000_000_u64, owed in any::<u64>(),
        near in 0..3_u64,
    ) {
        let rule = TokenBucket::new(capacity, per(count, Duration::from_nanos(span)));
        let tokens = owed % (rule.capacity + 1);
        for left in [
            owed % (rule.full_debt + 1),
            (tokens * rule.per_token).saturating_sub(near),
            (tokens * rule.per_token + near).min(rule.full_debt),
        ] {
            prop_assert_eq!(rule.tokens(left), left / rule.per_token, "{:?} {}", rule, left);
        }
    }
}
