//! A rule that changes while instances run different versions of it.

use tidegate_core::limit::{
    Counter as Core, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};

use super::agreement::{Random, exact_rates, same};
use super::*;

const S: Duration = Duration::from_secs(1);

fn changed(counter: &Counter, algorithm: &Algorithm, ordinal: u64) -> Counter {
    Counter { numbers: Numbers::new(algorithm, PERMIT_LIFE), ordinal, ..counter.clone() }
}

#[test]
fn windows_keep_what_was_used() {
    let mut server = Server::start();
    for make in [fixed_window, sliding_window, sliding_log] {
        let counter = server.counter(&make(1000, S));
        assert!(server.ask(&counter, 600, TODAY).admitted());
        let lowered = changed(&counter, &make(800, S), 2);
        assert_eq!(server.ask(&lowered, 1, TODAY).remaining, 199);
        assert_eq!(server.burst(&lowered, 900, TODAY), 199);
        let raised = changed(&counter, &make(1000, S), 3);
        assert_eq!(server.burst(&raised, 900, TODAY), 200);
    }
}

#[test]
fn buckets_keep_their_debt() {
    let mut server = Server::start();
    for (old, taken, new, left) in [(100, 60, 80, 20), (100, 90, 50, 0), (10, 10, 100, 90), (10, 0, 20, 20)] {
        let counter = server.counter(&token_bucket(old, 1, 10 * S));
        server.ask(&counter, taken, TODAY);
        let other = changed(&counter, &token_bucket(new, 1, 10 * S), 2);
        assert_eq!(server.ask(&other, 0, TODAY).remaining, left, "{old} {taken} {new}");
    }
}

#[test]
fn a_leaky_bucket_keeps_a_queue_that_is_longer_than_the_new_bound() {
    let mut server = Server::start();
    let counter = server.counter(&leaky_bucket(10, S, 19));
    assert_eq!(server.burst(&counter, 30, TODAY), 20);
    let shorter = changed(&counter, &leaky_bucket(10, S, 4), 2);
    assert_eq!(server.ask(&shorter, 1, TODAY).retry_after(), Some(16 * S / 10));
    assert_eq!(server.burst(&shorter, 9, TODAY + 1_600_000), 1);
    assert_eq!(server.ask(&shorter, 1, TODAY + 1_700_000).wait(), 4 * S / 10);
}

#[test]
fn an_older_instance_is_decided_by_the_newer_numbers() {
    let mut server = Server::start();
    for (old, new) in one_of_each(10).into_iter().zip(one_of_each(4)) {
        let counter = server.counter(&old);
        let newer = changed(&counter, &new, 2);
        // Also when all that the newer one got was a denial.
        assert_eq!(server.burst(&counter, 1, TODAY), 1);
        assert!(!server.ask(&newer, 9, TODAY).admitted());
        let decision = server.ask(&counter, 9, TODAY);
        assert_eq!((decision.admitted(), decision.limit), (false, 4), "{old:?}");
        if newer.numbers.kind() != Kind::Concurrency {
            assert_eq!(server.burst(&counter, 20, TODAY), 3, "{old:?}");
            assert_eq!(server.burst(&newer, 20, TODAY), 0, "{old:?}");
        }
    }
}

#[test]
fn a_faster_rate_counts_from_the_change_on_even_when_the_first_calls_are_denied() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(10, 1, 86_400 * S));
    assert_eq!(server.burst(&counter, 20, TODAY), 10);
    let faster = changed(&counter, &token_bucket(10, 10, S), 2);
    assert_eq!(server.ask(&faster, 1, TODAY).retry_after(), Some(S / 10));
    assert!(server.ask(&faster, 1, TODAY + 100_000).admitted());
}

/// Changes between versions at random, and decides on each; debts after a change are rounded up to the
/// scripts' unit, which no decision can tell but whose end a time can.
fn changes_agree<C: Core>(algorithms: &[Algorithm], tolerance: Duration, seed: u64) {
    let mut server = Server::start();
    let mut random = Random(seed);
    for _ in 0..150 {
        let pick = |random: &mut Random| &algorithms[random.below(algorithms.len() as u64) as usize];
        let (old, new) = (pick(&mut random), pick(&mut random));
        let counter = server.counter(old);
        let newer = changed(&counter, new, 2);
        let (old, new) = (C::compile(old).unwrap(), C::compile(new).unwrap());
        let mut state = old.fresh(micros(TODAY));
        let mut now = TODAY;
        for step in 0..30 {
            if step == 15 {
                new.convert(&old, &mut state, micros(now));
            }
            let (counter, numbers) = if step < 15 { (&counter, &old) } else { (&newer, &new) };
            let cost = 1 + random.below(counter.numbers.a / 3 + 1);
            let (decision, after) = numbers.decide(state, cost, micros(now));
            state = after;
            let ours = server.ask(counter, cost, now);
            same(&ours, &decision, tolerance, || format!("{:?} {cost} at {now}", counter.numbers));
            // The first call of the new version comes at the time of the last one of the old.
            if step != 14 {
                let wait = decision.retry_after().unwrap_or_default().as_micros() as u64;
                now += [0, wait.min(DAY), random.below(3 * SECOND)][random.below(3) as usize];
            }
        }
    }
}

#[test]
fn changed_buckets_agree() {
    let rates =
        || exact_rates().into_iter().filter(|(capacity, _, per)| *capacity < 1 << 30 && *per < 3601 * S);
    let buckets: Vec<_> = rates().map(|(capacity, count, per)| token_bucket(capacity, count, per)).collect();
    changes_agree::<TokenBucket>(&buckets, Duration::from_micros(1), 1);
    let queues: Vec<_> = rates().map(|(places, count, per)| leaky_bucket(count, per, places - 1)).collect();
    changes_agree::<LeakyBucket>(&queues, Duration::from_micros(1), 2);
}

#[test]
fn changed_windows_agree() {
    let limits = [1, 2, 10, 600, 1_000_000];
    changes_agree::<FixedWindow>(&limits.map(|limit| fixed_window(limit, S)), Duration::ZERO, 3);
    changes_agree::<SlidingWindow>(&limits.map(|limit| sliding_window(limit, S)), Duration::ZERO, 4);
    changes_agree::<SlidingLog>(&limits.map(|limit| sliding_log(limit, S)), Duration::ZERO, 5);
}
