//! Concurrency: permits that are taken, renewed, given back, and that end with a silent holder.

use super::*;

pub(super) fn release(counter: &Counter, permits: &[(&str, u64)]) -> Command {
    super::release(&counter.key, &named(counter, permits))
}

fn named(counter: &Counter, permits: &[(&str, u64)]) -> Vec<Permit> {
    permits.iter().map(|(id, cost)| Permit::new(counter.key.clone(), id, *cost)).collect()
}

fn take(server: &mut Server, counter: &Counter, id: &str, cost: u64, now: u64) -> Decision {
    let decided = server.calls(std::slice::from_ref(counter), &[call(id, &[cost])], Purpose::Charge, now);
    decided.calls[0].decisions[0]
}

fn returned(server: &mut Server, command: &Command, count: usize, now: u64) -> Vec<bool> {
    answers(&server.run_at(command, now), count).unwrap()
}

const LIFE: u64 = 30 * SECOND;

#[test]
fn a_permit_is_taken_once_and_given_back_once() {
    let mut server = Server::start();
    let counter = server.counter(&concurrency(10));
    assert_eq!(take(&mut server, &counter, "a", 4, TODAY).remaining, 6);
    // The answer was lost, and the call asks again.
    let again = take(&mut server, &counter, "a", 4, TODAY);
    assert!(again.admitted());
    assert_eq!(again.remaining, 6);
    assert_eq!(take(&mut server, &counter, "b", 6, TODAY).remaining, 0);
    assert!(take(&mut server, &counter, "a", 4, TODAY).admitted());
    assert!(!take(&mut server, &counter, "c", 1, TODAY).admitted());
    let back = release(&counter, &[("a", 4), ("nobody", 1)]);
    assert_eq!(returned(&mut server, &back, 2, TODAY), [true, false]);
    assert_eq!(returned(&mut server, &back, 2, TODAY), [false, false]);
    assert_eq!(take(&mut server, &counter, "c", 0, TODAY).remaining, 4);
    let back = release(&counter, &[("b", 6)]);
    assert_eq!(returned(&mut server, &back, 1, TODAY), [true]);
    assert_eq!(server.session().command(&["EXISTS", counter.key.as_str()]).number(), 0);
}

#[test]
fn a_silent_holder_loses_its_permit_and_a_renewing_one_does_not() {
    let mut server = Server::start();
    let counter = server.counter(&concurrency(2));
    for id in ["silent", "alive"] {
        assert!(take(&mut server, &counter, id, 1, TODAY).admitted());
    }
    let half = TODAY + LIFE / 2;
    let keep = renew(&counter.key, PERMIT_LIFE, &named(&counter, &[("alive", 1), ("nobody", 1)]));
    assert_eq!(returned(&mut server, &keep, 2, half), [true, false]);
    let end = TODAY + LIFE;
    assert!(!take(&mut server, &counter, "next", 1, end - 1).admitted());
    assert!(take(&mut server, &counter, "next", 1, end).admitted());
    assert!(!take(&mut server, &counter, "more", 1, end).admitted());
    let keep = renew(&counter.key, PERMIT_LIFE, &named(&counter, &[("alive", 1), ("silent", 1)]));
    assert_eq!(returned(&mut server, &keep, 2, end), [true, false]);
    // What it gives back late is not somebody else's.
    let back = release(&counter, &[("silent", 1)]);
    assert_eq!(returned(&mut server, &back, 1, end), [false]);
    assert!(!take(&mut server, &counter, "more", 1, end).admitted());
}

#[test]
fn a_clock_that_is_set_back_keeps_no_silent_holder_for_longer_than_a_permit_lasts() {
    let mut server = Server::start();
    let counter = server.counter(&concurrency(1));
    assert!(take(&mut server, &counter, "silent", 1, TODAY + HOUR).admitted());
    assert!(!take(&mut server, &counter, "next", 1, TODAY).admitted());
    assert!(!take(&mut server, &counter, "next", 1, TODAY + LIFE - 1).admitted());
    assert!(take(&mut server, &counter, "next", 1, TODAY + LIFE).admitted());
}

#[test]
fn holders_are_kept_when_the_maximum_changes() {
    let mut server = Server::start();
    let counter = server.counter(&concurrency(3));
    for id in ["a", "b", "c"] {
        assert!(take(&mut server, &counter, id, 1, TODAY).admitted());
    }
    let lowered =
        Counter { numbers: Numbers::new(&concurrency(2), PERMIT_LIFE), ordinal: 2, ..counter.clone() };
    assert!(!take(&mut server, &lowered, "d", 1, TODAY).admitted());
    let back = release(&counter, &[("a", 1)]);
    assert_eq!(returned(&mut server, &back, 1, TODAY), [true]);
    // The older instance is told the newer maximum.
    let decision = take(&mut server, &counter, "d", 1, TODAY);
    assert_eq!((decision.admitted(), decision.limit), (false, 2));
    let back = release(&counter, &[("b", 1)]);
    assert_eq!(returned(&mut server, &back, 1, TODAY), [true]);
    assert!(take(&mut server, &lowered, "d", 1, TODAY).admitted());
}

#[test]
fn permits_and_other_limits_are_taken_together() {
    let mut server = Server::start();
    let both = [server.counter(&concurrency(2)), server.counter(&fixed_window(3, Duration::from_secs(1)))];
    let calls = ["a", "b", "c"].map(|id| call(id, &[1, 1]));
    let decided = server.calls(&both, &calls, Purpose::Charge, TODAY);
    let admitted: Vec<_> = decided.calls.iter().map(|call| call.admitted).collect();
    assert_eq!(admitted, [true, true, false]);
    assert_eq!(server.ask(&both[1], 0, TODAY).remaining, 1);
}
