//! `kill -9` of a gateway at each step of an execution, and its restart on the same database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_testkit::{Connection, Gate, wait_until};

use super::gateway::{Gateway, is_replay, outcome};

fn rules(on_unknown: &str) -> String {
    format!(
        "
resources:
  - {{ id: pay, match: {{ path: /pay }}, timeout: 1m }}
idempotency:
  - {{ id: once, resources: [pay], scope: [], key: {{ from: header.idempotency-key }}, on_unknown: {on_unknown}, lease: 500ms, max_execution: 1m, retention: 1h }}
"
    )
}

/// Says that the answer is out once it is.
fn held_origin(gateway: &Gateway) -> (Gate, Gate) {
    let (gate, answered) = (Gate::new(), Gate::new());
    let (held, out) = (gate.clone(), answered.clone());
    gateway.origin.on("/pay", move |exchange| {
        exchange.body()?;
        held.wait();
        let result = exchange.respond(200, &[], b"first");
        out.open();
        result
    });
    (gate, answered)
}

/// After a crash of which nobody knows what came before it: `hold` never sends again.
fn assert_held(gateway: &Gateway, sent: usize) {
    gateway.origin.answer("/pay", 200, &[], "second");
    gateway.post_until("/pay", "k1", |response| {
        let (status, problem) = outcome(response);
        assert_eq!(status, 409, "{response:?}");
        problem == "outcome-unknown"
    });
    assert_eq!(outcome(&gateway.post("/pay", "k1", "{}")), (409, "outcome-unknown".to_owned()));
    assert_eq!(gateway.origin.calls("/pay"), sent);
}

/// The same with `retry`: after the lease it is sent again, fenced.
fn assert_retried(gateway: &Gateway, sent: usize) {
    gateway.origin.answer("/pay", 200, &[], "second");
    let second = gateway.post_until("/pay", "k1", |response| response.status != 409);
    assert_eq!((second.status, second.text().as_str(), is_replay(&second)), (200, "second", false));
    assert_eq!(gateway.origin.calls("/pay"), sent + 1);
    let seen = gateway.origin.last();
    assert_eq!((seen.header("tidegate-fence"), seen.header("tidegate-attempt")), (Some("2"), Some("2")));
    assert!(is_replay(&gateway.post("/pay", "k1", "{}")));
}

#[test]
fn i5_killed_before_the_claim() {
    for on_unknown in ["hold", "retry"] {
        let gateway = Gateway::start(&rules(on_unknown));
        let mut client = Connection::open(gateway.addr).unwrap();
        client
            .send("POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k1\r\nContent-Length: 2\r\n\r\n{")
            .unwrap();
        let gateway = gateway.crash_and_restart();
        let response = gateway.post("/pay", "k1", "{}");
        assert_eq!((response.status, is_replay(&response)), (200, false));
        assert_eq!(gateway.origin.last().header("tidegate-fence"), Some("1"));
        assert!(is_replay(&gateway.post("/pay", "k1", "{}")));
        assert_eq!(gateway.origin.calls("/pay"), 1);
    }
}

#[test]
fn i5_killed_during_the_execution() {
    for (on_unknown, then) in [("hold", assert_held as fn(&Gateway, usize)), ("retry", assert_retried)] {
        let gateway = Gateway::start(&rules(on_unknown));
        let (gate, _) = held_origin(&gateway);
        let client = gateway.begin("/pay", "k1", "{}");
        gateway.origin.wait_calls("/pay", 1);
        let gateway = gateway.crash_and_restart();
        drop(client);
        gate.open();
        then(&gateway, 1);
    }
}

#[test]
fn i5_killed_after_the_answer_and_before_the_completion() {
    for (on_unknown, then) in [("hold", assert_held as fn(&Gateway, usize)), ("retry", assert_retried)] {
        let gateway = Gateway::start(&rules(on_unknown));
        let (gate, answered) = held_origin(&gateway);
        let client = gateway.begin("/pay", "k1", "{}");
        gateway.origin.wait_calls("/pay", 1);
        // While another program holds the write lock, nothing can be completed.
        let mut database = gateway.database();
        database.run("BEGIN IMMEDIATE");
        gate.open();
        answered.wait();
        let mut gateway = gateway;
        gateway.kill();
        database.run("ROLLBACK");
        drop(client);
        let gateway = gateway.crash_and_restart();
        then(&gateway, 1);
    }
}

#[test]
fn i5_killed_around_the_completion_it_is_finished_or_not_known_and_never_both() {
    let mut gateway = Gateway::start(&rules("hold"));
    let mut replayed = 0;
    for round in 0..10 {
        let (gate, answered) = held_origin(&gateway);
        let key = format!("k{round}");
        let client = gateway.begin("/pay", &key, "{}");
        gateway.origin.wait_calls("/pay", round + 1);
        gate.open();
        answered.wait();
        // Each round a little later into the completion, which takes a few milliseconds.
        for _ in 0..(round * 40) {
            std::thread::yield_now();
        }
        gateway = gateway.crash_and_restart();
        drop(client);
        gateway.origin.answer("/pay", 200, &[], "second");
        let settled = gateway.post_until("/pay", &key, |response| {
            response.status == 200 || outcome(response).1 == "outcome-unknown"
        });
        if settled.status == 200 {
            assert!(is_replay(&settled), "{settled:?}");
            assert_eq!(settled.text(), "first");
            replayed += 1;
        }
        let again = gateway.post("/pay", &key, "{}");
        assert_eq!((again.status, &again.body), (settled.status, &settled.body));
        assert_eq!(gateway.origin.calls("/pay"), round + 1);
    }
    let finished = "SELECT count(*) FROM tidegate_idempotency WHERE state = 'SUCCEEDED'";
    assert_eq!(gateway.database().number(finished), replayed);
}

#[test]
fn i5_killed_after_the_completion() {
    for on_unknown in ["hold", "retry"] {
        let gateway = Gateway::start(&rules(on_unknown));
        gateway.origin.answer("/pay", 201, &[("Location", "/orders/1")], "first");
        assert_eq!(gateway.post("/pay", "k1", "{}").status, 201);
        let gateway = gateway.crash_and_restart();
        gateway.origin.answer("/pay", 200, &[], "second");
        for _ in 0..2 {
            let replay = gateway.post("/pay", "k1", "{}");
            assert!(is_replay(&replay));
            assert_eq!((replay.status, replay.text().as_str()), (201, "first"));
            assert_eq!(replay.header("location"), Some("/orders/1"));
        }
        assert_eq!(gateway.origin.calls("/pay"), 1);
    }
}

#[test]
fn i5_a_sibling_takes_over_from_one_that_was_killed() {
    // Renewed each three seconds: a machine that stands still for some loses nothing.
    let gateway = Gateway::start(&rules("retry").replace("lease: 500ms", "lease: 9s"));
    let sibling = gateway.sibling();
    let (gate, _) = held_origin(&gateway);
    let client = gateway.begin("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    // It lives and renews: nobody takes over.
    let mut database = gateway.database();
    wait_until("a renewal", || {
        assert_eq!(outcome(&sibling.post("/pay", "k1", "{}")), (409, "idempotency-in-progress".to_owned()));
        database.number("SELECT lease_until - claimed_at > 10000 FROM tidegate_idempotency") == 1
    });
    let mut gateway = gateway;
    gateway.kill();
    drop(client);
    gate.open();
    // Nobody renews it now: its lease ends, here at once.
    assert_eq!(outcome(&sibling.post("/pay", "k1", "{}")), (409, "idempotency-in-progress".to_owned()));
    database.run("UPDATE tidegate_idempotency SET lease_until = claimed_at");
    assert_retried(&sibling, 1);
}

/// Clients that retry as clients do, and a gateway that is killed again and again: no key is sent twice.
#[test]
fn i5_under_load_and_kills_hold_sends_each_key_once() {
    let mut gateway = Gateway::start(&rules("hold"));
    let sent: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&sent);
    gateway.origin.on("/pay", move |exchange| {
        counted.fetch_add(1, Ordering::SeqCst);
        exchange.echo()
    });
    let mut keys = 0;
    for _ in 0..4 {
        let calls: Vec<_> = (0..16)
            .map(|_| {
                keys += 1;
                gateway.begin("/pay", &format!("k{keys}"), "{}")
            })
            .collect();
        let before = sent.load(Ordering::SeqCst);
        wait_until("some to be under way", || sent.load(Ordering::SeqCst) >= before + 4);
        gateway = gateway.crash_and_restart();
        drop(calls);
    }
    for key in 1..=keys {
        let key = format!("k{key}");
        gateway.post_until("/pay", &key, |response| {
            response.status == 200 || outcome(response).1 == "outcome-unknown"
        });
        let seen = gateway.origin.seen();
        assert!(seen.iter().filter(|seen| seen.header("tidegate-key") == Some(&key)).count() <= 1, "{key}");
    }
}
