//! What the algorithms have in common, and a bench to try one on.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::rule::model::Rate;
use crate::time::nanos;

/// One counter under one rule.
#[derive(Clone)]
pub(super) struct Bench<C: Counter> {
    pub(super) rule: C,
    pub(super) state: C::State,
}

impl<C: Counter> Bench<C> {
    pub(super) fn new(rule: C, now: Timestamp) -> Self {
        let state = rule.fresh(now);
        Self { rule, state }
    }

    pub(super) fn ask(&mut self, cost: u64, now: Timestamp) -> Decision {
        let (decision, state) = self.rule.decide(self.state.clone(), cost, now);
        self.state = state;
        decision
    }

    /// How many of `calls` at one instant pass.
    pub(super) fn burst(&mut self, calls: usize, now: Timestamp) -> usize {
        (0..calls).filter(|_| self.ask(1, now).admitted()).count()
    }

    /// Continues under another rule.
    pub(super) fn change(&mut self, rule: C, now: Timestamp) {
        rule.convert(&self.rule, &mut self.state, now);
        self.rule = rule;
    }

    /// A denied call passes at the moment it was told, and not a nanosecond earlier.
    pub(super) fn check_retry(&self, cost: u64, now: Timestamp) {
        if let Answer::Denied(Retry::After(wait)) = self.rule.peek(&self.state, cost, now).answer {
            assert!(!wait.is_zero());
            let at = now + wait;
            if at < Timestamp::MAX {
                let early = Timestamp::from_nanos(at.as_nanos() - 1);
                assert!(self.rule.peek(&self.state, cost, at).admitted(), "denied at the moment it was told");
                assert!(!self.rule.peek(&self.state, cost, early).admitted(), "passes earlier than told");
            }
        }
    }
}

pub(super) fn per(count: u64, span: Duration) -> Rate {
    Rate { count, per: span }
}

pub(super) const fn ms(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) const fn secs(seconds: u64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
/// A date like today's, so that nothing rests on small numbers.
pub(super) const TODAY: Timestamp = Timestamp::from_secs(1_790_000_000);

/// A rule of each kind with about the same numbers: `limit` at once and each `period`.
macro_rules! each {
    ($limit:expr, $period:expr, |$bench:ident, $periods:ident| $body:block) => {{
        let (limit, period): (u64, Duration) = ($limit, $period);
        let mut run = 0;
        {
            let ($bench, $periods) = (TokenBucket::new(limit, per(limit, period)), 1_u32);
            $body;
            run += 1;
        }
        {
            let ($bench, $periods) = (FixedWindow::new(limit, period), 1_u32);
            $body;
            run += 1;
        }
        {
            let ($bench, $periods) = (SlidingLog::new(limit, period), 1_u32);
            $body;
            run += 1;
        }
        {
            let ($bench, $periods) = (SlidingWindow::new(limit, period), 2_u32);
            $body;
            run += 1;
        }
        {
            let ($bench, $periods) = (LeakyBucket::new(per(limit, period), limit - 1), 1_u32);
            $body;
            run += 1;
        }
        assert_eq!(run, 5);
    }};
}

#[test]
fn a_state_of_one_size_holds_no_records_to_give_up() {
    fn check<C: Counter>(rule: &C, records: usize) {
        let mut state = rule.fresh(TODAY);
        rule.take(&mut state, 1, TODAY);
        assert_eq!(C::footprint(&state), records);
        C::coarsen(&mut state);
        assert_eq!(C::footprint(&state), records);
        assert!(!rule.is_fresh(&state, TODAY), "what was used is forgotten");
        // One word is a state of the token bucket, and of no other.
        let is_word = C::compile(&Algorithm::TokenBucket { capacity: 1, refill: per(1, SECOND) }).is_some();
        assert_eq!((C::to_word(&state).is_some(), C::from_word(7).is_some()), (is_word, is_word));
    }
    check(&TokenBucket::new(10, per(10, SECOND)), 0);
    check(&FixedWindow::new(10, SECOND), 0);
    check(&SlidingWindow::new(10, SECOND), 0);
    check(&LeakyBucket::new(per(10, SECOND), 9), 0);
    check(&Concurrency::new(10), 0);
    check(&SlidingLog::new(10, SECOND), 1);
}

#[test]
fn l15_a_cost_above_the_capacity_can_never_pass() {
    each!(10, SECOND, |rule, _periods| {
        let mut bench = Bench::new(rule, TODAY);
        let denied = bench.ask(100, TODAY);
        assert_eq!(denied.answer, Answer::Denied(Retry::Never));
        assert_eq!((denied.retry_after(), denied.remaining, denied.limit), (None, 10, 10));
        assert!(bench.ask(10, TODAY).admitted(), "the denied call left something behind");
        assert_eq!(bench.ask(11, TODAY).retry_after(), None);
    });
    let mut bench = Bench::new(Concurrency::new(10), TODAY);
    assert_eq!(bench.ask(100, TODAY).answer, Answer::Denied(Retry::Never));
    assert!(bench.ask(10, TODAY).admitted());
}

#[test]
fn l20_a_denied_call_leaves_nothing_behind() {
    each!(10, SECOND, |rule, _periods| {
        let mut bench = Bench::new(rule, TODAY);
        let passed: Vec<bool> = [9, 9, 1].map(|cost| bench.ask(cost, TODAY).admitted()).into();
        assert_eq!(passed, [true, false, true]);
    });
    let mut bench = Bench::new(Concurrency::new(10), TODAY);
    assert_eq!([9, 9, 1].map(|cost| bench.ask(cost, TODAY).admitted()), [true, false, true]);
}

#[test]
fn l21_headroom_of_a_raised_limit_is_there_at_once() {
    // Windows, logs and places in flight keep "used": 10 of 100 are gone, 90 are free.
    macro_rules! check {
        ($low:expr, $high:expr) => {{
            let mut bench = Bench::new($low, TODAY);
            assert_eq!(bench.burst(20, TODAY), 10);
            bench.change($high, TODAY);
            assert_eq!(bench.burst(200, TODAY), 90);
        }};
    }
    let rate = per(1, SECOND);
    check!(TokenBucket::new(10, rate), TokenBucket::new(100, rate));
    check!(FixedWindow::new(10, SECOND), FixedWindow::new(100, SECOND));
    check!(SlidingLog::new(10, SECOND), SlidingLog::new(100, SECOND));
    check!(SlidingWindow::new(10, SECOND), SlidingWindow::new(100, SECOND));
    check!(LeakyBucket::new(rate, 9), LeakyBucket::new(rate, 99));
    check!(Concurrency::new(10), Concurrency::new(100));
}

#[test]
fn a_lowered_limit_keeps_what_was_used() {
    macro_rules! check {
        ($high:expr, $low:expr) => {{
            let mut bench = Bench::new($high, TODAY);
            assert_eq!(bench.burst(600, TODAY), 600);
            bench.change($low, TODAY);
            assert_eq!(bench.burst(1000, TODAY), 200);
        }};
    }
    let rate = per(1, SECOND);
    check!(TokenBucket::new(1000, rate), TokenBucket::new(800, rate));
    check!(FixedWindow::new(1000, SECOND), FixedWindow::new(800, SECOND));
    check!(SlidingLog::new(1000, SECOND), SlidingLog::new(800, SECOND));
    check!(SlidingWindow::new(1000, SECOND), SlidingWindow::new(800, SECOND));
    check!(LeakyBucket::new(rate, 999), LeakyBucket::new(rate, 799));
    check!(Concurrency::new(1000), Concurrency::new(800));
}

#[test]
fn l23_a_clock_set_back_an_hour_neither_grants_nor_locks_out() {
    const HOUR: Duration = Duration::from_hours(1);
    for period in [10 * SECOND, Duration::from_hours(1), Duration::from_hours(24)] {
        each!(10, period, |rule, periods| {
            let mut bench = Bench::new(rule, TODAY);
            assert_eq!(bench.burst(10, TODAY), 10);
            let back = TODAY.before(HOUR);
            assert_eq!(bench.burst(20, back), 0, "a token was gained");
            let wait = bench.ask(1, back).retry_after().expect("passes some time");
            assert!(wait <= periods * period, "locked out for {wait:?}");
            assert!(bench.ask(1, back + wait).admitted());
        });
        each!(10, period, |rule, periods| {
            let mut bench = Bench::new(rule, TODAY);
            assert_eq!(bench.burst(4, TODAY), 4);
            let back = TODAY.before(HOUR);
            let passed = bench.burst(20, back);
            assert!(passed <= 6, "a token was gained: {passed}");
            assert!(bench.ask(10, back).retry_after().expect("passes some time") <= periods * period);
            let later = back + periods * period;
            assert_eq!(bench.burst(20, later), 10, "a token was lost for good");
        });
    }
}

#[test]
fn a_reordered_call_forgets_nothing() {
    // Two threads read the clock 1 ms apart around the end of a window and decide in the other order.
    each!(10, Duration::from_millis(2), |rule, _periods| {
        let late = TODAY + Duration::from_millis(4);
        let early = Timestamp::from_nanos(late.as_nanos() - 1_000_000);
        let mut bench = Bench::new(rule, late);
        assert_eq!(bench.burst(10, late), 10);
        assert_eq!(bench.burst(10, early), 0);
        assert_eq!(bench.burst(10, late), 0);
    });
}

#[test]
fn one_second_parts_a_reordered_call_from_a_clock_set_back() {
    const MINUTE: Duration = Duration::from_mins(1);
    let start = Timestamp::from_secs(1_790_000_040);
    assert_eq!(start.as_nanos() % nanos(MINUTE), 0);
    let lag = |nanos| start.before(REORDER + Duration::from_nanos(nanos));
    macro_rules! check {
        ($rule:expr, $reordered:expr, $set_back:expr) => {{
            for (nanos, expected) in [(0, $reordered), (1, $set_back)] {
                let mut bench = Bench::new($rule, start);
                assert_eq!(bench.burst(60, start), 60);
                assert_eq!(bench.ask(1, lag(nanos)).retry_after(), Some(expected), "{nanos} ns more");
            }
        }};
    }
    let rate = per(60, MINUTE);
    check!(TokenBucket::new(60, rate), SECOND + REORDER, SECOND);
    check!(LeakyBucket::new(rate, 59), SECOND + REORDER, SECOND);
    check!(SlidingLog::new(60, MINUTE), MINUTE + REORDER, MINUTE);
    // The window that the clock was set back into ends a second and a nanosecond later.
    check!(FixedWindow::new(60, MINUTE), MINUTE + REORDER, REORDER + Duration::from_nanos(1));
    check!(
        SlidingWindow::new(60, MINUTE),
        MINUTE + SECOND + REORDER,
        REORDER + Duration::from_nanos(1) + SECOND
    );
}

#[test]
fn a_seed_is_as_used_as_the_shared_counter() {
    macro_rules! check {
        ($rule:expr, $seeded:expr) => {{
            let mut bench = Bench::new($rule, TODAY);
            assert_eq!(bench.burst(4, TODAY), 4);
            let seed = bench.rule.seed(&bench.state);
            assert_eq!(seed.is_some(), $seeded);
            if let Some(state) = seed {
                assert_eq!(bench.rule.peek(&state, 0, TODAY).remaining, 6);
            }
        }};
    }
    let rate = per(1, SECOND);
    check!(TokenBucket::new(10, rate), true);
    check!(FixedWindow::new(10, SECOND), true);
    check!(SlidingWindow::new(10, SECOND), true);
    check!(LeakyBucket::new(rate, 9), true);
    check!(SlidingLog::new(10, SECOND), false);
    check!(Concurrency::new(10), false);
}

#[test]
fn decisions_say_what_they_are() {
    let mut bench = Bench::new(Concurrency::new(2), TODAY);
    let first = bench.ask(1, TODAY);
    assert_eq!(
        (first.admitted(), first.wait(), first.retry_after()),
        (true, Duration::ZERO, Some(Duration::ZERO))
    );
    assert_eq!((first.limit, first.remaining, first.reset_after()), (2, 1, Duration::ZERO));
    assert_eq!(bench.state.count(), 1);
    let denied = bench.ask(2, TODAY);
    assert_eq!((denied.answer, denied.retry_after()), (Answer::Denied(Retry::OnRelease), Some(RELEASE_HINT)));
    assert_eq!((denied.wait(), denied.remaining), (Duration::ZERO, 1));
    let uncharged = first.uncharged(bench.rule.peek(&bench.rule.fresh(TODAY), 0, TODAY));
    assert_eq!((uncharged.answer, uncharged.remaining), (NOW, 2));
    let refused = denied.uncharged(bench.rule.peek(&bench.rule.fresh(TODAY), 0, TODAY));
    assert_eq!((refused.answer, refused.remaining), (denied.answer, 2));
    assert!(!bench.rule.is_fresh(&bench.state, TODAY));
    Concurrency::release(&mut bench.state, 1);
    assert!(bench.rule.is_fresh(&bench.state, TODAY) && bench.state.count() == 0);
    assert!(!Decision::NEVER.admitted());
}

/// The limit of each of `kinds` that `C` compiles.
fn limit<C: Counter>(kinds: &[Algorithm]) -> Vec<Option<u64>> {
    let limit = |rule: C| rule.peek(&rule.fresh(TODAY), 1, TODAY).limit;
    kinds.iter().map(|kind| C::compile(kind).map(limit)).collect()
}

#[test]
fn rules_compile_from_their_own_kind_only() {
    let window = SECOND;
    let rate = per(1, SECOND);
    let kinds = [
        Algorithm::TokenBucket { capacity: 7, refill: rate },
        Algorithm::FixedWindow { limit: 7, window },
        Algorithm::SlidingLog { limit: 7, window },
        Algorithm::SlidingWindow { limit: 7, window },
        Algorithm::LeakyBucket { rate, queue: 6 },
        Algorithm::Concurrency { max: 7 },
    ];
    let compiled = [
        limit::<TokenBucket>(&kinds),
        limit::<FixedWindow>(&kinds),
        limit::<SlidingLog>(&kinds),
        limit::<SlidingWindow>(&kinds),
        limit::<LeakyBucket>(&kinds),
        limit::<Concurrency>(&kinds),
    ];
    for (row, limits) in compiled.iter().enumerate() {
        for (column, limit) in limits.iter().enumerate() {
            assert_eq!(*limit, (row == column).then_some(7));
        }
    }
}

#[test]
fn extreme_inputs_stay_bounded() {
    let times = [0, 1, 999, u64::MAX / 2, u64::MAX - 1, u64::MAX].map(Timestamp::from_nanos);
    let counts = [0, 1, 7, MAX_COUNT, u64::MAX];
    let spans = [Duration::ZERO, Duration::from_nanos(1), SECOND, MAX_PERIOD, Duration::MAX];
    for limit in counts {
        for span in spans {
            let rate = per(limit, span);
            macro_rules! check {
                ($rule:expr) => {{
                    let rule = $rule;
                    let mut bench = Bench::new(rule.clone(), times[0]);
                    for at in times.iter().chain(times.iter().rev()) {
                        for cost in counts {
                            let decision = bench.ask(cost, *at);
                            assert!(decision.remaining <= decision.limit);
                            bench.change(rule.clone(), *at);
                            let _ = (decision.reset_after(), rule.is_fresh(&bench.state, *at));
                        }
                    }
                }};
            }
            check!(TokenBucket::new(limit, rate));
            check!(TokenBucket::new(u64::MAX, rate));
            check!(FixedWindow::new(limit, span));
            check!(SlidingLog::new(limit, span));
            check!(SlidingWindow::new(limit, span));
            check!(LeakyBucket::new(rate, limit));
            check!(Concurrency::new(limit));
        }
    }
}

/// The most that any half-open span of `window` nanoseconds holds.
pub(super) fn densest(admitted: &[(u64, u64)], window: u64) -> u64 {
    let mut most = 0;
    for (first, (start, _)) in admitted.iter().enumerate() {
        let within = admitted[first..].iter().take_while(|(at, _)| at - start < window);
        most = most.max(within.map(|(_, cost)| cost).sum());
    }
    most
}

/// Calls in order: gaps in nanoseconds that often fall on the edges of a window, and costs.
pub(super) fn traffic(window: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![
        Just(0_u64),
        1..3_u64,
        0..window / 8 + 1,
        Just(window),
        Just(window - 1),
        window / 2..3 * window
    ];
    prop::collection::vec((gap, 1..4_u64), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_rule_breaks_its_promise(
        limit in 1..12_u64,
        window in prop_oneof![Just(1_000_u64), Just(7_u64), Just(1_000_000_000_u64), 2..5_000_u64],
        phase in 0..5_000_u64,
        calls in Just(()).prop_flat_map(|()| traffic(1_000)),
    ) {
        let period = Duration::from_nanos(window);
        each!(limit, period, |rule, _periods| {
            let start = TODAY + Duration::from_nanos(phase);
            let promise = promise_of(&rule, limit, window);
            let mut bench = Bench::new(rule, start);
            let mut now = start;
            let mut admitted = Vec::new();
            for (gap, cost) in &calls {
                now = now + Duration::from_nanos(*gap);
                bench.check_retry(*cost, now);
                let peek = bench.rule.peek(&bench.state, *cost, now);
                let before = bench.clone();
                let decision = bench.ask(*cost, now);
                prop_assert_eq!(peek, decision);
                if decision.admitted() {
                    admitted.push((nanos((now + decision.wait()).since(Timestamp::EPOCH)), *cost));
                    let whole = now + decision.reset_after();
                    prop_assert!(bench.rule.is_fresh(&bench.state, whole));
                    prop_assert_eq!(bench.rule.peek(&bench.state, limit, whole).admitted(), true);
                } else {
                    prop_assert_eq!(before.rule.peek(&before.state, 1, now), bench.rule.peek(&bench.state, 1, now));
                }
                if bench.rule.is_fresh(&bench.state, now) {
                    prop_assert!(bench.rule.peek(&bench.state, limit, now).admitted(), "fresh, and something is gone");
                }
                prop_assert_eq!(bench.rule.peek(&bench.state, decision.remaining, now).admitted(), true);
                if decision.remaining < limit {
                    prop_assert!(!bench.rule.peek(&bench.state, decision.remaining + 1, now).admitted());
                }
            }
            let densest = densest(&admitted, window);
            prop_assert!(densest <= promise, "{densest} in a window, promised {promise}");
        });
    }
}

/// What a rule promises for any half-open span of one window, with costs up to 3.
fn promise_of<C: Counter>(_: &C, limit: u64, _: u64) -> u64 {
    let name = std::any::type_name::<C>();
    if name.ends_with("FixedWindow") {
        2 * limit
    } else if name.ends_with("SlidingWindow") {
        2 * limit - 1
    } else if name.ends_with("SlidingLog") {
        limit
    } else if name.ends_with("LeakyBucket") {
        // Calls leave evenly, each with the last of its turns: at most two turns of its first call lie
        // before the span.
        limit + 2
    } else {
        // Capacity + refill; the half-open span refills less than one whole period.
        2 * limit
    }
}

#[test]
fn an_empty_counter_is_whole_again_after_its_window_or_the_time_it_takes_to_refill() {
    let seconds = |secs| Some(Duration::from_secs(secs));
    let rate = Rate { count: 4, per: Duration::from_secs(6) };
    for (algorithm, expected) in [
        (Algorithm::TokenBucket { capacity: 20, refill: rate }, seconds(30)),
        (Algorithm::LeakyBucket { rate, queue: 19 }, seconds(30)),
        (Algorithm::FixedWindow { limit: 7, window: Duration::from_mins(1) }, seconds(60)),
        (Algorithm::SlidingWindow { limit: 7, window: Duration::from_mins(1) }, seconds(60)),
        (Algorithm::SlidingLog { limit: 7, window: Duration::from_mins(1) }, seconds(60)),
        (Algorithm::Concurrency { max: 7 }, None),
    ] {
        assert_eq!(refilled_after(&algorithm), expected, "{algorithm:?}");
    }
}
