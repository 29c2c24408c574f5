//! Calls that are charged under an id and given back by it.

use super::*;

fn reserve(server: &mut Server, counter: &Counter, id: &str, cost: u64, now: u64) -> bool {
    let calls = [call(id, &[cost])];
    server.calls(std::slice::from_ref(counter), &calls, Purpose::Reserve, now).calls[0].admitted
}

fn given(server: &mut Server, counter: &Counter, id: &str, cost: u64, now: u64) -> bool {
    answers(&server.run_at(&give_back(id, &[(counter, cost)]), now), 1).unwrap()[0]
}

fn left(server: &mut Server, counter: &Counter, now: u64) -> u64 {
    server.ask(counter, 0, now).remaining
}

/// All kinds but concurrency, whose permits are given back otherwise.
fn kinds(limit: u64) -> impl Iterator<Item = Algorithm> {
    one_of_each(limit).into_iter().take(5)
}

#[test]
fn what_was_reserved_is_given_back_once() {
    let mut server = Server::start();
    for algorithm in kinds(10) {
        let counter = server.counter(&algorithm);
        assert!(reserve(&mut server, &counter, "a", 4, TODAY), "{algorithm:?}");
        assert!(reserve(&mut server, &counter, "b", 5, TODAY));
        assert!(!reserve(&mut server, &counter, "c", 2, TODAY));
        for (id, cost) in [("c", 2), ("nobody", 1), ("a", 5)] {
            assert!(!given(&mut server, &counter, id, cost, TODAY), "{id} {algorithm:?}");
        }
        assert_eq!(left(&mut server, &counter, TODAY), 1);
        assert!(given(&mut server, &counter, "a", 4, TODAY), "{algorithm:?}");
        assert_eq!(left(&mut server, &counter, TODAY), 5, "{algorithm:?}");
        assert!(!given(&mut server, &counter, "a", 4, TODAY));
        assert!(given(&mut server, &counter, "b", 5, TODAY));
        assert_eq!(left(&mut server, &counter, TODAY), 10);
        assert_eq!(server.burst(&counter, 20, TODAY), 10);
    }
}

#[test]
fn nothing_is_given_back_in_a_later_window() {
    let mut server = Server::start();
    for algorithm in kinds(10) {
        let counter = server.counter(&algorithm);
        assert!(reserve(&mut server, &counter, "a", 10, TODAY + 900_000));
        let later = TODAY + 2_000_000;
        assert_eq!(server.burst(&counter, 20, later), 10);
        given(&mut server, &counter, "a", 10, later);
        assert_eq!(server.burst(&counter, 20, later), 0, "{algorithm:?}");
    }
}

#[test]
fn a_sliding_window_gives_back_into_the_window_of_the_charge() {
    let mut server = Server::start();
    let counter = server.counter(&sliding_window(10, Duration::from_secs(1)));
    assert!(reserve(&mut server, &counter, "a", 8, TODAY + 900_000));
    let next = TODAY + SECOND;
    assert_eq!(server.burst(&counter, 20, next), 2);
    assert!(given(&mut server, &counter, "a", 8, next));
    assert_eq!(left(&mut server, &counter, next), 8);
    assert_eq!(server.burst(&counter, 20, next), 8);
}

#[test]
fn a_bucket_gives_back_only_what_time_has_not_paid() {
    let mut server = Server::start();
    // One token in 100 ms.
    let counter = server.counter(&token_bucket(10, 10, Duration::from_secs(1)));
    assert!(reserve(&mut server, &counter, "a", 4, TODAY));
    assert!(server.ask(&counter, 6, TODAY).admitted());
    let later = TODAY + 150_000;
    assert!(given(&mut server, &counter, "a", 4, later));
    // 1.5 tokens have come and 2.5 are given back.
    let decision = server.ask(&counter, 5, later);
    assert_eq!(decision.retry_after(), Some(Duration::from_millis(100)));
    assert!(server.ask(&counter, 4, later).admitted());
}

#[test]
fn giving_back_never_adds_to_what_a_bucket_would_have_held() {
    let mut server = Server::start();
    let counter = server.counter(&token_bucket(10, 10, Duration::from_secs(1)));
    assert!(reserve(&mut server, &counter, "a", 1, TODAY));
    // The token has come back, and all ten are taken by others.
    let later = TODAY + 100_000;
    assert_eq!(server.burst(&counter, 20, later), 10);
    assert!(!given(&mut server, &counter, "a", 1, later) || left(&mut server, &counter, later) == 0);
    assert_eq!(server.burst(&counter, 20, later), 0);
}

#[test]
fn a_log_gives_back_the_instant_of_the_charge() {
    let mut server = Server::start();
    let counter = server.counter(&sliding_log(10, Duration::from_secs(1)));
    for (at, id) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        assert!(reserve(&mut server, &counter, id, 2, TODAY + at as u64 * 100_000));
    }
    let now = TODAY + 500_000;
    assert!(given(&mut server, &counter, "b", 2, now));
    assert_eq!(server.burst(&counter, 20, now), 2);
    // b's place was free already when a's comes free: two, and nothing at the time of b's.
    assert_eq!(server.burst(&counter, 20, TODAY + 1_000_000), 2);
    assert_eq!(server.burst(&counter, 20, TODAY + 1_100_000), 0);
    assert_eq!(server.burst(&counter, 20, TODAY + 1_200_000), 2);
}

#[test]
fn nothing_is_given_back_after_the_clock_was_set_or_the_numbers_changed() {
    let mut server = Server::start();
    for algorithm in kinds(10) {
        let counter = server.counter(&algorithm);
        assert!(reserve(&mut server, &counter, "a", 10, TODAY + HOUR));
        assert!(!server.ask(&counter, 1, TODAY).admitted());
        assert!(!given(&mut server, &counter, "a", 10, TODAY), "{algorithm:?}");
        assert!(!given(&mut server, &counter, "a", 10, TODAY + HOUR + 1), "{algorithm:?}");
    }
    for (old, new) in [10, 5]
        .map(|limit| token_bucket(limit, 1, Duration::from_secs(1)))
        .windows(2)
        .map(|w| (w[0].clone(), w[1].clone()))
    {
        let counter = server.counter(&old);
        assert!(reserve(&mut server, &counter, "a", 10, TODAY));
        let lowered = Counter { numbers: Numbers::new(&new, PERMIT_LIFE), ordinal: 2, ..counter.clone() };
        assert!(!server.ask(&lowered, 1, TODAY).admitted());
        assert!(!given(&mut server, &counter, "a", 10, TODAY));
    }
}

#[test]
fn reservations_are_bounded_and_the_oldest_is_forgotten_first() {
    let mut server = Server::start();
    let counter = server.counter(&fixed_window(10_000, Duration::from_secs(1)));
    let ids: Vec<_> = (0..1200).map(|id| format!("call-{id}")).collect();
    for (at, ids) in ids.chunks(100).enumerate() {
        let calls: Vec<_> = ids.iter().map(|id| call(id, &[1])).collect();
        server.calls(std::slice::from_ref(&counter), &calls, Purpose::Reserve, TODAY + at as u64);
    }
    let held = server.session().command(&["ZCARD", &counter.key.reservations()]).number();
    assert_eq!(held, 1024);
    assert!(!given(&mut server, &counter, "call-0", 1, TODAY + 20));
    assert!(given(&mut server, &counter, "call-1199", 1, TODAY + 20));
}
