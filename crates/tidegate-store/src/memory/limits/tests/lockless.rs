//! Token buckets that are decided without a lock, beside the core's own steps and in races.

use tidegate_core::limit::{Counter, TokenBucket};

use super::*;

type State = <TokenBucket as Counter>::State;

/// What the counters must be: each key's numbers and state, and nothing else.
#[derive(Default)]
struct Model(HashMap<(usize, u8), (TokenBucket, State)>);

impl Model {
    fn brought_to(&self, at: (usize, u8), params: &TokenBucket, now: Timestamp) -> State {
        let mut state = match self.0.get(&at) {
            None => params.fresh(now),
            Some((filled, state)) => {
                let mut state = *state;
                if filled != params {
                    params.convert(filled, &mut state, now);
                }
                state
            }
        };
        params.settle(&mut state, now);
        state
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// (rule, key, variant, cost), no counter twice.
    Decide(Vec<(usize, u8, usize, u64)>),
    Change(u64, u64),
    /// Forward by nanoseconds.
    Pass(u64),
    /// Back by nanoseconds.
    Back(u64),
    Sweep,
}

fn steps(most_pass: u64, back: u64) -> impl Strategy<Value = Vec<Step>> {
    let one = (0..3_usize, 0..12_u8, 0..2_usize, 0..5_u64);
    let asks = prop::collection::vec(one, 1..4).prop_map(|mut asks| {
        asks.iter_mut().filter(|ask| ask.0 == 2).for_each(|ask| (ask.1, ask.2) = (0, 0));
        asks.sort_unstable();
        asks.dedup_by_key(|ask| (ask.0, ask.1));
        asks
    });
    let alone = (0..3_usize, 0..12_u8, 0..2_usize, 0..5_u64).prop_map(|mut ask| {
        if ask.0 == 2 {
            (ask.1, ask.2) = (0, 0);
        }
        Step::Decide(vec![ask])
    });
    let step = prop_oneof![
        20 => alone,
        6 => asks.prop_map(Step::Decide),
        1 => (1..30_u64, 1..30_u64).prop_map(|(own, other)| Step::Change(own, other)),
        6 => (1..most_pass).prop_map(Step::Pass),
        u32::from(back > 0) => (1..back.max(2)).prop_map(Step::Back),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..250)
}

fn rules(own: u64, other: u64, refill: Rate) -> [Limit; 3] {
    let bucket = |capacity| Algorithm::TokenBucket { capacity, refill };
    let mut first = limit("first", &["k"], bucket(own));
    first.overrides = vec![LimitOverride { when: Condition::All(Vec::new()), algorithm: bucket(other) }];
    let mut second = limit("second", &["k"], bucket(other));
    second.overrides = vec![LimitOverride {
        when: Condition::All(Vec::new()),
        // Of another interval, so that a key that moves between the two moves in time.
        algorithm: Algorithm::TokenBucket { capacity: own, refill: Rate { count: 7, per: 2 * refill.per } },
    }];
    [first, second, limit("third", &[], bucket(own))]
}

/// The numbers of a rule's variant.
fn numbers(rules: &[Limit; 3], rule: usize, variant: usize) -> TokenBucket {
    let limit = &rules[rule];
    let algorithm = if variant == 0 { &limit.algorithm } else { &limit.overrides[variant - 1].algorithm };
    TokenBucket::compile(algorithm).unwrap()
}

fn agrees(max_keys: usize, refill: Rate, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let limits = small(max_keys);
    let mut written = rules(10, 4, refill);
    let mut version = limits.apply(&written);
    let mut model = Model::default();
    let mut now = NOW;
    for step in steps {
        match step {
            Step::Pass(by) => now = now + Duration::from_nanos(by),
            Step::Back(by) => now = now.before(Duration::from_nanos(by)),
            Step::Sweep => drop(limits.sweep(now)),
            Step::Change(own, other) => {
                written = rules(own, other, refill);
                version = limits.apply(&written);
            }
            Step::Decide(calls) => {
                let keys: Vec<[u8; 1]> = calls.iter().map(|call| [call.1]).collect();
                let asks: Vec<Ask<'_>> = calls
                    .iter()
                    .zip(&keys)
                    .map(|((rule, _, variant, cost), key)| Ask {
                        rule: *rule,
                        variant: *variant,
                        key,
                        cost: *cost,
                    })
                    .collect();
                let tested: Vec<_> = calls
                    .iter()
                    .map(|&(rule, key, variant, cost)| {
                        let params = numbers(&written, rule, variant);
                        let state = model.brought_to((rule, key), &params, now);
                        (params, state, params.test(&state, cost, now))
                    })
                    .collect();
                let admitted = tested.iter().all(|(.., decision)| decision.admitted());
                let expected: Vec<Decision> = tested
                    .iter()
                    .map(|(params, state, decision)| {
                        if decision.admitted() && !admitted {
                            decision.uncharged(params.test(state, 0, now))
                        } else {
                            *decision
                        }
                    })
                    .collect();
                let peeked = version.peek(&asks, now);
                prop_assert_eq!(peeked.admitted, admitted);
                let outcome = version.decide(&asks, now);
                prop_assert_eq!(outcome.admitted, admitted);
                let said: Vec<Decision> = outcome.verdicts.iter().map(|verdict| verdict.decision).collect();
                prop_assert_eq!(said, expected);
                for ((params, mut state, _), &(rule, key, _, cost)) in tested.into_iter().zip(&calls) {
                    let known = model.0.contains_key(&(rule, key));
                    if admitted {
                        params.take(&mut state, cost, now);
                    }
                    if admitted || known {
                        model.0.insert((rule, key), (params, state));
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Counters become fresh and are dropped, reclaimed and made again.
    #[test]
    fn agrees_with_the_steps_of_the_core(steps in steps(3 * 1_000_000_000, 0)) {
        agrees(64, Rate { count: 3, per: SECOND }, steps)?;
    }

    /// A clock that is set back, too. Nothing refills meanwhile, so that all is remembered.
    #[test]
    fn l23_agrees_with_the_core_when_the_clock_steps_back(steps in steps(2_000_000_000, 3_600_000_000_000)) {
        let mut spent: Vec<Step> =
            (0..2).flat_map(|rule| (0..12).map(move |key| Step::Decide(vec![(rule, key, 0, 1)]))).collect();
        spent.push(Step::Decide(vec![(2, 0, 0, 1)]));
        spent.extend(steps.into_iter().filter(|step| !matches!(step, Step::Sweep)));
        agrees(64, Rate { count: 1, per: Duration::from_hours(366 * 24) }, spent)?;
    }
}

/// Eight threads go through the same keys, each in an order of its own, while the table grows under them
/// and is swept. Every key admits exactly its capacity.
fn every_key_admits_its_capacity(max_keys: usize, keys: u64, capacity: u64) {
    let limits = small(max_keys);
    let spend = Algorithm::TokenBucket { capacity, refill: Rate { count: 1, per: Duration::from_hours(24) } };
    let total = Algorithm::TokenBucket {
        capacity: 1 << 40,
        refill: Rate { count: 1, per: Duration::from_hours(24) },
    };
    let version = limits.apply(&[limit("a", &["k"], spend), limit("b", &[], total)]);
    let admitted: Vec<AtomicUsize> = (0..keys).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for worker in 0..8_u64 {
            let (version, limits, admitted) = (&version, &limits, &admitted);
            scope.spawn(move || {
                for round in 0..keys * (1 + capacity / 8) {
                    // The strides are odd and the keys a power of two, so each thread comes to all of them.
                    let key = (round * (2 * worker + 1) + worker * keys / 8) % keys;
                    let bytes = key.to_be_bytes();
                    let outcome = if round % 4 == 3 {
                        version.decide(&[ask(1, b""), ask(0, &bytes)], NOW)
                    } else {
                        version.decide(&[ask(0, &bytes)], NOW)
                    };
                    admitted[key as usize].fetch_add(usize::from(outcome.admitted), Ordering::Relaxed);
                    if round % 1024 == 1023 {
                        limits.sweep(NOW);
                    }
                }
            });
        }
    });
    for (key, admitted) in admitted.iter().enumerate() {
        let admitted = admitted.load(Ordering::Relaxed) as u64;
        let asked = 8 * (1 + capacity / 8);
        assert_eq!(admitted, capacity.min(asked), "key {key}");
    }
    assert_eq!((version.keys(0) as u64, version.overflowed(0)), (keys, 0));
}

#[test]
fn eight_threads_on_few_keys_admit_exactly_the_capacity() {
    for keys in [1, 2, 8, 64] {
        every_key_admits_its_capacity(1000, keys, 1000);
    }
}

#[test]
fn eight_threads_on_many_keys_admit_exactly_the_capacity_while_the_table_grows() {
    every_key_admits_its_capacity(100_000, 1 << 13, 3);
    // Nearly full.
    every_key_admits_its_capacity(2560, 1 << 11, 5);
}

/// A flood that the table has no room for, in eight threads: what a known key has used is not forgotten,
/// and all the others together have one capacity for each shard's share at most.
#[test]
fn eight_threads_beyond_the_table_never_admit_too_much() {
    for round in 0..5_u32 {
        let limits = small(64);
        let spend =
            Algorithm::TokenBucket { capacity: 20, refill: Rate { count: 1, per: Duration::from_hours(24) } };
        let version = limits.apply(&[limit("a", &["k"], spend)]);
        let victims: Vec<[u8; 8]> = (0..4_u64).map(|n| (u64::MAX - n).to_be_bytes()).collect();
        for victim in &victims {
            assert!(version.decide(&[ask(0, victim)], NOW).admitted);
        }
        let admitted: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|scope| {
            for worker in 0..8_u64 {
                let (version, limits, admitted, victims) = (&version, &limits, &admitted, &victims);
                scope.spawn(move || {
                    for n in 0..1500_u64 {
                        let new = (n * 8 + worker + u64::from(round) * 100_000).to_be_bytes();
                        let flood = Ask { cost: 20, ..ask(0, &new) };
                        admitted[4].fetch_add(
                            usize::from(version.decide(&[flood], NOW).admitted),
                            Ordering::Relaxed,
                        );
                        let at = (n % 4) as usize;
                        let passed = version.decide(&[ask(0, &victims[at])], NOW).admitted;
                        admitted[at].fetch_add(usize::from(passed), Ordering::Relaxed);
                        if n % 128 == 0 {
                            limits.sweep(NOW);
                        }
                    }
                });
            }
        });
        let admitted: Vec<usize> = admitted.into_iter().map(AtomicUsize::into_inner).collect();
        assert_eq!(admitted[..4], [19; 4]);
        // 60 places were left, and one counter for all that found none.
        assert_eq!((version.keys(0), admitted[4]), (64, 61));
    }
}

/// An older version and a newer one, in eight threads, while numbers change: never more than the larger.
#[test]
fn threads_on_two_versions_admit_no_more_than_the_larger_allows() {
    for _ in 0..20 {
        let limits = small(1000);
        let rule = |capacity| {
            let refill = Rate { count: 1, per: Duration::from_hours(24) };
            limit("a", &["k"], Algorithm::TokenBucket { capacity, refill })
        };
        let old = limits.apply(&[rule(100)]);
        let new = limits.apply(&[rule(150)]);
        let admitted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..8 {
                let (version, admitted) = (if worker % 2 == 0 { &old } else { &new }, &admitted);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let passed = version.decide(&[ask(0, b"x")], NOW).admitted;
                        admitted.fetch_add(usize::from(passed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 150);
    }
}

/// A tag names only so many numbers; keys under later ones are counted all the same.
#[test]
fn numbers_changed_more_often_than_a_tag_can_say_still_hold() {
    let limits = small(100);
    let mut version = limits.apply(&[limit("a", &["k"], bucket(5)), limit("b", &[], bucket(5))]);
    for asks in [[ask(0, b"x")], [ask(1, b"")]] {
        assert_eq!(burst(&version, &asks, 3, NOW), 3);
    }
    for n in 0..1200_u64 {
        version = limits.apply(&[limit("a", &["k"], bucket(6 + n)), limit("b", &[], bucket(6 + n))]);
    }
    for asks in [[ask(0, b"x")], [ask(1, b"")]] {
        assert_eq!(burst(&version, &asks, 2000, NOW), 1205 - 3);
    }
    assert_eq!(burst(&version, &[ask(0, b"y")], 2000, NOW), 1205);
}
