//! Idempotency keys over HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_testkit::{Connection, DEADLINE, Exchange, Gate, Response, request, wait_until};

use super::gateway::{Gateway, Setup, is_replay, outcome, problem, retry_after};

const ONCE: &str = "
resources:
  - { id: pay, match: { methods: [POST], path: /pay }, timeout: 4m }
idempotency:
  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key } }
";

/// Both stores, for cases that lie above them.
fn on_each_store(rules: &str, case: impl Fn(&Gateway)) {
    case(&Gateway::start(rules));
    case(&Gateway::with(rules, Setup::flags(&["--store", "memory:"])));
}

/// Answers each request by its number, from 1, once its gate is open.
fn numbered(gateway: &Gateway, path: &str, gates: Vec<Gate>) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    gateway.origin.on(path, move |exchange| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = gates.get(number) {
            gate.wait();
        }
        exchange.respond(200, &[], (number + 1).to_string().as_bytes())
    });
    count
}

#[test]
fn i1_of_64_concurrent_first_calls_one_executes() {
    on_each_store(ONCE, |gateway| {
        let gate = Gate::new();
        numbered(gateway, "/pay", vec![gate.clone()]);
        let refused = Arc::new(AtomicUsize::new(0));
        let calls: Vec<_> = (0..64)
            .map(|_| {
                let (addr, refused) = (gateway.addr, Arc::clone(&refused));
                std::thread::spawn(move || {
                    let response = request(addr, "POST", "/pay", &[("Idempotency-Key", "k1")], b"{}");
                    refused.fetch_add(usize::from(response.status == 409), Ordering::SeqCst);
                    response
                })
            })
            .collect();
        wait_until("63 to be refused", || refused.load(Ordering::SeqCst) == 63);
        gate.open();
        let mut executed = 0;
        for call in calls {
            let response = call.join().unwrap();
            if response.status == 409 {
                assert_eq!(problem(&response), "idempotency-in-progress");
                assert!((1..=30).contains(&retry_after(&response)), "{response:?}");
                continue;
            }
            assert_eq!((response.status, response.text().as_str(), is_replay(&response)), (200, "1", false));
            executed += 1;
        }
        assert_eq!((executed, gateway.origin.calls("/pay")), (1, 1));
        let replay = gateway.post("/pay", "k1", "{}");
        assert_eq!((replay.status, replay.text().as_str(), is_replay(&replay)), (200, "1", true));
    });
}

#[test]
fn i1_waiters_get_the_first_result() {
    let rules = ONCE.replace("idempotency-key }", "idempotency-key }, in_progress: { wait: 1m }");
    on_each_store(&rules, |gateway| {
        let gate = Gate::new();
        numbered(gateway, "/pay", vec![gate.clone()]);
        let first = gateway.post_later("/pay", "k1", "{}");
        gateway.origin.wait_calls("/pay", 1);
        let waiting: Vec<_> = (0..16).map(|_| gateway.post_later("/pay", "k1", "{}")).collect();
        // Another request is told at once: there is nothing to wait for.
        assert_eq!(outcome(&gateway.post("/pay", "k1", "[]")), (422, "idempotency-key-reused".to_owned()));
        gate.open();
        assert!(!is_replay(&first.join().unwrap()));
        for call in waiting {
            let response = call.join().unwrap();
            assert_eq!((response.status, response.text().as_str()), (200, "1"));
            assert!(is_replay(&response));
        }
        assert_eq!(gateway.origin.calls("/pay"), 1);
    });
}

#[test]
fn a_waiter_gives_up_in_time_and_claims_a_key_that_is_released() {
    let rules = ONCE.replace("idempotency-key }", "idempotency-key }, in_progress: { wait: 1m }")
        + "  - { id: short, resources: [short], scope: [], key: { from: header.idempotency-key }, in_progress: { wait: 100ms } }";
    let rules = rules
        .replace("idempotency:", "  - { id: short, match: { path: /short }, timeout: 4m }\nidempotency:");
    let gateway = Gateway::start(&rules);
    let (gate, held) = (Gate::new(), Gate::new());
    let released = gate.clone();
    let count = AtomicUsize::new(0);
    gateway.origin.on("/pay", move |exchange| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            released.wait();
            return exchange.respond(429, &[], b"later");
        }
        exchange.respond(201, &[], b"done")
    });
    numbered(&gateway, "/short", vec![held.clone()]);

    let first = gateway.post_later("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    let waiter = gateway.post_later("/pay", "k1", "{}");
    let short = gateway.post_later("/short", "k1", "{}");
    gateway.origin.wait_calls("/short", 1);
    assert_eq!(outcome(&gateway.post("/short", "k1", "{}")), (409, "idempotency-in-progress".to_owned()));
    gate.open();
    held.open();
    assert_eq!(first.join().unwrap().status, 429);
    let second = waiter.join().unwrap();
    assert_eq!((second.status, is_replay(&second)), (201, false));
    assert_eq!(short.join().unwrap().status, 200);
    let seen = gateway.origin.seen();
    let fences: Vec<_> =
        seen.iter().filter(|seen| seen.target == "/pay").map(|seen| seen.header("tidegate-fence")).collect();
    assert_eq!(fences, [Some("1"), Some("2")]);
}

/// Renewal is off: no execution may outlive its first lease.
const TAKEOVER: &str = "
resources:
  - { id: pay, match: { path: /pay }, timeout: 4m }
idempotency:
  - id: once
    resources: [pay]
    operation: charge
    scope: []
    key: { from: header.idempotency-key }
    on_unknown: retry
    lease: 300ms
    max_execution: 300ms
    retention: 1h
";

#[test]
fn i2_a_late_completion_touches_nothing_and_its_client_gets_the_winners_result() {
    on_each_store(TAKEOVER, |gateway| {
        let gate = Gate::new();
        numbered(gateway, "/pay", vec![gate.clone()]);
        let late = gateway.post_later("/pay", "k1", "{}");
        gateway.origin.wait_calls("/pay", 1);
        let winner = gateway.post_until("/pay", "k1", |response| response.status != 409);
        assert_eq!((winner.status, winner.text().as_str(), is_replay(&winner)), (200, "2", false));
        gate.open();
        let late = late.join().unwrap();
        assert_eq!((late.status, late.text().as_str(), is_replay(&late)), (200, "2", true));
        let replay = gateway.post("/pay", "k1", "{}");
        assert_eq!((replay.text().as_str(), is_replay(&replay)), ("2", true));

        let seen = gateway.origin.seen();
        let of =
            |name: &str| seen.iter().map(|seen| seen.header(name).map(str::to_owned)).collect::<Vec<_>>();
        assert_eq!(of("tidegate-fence"), [Some("1".to_owned()), Some("2".to_owned())]);
        assert_eq!(of("tidegate-attempt"), [Some("1".to_owned()), Some("2".to_owned())]);
        assert_eq!(of("tidegate-operation"), vec![Some("charge".to_owned()); 2]);
        assert_eq!(of("tidegate-key"), vec![Some("k1".to_owned()); 2]);
        let owners = of("tidegate-owner");
        assert_ne!(owners[0], owners[1]);
        assert!(owners.iter().all(|owner| owner.as_ref().unwrap().len() == 32), "{owners:?}");
    });
}

#[test]
fn i2_without_a_winner_yet_the_late_client_gets_409() {
    let gateway = Gateway::start(TAKEOVER);
    let (first, second) = (Gate::new(), Gate::new());
    numbered(&gateway, "/pay", vec![first.clone(), second.clone()]);
    let late = gateway.post_later("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    let winner = std::thread::spawn({
        let addr = gateway.addr;
        move || loop {
            let response = request(addr, "POST", "/pay", &[("Idempotency-Key", "k1")], b"{}");
            if response.status != 409 {
                return response;
            }
        }
    });
    gateway.origin.wait_calls("/pay", 2);
    first.open();
    assert_eq!(outcome(&late.join().unwrap()), (409, "superseded".to_owned()));
    second.open();
    assert_eq!(winner.join().unwrap().text(), "2");
    assert_eq!(gateway.post("/pay", "k1", "{}").text(), "2");
}

/// An attempt that was overtaken by another request under the same key must not be told its result.
#[test]
fn i2_the_result_of_another_request_is_not_the_late_clients() {
    let rules = TAKEOVER.replace("retention: 1h", "retention: 700ms");
    let gateway = Gateway::start(&rules);
    let gate = Gate::new();
    numbered(&gateway, "/pay", vec![gate.clone()]);
    let late = gateway.post_later("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    // Past the retention, the key is free for another intent.
    let other = tidegate_testkit::wait_for("the key to be free", || {
        Some(gateway.post("/pay", "k1", "{\"another\":1}")).filter(|response| response.status == 200)
    });
    assert_eq!(other.text(), "2");
    gate.open();
    assert_eq!(outcome(&late.join().unwrap()), (409, "superseded".to_owned()));
}

#[test]
fn i4_losers_of_an_insert_race_get_409_or_the_replay() {
    let gateway = Gateway::start(ONCE);
    let sibling = gateway.sibling();
    gateway.origin.on("/pay", Exchange::echo);
    let keys = 12;
    for key in 0..keys {
        let calls: Vec<_> = (0..16)
            .map(|call| {
                let of = if call % 2 == 0 { &gateway } else { &sibling };
                of.post_later("/pay", &format!("k{key}"), "{}")
            })
            .collect();
        for call in calls {
            let response = call.join().unwrap();
            assert!(matches!(response.status, 200 | 409), "{response:?}");
        }
    }
    assert_eq!(gateway.origin.calls("/pay"), keys);
    for key in 0..keys {
        assert!(is_replay(&sibling.post("/pay", &format!("k{key}"), "{}")));
    }
}

#[test]
fn i6_equality_of_bodies_is_the_rules_choice() {
    let gateway = Gateway::start(
        "
resources:
  - { id: raw, match: { path: /raw } }
  - { id: pointed, match: { path: /pointed } }
idempotency:
  - { id: by-bytes, resources: [raw], scope: [], key: { from: header.idempotency-key } }
  - { id: by-value, resources: [pointed], scope: [], key: { from: header.idempotency-key }, fingerprint: [body./a, body./list/0] }
",
    );
    let first = r#"{"a": {"x": 1, "y": 2}, "list": [5, 6], "secret": 1}"#;
    for target in ["/raw", "/pointed"] {
        let response = gateway.post(target, "k1", first);
        assert_eq!((response.status, is_replay(&response)), (200, false));
        assert!(is_replay(&gateway.post(target, "k1", first)));
    }
    let reordered = r#"{"secret":2,"list":[5,7],"a":{"y":2,"x":1}}"#;
    assert!(is_replay(&gateway.post("/pointed", "k1", reordered)));
    for (target, body, fields) in [
        ("/raw", reordered, vec!["body"]),
        ("/pointed", r#"{"a": {"x": 1, "y": 3}, "list": [5]}"#, vec!["body./a"]),
        ("/pointed", r#"{"a": {"x": 1.0, "y": 2}, "list": [51234567]}"#, vec!["body./a", "body./list/0"]),
        ("/pointed", "not json", vec!["body./a", "body./list/0"]),
        ("/pointed", "", vec!["body./a", "body./list/0"]),
    ] {
        let response = gateway.post(target, "k1", body);
        assert_eq!(outcome(&response), (422, "idempotency-key-reused".to_owned()), "{body}");
        let told: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(told["fields"], serde_json::json!(fields), "{body}");
        assert!(!response.text().contains("51234567"), "it says which, never what: {told}");
    }
    assert_eq!(gateway.origin.seen().len(), 2);
}

/// A response with every kind of header that must not come back.
const FULL_ANSWER: &[u8] = b"HTTP/1.1 201 Created\r\n\
    Content-Type: application/json; charset=utf-8\r\n\
    Link: </a>; rel=\"next\", </b>; rel=\"last\"\r\n\
    Link: </c>; rel=\"prev\"\r\n\
    Expires: Wed, 21 Oct 2026 07:28:00 GMT\r\n\
    X-Padded: a  b \t c\r\n\
    X-Empty:\r\n\
    ETag: W/\"1\"\r\n\
    Set-Cookie: session=secret\r\n\
    Date: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
    Connection: x-hop\r\n\
    X-Hop: 1\r\n\
    Keep-Alive: timeout=5\r\n\
    RateLimit: \"theirs\";r=1\r\n\
    RateLimit-Policy: \"theirs\";q=1\r\n\
    X-RateLimit-Remaining: 1\r\n\
    X-Not-Listed: 1\r\n\
    Content-Length: 2\r\n\r\n{}";

#[test]
fn i7_i8_headers_are_replayed_as_they_were_or_not_at_all() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { path: /pay } }
limits:
  - { id: per-second, resources: [pay], token_bucket: { capacity: 100, refill: 50/s } }
idempotency:
  - id: once
    resources: [pay]
    scope: []
    key: { from: header.idempotency-key }
    replay_headers: [content-type, link, expires, x-padded, x-empty, etag]
",
    );
    gateway.origin.on("/pay", |exchange| {
        exchange.body()?;
        exchange.raw(FULL_ANSWER)
    });
    let raw_head = |key: &str| {
        let mut connection = gateway.begin("/pay", key, "{}");
        let response = connection.read_response(false).unwrap();
        assert_eq!((response.status, response.text().as_str()), (201, "{}"));
        response
    };
    let first = raw_head("k1");
    assert_eq!(first.header("set-cookie"), Some("session=secret"));
    assert_eq!(first.header_all("ratelimit"), ["\"theirs\";r=1", "\"per-second\";r=99;t=1"]);
    let replay = raw_head("k1");
    assert!(is_replay(&replay));
    for name in ["content-type", "link", "expires", "x-padded", "x-empty", "etag"] {
        assert_eq!(replay.header_all(name), first.header_all(name), "{name}");
        assert!(!first.header_all(name).is_empty(), "{name}");
    }
    assert_eq!(replay.header_all("link").len(), 2);
    for name in ["set-cookie", "x-hop", "keep-alive", "x-ratelimit-remaining", "x-not-listed"] {
        assert_eq!(replay.header(name), None, "{name}");
    }
    // The date is this answer's, and the limits are those of this call.
    assert_ne!(replay.header("date"), Some("Wed, 21 Oct 2015 07:28:00 GMT"));
    assert_eq!(replay.header_all("ratelimit").len(), 1);
    assert!(replay.header("ratelimit").unwrap().starts_with("\"per-second\""), "{replay:?}");
    assert_eq!(gateway.origin.calls("/pay"), 1);
}

#[test]
fn i9_bodies_are_replayed_byte_by_byte() {
    on_each_store(ONCE, |gateway| {
        let every_byte: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        // gzip of "hello"; what matters is that nobody decodes it.
        let gzip = [
            0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36,
            5, 0, 0, 0,
        ];
        for (key, headers, body) in [
            ("bytes", vec![("Content-Type", "application/octet-stream")], every_byte.as_slice()),
            ("empty", vec![], b"".as_slice()),
            ("gzip", vec![("Content-Encoding", "gzip"), ("Content-Type", "text/plain")], &gzip),
        ] {
            let (answer_headers, answer) = (headers.clone(), body.to_vec());
            gateway.origin.on("/pay", move |exchange| exchange.respond(200, &answer_headers, &answer));
            let first = gateway.post("/pay", key, "{}");
            let replay = gateway.post("/pay", key, "{}");
            assert!(!is_replay(&first) && is_replay(&replay), "{key}");
            assert!(first.body == body && replay.body == body, "{key}");
            assert_eq!(replay.header("content-length"), Some(body.len().to_string().as_str()), "{key}");
            for (name, value) in headers {
                assert_eq!(replay.header(name), Some(value), "{key}");
            }
        }
        // An answer in chunks, of which the length is not known before.
        gateway.origin.on("/pay", |exchange| {
            exchange.body()?;
            exchange.start_chunked(&[])?;
            for piece in ["one", "two", ""] {
                exchange.chunk(piece.as_bytes())?;
            }
            Ok(())
        });
        for replayed in [false, true] {
            let response = gateway.post("/pay", "chunks", "{}");
            assert_eq!((response.text().as_str(), is_replay(&response)), ("onetwo", replayed));
        }
    });
}

#[test]
fn i10_i11_i12_keys_of_every_shape() {
    let gateway = Gateway::start(ONCE);
    let k255 = "k".repeat(255);
    let k256 = "k".repeat(256);
    let quoted = format!("\"{k255}\"");
    let invalid = "idempotency-key-invalid";
    for (lines, expected) in [
        (vec![k255.as_str()], None),
        (vec![quoted.as_str()], Some("replay")),
        (vec![k256.as_str()], Some(invalid)),
        (vec!["\"abc\""], None),
        (vec!["abc"], Some("replay")),
        (vec!["ABC"], None),
        (vec!["\"a\\\"b\\\\\""], None),
        (vec!["a\"b\\"], Some("replay")),
        (vec!["a b"], Some(invalid)),
        (vec!["k1, k2"], Some(invalid)),
        (vec!["\"k1 \""], Some(invalid)),
        (vec!["\" k1\""], Some(invalid)),
        (vec!["\"k1\";a=1"], Some(invalid)),
        (vec!["\"k1"], Some(invalid)),
        (vec!["\"\""], Some(invalid)),
        (vec![""], Some(invalid)),
        (vec!["💳"], Some(invalid)),
        (vec!["a\tb"], Some(invalid)),
        (vec!["k1", "k2"], Some(invalid)),
        (vec!["k1", "k1"], Some(invalid)),
        (vec![], Some("idempotency-key-missing")),
    ] {
        let headers: Vec<_> = lines.iter().map(|line| ("Idempotency-Key", *line)).collect();
        let before = gateway.origin.calls("/pay");
        let response = gateway.send("POST", "/pay", &headers, b"{}");
        let executed = gateway.origin.calls("/pay") - before;
        match expected {
            None => {
                assert_eq!((response.status, is_replay(&response), executed), (200, false, 1), "{lines:?}");
            }
            Some("replay") => {
                assert_eq!((response.status, is_replay(&response), executed), (200, true, 0), "{lines:?}");
            }
            Some(name) => {
                assert_eq!(outcome(&response), (400, name.to_owned()), "{lines:?}");
                assert_eq!(executed, 0, "{lines:?}");
            }
        }
    }
    // Control bytes make it no HTTP; bytes above ASCII are for the gate to refuse.
    for (bytes, problem_expected) in [(&b"a\x01b"[..], false), (b"a\x7fb", false), (b"\xff\xfe", true)] {
        let mut connection = Connection::open(gateway.addr).unwrap();
        let mut head = b"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: ".to_vec();
        head.extend_from_slice(bytes);
        head.extend_from_slice(b"\r\nContent-Length: 2\r\n\r\n{}");
        connection.send(head).unwrap();
        let response = connection.read_response(false).unwrap();
        assert_eq!(response.status, 400, "{bytes:?}");
        if problem_expected {
            assert_eq!(problem(&response), invalid);
        }
    }
    let rows = gateway.database().number("SELECT count(*) FROM tidegate_idempotency");
    assert_eq!(rows, i64::try_from(gateway.origin.calls("/pay")).unwrap());
}

#[test]
fn i13_a_key_where_no_rule_asks_for_one_passes_through() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { methods: [POST], path: /pay } }
  - { id: open, match: { path: /open } }
idempotency:
  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key, required: false } }
",
    );
    for target in ["/open", "/unmatched"] {
        for _ in 0..2 {
            let headers = [("Idempotency-Key", "k1"), ("Idempotency-Key", "a b")];
            let response = gateway.send("POST", target, &headers, b"{}");
            assert_eq!((response.status, is_replay(&response)), (200, false));
            let seen = gateway.origin.last();
            let keys: Vec<_> = seen
                .headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"))
                .collect();
            assert_eq!(keys.len(), 2, "{seen:?}");
            assert_eq!(seen.header("tidegate-fence"), None);
        }
        assert_eq!(gateway.origin.calls(target), 2);
    }
    // A key that is not required and not there: no record, and no bound on the body.
    let large = vec![b'x'; 3 << 20];
    for _ in 0..2 {
        assert_eq!(gateway.send("POST", "/pay", &[], &large).status, 200);
    }
    assert_eq!(gateway.origin.calls("/pay"), 2);
    assert_eq!(gateway.database().number("SELECT count(*) FROM tidegate_idempotency"), 0);
}

#[test]
fn i14_a_client_that_goes_away_does_not_stop_the_execution() {
    on_each_store(ONCE, |gateway| {
        let gate = Gate::new();
        numbered(gateway, "/pay", vec![gate.clone()]);
        let client = gateway.begin("/pay", "k1", "{}");
        gateway.origin.wait_calls("/pay", 1);
        drop(client);
        assert_eq!(gateway.post("/pay", "k1", "{}").status, 409);
        gate.open();
        let replay = gateway.post_until("/pay", "k1", |response| response.status != 409);
        assert_eq!((replay.status, replay.text().as_str(), is_replay(&replay)), (200, "1", true));
        assert_eq!(gateway.origin.calls("/pay"), 1);
    });
}

#[test]
fn i14_a_shutdown_waits_for_an_execution_whose_client_is_gone() {
    let gateway = Gateway::start(ONCE);
    let gate = Gate::new();
    let closed = Gate::new();
    let (held, seen_closed) = (gate.clone(), closed.clone());
    gateway.origin.on("/pay", move |exchange| {
        held.wait();
        let answered = exchange.respond(200, &[], b"done");
        seen_closed.open();
        answered
    });
    let client = gateway.begin("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    drop(client);
    gateway.terminate();
    gateway.program().wait_line("that it stops", |line| line.starts_with("stopping").then_some(()));
    // Nobody is connected any more; the execution alone holds the process.
    wait_until("nobody to be listened to", || Connection::open(gateway.addr).is_err());
    gate.open();
    let gateway = gateway.restart();
    let replay = gateway.post("/pay", "k1", "{}");
    assert_eq!((replay.status, replay.text().as_str(), is_replay(&replay)), (200, "done", true));
    assert_eq!(gateway.origin.calls("/pay"), 1);
}

#[test]
fn a_shutdown_that_may_not_wait_says_what_it_cut() {
    let gateway = Gateway::with(ONCE, Setup::flags(&["--drain", "100ms"]));
    let gate = Gate::new();
    numbered(&gateway, "/pay", vec![gate.clone()]);
    let client = gateway.begin("/pay", "k1", "{}");
    gateway.origin.wait_calls("/pay", 1);
    gateway.terminate();
    gateway
        .program()
        .wait_line("what was cut", |line| line.contains("cut 1 connection and 1 execution").then_some(()));
    drop(client);
    gate.open();
    // What it came to, nobody knows: it is not sent again.
    let gateway = gateway.crash_and_restart();
    assert_eq!(outcome(&gateway.post("/pay", "k1", "{}")), (409, "idempotency-in-progress".to_owned()));
    assert_eq!(gateway.origin.calls("/pay"), 1);
}

#[test]
fn i18_many_writers_get_no_errors() {
    let gateway = Gateway::start(ONCE);
    let sibling = gateway.sibling();
    let statuses: Arc<Mutex<Vec<Response>>> = Arc::default();
    let writers: Vec<_> = (0..24)
        .map(|writer| {
            let addr = if writer % 2 == 0 { gateway.addr } else { sibling.addr };
            let statuses = Arc::clone(&statuses);
            std::thread::spawn(move || {
                let mut connection = Connection::open(addr).unwrap();
                for call in 0..12 {
                    let key = format!("{writer}-{call}");
                    let response =
                        connection.request("POST", "/pay", &[("Idempotency-Key", &key)], b"{}").unwrap();
                    if response.status != 200 {
                        statuses.lock().unwrap().push(response);
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let failed = statuses.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(gateway.origin.calls("/pay"), 24 * 12);
}

#[test]
fn i19_a_response_that_is_too_large_is_executed_once_and_its_replay_says_so() {
    let rules = ONCE.replace("idempotency-key }", "idempotency-key }, max_response: 1KiB");
    on_each_store(&rules, |gateway| {
        for (key, length, kept) in [("at", 1024, true), ("over", 1025, false), ("far", 3 << 20, false)] {
            let body = vec![b'x'; length];
            let answer = body.clone();
            gateway.origin.on("/pay", move |exchange| {
                exchange.respond(201, &[("Location", "/orders/1"), ("Content-Type", "text/plain")], &answer)
            });
            let before = gateway.origin.calls("/pay");
            let first = gateway.post("/pay", key, "{}");
            assert!(first.status == 201 && first.body == body, "{key}");
            let replay = gateway.post("/pay", key, "{}");
            assert!(is_replay(&replay), "{key}");
            assert_eq!((replay.status, replay.header("location")), (201, Some("/orders/1")), "{key}");
            assert_eq!(replay.body.len(), if kept { length } else { 0 }, "{key}");
            let said = (!kept).then_some("omitted");
            assert_eq!(replay.header("tidegate-body"), said, "{key}");
            assert_eq!(gateway.origin.calls("/pay"), before + 1, "{key}");
        }
        // Streamed: the client has the beginning before the origin has sent the end.
        let gate = Gate::new();
        let held = gate.clone();
        gateway.origin.on("/pay", move |exchange| {
            exchange.body()?;
            exchange.start_chunked(&[])?;
            exchange.chunk(&[b'a'; 2000])?;
            held.wait();
            exchange.chunk(b"end")?;
            exchange.chunk(b"")
        });
        let mut streamed = gateway.begin("/pay", "streamed", "{}");
        assert_eq!(streamed.read_head().unwrap().status, 200);
        assert_eq!(streamed.read_chunk().unwrap().unwrap().len(), 2000);
        assert!(is_replay(&gateway.post("/pay", "streamed", "{}")));
        gate.open();
        assert_eq!(streamed.read_chunk().unwrap().unwrap(), b"end");
    });
}

#[test]
fn i20_clients_that_break_off_leave_no_claim_behind() {
    let gateway = Gateway::start(ONCE);
    // Some before the claim, some during it, some after it: whatever was claimed is executed.
    for key in 0..60 {
        let client = gateway.begin("/pay", &format!("k{key}"), "{}");
        for _ in 0..key {
            std::thread::yield_now();
        }
        drop(client);
    }
    for key in 0..60 {
        // What was claimed and not executed would never be: `hold` keeps it for an operator.
        let key = format!("k{key}");
        let response = gateway.post_until("/pay", &key, |response| response.status != 409);
        assert_eq!(response.status, 200, "{response:?}");
    }
    let states = "SELECT count(*) FROM tidegate_idempotency WHERE state = 'SUCCEEDED' AND attempts = 1";
    assert_eq!(gateway.database().number(states), 60);
    assert_eq!(gateway.origin.calls("/pay"), 60);
}

#[test]
fn i22_a_purge_does_not_disturb_claims() {
    let gateway = Gateway::start(ONCE);
    for key in ["live", "model"] {
        assert_eq!(gateway.post("/pay", key, "{}").status, 200);
    }
    // Copies of a finished row that ended long ago.
    gateway.database().run(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO tidegate_idempotency
         SELECT operation, scope, 'old-' || i, state, token, owner, fingerprint, commit_mode, on_unknown,
            retention_ms, window_ms, rules_version, flags, attempts, first_claimed_at, claimed_at,
            execution_until, 1000, 1000, 2000, status, headers, body
         FROM tidegate_idempotency, n WHERE key = 'model';
         UPDATE tidegate_idempotency SET changed_at = 1000, retention_ms = 1000 WHERE key LIKE 'old-%'",
    );
    let gateway = gateway.restart();
    // The first purge starts with the process. Keys of both ends are claimed again meanwhile.
    let calls: Vec<_> = (0..120)
        .map(|call| {
            let key = if call % 2 == 0 { call + 1 } else { 3000 - call };
            (key, gateway.post_later("/pay", &format!("old-{key}"), "{}"))
        })
        .collect();
    let claimed = calls.len();
    for (key, call) in calls {
        let response = call.join().unwrap();
        assert_eq!((response.status, is_replay(&response)), (200, false), "old-{key}");
    }
    let mut database = gateway.database();
    let count = "SELECT count(*) FROM tidegate_idempotency";
    let expected = i64::try_from(claimed + 2).unwrap();
    wait_until("what has expired to be gone", || database.number(count) == expected);
    for key in ["live", "model", "old-1"] {
        assert!(is_replay(&gateway.post("/pay", key, "{}")), "{key}");
    }
}

#[test]
fn i23_our_own_refusals_are_never_stored() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { path: /pay } }
limits:
  - { id: slow, resources: [pay], token_bucket: { capacity: 1, refill: 5/s } }
idempotency:
  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key } }
",
    );
    // On a slow machine a call may come late enough to pass: then another key is tried.
    let (key, denied) = tidegate_testkit::wait_for("a denial", || {
        let calls = gateway.origin.calls("/pay");
        gateway.post("/pay", &format!("spent-{calls}"), "{}");
        let key = format!("k{calls}");
        let response = gateway.post("/pay", &key, "{}");
        (response.status == 429).then_some((key, response))
    });
    assert_eq!(problem(&denied), "quota-exceeded");
    let executed = gateway.post_until("/pay", &key, |response| response.status != 429);
    assert_eq!((executed.status, is_replay(&executed)), (200, false));
}

#[test]
fn i24_one_key_in_two_operations_is_two_intents() {
    let rules = "
resources:
  - id: charge
    match: { path: '/charge/{order}' }
    attributes: { tenant: { from: header.x-tenant, missing: reject } }
  - id: refund
    match: { path: '/refund/{order}' }
    attributes: { tenant: { from: header.x-tenant, missing: reject } }
idempotency:
  - { id: charge-once, resources: [charge], scope: [tenant], key: { from: path.order } }
  - { id: refund-once, resources: [refund], scope: [tenant], key: { from: path.order } }
";
    let gateway = Gateway::start(rules);
    for target in ["/charge/o1", "/refund/o1", "/charge/o2"] {
        for tenant in ["acme", "umbrella"] {
            for replayed in [false, true] {
                let response = gateway.send("POST", target, &[("X-Tenant", tenant)], b"{}");
                assert_eq!((response.status, is_replay(&response)), (200, replayed), "{target} {tenant}");
            }
        }
    }
    // Whose key it is must be said.
    let response = gateway.send("POST", "/charge/o1", &[], b"{}");
    assert_eq!(outcome(&response), (400, "attribute-missing".to_owned()));
    assert_eq!(gateway.origin.seen().len(), 6);
}

#[test]
fn derived_keys_last_for_their_window() {
    let gateway = Gateway::start(
        "
resources:
  - id: coupon
    match: { path: /coupon }
    timeout: 4m
    attributes: { tenant: { from: header.x-tenant, missing: reject } }
idempotency:
  - { id: once, resources: [coupon], scope: [tenant], key: { derive: [tenant, body./sku], window: 1s }, fingerprint: [body./sku] }
",
    );
    let gate = Gate::new();
    let count = numbered(&gateway, "/coupon", vec![gate.clone()]);
    let acme = [("X-Tenant", "acme")];
    let post = |body: &str| gateway.send("POST", "/coupon", &acme, body.as_bytes());

    // The end of its window ends a finished record, never one in progress.
    let addr = gateway.addr;
    let held = std::thread::spawn(move || {
        request(addr, "POST", "/coupon", &[("X-Tenant", "acme")], br#"{"sku":"held"}"#)
    });
    gateway.origin.wait_calls("/coupon", 1);
    // Within a window a second request is a replay, whatever else is in it. A machine that stands still
    // may let the window end between the two: then they are sent again.
    let (first, again) = (r#"{"sku":"a"}"#, r#"{"note":1,"sku":"a"}"#);
    let executed = || {
        tidegate_testkit::wait_for("the window to end", || {
            let response = post(first);
            assert_eq!(response.status, 200);
            (!is_replay(&response)).then_some(response)
        })
    };
    for expected in 2..=3 {
        let number = tidegate_testkit::wait_for("two requests in one window", || {
            let number = executed().text();
            let response = post(again);
            (is_replay(&response) && response.text() == number).then_some(number)
        });
        assert!(number.parse::<usize>().unwrap() >= expected, "{number}");
    }
    assert_eq!(outcome(&post(r#"{"sku":"held"}"#)), (409, "idempotency-in-progress".to_owned()));
    gate.open();
    assert_eq!(held.join().unwrap().text(), "1");
    assert!(!is_replay(&post(r#"{"sku":"b"}"#)));
    assert!(!is_replay(&gateway.send("POST", "/coupon", &[("X-Tenant", "umbrella")], br#"{"sku":"a"}"#)));

    let executed = count.load(Ordering::SeqCst);
    for body in ["{}", r#"{"sku":null}"#, "not json", "", "[]"] {
        assert_eq!(outcome(&post(body)), (400, "attribute-missing".to_owned()), "{body}");
    }
    let response = gateway.send("POST", "/coupon", &[], br#"{"sku":"a"}"#);
    assert_eq!(outcome(&response), (400, "attribute-missing".to_owned()));
    assert_eq!(count.load(Ordering::SeqCst), executed);
}

#[test]
fn bodies_over_the_bound_are_refused_before_anything_is_claimed() {
    let setup =
        Setup { variables: vec![("TIDEGATE_LIMITS_MAX_BODY", "64KiB".to_owned())], ..Setup::default() };
    let gateway = Gateway::with(ONCE, setup);
    let at = "x".repeat(64 << 10);
    let over = "x".repeat((64 << 10) + 1);
    assert_eq!(gateway.post("/pay", "k1", &at).status, 200);
    assert_eq!(outcome(&gateway.post("/pay", "k2", &over)), (413, "body-too-large".to_owned()));
    // In chunks, without a length.
    let mut connection = Connection::open(gateway.addr).unwrap();
    let head = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k3\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.send(format!("{head}{:x}\r\n{over}\r\n", over.len())).unwrap();
    assert_eq!(outcome(&connection.read_response(false).unwrap()), (413, "body-too-large".to_owned()));
    assert!(connection.closed_within(DEADLINE));
    // Announced, and not even asked for.
    let mut connection = Connection::open(gateway.addr).unwrap();
    let head = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k4\r\nExpect: 100-continue\r\n";
    connection.send(format!("{head}Content-Length: 100000000\r\n\r\n")).unwrap();
    assert_eq!(connection.read_head().unwrap().status, 413);
    assert_eq!(gateway.database().number("SELECT count(*) FROM tidegate_idempotency"), 1);
    assert_eq!(gateway.origin.calls("/pay"), 1);
}

#[test]
fn a_key_that_is_refused_is_refused_before_the_body_is_asked_for() {
    let gateway = Gateway::start(ONCE);
    for (line, expected) in
        [("", "idempotency-key-missing"), ("Idempotency-Key: a b\r\n", "idempotency-key-invalid")]
    {
        let mut connection = Connection::open(gateway.addr).unwrap();
        let head = format!(
            "POST /pay HTTP/1.1\r\nHost: a\r\n{line}Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"
        );
        connection.send(head).unwrap();
        let response = connection.read_head().unwrap();
        assert_eq!(response.status, 400, "{expected}: {response:?}");
    }
}
