mod lockless;

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;

use proptest::prelude::*;
use tidegate_core::limit::{Answer, Retry, key::encode};
use tidegate_core::rule::diff::algorithm_effect;
use tidegate_core::rule::model::{
    AfterStoreLoss, Algorithm, Condition, Cost, LimitOverride, OnStoreFailure, Rate, Resources, Sharing,
};

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn limit(id: &str, key: &[&str], algorithm: Algorithm) -> Limit {
    Limit {
        id: id.to_owned(),
        description: None,
        owner: None,
        mode: Mode::Enforce,
        resources: Resources::All,
        key: key.iter().map(|name| (*name).to_owned()).collect(),
        algorithm,
        cost: Cost::Fixed(1),
        overrides: Vec::new(),
        sharing: Sharing::Local,
        on_store_failure: None,
        after_store_loss: AfterStoreLoss::Fresh,
    }
}

fn window(limit: u64) -> Algorithm {
    Algorithm::FixedWindow { limit, window: Duration::from_mins(1) }
}

fn bucket(capacity: u64) -> Algorithm {
    Algorithm::TokenBucket { capacity, refill: Rate { count: 1, per: SECOND } }
}

/// One rule of each kind that admits `limit` at one instant.
fn all_kinds(limit: u64) -> [Algorithm; 6] {
    let window = Duration::from_mins(1);
    [
        bucket(limit),
        Algorithm::FixedWindow { limit, window },
        Algorithm::SlidingLog { limit, window },
        Algorithm::SlidingWindow { limit, window },
        Algorithm::LeakyBucket { rate: Rate { count: 1, per: SECOND }, queue: limit - 1 },
        Algorithm::Concurrency { max: limit },
    ]
}

fn small(max_keys: usize) -> Arc<LocalLimits> {
    LocalLimits::new(LocalLimitsConfig { max_keys, max_log_runs: 1000, shards: 4 })
}

fn ask(rule: usize, key: &[u8]) -> Ask<'_> {
    Ask { rule, variant: 0, key, cost: 1 }
}

/// How many of `calls` at `now` pass; permits are kept until all have asked.
fn burst(version: &LimitVersion, asks: &[Ask<'_>], calls: usize, now: Timestamp) -> usize {
    let outcomes: Vec<Outcome> = (0..calls).map(|_| version.decide(asks, now)).collect();
    outcomes.iter().filter(|outcome| outcome.admitted).count()
}

fn remaining(version: &LimitVersion, ask: Ask<'_>, now: Timestamp) -> u64 {
    version.peek(&[Ask { cost: 0, ..ask }], now).verdicts[0].decision.remaining
}

// ---- one call, several limits ----------------------------------------------------------------------

#[test]
fn l10_a_denied_call_is_charged_nowhere() {
    for free in all_kinds(5) {
        for order in [[0, 1], [1, 0]] {
            let rules = [limit("exhausted", &[], window(1)), limit("free", &["user"], free.clone())];
            let version = small(100).apply(&rules);
            assert!(version.decide(&[ask(0, b"")], NOW).admitted);
            let outcome = version.decide(&order.map(|rule| ask(rule, b"u")), NOW);
            assert!(!outcome.admitted);
            let said =
                order.map(|rule| outcome.verdicts.iter().find(|it| it.rule == rule).map(|it| it.decision));
            let free_at = usize::from(order[1] == 1);
            let free_said = said[free_at].unwrap();
            assert!(free_said.admitted());
            assert_eq!(free_said.remaining, 5, "{free:?}");
            assert!(outcome.permits.is_empty());
            assert_eq!(remaining(&version, ask(1, b"u"), NOW), 5, "{free:?}");
            assert_eq!(version.keys(1), 0, "a denied call left an entry: {free:?}");
        }
    }
}

#[test]
fn l11_lists_of_values_have_counters_of_their_own() {
    let rules = [limit("one", &["a"], window(1)), limit("two", &["a", "c"], window(1))];
    let version = small(100).apply(&rules);
    let keys = [
        (0, encode([Some("b_c_d")])),
        (1, encode([Some("b"), Some("d")])),
        (1, encode([Some("b_c"), Some("d")])),
        (1, encode([Some("b"), Some("c_d")])),
        (1, encode([None, Some("d")])),
        (1, encode([Some(""), Some("d")])),
    ];
    for (rule, key) in &keys {
        assert!(version.decide(&[ask(*rule, key)], NOW).admitted, "{key:?}");
    }
    for (rule, key) in &keys {
        assert!(!version.decide(&[ask(*rule, key)], NOW).admitted, "{key:?}");
    }
}

#[test]
fn l20_costs_nine_nine_one() {
    for algorithm in all_kinds(10) {
        let version = small(100).apply(&[limit("a", &[], algorithm.clone()), limit("b", &[], window(1000))]);
        for others in [false, true] {
            let key = [u8::from(others)];
            let rules = [0, 1];
            let version =
                if others { &version } else { &small(100).apply(&[limit("a", &[], algorithm.clone())]) };
            let mut kept = Vec::new();
            let passed: Vec<bool> = [9, 9, 1]
                .iter()
                .map(|cost| {
                    let asks = rules.map(|rule| Ask { rule, variant: 0, key: &key, cost: *cost });
                    let outcome = version.decide(&asks[..=usize::from(others)], NOW);
                    let admitted = outcome.admitted;
                    kept.push(outcome);
                    admitted
                })
                .collect();
            assert_eq!(passed, [true, false, true], "{algorithm:?}");
        }
    }
}

#[test]
fn one_counter_asked_twice_is_charged_twice_or_not_at_all() {
    for algorithm in all_kinds(3) {
        let version = small(100).apply(&[limit("a", &["k"], algorithm.clone())]);
        let twice = [ask(0, b"x"), ask(0, b"x")];
        let peeked = version.peek(&twice, NOW);
        let first = version.decide(&twice, NOW);
        assert!(first.admitted);
        assert_eq!(peeked.verdicts, first.verdicts);
        let left: Vec<u64> = first.verdicts.iter().map(|verdict| verdict.decision.remaining).collect();
        assert_eq!(left, [2, 1], "{algorithm:?}");
        let second = version.decide(&twice, NOW);
        assert!(!second.admitted, "{algorithm:?}");
        assert_eq!(version.peek(&twice, NOW).admitted, second.admitted);
        assert_eq!(remaining(&version, ask(0, b"x"), NOW), 1, "{algorithm:?}");
        assert!(version.decide(&[ask(0, b"x"), ask(0, b"y")], NOW).admitted);
    }
}

#[test]
fn shadow_decides_and_counts_but_never_refuses() {
    let mut shadow = limit("shadow", &[], window(2));
    shadow.mode = Mode::Shadow;
    let mut off = limit("off", &[], window(1));
    off.mode = Mode::Off;
    let version = small(100).apply(&[limit("real", &[], window(4)), shadow, off]);
    let asks = [ask(0, b""), ask(1, b""), ask(2, b"")];
    let said: Vec<(bool, bool)> = (0..6)
        .map(|_| version.decide(&asks, NOW))
        .map(|outcome| (outcome.admitted, outcome.verdicts[1].decision.admitted()))
        .collect();
    assert_eq!(
        said,
        [(true, true), (true, true), (true, false), (true, false), (false, false), (false, false)]
    );
    assert_eq!(remaining(&version, asks[2], NOW), 1, "a limit that is off was charged");
    // A call that an enforced limit denies is not charged in the shadow either.
    let later = NOW + Duration::from_mins(1);
    assert_eq!(burst(&version, &asks[..1], 9, later), 4);
    assert!(!version.decide(&asks, later).admitted);
    assert_eq!(remaining(&version, asks[1], later), 2);
    assert!(version.decide(&asks[1..2], later).admitted);
    assert!(version.decide(&asks[1..2], later).admitted);
    let outcome = version.decide(&asks[1..2], later);
    assert!(outcome.admitted && !outcome.verdicts[0].decision.admitted());
}

#[test]
fn a_call_waits_for_the_longest_of_its_turns() {
    let leaky = |count| Algorithm::LeakyBucket { rate: Rate { count, per: SECOND }, queue: 2 };
    let version = small(100).apply(&[limit("fast", &[], leaky(10)), limit("slow", &[], leaky(2))]);
    let asks = [ask(0, b""), ask(1, b"")];
    let waits: Vec<(bool, u128)> = (0..4)
        .map(|_| version.decide(&asks, NOW))
        .map(|outcome| (outcome.admitted, outcome.wait.as_millis()))
        .collect();
    assert_eq!(waits, [(true, 0), (true, 500), (true, 1000), (false, 0)]);
}

#[test]
fn no_asks_and_unknown_rules_have_an_answer() {
    let version = small(100).apply(&[limit("a", &[], window(1))]);
    assert!(version.decide(&[], NOW).admitted);
    for asks in [&[ask(7, b"")][..], &[ask(0, b""), ask(7, b"")]] {
        assert!(!version.decide(asks, NOW).admitted);
        assert!(!version.peek(asks, NOW).admitted);
    }
    assert_eq!((version.keys(7), version.overflowed(7), version.coarsened(7)), (0, 0, 0));
    assert_eq!(remaining(&version, ask(0, b""), NOW), 1);
}

// ---- permits ---------------------------------------------------------------------------------------

#[test]
fn permits_come_back_by_cost_when_dropped() {
    let version = small(100).apply(&[limit("c", &["k"], Algorithm::Concurrency { max: 5 })]);
    let dear = version.decide(&[Ask { rule: 0, variant: 0, key: b"x", cost: 4 }], NOW);
    assert_eq!((dear.admitted, dear.permits.len()), (true, 1));
    let one = version.decide(&[ask(0, b"x")], NOW);
    let none = version.decide(&[ask(0, b"x")], NOW);
    assert!(one.admitted && !none.admitted && none.permits.is_empty());
    assert_eq!(none.verdicts[0].decision.answer, Answer::Denied(Retry::OnRelease));
    drop(none);
    assert_eq!(remaining(&version, ask(0, b"x"), NOW), 0);
    thread::spawn(move || drop(dear.permits)).join().unwrap();
    assert_eq!(remaining(&version, ask(0, b"x"), NOW), 4);
    drop(one);
    assert_eq!(remaining(&version, ask(0, b"x"), NOW), 5);
}

#[test]
fn permits_outlive_their_version_and_a_changed_maximum_keeps_its_holders() {
    let limits = small(100);
    let rule = |max| [limit("c", &[], Algorithm::Concurrency { max })];
    let version = limits.apply(&rule(10));
    let mut held: Vec<Outcome> = (0..10).map(|_| version.decide(&[ask(0, b"")], NOW)).collect();
    drop(version);
    let version = limits.apply(&rule(8));
    assert!(!version.decide(&[ask(0, b"")], NOW).admitted);
    held.truncate(8);
    assert!(!version.decide(&[ask(0, b"")], NOW).admitted);
    held.truncate(7);
    assert!(version.decide(&[ask(0, b"")], NOW).admitted);
    drop((version, limits));
    drop(held);
}

// ---- races -----------------------------------------------------------------------------------------

/// How many of `threads` × `calls` pass; permits are held until all threads are done.
fn race(version: &LimitVersion, asks: &[Ask<'_>], threads: usize, calls: usize) -> usize {
    let barrier = Barrier::new(threads);
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                let kept: Vec<Outcome> = (0..calls).map(|_| version.decide(asks, NOW)).collect();
                admitted.fetch_add(kept.iter().filter(|it| it.admitted).count(), Ordering::Relaxed);
                barrier.wait();
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn thirty_two_threads_admit_exactly_the_limit() {
    for algorithm in all_kinds(1000) {
        let version =
            small(100).apply(&[limit("a", &["k"], algorithm.clone()), limit("b", &[], window(10_000))]);
        assert_eq!(race(&version, &[ask(0, b"alone")], 32, 200), 1000, "{algorithm:?}");
        assert_eq!(race(&version, &[ask(0, b"two"), ask(1, b"")], 32, 200), 1000, "{algorithm:?}");
    }
}

#[test]
fn a_hundred_calls_for_one_place_admit_one() {
    for algorithm in all_kinds(1) {
        let version = small(100).apply(&[limit("a", &["k"], algorithm.clone())]);
        assert_eq!(race(&version, &[ask(0, b"x")], 100, 1), 1, "{algorithm:?}");
    }
}

#[test]
fn opposite_orders_of_rules_do_not_lock_each_other_out() {
    // A small table makes shared counters part of it.
    let limits = small(8);
    let rules: Vec<Limit> =
        all_kinds(300).into_iter().enumerate().map(|(n, it)| limit(&format!("r{n}"), &["k"], it)).collect();
    let version = limits.apply(&rules);
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..8_usize {
            let (version, admitted) = (&version, &admitted);
            scope.spawn(move || {
                for call in 0..300_usize {
                    let keys: Vec<[u8; 2]> =
                        (0..6).map(|n| [n as u8, (call + n * worker) as u8 % 32]).collect();
                    let rule = |n: usize| if worker % 2 == 0 { n } else { 5 - n };
                    let asks: Vec<Ask<'_>> =
                        keys.iter().enumerate().map(|(n, key)| ask(rule(n), key)).collect();
                    admitted.fetch_add(usize::from(version.decide(&asks, NOW).admitted), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(admitted.into_inner() > 0);
}

// ---- a changed rule --------------------------------------------------------------------------------

#[test]
fn l9_fifty_calls_then_raised_in_the_same_window() {
    let limits = small(100);
    let version = limits.apply(&[limit("a", &["k"], window(10))]);
    assert_eq!(burst(&version, &[ask(0, b"x")], 50, NOW), 10);
    let version = limits.apply(&[limit("a", &["k"], window(20))]);
    assert_eq!(burst(&version, &[ask(0, b"x")], 50, NOW), 10);
}

#[test]
fn l21_exhausted_at_ten_and_raised_to_a_hundred() {
    for (low, high) in all_kinds(10).into_iter().zip(all_kinds(100)) {
        let limits = small(100);
        let before = limits.apply(&[limit("a", &["k"], low)]);
        let held: Vec<Outcome> = (0..20).map(|_| before.decide(&[ask(0, b"x")], NOW)).collect();
        assert_eq!(held.iter().filter(|it| it.admitted).count(), 10);
        let after = limits.apply(&[limit("a", &["k"], high.clone())]);
        assert_eq!(burst(&after, &[ask(0, b"x")], 200, NOW), 90, "{high:?}");
    }
}

#[test]
fn a_hot_update_admits_eight_hundred_in_all() {
    for (high, low) in all_kinds(1000).into_iter().zip(all_kinds(800)) {
        let limits = small(100);
        let before = limits.apply(&[limit("a", &[], high)]);
        let mut held: Vec<Outcome> = (0..600).map(|_| before.decide(&[ask(0, b"")], NOW)).collect();
        let after = limits.apply(&[limit("a", &[], low.clone())]);
        held.extend((0..450).map(|_| after.decide(&[ask(0, b"")], NOW)));
        // An instance that is still on the older version is decided by the newer numbers.
        held.extend((0..450).map(|_| before.decide(&[ask(0, b"")], NOW)));
        assert_eq!(held.iter().filter(|it| it.admitted).count(), 800, "{low:?}");
    }
}

#[test]
fn an_untouched_rule_keeps_everything_and_another_kind_starts_fresh() {
    let limits = small(100);
    let rule = || limit("a", &["k"], window(10));
    let version = limits.apply(&[rule()]);
    assert_eq!(burst(&version, &[ask(0, b"x")], 7, NOW), 7);
    // Its place in the document, its mode and its description do not matter.
    let mut described = rule();
    described.description = Some("other words".to_owned());
    described.mode = Mode::Shadow;
    let version = limits.apply(&[limit("other", &[], window(1)), described]);
    assert_eq!(remaining(&version, ask(1, b"x"), NOW), 3);
    // (changed rule, what is left)
    let mut shared = rule();
    shared.sharing = Sharing::Exact;
    let longer = Algorithm::FixedWindow { limit: 10, window: Duration::from_mins(2) };
    for changed in [
        limit("a", &["k"], bucket(10)),
        limit("a", &["k", "l"], window(10)),
        limit("a", &["k"], longer),
        limit("b", &["k"], window(10)),
        shared,
    ] {
        let limits = small(100);
        let version = limits.apply(&[rule()]);
        assert_eq!(burst(&version, &[ask(0, b"x")], 7, NOW), 7);
        let after = limits.apply(std::slice::from_ref(&changed));
        assert_eq!(remaining(&after, ask(0, b"x"), NOW), 10, "{changed:?}");
    }
}

/// Seven of ten used, then the rule is changed: what is used still is what the difference between the
/// two rules says, and for a key under an override what the difference of its numbers says.
#[test]
fn counters_do_what_the_difference_of_rules_says() {
    let minute = Duration::from_mins(1);
    let hour = Duration::from_hours(1);
    let mut algorithms: Vec<Algorithm> = [10, 12].into_iter().flat_map(all_kinds).collect();
    algorithms.extend([
        Algorithm::FixedWindow { limit: 10, window: hour },
        Algorithm::SlidingLog { limit: 10, window: hour },
        Algorithm::SlidingWindow { limit: 10, window: hour },
        Algorithm::TokenBucket { capacity: 10, refill: Rate { count: 3, per: minute } },
        Algorithm::LeakyBucket { rate: Rate { count: 3, per: minute }, queue: 9 },
    ]);
    let room = |algorithm: &Algorithm| match *algorithm {
        Algorithm::TokenBucket { capacity: room, .. }
        | Algorithm::FixedWindow { limit: room, .. }
        | Algorithm::SlidingLog { limit: room, .. }
        | Algorithm::SlidingWindow { limit: room, .. }
        | Algorithm::Concurrency { max: room } => room,
        Algorithm::LeakyBucket { queue, .. } => queue + 1,
    };
    let with = |own: &Algorithm, other: &Algorithm| Limit {
        overrides: vec![LimitOverride { when: Condition::All(vec![]), algorithm: other.clone() }],
        ..limit("a", &["user"], own.clone())
    };
    let used_after = |old: &Limit, new: &Limit, variant: usize| {
        let limits = small(100);
        let asked = Ask { rule: 0, variant, key: b"u", cost: 7 };
        let kept = limits.apply(std::slice::from_ref(old)).decide(&[asked], NOW);
        assert!(kept.admitted);
        let numbers = if variant == 0 { &new.algorithm } else { &new.overrides[0].algorithm };
        room(numbers) - remaining(&limits.apply(std::slice::from_ref(new)), asked, NOW)
    };
    for old in &algorithms {
        for new in &algorithms {
            let (before, after) = (limit("a", &["user"], old.clone()), limit("a", &["user"], new.clone()));
            let kept = state_effect(&before, &after) == Carry::Keep;
            assert_eq!(used_after(&before, &after, 0), if kept { 7 } else { 0 }, "{old:?} {new:?}");
            if old.name() != new.name() {
                continue;
            }
            // An override's key does not care what became of the rule's own numbers.
            for (before, after) in [(with(old, old), with(new, old)), (with(old, old), with(old, new))] {
                let (own, other) = (
                    algorithm_effect(&before.algorithm, &after.algorithm),
                    algorithm_effect(&before.overrides[0].algorithm, &after.overrides[0].algorithm),
                );
                for (variant, effect) in [(0, own), (1, other)] {
                    let used = if effect == Carry::Keep { 7 } else { 0 };
                    assert_eq!(used_after(&before, &after, variant), used, "{variant} {old:?} {new:?}");
                }
            }
        }
        let before = limit("a", &["user"], old.clone());
        let edits: [fn(&mut Limit); 10] = [
            |limit| limit.description = Some(String::new()),
            |limit| limit.owner = Some(String::new()),
            |limit| limit.mode = Mode::Shadow,
            |limit| limit.mode = Mode::Off,
            |limit| limit.resources = Resources::Listed(vec!["pay".to_owned()]),
            |limit| limit.key = vec!["tenant".to_owned()],
            |limit| limit.cost = Cost::Fixed(2),
            |limit| limit.sharing = Sharing::Exact,
            |limit| limit.on_store_failure = Some(OnStoreFailure::FailOpen),
            |limit| limit.after_store_loss = AfterStoreLoss::Exhausted,
        ];
        for edit in edits {
            let mut after = before.clone();
            edit(&mut after);
            let kept = state_effect(&before, &after) == Carry::Keep;
            assert_eq!(kept, after.key == before.key && after.sharing == before.sharing);
            assert_eq!(used_after(&before, &after, 0), if kept { 7 } else { 0 }, "{after:?}");
        }
    }
}

fn with_overrides(own: u64, others: &[u64]) -> Limit {
    let overrides =
        others.iter().map(|n| LimitOverride { when: Condition::All(Vec::new()), algorithm: window(*n) });
    Limit { overrides: overrides.collect(), ..limit("a", &["k"], window(own)) }
}

#[test]
fn overrides_have_numbers_of_their_own_and_keys_move_between_them() {
    let limits = small(100);
    let version = limits.apply(&[with_overrides(10, &[3, 30])]);
    let variant = |variant, key| Ask { variant, ..ask(0, key) };
    assert_eq!(burst(&version, &[variant(0, b"own")], 99, NOW), 10);
    assert_eq!(burst(&version, &[variant(1, b"low")], 99, NOW), 3);
    assert_eq!(burst(&version, &[variant(2, b"high")], 99, NOW), 30);
    assert_eq!(burst(&version, &[variant(9, b"none such")], 99, NOW), 10);
    // The next version has no override for "low", and another for "own".
    let next = limits.apply(&[with_overrides(10, &[15])]);
    assert_eq!(burst(&next, &[variant(0, b"low")], 99, NOW), 7);
    assert_eq!(burst(&next, &[variant(1, b"own")], 99, NOW), 5);
    // A request of the older version is decided by the newer numbers.
    assert_eq!(burst(&version, &[variant(1, b"low"), variant(0, b"own")], 9, NOW), 0);
    let later = NOW + Duration::from_mins(1);
    assert_eq!(burst(&version, &[variant(0, b"own")], 99, later), 15);
}

#[test]
fn many_versions_do_not_pile_up() {
    let limits = small(100);
    let first = limits.apply(&[limit("a", &["k"], window(1000))]);
    assert!(first.decide(&[ask(0, b"old")], NOW).admitted);
    for n in 0..200 {
        let version = limits.apply(&[limit("a", &["k"], window(500 + n))]);
        assert!(version.decide(&[ask(0, b"new")], NOW).admitted);
    }
    let version = limits.apply(&[limit("a", &["k"], window(900))]);
    assert_eq!(remaining(&version, ask(0, b"new"), NOW), 700);
    assert_eq!(remaining(&version, ask(0, b"old"), NOW), 899);
    let AnyBound::FixedWindow(bound) = &version.rules()[0].bound else { panic!("another kind") };
    assert!(bound.table.generation_count() <= 16, "{}", bound.table.generation_count());
}

// ---- bounded memory --------------------------------------------------------------------------------

#[test]
fn entries_are_as_small_as_stated() {
    use std::mem::size_of;

    use shard::Entry;
    use tidegate_core::limit::{Counter, concurrency, fixed_window, gcra, leaky_bucket, sliding_window};

    assert_eq!(size_of::<lines::Lines>(), 16);
    assert_eq!(size_of::<Entry<gcra::Arrival>>(), 24);
    assert_eq!(size_of::<Entry<concurrency::InFlight>>(), 24);
    assert_eq!(size_of::<Entry<fixed_window::Used>>(), 32);
    assert_eq!(size_of::<Entry<leaky_bucket::Backlog>>(), 32);
    assert_eq!(size_of::<Entry<sliding_window::Pair>>(), 40);
    assert_eq!(size_of::<Entry<<tidegate_core::limit::SlidingLog as Counter>::State>>(), 56);
}

#[test]
fn a_flood_of_keys_forgets_no_throttled_one() {
    for algorithm in all_kinds(2) {
        let version = small(64).apply(&[limit("a", &["k"], algorithm.clone())]);
        let victim = [Ask { rule: 0, variant: 0, key: b"victim", cost: 2 }];
        let held = version.decide(&victim, NOW);
        assert!(held.admitted);
        let mut kept = Vec::new();
        for n in 0..2000_u32 {
            kept.push(version.decide(&[ask(0, &n.to_be_bytes())], NOW));
            assert!(
                !version.decide(&[ask(0, b"victim")], NOW).admitted,
                "{algorithm:?}: forgotten after {n}"
            );
        }
        assert_eq!(version.keys(0), 64);
        let shared: Vec<&Outcome> = kept.iter().filter(|it| it.verdicts[0].overflow).collect();
        assert_eq!((shared.len(), version.overflowed(0)), (2000 - 63, 2000 - 63), "{algorithm:?}");
        assert_eq!(
            shared.iter().filter(|it| it.admitted).count(),
            2,
            "one shared counter of two: {algorithm:?}"
        );
    }
}

#[test]
fn room_comes_back_once_entries_are_fresh() {
    let limits = small(64);
    let version = limits.apply(&[limit("a", &["k"], window(2))]);
    for n in 0..100_u32 {
        drop(version.decide(&[ask(0, &n.to_be_bytes())], NOW));
    }
    assert_eq!((version.keys(0), version.overflowed(0)), (64, 36));
    let later = NOW + Duration::from_mins(2);
    for n in 1000..1100_u32 {
        let outcome = version.decide(&[ask(0, &n.to_be_bytes())], later);
        assert_eq!(outcome.verdicts[0].overflow, n >= 1064, "{n}");
    }
    assert_eq!(limits.sweep(later), 0);
    assert_eq!(limits.sweep(later + Duration::from_mins(2)), 64);
    assert_eq!(version.keys(0), 0);
}

#[test]
fn a_key_that_leaves_the_shared_counter_gains_nothing() {
    let config = LocalLimitsConfig { max_keys: 1, max_log_runs: 10, shards: 1 };
    // The only place is taken by a bucket that is full again after two seconds.
    let version = LocalLimits::new(config).apply(&[limit("a", &["k"], bucket(10))]);
    let one = |key, cost| [Ask { rule: 0, variant: 0, key, cost }];
    assert!(version.decide(&one(b"first", 2), NOW).admitted);
    let shared = version.decide(&one(b"second", 9), NOW);
    assert!(shared.admitted && shared.verdicts[0].overflow);
    // A second later than that, so that no reordered call could still count against it.
    let later = NOW + 3 * SECOND;
    let own = version.decide(&one(b"second", 1), later);
    assert!(own.admitted && !own.verdicts[0].overflow);
    // 10 − 9 + 3 refilled − 1.
    assert_eq!(own.verdicts[0].decision.remaining, 3);
}

#[test]
fn a_key_goes_on_sharing_where_its_part_cannot_be_told() {
    let config = LocalLimitsConfig { max_keys: 1, max_log_runs: 10, shards: 1 };
    let version = LocalLimits::new(config).apply(&[limit("c", &["k"], Algorithm::Concurrency { max: 3 })]);
    let first = version.decide(&[ask(0, b"first")], NOW);
    let mut shared: Vec<Outcome> = (0..2).map(|_| version.decide(&[ask(0, b"second")], NOW)).collect();
    drop(first);
    let third = version.decide(&[ask(0, b"second")], NOW);
    assert!(third.admitted && third.verdicts[0].overflow);
    assert!(!version.decide(&[ask(0, b"second")], NOW).admitted);
    shared.push(third);
    shared.clear();
    let own = version.decide(&[ask(0, b"second")], NOW);
    assert!(own.admitted && !own.verdicts[0].overflow);
}

#[test]
fn overrides_share_apart_so_that_a_low_limit_holds() {
    let config = LocalLimitsConfig { max_keys: 1, max_log_runs: 10, shards: 1 };
    let version = LocalLimits::new(config).apply(&[with_overrides(10, &[3])]);
    assert!(version.decide(&[ask(0, b"first")], NOW).admitted);
    assert_eq!(burst(&version, &[Ask { variant: 1, ..ask(0, b"low") }], 20, NOW), 3);
    assert_eq!(burst(&version, &[ask(0, b"own")], 20, NOW), 10);
    assert_eq!(version.overflowed(0), 40);
}

#[test]
fn all_sliding_logs_together_are_bounded() {
    let config = LocalLimitsConfig { max_keys: 100, max_log_runs: 50, shards: 1 };
    let log = Algorithm::SlidingLog { limit: 100, window: Duration::from_mins(1) };
    let version = LocalLimits::new(config).apply(&[limit("a", &["k"], log)]);
    for n in 0..1000_u32 {
        let now = NOW + n * Duration::from_millis(1);
        assert!(version.decide(&[ask(0, &(n % 10).to_be_bytes())], now).admitted);
    }
    let AnyBound::SlidingLog(bound) = &version.rules()[0].bound else { panic!("another kind") };
    assert!(bound.table.run_count() <= 60, "{}", bound.table.run_count());
    assert!(version.coarsened(0) >= 900);
    // Every one of the hundred calls of a key still counts.
    let now = NOW + SECOND;
    assert!((0..10_u32).all(|n| !version.decide(&[ask(0, &n.to_be_bytes())], now).admitted));
    // All runs are given back in the end.
    let later = NOW + Duration::from_mins(3);
    for n in 0..400_u32 {
        drop(version.decide(&[Ask { cost: 101, ..ask(0, &(100 + n).to_be_bytes()) }], later));
    }
    assert_eq!((bound.table.run_count(), version.keys(0)), (0, 0));
}

// ---- against a plain model -------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    Decide(Vec<(usize, u8, u64)>),
    Change(usize, u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let asks = prop::collection::vec((0..3_usize, 0..4_u8, 1..4_u64), 1..5);
    let step = prop_oneof![
        12 => asks.prop_map(Step::Decide),
        1 => (0..3_usize, 1..12_u64).prop_map(|(rule, limit)| Step::Change(rule, limit)),
        1 => (1..90_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Fixed windows over three rules, one of them in shadow mode, beside a map of counts.
    #[test]
    fn agrees_with_a_map_of_counts(steps in steps()) {
        let limits = small(64);
        let mut most = [5_u64, 8, 3];
        let rules = |most: [u64; 3]| {
            let mut rules = [0, 1, 2].map(|n| limit(&format!("r{n}"), &["k"], window(most[n])));
            rules[2].mode = Mode::Shadow;
            rules
        };
        let mut version = limits.apply(&rules(most));
        let mut old = limits.apply(&rules(most));
        let mut used: HashMap<(usize, u8), u64> = HashMap::new();
        let mut now = NOW;
        for step in steps {
            match step {
                Step::Change(rule, limit) => {
                    most[rule] = limit;
                    old = std::mem::replace(&mut version, limits.apply(&rules(most)));
                    // Until a counter is asked under the newer version, the older one's numbers hold.
                    for rule in 0..3 {
                        for key in 0..4_u8 {
                            drop(version.decide(&[Ask { cost: 0, ..ask(rule, &[key]) }], now));
                        }
                    }
                }
                Step::Pass(seconds) => {
                    let window = |at: Timestamp| at.as_nanos() / 60_000_000_000;
                    let then = now + Duration::from_secs(seconds);
                    if window(then) != window(now) {
                        used.clear();
                    }
                    now = then;
                }
                Step::Decide(calls) => {
                    let keys: Vec<[u8; 1]> = calls.iter().map(|(_, key, _)| [*key]).collect();
                    let asks: Vec<Ask<'_>> = calls
                        .iter()
                        .zip(&keys)
                        .map(|((rule, _, cost), key)| Ask { rule: *rule, variant: 0, key, cost: *cost })
                        .collect();
                    let mut after = used.clone();
                    let fits: Vec<bool> = calls
                        .iter()
                        .map(|(rule, key, cost)| {
                            let count = after.entry((*rule, *key)).or_default();
                            let fits = *count + cost <= most[*rule];
                            *count += if fits { *cost } else { 0 };
                            fits
                        })
                        .collect();
                    let admitted = calls.iter().zip(&fits).all(|((rule, ..), fits)| *fits || *rule == 2);
                    // A counter that nothing was charged to may be forgotten, with the numbers it was made under.
                    let known = calls.iter().all(|(rule, key, _)| used.get(&(*rule, *key)).is_some_and(|count| *count > 0));
                    let asked = if known { &old } else { &version };
                    prop_assert_eq!(asked.peek(&asks, now).admitted, admitted);
                    let outcome = asked.decide(&asks, now);
                    prop_assert_eq!(outcome.admitted, admitted);
                    let said: Vec<bool> = outcome.verdicts.iter().map(|it| it.decision.admitted()).collect();
                    prop_assert_eq!(said, fits);
                    if admitted {
                        used = after;
                    }
                }
            }
        }
    }
}
