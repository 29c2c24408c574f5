//! How executions end, and what that leaves in the record.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_testkit::wait::Deadline;
use tidegate_testkit::{ClosedPort, Connection, Exchange, Gate, Origin, request, wait_for, wait_until};

use super::gateway::{Gateway, Setup, is_replay, outcome, retry_after};

const RULES: &str = "
resources:
  - { id: pay, match: { path: /pay }, timeout: 20s }
  - { id: hurried, match: { path: /hurried }, timeout: 300ms }
idempotency:
  - { id: once, resources: [pay, hurried], scope: [], key: { from: header.idempotency-key }, lease: 200ms, max_execution: 1m, retention: 1h }
";

#[test]
fn three_outcomes_by_status() {
    let gateway = Gateway::start(RULES);
    let released = Some(());
    let unknown = None;
    for (status, said, expected) in [
        (401, None, released),
        (407, None, released),
        (425, None, released),
        (429, None, released),
        (200, Some("retryable"), released),
        (404, Some("retryable"), released),
        (500, Some("retryable"), released),
        (408, None, unknown),
        (500, None, unknown),
        (503, None, unknown),
        (500, Some("something-else"), unknown),
    ] {
        let key = format!("{status}-{}", said.unwrap_or("silent"));
        gateway.origin.on("/pay", move |exchange| {
            let mut headers: Vec<_> = said.map(|said| ("Tidegate-Outcome", said)).into_iter().collect();
            headers.push(("Tidegate-Idempotency", "theirs"));
            headers.push(("Idempotent-Replayed", "true"));
            exchange.respond(status, &headers, b"answer")
        });
        let before = gateway.origin.calls("/pay");
        let first = gateway.post("/pay", &key, "{}");
        assert_eq!((first.status, first.text().as_str()), (status, "answer"), "{key}");
        assert_eq!(first.header("tidegate-outcome"), None, "the upstream's word is not the client's: {key}");
        assert_eq!(first.header("tidegate-idempotency"), None, "nor may it speak as Tidegate: {key}");
        gateway.origin.answer("/pay", 200, &[], "second");
        if expected == released {
            let second = gateway.post("/pay", &key, "{}");
            assert_eq!((second.status, second.text().as_str()), (200, "second"), "{key}");
            assert_eq!(gateway.origin.last().header("tidegate-fence"), Some("2"), "{key}");
            assert_eq!(gateway.origin.last().header("tidegate-attempt"), Some("2"), "{key}");
            assert!(is_replay(&gateway.post("/pay", &key, "{}")), "{key}");
            assert_eq!(gateway.origin.calls("/pay"), before + 2, "{key}");
        } else {
            assert_unknown(&gateway, "/pay", &key);
            assert_eq!(gateway.origin.calls("/pay"), before + 1, "{key}");
        }
    }
    // A final one of each kind, and a redirect.
    for status in [200, 204, 303, 400, 402, 404, 409, 422] {
        gateway.origin.answer(
            "/pay",
            status,
            &[("Tidegate-Outcome", "x"), ("Idempotent-Replayed", "true")],
            "",
        );
        let key = format!("final-{status}");
        for replayed in [false, true] {
            let response = gateway.post("/pay", &key, "{}");
            assert_eq!((response.status, is_replay(&response)), (status, replayed));
            assert_eq!(response.header("tidegate-outcome"), None, "{key}");
        }
    }
}

/// In progress while the lease lasts, then not known; never executed again.
fn assert_unknown(gateway: &Gateway, target: &str, key: &str) {
    let held = gateway.post_until(target, key, |response| {
        assert_eq!(response.status, 409, "{key}: {response:?}");
        outcome(response).1 == "outcome-unknown"
    });
    assert_eq!(held.header("retry-after"), None, "waiting does not help: {held:?}");
}

#[test]
fn a_call_that_got_no_answer_is_not_known() {
    let gateway = Gateway::start(RULES);
    gateway.origin.on("/hurried", |exchange| {
        exchange.wait_closed();
        Ok(())
    });
    // On a machine that stands still the time may be over before anything is sent: then it is known.
    let mut database = gateway.database();
    let mut tries = 0;
    let late = wait_for("a call to be sent in time", || {
        tries += 1;
        let key = format!("timeout{tries}");
        let response = gateway.post("/hurried", &key, "{}");
        assert_eq!(outcome(&response), (504, "upstream-timeout".to_owned()));
        let state = format!("SELECT state = 'PROCESSING' FROM tidegate_idempotency WHERE key = '{key}'");
        (database.number(&state) == 1).then_some(key)
    });
    gateway.origin.wait_calls("/hurried", 1);
    gateway.origin.on("/pay", Exchange::reset);
    assert_eq!(outcome(&gateway.post("/pay", "reset", "{}")), (502, "upstream-unavailable".to_owned()));
    gateway.origin.on("/pay", |exchange| {
        exchange.body()?;
        exchange.close();
        exchange.raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    });
    assert_eq!(outcome(&gateway.post("/pay", "half", "{}")), (502, "upstream-unavailable".to_owned()));
    gateway.origin.on("/pay", |exchange| exchange.raw("I am no HTTP\r\n\r\n"));
    assert_eq!(outcome(&gateway.post("/pay", "nonsense", "{}")), (502, "upstream-unavailable".to_owned()));
    gateway.origin.answer("/pay", 200, &[], "");
    assert_unknown(&gateway, "/hurried", &late);
    for key in ["reset", "half", "nonsense"] {
        assert_unknown(&gateway, "/pay", key);
    }
    assert_eq!((gateway.origin.calls("/hurried"), gateway.origin.calls("/pay")), (1, 3));
}

#[test]
fn a_flood_of_interim_responses_holds_nobody_up_and_is_not_known() {
    let gateway = Gateway::start(RULES);
    let short = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
    let long = format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", "X: 34567890\r\n".repeat(90)).repeat(100);
    gateway.origin.on("/pay", move |exchange| {
        let flood = if exchange.request.header("idempotency-key") == Some("long") { &long } else { &short };
        // For as long as it is listened to.
        while exchange.raw(flood).is_ok() {}
        Ok(())
    });
    // More than there are workers, so that each has one.
    let mut others: Vec<_> = (0..16).map(|_| Connection::open(gateway.addr).unwrap()).collect();
    let floods = ["short", "long"].map(|key| gateway.post_later("/pay", key, "{}"));
    for other in &mut others {
        assert_eq!(other.request("GET", "/other", &[], b"").unwrap().status, 200);
    }
    for flood in floods {
        assert_eq!(outcome(&flood.join().unwrap()), (502, "upstream-unavailable".to_owned()));
    }
    for key in ["short", "long"] {
        assert_unknown(&gateway, "/pay", key);
    }
    assert_eq!(gateway.origin.calls("/pay"), 2);
    // A few are what a service may send.
    gateway.origin.on("/pay", |exchange| {
        exchange.raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
        exchange.respond(200, &[], b"paid")
    });
    for replayed in [false, true] {
        let response = gateway.post("/pay", "few", "{}");
        assert_eq!((response.status, response.text().as_str()), (200, "paid"));
        assert_eq!(is_replay(&response), replayed);
    }
}

#[test]
fn a_call_that_was_never_sent_is_released() {
    let closed = ClosedPort::take();
    let setup = Setup { upstreams: vec![closed.url()], ..Setup::default() };
    let gateway = Gateway::with(RULES, setup);
    for _ in 0..2 {
        assert_eq!(outcome(&gateway.post("/pay", "k1", "{}")), (502, "upstream-unavailable".to_owned()));
    }
    let origin = closed.open();
    let response = gateway.post("/pay", "k1", "{}");
    assert_eq!((response.status, is_replay(&response)), (200, false));
    assert_eq!(origin.last().header("tidegate-fence"), Some("3"));
    assert!(is_replay(&gateway.post("/pay", "k1", "{}")));
}

#[test]
fn a_call_that_timed_out_before_it_was_sent_is_released() {
    let held = Gate::default();
    let variables = vec![("TIDEGATE_LIMITS_MAX_UPSTREAM_CONNECTIONS", "1".to_owned())];
    let gateway = Gateway::with(RULES, Setup { variables, ..Setup::default() });
    let hold = held.clone();
    gateway.origin.on("/slow", move |exchange| {
        hold.wait();
        exchange.respond(200, &[], b"slow")
    });
    // The only connection is taken by a request that no rule guards.
    let slow = gateway.post_later("/slow", "k0", "{}");
    gateway.origin.wait_calls("/slow", 1);
    let waited = gateway.post("/pay", "k1", "{}");
    assert_eq!(outcome(&waited), (504, "upstream-timeout".to_owned()));
    assert!(waited.text().contains("Nothing was executed."), "{}", waited.text());
    held.open();
    assert_eq!(slow.join().unwrap().status, 200);
    let response = gateway.post("/pay", "k1", "{}");
    assert_eq!((response.status, is_replay(&response)), (200, false));
    assert_eq!(gateway.origin.calls("/pay"), 1);
}

#[test]
fn a_url_that_is_down_is_passed_over_unless_breakers_tell_hosts_apart() {
    let closed = ClosedPort::take();
    let up = Origin::start();
    let setup = Setup { upstreams: vec![closed.url(), up.url()], ..Setup::default() };
    let guard = "breakers:\n  - { id: guard, resources: '*', trip: [ { error_count: { at_least: 3 } } ], min_requests: 3, window: 1h, open_for: 1h, max_open: 1h }\n";
    let gateway = Gateway::with(&format!("{RULES}{guard}"), setup.clone());
    for call in 0..10 {
        assert_eq!(gateway.get("/other").status, 200);
        assert_eq!(gateway.post("/pay", &format!("k{call}"), "{}").status, 200);
        assert_eq!(up.last().header("tidegate-fence"), Some("1"));
    }
    let gateway =
        Gateway::with(&format!("{RULES}{}", guard.replace("trip:", "key: [upstream_host], trip:")), setup);
    let answers: Vec<_> =
        (0..12).map(|call| gateway.post("/pay", &format!("k{call}"), "{}").status).collect();
    let count = |status| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!((count(200), count(502), count(503)), (6, 3, 3), "{answers:?}");
}

#[test]
fn an_upstream_that_was_superseded_gives_its_client_the_winners_result() {
    let rules = RULES.replace(
        "key }, lease: 200ms, max_execution: 1m",
        "key }, on_unknown: retry, lease: 300ms, max_execution: 300ms",
    );
    let gateway = Gateway::start(&rules);
    let gate = Gate::new();
    let held = gate.clone();
    let count = AtomicUsize::new(0);
    gateway.origin.on("/pay", move |exchange| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            held.wait();
            // It compared fencing tokens, found a higher one and rolled back.
            return exchange.respond(409, &[("Tidegate-Outcome", "superseded")], b"rolled back");
        }
        exchange.respond(201, &[], b"winner")
    });
    let late = gateway.post_later("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    gateway.post_until("/pay", "k1", |response| response.status == 201);
    gate.open();
    let late = late.join().unwrap();
    assert_eq!((late.status, late.text().as_str(), is_replay(&late)), (201, "winner", true));

    // Nobody has superseded it as far as the record says: nothing is known of the outcome.
    gateway
        .origin
        .on("/pay", |exchange| exchange.respond(409, &[("Tidegate-Outcome", "superseded")], b"rolled back"));
    assert_eq!(outcome(&gateway.post("/pay", "k2", "{}")), (409, "superseded".to_owned()));
}

#[test]
fn a_renewed_lease_lasts_as_long_as_the_work() {
    // Renewed each two seconds: a machine that stands still for three loses nothing.
    let gateway = Gateway::start(&RULES.replace("lease: 200ms", "lease: 6s"));
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/pay", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"done")
    });
    let first = gateway.post_later("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    let mut database = gateway.database();
    let renewed = "SELECT lease_until - claimed_at > 9000 FROM tidegate_idempotency";
    wait_until("two renewals", || {
        let response = gateway.post("/pay", "k1", "{}");
        assert_eq!(outcome(&response), (409, "idempotency-in-progress".to_owned()));
        assert!((1..=6).contains(&retry_after(&response)), "{response:?}");
        database.number(renewed) == 1
    });
    gate.open();
    assert_eq!(first.join().unwrap().text(), "done");
    assert!(is_replay(&gateway.post("/pay", "k1", "{}")));
}

#[test]
fn a_store_that_is_locked_executes_nothing() {
    let gateway = Gateway::start(RULES);
    assert_eq!(gateway.post("/pay", "before", "{}").status, 200);
    let mut database = gateway.database();
    database.run("BEGIN EXCLUSIVE");
    let calls: Vec<_> = (0..8).map(|call| gateway.post_later("/pay", &format!("k{call}"), "{}")).collect();
    // What needs no write goes on: replays, and what no rule guards.
    assert!(is_replay(&gateway.post("/pay", "before", "{}")));
    assert_eq!(gateway.get("/open").status, 200);
    for call in calls {
        // Within the deadline of the client, at the latest.
        let response = call.join().unwrap();
        assert_eq!(outcome(&response), (503, "store-unavailable".to_owned()));
        assert_eq!(retry_after(&response), 1);
    }
    assert_eq!(gateway.origin.calls("/pay"), 1);
    database.run("ROLLBACK");
    // A claim that was on its way when its caller was told 503 may stand for a moment, until it is given up.
    let response = gateway.post_until("/pay", "k0", |response| !matches!(response.status, 409 | 503));
    assert_eq!((response.status, is_replay(&response)), (200, false));
}

/// However many wait for the store, none of them waits for all the others in turn.
#[test]
fn a_store_that_is_locked_keeps_a_crowd_waiting_no_longer_than_one() {
    let gateway = Gateway::start(RULES);
    assert_eq!(gateway.post("/pay", "before", "{}").status, 200);
    let mut database = gateway.database();
    // Four batches: if each waited for the lock in turn, that would be 20 s and more, always. The machine
    // may be busy with other things, but not each time.
    let told_in_time = (0..5).any(|_| {
        database.run("BEGIN EXCLUSIVE");
        let crowd: Vec<_> = (0..400).map(|call| gateway.begin("/pay", &format!("k{call}"), "{}")).collect();
        let all_told = Deadline::after(Duration::from_secs(14));
        for mut client in crowd {
            let response = client.read_response(false).unwrap();
            assert_eq!(outcome(&response), (503, "store-unavailable".to_owned()));
        }
        let in_time = !all_told.passed();
        database.run("ROLLBACK");
        in_time
    });
    assert!(told_in_time, "the busy timeouts of several batches have added up");
    for call in 0..400 {
        let key = format!("k{call}");
        let response = gateway.post_until("/pay", &key, |response| !matches!(response.status, 409 | 503));
        assert_eq!((response.status, is_replay(&response)), (200, false), "nothing of it was claimed");
    }
    assert_eq!(gateway.origin.calls("/pay"), 401);
}

/// The result is the client's even if the store cannot take it yet; then it is stored.
#[test]
fn a_result_that_cannot_be_stored_is_given_out_and_stored_later() {
    let rules = RULES.replace("lease: 200ms, max_execution: 1m", "lease: 5m");
    let gateway = Gateway::start(&rules.replace("retention: 1h", "retention: 24h"));
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/pay", move |exchange| {
        held.wait();
        exchange.respond(201, &[], b"done")
    });
    let first = gateway.post_later("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    let mut database = gateway.database();
    database.run("BEGIN IMMEDIATE");
    gate.open();
    let first = first.join().unwrap();
    assert_eq!((first.status, first.text().as_str()), (201, "done"));
    assert_eq!(first.header("tidegate-idempotency"), Some("unrecorded"));
    database.run("ROLLBACK");
    let replay = gateway.post_until("/pay", "k1", |response| response.status != 409);
    assert_eq!((replay.status, replay.text().as_str(), is_replay(&replay)), (201, "done", true));
    assert_eq!(gateway.origin.calls("/pay"), 1);
    let open = request(gateway.addr, "GET", "/open", &[], b"");
    assert_eq!(open.header("tidegate-idempotency"), None);
}
