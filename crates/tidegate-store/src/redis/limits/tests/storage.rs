//! What lies on the server, and for how long.

use tidegate_testkit::redis::Reply;

use super::*;

/// The counter's keys.
fn keys(server: &Server, counter: &Counter) -> Vec<String> {
    let pattern = format!("{}*", counter.key.as_str());
    server.session().command(&["KEYS", &pattern]).list().iter().map(|key| key.text().to_owned()).collect()
}

/// Seconds for which all keys live, at least and at most.
fn assert_lives(server: &Server, counter: &Counter, count: usize, most: Duration) {
    let keys = keys(server, counter);
    assert_eq!(keys.len(), count, "{keys:?}");
    for key in keys {
        let left = server.session().command(&["PTTL", &key]).number();
        let most = i64::try_from(most.as_millis()).unwrap();
        assert!(left > 0 && left <= most, "{key}: {left} ms");
    }
}

#[test]
fn l19_every_key_has_a_time_to_live_from_its_first_write_on() {
    let mut server = Server::start();
    for algorithm in one_of_each(10) {
        let counter = server.counter(&algorithm);
        let counters = std::slice::from_ref(&counter);
        let ask = |id, purpose| encode(counters, &[call(id, &[1])], purpose);
        // A second, two for a sliding window, 30 for permits; and one more.
        let most = match counter.numbers.kind() {
            Kind::Concurrency => PERMIT_LIFE + Duration::from_secs(1),
            Kind::SlidingWindow => Duration::from_secs(3),
            _ => Duration::from_secs(2),
        };
        server.run(&ask("a", Purpose::Charge));
        assert_lives(&server, &counter, 1, most);
        server.run(&ask("b", Purpose::Charge));
        assert_lives(&server, &counter, 1, most);
        // A changed rule.
        let raised = Counter { ordinal: 2, numbers: Numbers { a: 20, ..counter.numbers }, ..counter.clone() };
        server.run(&encode(&[raised], &[call("c", &[100])], Purpose::Charge));
        assert_lives(&server, &counter, 1, most);
        if counter.numbers.kind() == Kind::Concurrency {
            let permits = ["a", "b"].map(|id| Permit::new(counter.key.clone(), id, 1));
            server.run(&renew(&counter.key, PERMIT_LIFE, &permits));
            assert_lives(&server, &counter, 1, most);
            server.run(&release(&counter.key, &permits[..1]));
            assert_lives(&server, &counter, 1, most);
            server.run(&release(&counter.key, &permits[1..]));
            assert_eq!(keys(&server, &counter), [] as [&str; 0]);
            continue;
        }
        server.run(&ask("d", Purpose::Reserve));
        assert_lives(&server, &counter, 2, Duration::from_secs(10));
        server.run(&give_back("d", &[(&counter, 1)]));
        assert!(keys(&server, &counter).contains(&counter.key.as_str().to_owned()));
        assert_lives(&server, &counter, 1, most);
    }
}

#[test]
fn denied_calls_write_nothing() {
    let mut server = Server::alone();
    for algorithm in one_of_each(2) {
        let counter = server.counter(&algorithm);
        assert!(server.ask(&counter, 2, TODAY).admitted());
        let dump = |server: &Server| server.session().command(&["DUMP", counter.key.as_str()]);
        let before = dump(&server);
        let changes = |server: &Server| {
            let info = server.session().command(&["INFO", "persistence"]);
            let line = info.text().lines().find(|line| line.starts_with("rdb_changes_since_last_save"));
            line.unwrap().to_owned()
        };
        let changed = changes(&server);
        for (cost, later) in [(1, 0), (2, 10), (3, 20), (0, 30), (1, 40)] {
            let admitted = server.ask(&counter, cost, TODAY + later).admitted();
            assert_eq!(admitted, cost == 0, "{algorithm:?}");
        }
        assert_eq!(dump(&server), before, "{algorithm:?}");
        assert_eq!(changes(&server), changed, "{algorithm:?}");
    }
}

#[test]
fn a_log_is_bounded_and_admits_no_more_for_it() {
    let mut server = Server::start();
    let counter = server.counter(&sliding_log(100, Duration::from_secs(1)));
    let counter = Counter { numbers: Numbers { c: 10, ..counter.numbers }, ..counter };
    let passed: usize = (0..200).map(|t| server.burst(&counter, 1, TODAY + t * 1000)).sum();
    assert_eq!(passed, 100);
    assert_eq!(server.session().command(&["LLEN", counter.key.as_str()]).number(), 11);
    // The first nine instants are kept; all others count as made with the last, at 99 ms.
    assert_eq!(server.burst(&counter, 200, TODAY + 1_008_000), 9);
    assert_eq!(server.burst(&counter, 200, TODAY + 1_098_999), 0);
    assert_eq!(server.burst(&counter, 200, TODAY + 1_099_000), 91);
}

#[test]
fn a_log_holds_one_run_for_each_instant_and_forgets_what_has_left() {
    let mut server = Server::start();
    let counter = server.counter(&sliding_log(50, Duration::from_secs(1)));
    for t in 0..40 {
        assert_eq!(server.burst(&counter, 2, TODAY + t / 2 * 100_000), 2);
    }
    // Ten instants are in the window: the newest at 1.9 s, and the oldest left at 0.9 s.
    assert_eq!(server.session().command(&["LLEN", counter.key.as_str()]).number(), 11);
}

#[test]
fn another_programs_value_is_an_error_and_stays() {
    let server = Server::start();
    for algorithm in one_of_each(2) {
        let counter = server.counter(&algorithm);
        let mut session = server.session();
        session.command(&["SADD", counter.key.as_str(), "x"]);
        let command = encode(std::slice::from_ref(&counter), &[call("x", &[1])], Purpose::Charge);
        let mut words = vec!["EVAL".to_owned(), command.script.text().to_owned(), "1".to_owned()];
        words.extend(command.keys.into_iter().chain(command.args));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let reply = session.command(&words);
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
        assert_eq!(session.command(&["SCARD", counter.key.as_str()]).number(), 1);
        session.command(&["DEL", counter.key.as_str()]);
    }
}
