//! What no well-meaning client sends.

use std::time::Duration;

use tidegate_testkit::{Connection, DEADLINE, Exchange, Gate, Response};

use super::gateway::{Gateway, Setup, is_replay, outcome, problem};

const RULES: &str = "
resources:
  - { id: pay, match: { methods: [POST], path: /pay }, timeout: 4m }
  - { id: item, match: { path: '/items/{item}' }, attributes: { item: { from: path.item } } }
  - { id: any, match: { path: '/files/{*rest}' } }
limits:
  - { id: item, resources: [item], key: [item], token_bucket: { capacity: 2, refill: 1/h } }
idempotency:
  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key } }
";

/// Sends bytes as they are and reads one answer.
fn raw(gateway: &Gateway, bytes: impl AsRef<[u8]>) -> Response {
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send(bytes).unwrap();
    connection.read_response(false).unwrap()
}

fn get(gateway: &Gateway, target: &[u8]) -> Response {
    let mut bytes = b"GET ".to_vec();
    bytes.extend_from_slice(target);
    bytes.extend_from_slice(b" HTTP/1.1\r\nHost: a\r\n\r\n");
    raw(gateway, bytes)
}

#[test]
fn paths_that_could_be_read_in_two_ways_are_refused() {
    let gateway = Gateway::start(RULES);
    for target in [
        "/items/a%2Fb",
        "/items/a%2fb",
        "/items/a%5Cb",
        "/items/a\\b",
        "/items/%",
        "/items/%4",
        "/items/%zz",
        "/items/%00",
        "/items/%0a",
        "/items/%7f",
        "/items/..;x/pay",
        "/items/.;/pay",
        "/files/..%2f..%2fetc/passwd",
    ] {
        assert_eq!(outcome(&get(&gateway, target.as_bytes())), (400, "path-invalid".to_owned()), "{target}");
    }
    assert_eq!(gateway.origin.seen().len(), 0);
    // One path in other spellings is one path: for the rules, the limits and the upstream.
    for (target, normal, status) in [
        ("/items/a", "/items/a", 200),
        ("/items/%61", "/items/a", 200),
        ("//items///a", "/items/a", 429),
        ("/x/../items/./a", "/items/a", 429),
        ("/x/%2e%2E/items/%2e/a?q=%2F", "/items/a?q=%2F", 429),
        ("/../../items/a", "/items/a", 429),
        ("/items/A", "/items/A", 200),
        ("/items/a/", "/items/a/", 200),
        ("/files/%7eme/%e2%82%ac", "/files/~me/%E2%82%AC", 200),
        ("/files/a?b#c", "/files/a?b", 200),
    ] {
        let before = gateway.origin.seen().len();
        assert_eq!(get(&gateway, target.as_bytes()).status, status, "{target}");
        if status == 200 {
            assert_eq!(gateway.origin.last().target, normal, "{target}");
        } else {
            assert_eq!(gateway.origin.seen().len(), before, "{target}");
        }
    }
    // Bytes that are no ASCII are refused or encoded, and never passed on as they are.
    for target in [&b"/files/\xff"[..], "/files/é".as_bytes(), b"/files/\xc3\x28", b"/files/a\x7fb"] {
        let response = get(&gateway, target);
        assert!(matches!(response.status, 200 | 400), "{target:?}: {response:?}");
        if response.status == 200 {
            assert!(gateway.origin.last().target.is_ascii(), "{target:?}");
        }
    }
}

#[test]
fn every_kind_of_target_is_answered() {
    let gateway = Gateway::start(RULES);
    for (request, status, target) in [
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200, Some("*")),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400, None),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501, None),
        ("CONNECT /pay HTTP/1.1\r\nHost: a\r\n\r\n", 501, None),
        ("GET http://b.example/items/x?q HTTP/1.1\r\nHost: a\r\n\r\n", 200, Some("/items/x?q")),
        ("GET http://b.example HTTP/1.1\r\nHost: a\r\n\r\n", 200, Some("/")),
        ("GET http://me@b.example/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, None),
        ("GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400, None),
        ("GET items/x HTTP/1.1\r\nHost: a\r\n\r\n", 400, None),
        ("GET / HTTP/1.1\r\n\r\n", 400, None),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, None),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, None),
        ("GET / HTTP/1.0\r\n\r\n", 200, Some("/")),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400, None),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", 200, Some("/")),
        ("BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n", 200, Some("/pot")),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, None),
        ("\r\n\r\nGET /late HTTP/1.1\r\nHost: a\r\n\r\n", 200, Some("/late")),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\x7f", 400, None),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400, None),
        ("GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400, None),
        ("GET / HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n", 400, None),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", 400, None),
    ] {
        let before = gateway.origin.seen().len();
        let mut connection = Connection::open(gateway.addr).unwrap();
        connection.send(request).unwrap();
        let response = connection.read_response(false).unwrap();
        assert_eq!(response.status, status, "{request:?}: {response:?}");
        match target {
            Some(target) => assert_eq!(gateway.origin.last().target, target, "{request:?}"),
            None => assert_eq!(gateway.origin.seen().len(), before, "{request:?}"),
        }
    }
}

#[test]
fn requests_cannot_be_smuggled_past_the_gates() {
    let gateway = Gateway::start(RULES);
    gateway.origin.on("/files/x", Exchange::echo);
    let inner = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: smuggled\r\nContent-Length: 0\r\n\r\n";
    for framing in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", inner.len() + 5),
        "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde".to_owned(),
        "Content-Length: 4, 5\r\n\r\nabcde".to_owned(),
        "Content-Length: +4\r\n\r\nabcd".to_owned(),
        "Content-Length: -4\r\n\r\nabcd".to_owned(),
        "Content-Length: 0x4\r\n\r\nabcd".to_owned(),
        "Content-Length: 99999999999999999999\r\n\r\nabcd".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n4;\n\r\nabcd\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n-4\r\nabcd\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabcd\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n4\r\nabcdX\r\n0\r\n\r\n".to_owned(),
        "X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "X-Bare: a\nContent-Length: 4\r\n\r\n".to_owned(),
        "X-Cr: a\rContent-Length: 4\r\n\r\n".to_owned(),
    ] {
        let before = gateway.origin.seen().len();
        let mut connection = Connection::open(gateway.addr).unwrap();
        // What a less careful server would take for a second request.
        let end = "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        connection.send(format!("POST /files/x HTTP/1.1\r\nHost: a\r\n{framing}{inner}{end}")).unwrap();
        let mut answers = Vec::new();
        while let Ok(answer) = connection.read_response(false) {
            answers.push(answer.status);
        }
        assert!(!answers.is_empty(), "{framing:?}");
        let seen = &gateway.origin.seen()[before..];
        for request in seen.iter().filter(|request| request.target == "/files/x") {
            // Exactly one framing, of our own making.
            let lengths =
                request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let codings =
                request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("transfer-encoding"));
            assert_eq!(lengths.count() + codings.count(), 1, "{framing:?}: {request:?}");
        }
        // If there was a second request, it was the gateway's own to see, and it passed the gates.
        for request in seen.iter().filter(|request| request.target == "/pay") {
            assert_eq!(request.header("tidegate-key"), Some("smuggled"), "{framing:?}: {request:?}");
            assert!(answers.len() > 1, "{framing:?}");
        }
    }
}

#[test]
fn floods_of_headers_and_bodies_are_bounded() {
    let setup = Setup {
        variables: vec![
            ("TIDEGATE_LIMITS_MAX_BODY", "64KiB".to_owned()),
            ("TIDEGATE_LIMITS_MAX_HEADER_SIZE", "16KiB".to_owned()),
            ("TIDEGATE_TIMEOUTS_HEADER", "300ms".to_owned()),
            ("TIDEGATE_TIMEOUTS_BODY", "300ms".to_owned()),
        ],
        ..Setup::default()
    };
    let gateway = Gateway::with(RULES, setup);
    let long = "x".repeat(20_000);
    let many = "X: 1\r\n".repeat(200);
    for head in [format!("X: {long}\r\n"), many, format!("Cookie: {long}\r\n"), format!("{long}: 1\r\n")] {
        assert_eq!(raw(&gateway, format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n")).status, 431);
    }
    assert!(matches!(get(&gateway, format!("/{long}").as_bytes()).status, 414 | 431));
    let memory = gateway.resident();
    // A body without an end, for a rule that needs it whole.
    let mut connection = Connection::open(gateway.addr).unwrap();
    let head = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k1\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.send(head).unwrap();
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    while connection.send(&chunk).is_ok() {}
    // The same in pieces of one byte, each with more framing than content.
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send(head.replace("k1", "k2")).unwrap();
    let tiny = "1;extension=of-the-chunk\r\nx\r\n".repeat(1000);
    while connection.send(&tiny).is_ok() {}
    assert!(gateway.resident().saturating_sub(memory) < 32 << 20);
    // One that stops in the middle, in its head and in its body.
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send("POST /pay HTTP/1.1\r\nHost: a\r\nIdempo").unwrap();
    assert_eq!(connection.read_response(false).unwrap().status, 408);
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection
        .send("POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k3\r\nContent-Length: 10\r\n\r\nhalf")
        .unwrap();
    let response = connection.read_response(false).unwrap();
    assert_eq!(outcome(&response), (400, "body-incomplete".to_owned()));
    assert!(connection.closed_within(DEADLINE));
    assert_eq!(gateway.origin.seen().len(), 0);
    assert_eq!(gateway.database().number("SELECT count(*) FROM tidegate_idempotency"), 0);
    assert_eq!(gateway.post("/pay", "k3", "{}").status, 200);
}

#[test]
fn bodies_of_every_wrong_shape_are_answered() {
    let gateway = Gateway::start(
        "
resources:
  - id: pay
    match: { methods: [POST], path: /pay }
    attributes:
      sku: { from: body./sku, missing: reject }
      deep: { from: body./a/b/c }
idempotency:
  - { id: once, resources: [pay], scope: [sku], key: { from: body./key } }
",
    );
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let missing = (400, "attribute-missing".to_owned());
    for (body, expected) in [
        ("", &missing),
        ("null", &missing),
        ("[]", &missing),
        ("{\"sku\":null,\"key\":\"k\"}", &missing),
        ("{\"sku\":{},\"key\":\"k\"}", &missing),
        ("{\"sku\":[1],\"key\":\"k\"}", &missing),
        ("{\"sku\":\"a\"", &missing),
        (deep.as_str(), &missing),
        ("\u{feff}{\"sku\":\"a\"}", &missing),
        ("{\"sku\":\"a\"}", &(400, "idempotency-key-missing".to_owned())),
        ("{\"sku\":\"a\",\"key\":\"\"}", &(400, "idempotency-key-invalid".to_owned())),
        ("{\"sku\":\"a\",\"key\":\"a b\"}", &(400, "idempotency-key-invalid".to_owned())),
        ("{\"sku\":\"a\",\"key\":\"k \"}", &(400, "idempotency-key-invalid".to_owned())),
        ("{\"sku\":\"a\",\"key\":{\"x\":1}}", &(400, "idempotency-key-missing".to_owned())),
    ] {
        let response = gateway.send("POST", "/pay", &[], body.as_bytes());
        assert_eq!(&outcome(&response), expected, "{}", &body[..body.len().min(60)]);
    }
    let bytes = gateway.send("POST", "/pay", &[], &[0xff, 0xfe, 0x00]);
    assert_eq!(outcome(&bytes), missing);
    for replayed in [false, true] {
        let response = gateway.send("POST", "/pay", &[], b"{\"sku\":1.50,\"key\":17,\"a\":{\"b\":3}}");
        assert_eq!((response.status, is_replay(&response)), (200, replayed));
    }
    assert_eq!(gateway.origin.last().header("tidegate-scope"), Some("/1.50"));
    assert_eq!(gateway.origin.last().header("tidegate-key"), Some("17"));
}

#[test]
fn head_and_old_http_get_what_they_can_read() {
    let gateway = Gateway::start(RULES);
    for expected in [200, 200, 429] {
        let mut connection = Connection::open(gateway.addr).unwrap();
        connection.send("HEAD /items/h HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let response = connection.read_response(true).unwrap();
        assert_eq!(response.status, expected);
        // No body follows: the next answer on this connection begins where it should.
        let next = connection.request("GET", "/other", &[], b"").unwrap();
        assert_eq!((next.status, next.text().as_str()), (200, "ok"));
    }
    gateway.origin.on("/files/stream", |exchange| {
        exchange.start_chunked(&[])?;
        exchange.chunk(b"streamed")?;
        exchange.chunk(b"")
    });
    let old = raw(&gateway, "GET /files/stream HTTP/1.0\r\n\r\n");
    assert_eq!((old.status, old.text().as_str()), (200, "streamed"));
    assert_eq!(old.header("transfer-encoding"), None, "HTTP/1.0 knows no chunks: {old:?}");
    let refused = raw(&gateway, "GET /items/h HTTP/1.0\r\n\r\n");
    assert_eq!((refused.status, problem(&refused).as_str()), (429, "quota-exceeded"));
    let post = "POST /pay HTTP/1.0\r\nIdempotency-Key: old\r\nContent-Length: 2\r\n\r\n{}";
    for replayed in [false, true] {
        let response = raw(&gateway, post);
        assert_eq!((response.status, is_replay(&response)), (200, replayed));
    }
}

#[test]
fn an_upgrade_under_an_idempotency_key_is_an_ordinary_call() {
    let gateway = Gateway::start(RULES);
    gateway.origin.on("/pay", |exchange| {
        if exchange.request.header("upgrade").is_some() {
            return exchange
                .raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
        }
        exchange.respond(200, &[], b"plain")
    });
    let headers = [("Connection", "upgrade"), ("Upgrade", "x"), ("Idempotency-Key", "k1")];
    for replayed in [false, true] {
        let response = gateway.send("POST", "/pay", &headers, b"{}");
        assert_eq!((response.status, response.text().as_str()), (200, "plain"), "{response:?}");
        assert_eq!(is_replay(&response), replayed);
    }
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let gateway = Gateway::start(RULES);
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/pay", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"first")
    });
    let mut connection = Connection::open(gateway.addr).unwrap();
    let post = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k1\r\nContent-Length: 2\r\n\r\n{}";
    connection.send(format!("{post}{post}GET /items/p HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
    gateway.origin.wait_calls("/pay", 1);
    gate.open();
    let answers: Vec<_> = (0..3).map(|_| connection.read_response(false).unwrap()).collect();
    assert_eq!((answers[0].text().as_str(), is_replay(&answers[0])), ("first", false));
    assert_eq!((answers[1].text().as_str(), is_replay(&answers[1])), ("first", true));
    assert_eq!(answers[2].text(), "ok");
}

#[test]
fn slow_clients_hold_up_nobody_else() {
    let gateway = Gateway::start(RULES);
    let mut slow: Vec<_> = (0..50)
        .map(|client| {
            let mut connection = Connection::open(gateway.addr).unwrap();
            let head = format!("POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: slow{client}\r\n");
            connection.send(format!("{head}Content-Length: 4\r\n\r\n{{")).unwrap();
            connection
        })
        .collect();
    for call in 0..20 {
        assert_eq!(gateway.post("/pay", &format!("k{call}"), "{}").status, 200);
    }
    for connection in &mut slow {
        connection.send("  }").unwrap();
        connection.stream().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(connection.read_response(false).unwrap().status, 200);
    }
    assert_eq!(gateway.origin.calls("/pay"), 70);
}
