//! Limits over HTTP.

use std::time::Duration;

use tidegate_testkit::{Connection, Gate, request, wait_for, wait_until};

use super::gateway::{Gateway, Setup, outcome, problem, retry_after};

/// A bucket that does not refill while a test runs, in a rule file: capacity and how it is called.
const SLOW: &str = "refill: 1/h";

fn body(response: &tidegate_testkit::Response) -> serde_json::Value {
    serde_json::from_slice(&response.body).unwrap()
}

/// `r=` of the item of `rule` in `RateLimit`.
fn remaining(response: &tidegate_testkit::Response, rule: &str) -> u64 {
    let lines = response.header_all("ratelimit").join(", ");
    let item = lines.split(", ").find(|item| item.starts_with(&format!("\"{rule}\";"))).unwrap();
    item.split(';').find_map(|parameter| parameter.strip_prefix("r=")).unwrap().parse().unwrap()
}

#[test]
fn l5_a_denial_says_when_and_a_call_at_that_moment_passes() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { path: /pay } }
  - { id: rare, match: { path: /rare } }
limits:
  - { id: slow, resources: [pay], token_bucket: { capacity: 1, refill: 10/19s } }
  - { id: slower, resources: [rare], token_bucket: { capacity: 1, refill: 10/19h } }
",
    );
    let first = gateway.get("/pay");
    assert_eq!(first.status, 200);
    assert_eq!(first.header("ratelimit-policy"), Some("\"slow\";q=1;w=2"));
    assert_eq!(first.header("ratelimit"), Some("\"slow\";r=0;t=2"));
    assert_eq!(first.header("retry-after"), None);
    // 1.9 h, less the moment since the first, rounded up.
    assert_eq!(gateway.get("/rare").status, 200);
    let rare = gateway.get("/rare");
    assert_eq!(rare.status, 429);
    assert!((6_700..=6_840).contains(&retry_after(&rare)), "{rare:?}");
    // On a machine that stands still the bucket may be full again before the next call.
    let denied = wait_for("a denial", || Some(gateway.get("/pay")).filter(|answer| answer.status == 429));
    let told = retry_after(&denied);
    let since = tidegate_testkit::wait::Deadline::after(Duration::from_secs(told));
    assert_eq!(outcome(&denied), (429, "quota-exceeded".to_owned()));
    // Up to 1.9 s, rounded up.
    assert!((1..=2).contains(&told), "{told}");
    assert_eq!(denied.header("ratelimit"), Some(format!("\"slow\";r=0;t={told}").as_str()));
    let told = body(&denied);
    assert_eq!(told["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(told["violated-policies"], serde_json::json!(["slow"]));
    assert_eq!((&told["rule"], &told["reason"]), (&"slow".into(), &"quota-exceeded".into()));
    assert!(told["version"].as_str().unwrap().starts_with("1; digest="), "{told}");
    // Whoever comes back at that moment, not before, passes.
    std::thread::sleep(since.remaining());
    assert_eq!(gateway.get("/pay").status, 200);
}

#[test]
fn l10_several_limits_charge_all_or_nothing() {
    let gateway = Gateway::start(&format!(
        "
resources:
  - id: pay
    match: {{ path: /pay }}
    attributes: {{ user: {{ from: header.x-user }} }}
  - {{ id: other, match: {{ path: /other }} }}
limits:
  - {{ id: a, resources: [pay], token_bucket: {{ capacity: 3, {SLOW} }} }}
  - {{ id: b, resources: [pay, other], token_bucket: {{ capacity: 100, {SLOW} }} }}
  - {{ id: everything, resources: '*', token_bucket: {{ capacity: 1000, {SLOW} }} }}
  - {{ id: per-user, resources: [pay], key: [user], concurrency: {{ max: 2 }} }}
"
    ));
    for call in 1..=10 {
        let response = gateway.get("/pay");
        assert_eq!(response.status, if call <= 3 { 200 } else { 429 });
        let policies = response.header("ratelimit-policy").unwrap();
        assert!(policies.contains("\"per-user\";q=2;qu=\"concurrent-requests\""), "{policies}");
        if call > 3 {
            assert_eq!(body(&response)["violated-policies"], serde_json::json!(["a"]));
            assert_eq!(remaining(&response, "b"), 97, "a denied call consumes nothing");
            assert_eq!(remaining(&response, "everything"), 997);
            assert_eq!(remaining(&response, "per-user"), 2, "and holds nothing");
        }
    }
    let other = gateway.get("/other");
    assert_eq!((remaining(&other, "b"), remaining(&other, "everything")), (96, 996));
    assert_eq!(gateway.origin.calls("/pay"), 3);
}

#[test]
fn an_upstreams_own_rate_limit_fields_are_kept_and_ours_appended() {
    let gateway = Gateway::start(&format!(
        "
resources:
  - {{ id: pay, match: {{ path: /pay }} }}
limits:
  - {{ id: ours, resources: [pay], token_bucket: {{ capacity: 3, {SLOW} }} }}
  - {{ id: off, resources: [pay], mode: 'off', token_bucket: {{ capacity: 1, {SLOW} }} }}
"
    ));
    gateway.origin.answer(
        "/pay",
        200,
        &[("RateLimit", "\"theirs\";r=5"), ("RateLimit-Policy", "\"theirs\";q=9")],
        "",
    );
    let response = gateway.get("/pay");
    assert_eq!(response.header_all("ratelimit-policy")[0], "\"theirs\";q=9");
    assert_eq!(response.header_all("ratelimit").len(), 2);
    assert_eq!(remaining(&response, "ours"), 2);
    assert_eq!(remaining(&response, "theirs"), 5);
}

#[test]
fn shadow_mode_decides_and_never_refuses() {
    let gateway = Gateway::start(&format!(
        "
resources:
  - {{ id: pay, match: {{ path: /pay }} }}
limits:
  - {{ id: tried-out, resources: [pay], mode: shadow, token_bucket: {{ capacity: 1, {SLOW} }} }}
"
    ));
    for _ in 0..5 {
        let response = gateway.get("/pay");
        assert_eq!(response.status, 200);
        assert_eq!(response.header("ratelimit"), None, "what is not enforced is not told");
    }
    gateway.program().wait_line("a shadow denial", |line| {
        (line.contains("would deny (shadow)") && line.contains("tried-out")).then_some(())
    });
}

#[test]
fn costs_and_overrides_come_from_the_request() {
    let gateway = Gateway::start(&format!(
        "
resources:
  - id: pay
    match: {{ methods: [POST], path: /pay }}
    attributes:
      items: {{ from: body./items }}
      channel: {{ from: header.x-channel }}
limits:
  - id: items
    resources: [pay]
    key: [channel]
    cost: {{ from: items, default: 2, max: 8 }}
    token_bucket: {{ capacity: 10, {SLOW} }}
    overrides: [ {{ when: {{ channel: {{ equals: app }} }}, token_bucket: {{ capacity: 100, {SLOW} }} }} ]
"
    ));
    let post =
        |channel: &str, body: &str| gateway.send("POST", "/pay", &[("X-Channel", channel)], body.as_bytes());
    for text in
        ["0", "9", "-1", "1.5", "\"x\"", "\"\"", "\"+1\"", "\" 1\"", "99999999999999999999999", "1e1", "true"]
    {
        let response = post("web", &format!("{{\"items\":{text}}}"));
        assert_eq!(outcome(&response), (400, "cost-invalid".to_owned()), "{text}");
        assert!(!response.text().contains("999999"), "{}", response.text());
    }
    for (text, left) in [("5", 5), ("\"1\"", 4), ("null", 2)] {
        let response = post("web", &format!("{{\"items\":{text}}}"));
        assert_eq!((response.status, remaining(&response, "items")), (200, left), "{text}");
    }
    // Without a body that can be read, the default.
    assert_eq!(remaining(&post("web", "not json"), "items"), 0);
    assert_eq!(post("web", "{}").status, 429);
    let app = post("app", "{\"items\":8}");
    assert_eq!((app.status, remaining(&app, "items")), (200, 92));
    assert!(app.header("ratelimit-policy").unwrap().contains("q=100"), "{app:?}");
    // A missing channel is one of its own, and not the empty one.
    assert_eq!(remaining(&gateway.send("POST", "/pay", &[], b"{}"), "items"), 8);
    assert_eq!(remaining(&post("", "{}"), "items"), 8);
    assert_eq!(gateway.origin.calls("/pay"), 7);
}

#[test]
fn l15_a_cost_that_never_fits_says_so() {
    let gateway = Gateway::start(&format!(
        "
resources:
  - id: pay
    match: {{ path: /pay }}
    attributes: {{ items: {{ from: query.items }} }}
limits:
  - {{ id: items, resources: [pay], cost: {{ from: items, default: 1, max: 100 }}, token_bucket: {{ capacity: 10, {SLOW} }} }}
"
    ));
    let denied = gateway.get("/pay?items=100");
    assert_eq!(outcome(&denied), (429, "quota-exceeded".to_owned()));
    assert_eq!(denied.header("retry-after"), None, "waiting does not help");
    assert!(denied.text().contains("can never pass"), "{}", denied.text());
    assert_eq!(remaining(&gateway.get("/pay?items=9"), "items"), 1);
}

const CONCURRENCY: &str = "
resources:
  - { id: pay, match: { path: /pay }, timeout: 4m }
limits:
  - { id: two, resources: [pay], concurrency: { max: 2 } }
";

#[test]
fn concurrency_is_given_back_when_the_answers_last_byte_is_out() {
    let gateway = Gateway::start(CONCURRENCY);
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/pay", move |exchange| {
        exchange.start_chunked(&[])?;
        exchange.chunk(b"begin")?;
        held.wait();
        exchange.chunk(b"end")?;
        exchange.chunk(b"")
    });
    let mut streams: Vec<_> = (0..2)
        .map(|_| {
            let mut connection = Connection::open(gateway.addr).unwrap();
            connection.send("GET /pay HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert_eq!(connection.read_head().unwrap().status, 200);
            assert_eq!(connection.read_chunk().unwrap().unwrap(), b"begin");
            connection
        })
        .collect();
    // Both heads are out, and both bodies are not.
    let denied = gateway.get("/pay");
    assert_eq!(problem(&denied), "quota-exceeded");
    assert_eq!(denied.header("ratelimit"), Some("\"two\";r=0"));
    gate.open();
    for stream in &mut streams {
        assert_eq!(stream.read_chunk().unwrap().unwrap(), b"end");
        assert_eq!(stream.read_chunk().unwrap(), None);
    }
    wait_until("a permit", || gateway.get("/pay").status == 200);
}

#[test]
fn concurrency_is_given_back_when_a_client_goes_away() {
    for rules in [
        CONCURRENCY.to_owned(),
        // With a key the execution goes on without its client, and holds its permit until it is over.
        CONCURRENCY.to_owned()
            + "idempotency:\n  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key } }\n",
    ] {
        let gateway = Gateway::start(&rules);
        let keyed = rules.contains("idempotency");
        let gate = Gate::new();
        let held = gate.clone();
        gateway.origin.on("/pay", move |exchange| {
            if exchange.request.method == "POST" {
                held.wait();
            }
            exchange.respond(200, &[], b"ok")
        });
        let clients: Vec<_> =
            (0..2).map(|client| gateway.begin("/pay", &format!("k{client}"), "{}")).collect();
        gateway.origin.wait_calls("/pay", 2);
        let get = || gateway.send("GET", "/pay", &[("Idempotency-Key", "other")], b"").status;
        assert_eq!(get(), 429);
        drop(clients);
        if keyed {
            assert_eq!(get(), 429);
            gate.open();
        }
        wait_until("a permit", || get() == 200);
        gate.open();
        // All of them, not one: two at a time again.
        let gate = Gate::new();
        let held = gate.clone();
        gateway.origin.on("/pay", move |exchange| {
            held.wait();
            exchange.respond(200, &[], b"ok")
        });
        let before = gateway.origin.calls("/pay");
        let more: Vec<_> =
            (0..2).map(|call| gateway.post_later("/pay", &format!("more{call}"), "{}")).collect();
        gateway.origin.wait_calls("/pay", before + 2);
        gate.open();
        for call in more {
            assert_eq!(call.join().unwrap().status, 200);
        }
    }
}

#[test]
fn l16_a_leaky_bucket_makes_calls_wait_their_turn() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { path: /pay } }
  - { id: unqueued, match: { path: /unqueued } }
limits:
  - { id: shaped, resources: [pay], leaky_bucket: { rate: 4/s, queue: 3 } }
  - { id: strict, resources: [unqueued], leaky_bucket: { rate: 1/h, queue: 0 } }
",
    );
    let started = tidegate_testkit::wait::Deadline::after(Duration::from_mins(1));
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let addr = gateway.addr;
            std::thread::spawn(move || request(addr, "GET", "/pay", &[], b""))
        })
        .collect();
    let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    let took = Duration::from_mins(1).saturating_sub(started.remaining());
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    // One at once and three in the queue; whoever came when some had gone already got a later place.
    assert!(passed >= 4, "{passed}");
    let turns = u32::try_from(passed - 1).unwrap();
    assert!(took >= Duration::from_millis(250) * turns, "{passed} calls in {took:?}");
    for denied in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(problem(denied), "quota-exceeded");
        assert_eq!(retry_after(denied), 1);
    }
    assert_eq!(gateway.get("/unqueued").status, 200);
    let denied = gateway.get("/unqueued");
    assert_eq!(denied.status, 429);
    assert!((3_500..=3_600).contains(&retry_after(&denied)), "{denied:?}");
}

#[test]
fn l25_l26_a_client_is_known_by_the_address_after_trusted_hops() {
    let rules = "
resources:
  - id: pay
    match: { path: /pay }
    attributes: { ip: { from: client.ip } }
limits:
  - { id: per-client, resources: [pay], key: [ip], token_bucket: { capacity: 2, refill: 1/h } }
";
    // Without a trusted hop the header counts for nothing.
    let direct = Gateway::start(rules);
    let via = |gateway: &Gateway, forwarded: &str| {
        gateway.send("GET", "/pay", &[("X-Forwarded-For", forwarded)], b"").status
    };
    let spoofed: Vec<_> = (0..3).map(|n| via(&direct, &format!("198.51.100.{n}"))).collect();
    assert_eq!(spoofed, [200, 200, 429]);
    assert_eq!(direct.origin.last().header("x-forwarded-for"), Some("198.51.100.1, 127.0.0.1"));

    let behind = Gateway::with(rules, Setup::flags(&["--trusted-hops", "1"]));
    for (first, second, same) in [
        // What the client claims stands in front of what the trusted hop has seen.
        ("1.2.3.4, 203.0.113.1", "5.6.7.8, 203.0.113.1", true),
        ("203.0.113.1, 203.0.113.2", "203.0.113.1, 203.0.113.3", false),
        ("2001:db8:1:1::1", "2001:db8:1:1:ffff::2", true),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
        ("::ffff:192.0.2.1", "192.0.2.1", true),
        ("192.0.2.2:4711", "192.0.2.2", true),
        ("[2001:db8:1:4::1]:443", "2001:db8:1:4::9", true),
    ] {
        assert_eq!((via(&behind, first), via(&behind, first)), (200, 200), "{first}");
        assert_eq!(via(&behind, second), if same { 429 } else { 200 }, "{first} and {second}");
    }
    // Several lines are one list.
    let lines = [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "203.0.113.10")];
    for expected in [200, 200, 429] {
        assert_eq!(behind.send("GET", "/pay", &lines, b"").status, expected);
    }
    assert_eq!(via(&behind, "203.0.113.9"), 200);
}

#[test]
fn l9_l21_an_edited_limit_keeps_what_is_used() {
    let rules = |limit: u64, capacity: u64| {
        format!(
            "
resources:
  - {{ id: windowed, match: {{ path: /windowed }} }}
  - {{ id: bucket, match: {{ path: /bucket }} }}
limits:
  - {{ id: per-day, resources: [windowed], fixed_window: {{ limit: {limit}, window: 365d }} }}
  - {{ id: burst, resources: [bucket], token_bucket: {{ capacity: {capacity}, refill: 1/d }} }}
"
        )
    };
    let gateway = Gateway::start(&rules(10, 10));
    let passed =
        |target: &str, calls: usize| (0..calls).filter(|_| gateway.get(target).status == 200).count();
    // The 40 denials are not charged.
    assert_eq!((passed("/windowed", 50), passed("/bucket", 50)), (10, 10));
    gateway.edit(&rules(20, 100));
    gateway.wait_version(2);
    assert_eq!(passed("/windowed", 50), 10);
    assert_eq!(passed("/bucket", 200), 90);
    // Lowered below what is used, nothing is left; the next version gives back only what it adds.
    gateway.edit(&rules(15, 50));
    gateway.wait_version(3);
    assert_eq!((passed("/windowed", 5), passed("/bucket", 5)), (0, 0));
    gateway.edit(&rules(25, 110));
    gateway.wait_version(4);
    assert_eq!(passed("/windowed", 50), 5);
    // 110 − (50 − 0), and one for this call.
    assert_eq!(remaining(&gateway.get("/bucket"), "burst"), 59);
}

#[test]
fn l13_a_flood_of_keys_keeps_memory_bounded_and_throttled_keys_remembered() {
    let setup =
        Setup { variables: vec![("TIDEGATE_LIMITS_MAX_KEYS", "2000".to_owned())], ..Setup::default() };
    let gateway = Gateway::with(
        "
resources:
  - id: pay
    match: { path: /pay }
    attributes: { user: { from: header.x-user } }
limits:
  - { id: per-user, resources: [pay], key: [user], token_bucket: { capacity: 1, refill: 1/h } }
",
        setup,
    );
    let mut connection = Connection::open(gateway.addr).unwrap();
    let mut call = |user: &str| connection.request("GET", "/pay", &[("X-User", user)], b"").unwrap().status;
    assert_eq!((call("first"), call("first")), (200, 429));
    let before = gateway.resident();
    // Each name is some hundred bytes, so that a table that kept them would show.
    let name = |user: usize| format!("{user}-{}", "x".repeat(200));
    let passed = (0..8000).filter(|user| call(&name(*user)) == 200).count();
    // At the cap, new keys share one counter, which is spent at once: nobody gets more than he should.
    assert!((1000..=2001).contains(&passed), "{passed}");
    assert_eq!(call("first"), 429, "a throttled key is not forgotten");
    let grown = gateway.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for 2,000 keys");
}

#[test]
fn windows_end_for_waiting_clients() {
    let gateway = Gateway::start(
        "
resources:
  - { id: fixed, match: { path: /fixed } }
  - { id: log, match: { path: /log } }
  - { id: sliding, match: { path: /sliding } }
limits:
  - { id: f, resources: [fixed], fixed_window: { limit: 3, window: 1s } }
  - { id: l, resources: [log], sliding_log: { limit: 3, window: 1s } }
  - { id: s, resources: [sliding], sliding_window: { limit: 3, window: 1s } }
",
    );
    for target in ["/fixed", "/log", "/sliding"] {
        let denied = wait_for("a denial", || Some(gateway.get(target)).filter(|answer| answer.status == 429));
        assert!((1..=2).contains(&retry_after(&denied)), "{target}: {denied:?}");
        assert!(denied.header("ratelimit-policy").unwrap().contains(";q=3;w=1"), "{target}: {denied:?}");
        wait_until("the window to pass", || gateway.get(target).status == 200);
    }
}

#[test]
fn a_switched_stream_holds_its_concurrency_permit_until_it_ends() {
    let gateway = Gateway::start(
        "
resources:
  - { id: ws, match: { path: /ws } }
limits:
  - { id: streams, resources: [ws], concurrency: { max: 1 } }
",
    );
    gateway.origin.on("/ws", |exchange| {
        exchange
            .raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")?;
        exchange.wait_closed();
        Ok(())
    });
    let upgrade = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let open = || {
        let mut connection = Connection::open(gateway.addr).unwrap();
        connection.send(upgrade).unwrap();
        let status = connection.read_head().unwrap().status;
        (status, connection)
    };
    let (status, first) = open();
    assert_eq!(status, 101);
    for _ in 0..3 {
        assert_eq!(open().0, 429);
    }
    drop(first);
    wait_until("the permit to come back", || open().0 == 101);
}
