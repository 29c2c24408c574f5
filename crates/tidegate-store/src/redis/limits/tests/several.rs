//! Several limits and several calls in one script.

use super::*;

#[test]
fn calls_of_a_batch_are_decided_in_turn() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        let counter = server.counter(&algorithm);
        let calls = [call("1", &[6]), call("2", &[6]), call("3", &[4])];
        let decided = server.calls(std::slice::from_ref(&counter), &calls, Purpose::Charge, TODAY);
        let said: Vec<_> =
            decided.calls.iter().map(|call| (call.admitted, call.decisions[0].remaining)).collect();
        assert_eq!(said, [(true, 4), (false, 4), (true, 0)], "{algorithm:?}");
    }
}

#[test]
fn one_mixed_script_equals_one_script_each() {
    let mut server = Server::start();
    let alone = one_of_each(10).map(|algorithm| server.counter(&algorithm));
    let together = one_of_each(10).map(|algorithm| server.counter(&algorithm));
    let mut now = TODAY;
    for step in 0..200_u64 {
        now += [0, 1, 40_000, 700_000][step as usize % 4];
        let id = format!("call-{step}");
        let cost = 1 + step % 3;
        // Concurrency would fill up.
        let costs = [cost, cost, cost, cost, cost, 0];
        let expected: Vec<_> = alone
            .iter()
            .map(|counter| {
                let counters = std::slice::from_ref(counter);
                let cost = if counter.numbers.kind() == Kind::Concurrency { 0 } else { cost };
                server.calls(counters, &[call(&id, &[cost])], Purpose::Peek, now).calls[0].decisions[0]
            })
            .collect();
        let decided = server.calls(&together, &[call(&id, &costs)], Purpose::Peek, now);
        assert_eq!(decided.calls[0].decisions.to_vec(), expected);
        let all = expected.iter().all(Decision::admitted);
        let decided = server.calls(&together, &[call(&id, &costs)], Purpose::Charge, now);
        assert_eq!(decided.calls[0].admitted, all);
        if all {
            for counter in alone.iter().take(5) {
                assert!(server.ask(counter, cost, now).admitted());
            }
        }
    }
}

#[test]
fn a_limit_in_shadow_mode_counts_and_never_refuses() {
    let mut server = Server::start();
    for algorithm in one_of_each(2) {
        let shadow = Counter { mode: Mode::Shadow, ..server.counter(&algorithm) };
        let enforced = server.counter(&fixed_window(4, Duration::from_secs(1)));
        let both = [enforced, shadow.clone()];
        let calls = ["1", "2", "3", "4", "5"].map(|id| call(id, &[1, 1]));
        let decided = server.calls(&both, &calls, Purpose::Charge, TODAY);
        let said: Vec<_> =
            decided.calls.iter().map(|call| (call.admitted, call.decisions[1].admitted())).collect();
        let expected = [(true, true), (true, true), (true, false), (true, false), (false, false)];
        assert_eq!(said, expected, "{algorithm:?}");
        assert_eq!(server.ask(&shadow, 0, TODAY).remaining, 0);
    }
}

#[test]
fn a_limit_in_shadow_mode_is_not_charged_for_what_another_refuses() {
    let mut server = Server::start();
    let shadow =
        Counter { mode: Mode::Shadow, ..server.counter(&token_bucket(9, 1, Duration::from_secs(1))) };
    let both = [shadow.clone(), server.counter(&fixed_window(1, Duration::from_secs(1)))];
    let decided = server.batch(&both, &[&[1, 1], &[1, 1]], TODAY);
    assert_eq!([decided.calls[0].admitted, decided.calls[1].admitted], [true, false]);
    assert_eq!(server.ask(&shadow, 0, TODAY).remaining, 8);
}

#[test]
fn a_limit_that_is_off_decides_and_never_counts() {
    let mut server = Server::start();
    for algorithm in one_of_each(1) {
        let off = Counter { mode: Mode::Off, ..server.counter(&algorithm) };
        let decided = server.batch(std::slice::from_ref(&off), &[&[1], &[1], &[2]], TODAY);
        let said: Vec<_> =
            decided.calls.iter().map(|call| (call.admitted, call.decisions[0].admitted())).collect();
        assert_eq!(said, [(true, true), (true, true), (true, false)], "{algorithm:?}");
        assert_eq!(server.session().command(&["EXISTS", off.key.as_str()]).number(), 0);
    }
}

#[test]
fn a_peek_says_what_a_call_would_get_and_changes_nothing() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        let counter = server.counter(&algorithm);
        let counters = std::slice::from_ref(&counter);
        assert!(server.ask(&counter, 3, TODAY).admitted());
        let before = server.session().command(&["DUMP", counter.key.as_str()]);
        let decided = server.calls(counters, &[call("p", &[8]), call("q", &[7])], Purpose::Peek, TODAY + 5);
        let said: Vec<_> =
            decided.calls.iter().map(|call| (call.admitted, call.decisions[0].remaining)).collect();
        assert_eq!(said, [(false, 7), (true, 0)], "{algorithm:?}");
        assert_eq!(server.session().command(&["DUMP", counter.key.as_str()]), before);
    }
}

#[test]
fn a_reply_that_does_not_follow_is_not_believed() {
    let mut server = Server::start();
    let counters = [server.counter(&fixed_window(1, Duration::from_secs(1)))];
    let calls = [call("x", &[1])];
    let reply = server.run_at(&encode(&counters, &calls, Purpose::Charge), TODAY);
    assert!(decode(&counters, &calls, Purpose::Charge, &reply).is_ok());
    let Value::Array(good) = reply else { panic!("{reply:?}") };
    let mut bad = vec![Value::Nil, Value::Array(Vec::new())];
    for at in 0..good.len() {
        let mut cut = good.clone();
        cut.truncate(at);
        bad.push(Value::Array(cut));
        for other in [Value::Int(-1), Value::Nil, Value::BulkString(b"0".to_vec())] {
            if other != good[at] {
                let mut changed = good.clone();
                changed[at] = other;
                bad.push(Value::Array(changed));
            }
        }
    }
    for reply in bad {
        assert!(decode(&counters, &calls, Purpose::Charge, &reply).is_err(), "{reply:?}");
    }
}

#[test]
fn windows_are_told_by_their_start() {
    let mut server = Server::start();
    let counters = one_of_each(10).map(|algorithm| server.counter(&algorithm));
    let decided = server.batch(&counters, &[&[1, 1, 1, 1, 1, 1]], TODAY + 250_000);
    let start = Some(micros(TODAY));
    assert_eq!(decided.windows.to_vec(), [None, None, start, start, None, None]);
    assert_eq!(decided.now, micros(TODAY + 250_000));
}
