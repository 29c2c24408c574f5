//! Breakers and their fallbacks over HTTP.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use tidegate_testkit::{Connection, Gate, Origin, Response, request, wait_for, wait_until};

use super::gateway::{Gateway, Setup, is_replay, outcome, retry_after};

/// An origin whose status is set from outside.
fn switchable(origin: &Origin, path: &str) -> Arc<AtomicU16> {
    let status = Arc::new(AtomicU16::new(200));
    let now = Arc::clone(&status);
    origin.on(path, move |exchange| {
        let status = now.load(Ordering::SeqCst);
        exchange.respond(status, &[("Content-Type", "text/plain")], b"data")
    });
    status
}

/// Calls until the breaker of `target` refuses.
fn trip(gateway: &Gateway, target: &str) -> Response {
    wait_for("the breaker to open", || Some(gateway.get(target)).filter(is_open))
}

fn is_open(response: &Response) -> bool {
    response.status == 503 && response.header("content-type") == Some("application/problem+json")
}

fn rule_of(response: &Response) -> String {
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    body["rule"].as_str().unwrap().to_owned()
}

const FOREVER: &str = "open_for: 1h, max_open: 1h";
const SOON: &str = "open_for: 200ms, max_open: 1s, half_open: { probes: 1, probe_timeout: 1h }";

fn one(times: &str) -> String {
    format!(
        "
resources:
  - {{ id: data, match: {{ path: /data }}, timeout: 10m }}
breakers:
  - {{ id: guard, resources: [data], trip: [ {{ error_count: {{ at_least: 3 }} }} ], min_requests: 3, window: 1h, {times} }}
"
    )
}

#[test]
fn b14_answers_of_5xx_open_and_clients_are_told_when_to_come_back() {
    let gateway = Gateway::start(&one(FOREVER));
    let status = switchable(&gateway.origin, "/data");
    status.store(500, Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(gateway.get("/data").status, 500);
    }
    let mut told = BTreeSet::new();
    for _ in 0..30 {
        let refused = gateway.get("/data");
        assert_eq!(outcome(&refused), (503, "breaker-open".to_owned()));
        assert_eq!(rule_of(&refused), "guard");
        // An hour and up to a fifth, less the moment since, and up to half of that on top.
        let after = retry_after(&refused);
        assert!((3_500..=6_480).contains(&after), "{after}");
        told.insert(after);
    }
    assert!(told.len() > 1, "clients must not come back in one wave: {told:?}");
    assert_eq!(gateway.origin.calls("/data"), 3);
    // Other resources are not concerned.
    assert_eq!(gateway.get("/other").status, 200);
}

#[test]
fn b9_refusals_by_a_limit_are_not_errors() {
    let gateway = Gateway::start(
        &(one(FOREVER)
            + "limits:\n  - { id: few, resources: [data], token_bucket: { capacity: 2, refill: 1/h } }\n"),
    );
    let status = switchable(&gateway.origin, "/data");
    status.store(500, Ordering::SeqCst);
    let answers: Vec<_> = (0..20).map(|_| gateway.get("/data").status).collect();
    assert_eq!(answers.iter().filter(|status| **status == 500).count(), 2);
    assert_eq!(answers.iter().filter(|status| **status == 429).count(), 18);
    // Two failures and any number of denials: one more call, on a fresh counter, still goes through.
    gateway.edit(&one(FOREVER));
    gateway.wait_version(2);
    assert_eq!(gateway.get("/data").status, 500);
    assert_eq!(outcome(&gateway.get("/data")), (503, "breaker-open".to_owned()));
}

#[test]
fn b1_a_refusal_by_one_breaker_gives_back_the_probe_of_another() {
    let gateway = Gateway::start(
        "
resources:
  - { id: data, match: { path: /data }, timeout: 10m }
breakers:
  - { id: quick, resources: [data], trip: [ { error_count: { at_least: 3 } } ], min_requests: 3, window: 1h, open_for: 100ms, max_open: 100ms, half_open: { probes: 1, probe_timeout: 1h } }
  - { id: slow, resources: [data], trip: [ { error_count: { at_least: 3 } } ], min_requests: 3, window: 1h, open_for: 1s, max_open: 1s, half_open: { probes: 1, probe_timeout: 1h } }
",
    );
    let status = switchable(&gateway.origin, "/data");
    // On a machine that stands still both may be due for a probe at once: then they are opened again.
    wait_until("`quick` to be due while `slow` refuses", || {
        status.store(500, Ordering::SeqCst);
        trip(&gateway, "/data");
        status.store(200, Ordering::SeqCst);
        let mut refused_by = BTreeSet::new();
        // A probe of `quick` that stayed out would shut it for an hour, which nobody waits for here.
        wait_until("both to close", || {
            let response = gateway.get("/data");
            if is_open(&response) {
                refused_by.insert(rule_of(&response));
            }
            response.status == 200
        });
        refused_by.contains("slow")
    });
    for _ in 0..5 {
        assert_eq!(gateway.get("/data").status, 200);
    }
}

#[test]
fn b4_an_edit_does_not_close_an_open_breaker() {
    let gateway = Gateway::start(&one(FOREVER));
    let status = switchable(&gateway.origin, "/data");
    status.store(500, Ordering::SeqCst);
    trip(&gateway, "/data");
    status.store(200, Ordering::SeqCst);
    for (version, edited) in [
        (2, one(FOREVER).replace("at_least: 3", "at_least: 30")),
        (3, one(FOREVER).replace("min_requests: 3, window: 1h", "min_requests: 5, window: 20s")),
        (4, one(FOREVER).replace("resources: [data]", "resources: [data], key: [upstream_host]")),
        (5, one(FOREVER).replace("timeout: 10m", "timeout: 5s")),
    ] {
        gateway.edit(&edited);
        gateway.wait_version(version);
        assert_eq!(outcome(&gateway.get("/data")), (503, "breaker-open".to_owned()), "version {version}");
    }
    // Without the rule there is no breaker.
    gateway.edit("resources:\n  - { id: data, match: { path: /data } }\n");
    gateway.wait_version(6);
    assert_eq!(gateway.get("/data").status, 200);
}

#[test]
fn b5_a_probe_that_is_cancelled_gives_its_permit_back() {
    let gateway = Gateway::start(&one(SOON));
    let status = switchable(&gateway.origin, "/data");
    status.store(500, Ordering::SeqCst);
    trip(&gateway, "/data");
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/data", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"ok")
    });
    // Each of them is refused or becomes the probe.
    let mut tries = 0;
    let probe = wait_for("the probe", || {
        tries += 1;
        let target = format!("/data?try={tries}");
        let mut client = Connection::open(gateway.addr).unwrap();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
        client.stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        wait_for("the refusal or the call", || {
            if client.read_head().is_ok_and(|head| head.status == 503) {
                return Some(false);
            }
            gateway.origin.seen().iter().any(|seen| seen.target == target).then_some(true)
        })
        .then_some(client)
    });
    assert_eq!(outcome(&gateway.get("/data")), (503, "breaker-open".to_owned()));
    drop(probe);
    gate.open();
    // The next one is not held up for an hour.
    wait_until("the next probe to close it", || gateway.get("/data").status == 200);
    assert_eq!(gateway.get("/data").status, 200);
}

#[test]
fn b5_a_silent_probe_is_a_failure_and_its_late_result_is_ignored() {
    let gateway = Gateway::start(&one(SOON).replace("probe_timeout: 1h", "probe_timeout: 300ms"));
    let status = switchable(&gateway.origin, "/data");
    status.store(500, Ordering::SeqCst);
    trip(&gateway, "/data");
    let gate = Gate::new();
    let held = gate.clone();
    let silent = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&silent);
    gateway.origin.on("/data", move |exchange| {
        if still.swap(false, Ordering::SeqCst) {
            held.wait();
            return exchange.respond(200, &[], b"late");
        }
        exchange.respond(500, &[], b"bad")
    });
    let addr = gateway.addr;
    let before = gateway.origin.calls("/data");
    let late = std::thread::spawn(move || {
        loop {
            let response = request(addr, "GET", "/data", &[], b"");
            if response.status != 503 {
                return response;
            }
        }
    });
    gateway.origin.wait_calls("/data", before + 1);
    // Another probe is let through although the first is still out, and fails.
    wait_until("another probe", || gateway.get("/data").status == 500);
    gate.open();
    assert_eq!(late.join().unwrap().text(), "late");
    // The late success has closed nothing: neither then nor since.
    assert!(is_open(&trip(&gateway, "/data")));
    let admin = gateway.program().wait_address("admin on http://");
    let metrics = request(admin, "GET", "/metrics", &[], b"").text();
    let closed = metrics.lines().find(|line| {
        line.starts_with("tidegate_breaker_transitions_total{") && line.contains("to=\"closed\"")
    });
    assert_eq!(closed, None, "{metrics}");
    assert!(metrics.contains("to=\"open\""), "{metrics}");
}

#[test]
fn b15_of_many_that_race_into_half_open_one_is_admitted() {
    let gateway = Gateway::start(&one(SOON));
    let status = switchable(&gateway.origin, "/data");
    status.store(500, Ordering::SeqCst);
    trip(&gateway, "/data");
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/data", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"ok")
    });
    let before = gateway.origin.calls("/data");
    let racing = Arc::new(AtomicBool::new(true));
    let callers: Vec<_> = (0..16)
        .map(|_| {
            let (addr, racing) = (gateway.addr, Arc::clone(&racing));
            std::thread::spawn(move || {
                let mut connection = Connection::open(addr).unwrap();
                while racing.load(Ordering::SeqCst) {
                    let response = connection.request("GET", "/data", &[], b"").unwrap();
                    if response.status == 200 {
                        return true;
                    }
                }
                false
            })
        })
        .collect();
    gateway.origin.wait_calls("/data", before + 1);
    // The others go on being refused while the probe is out; once it is back, there is nothing to race for.
    racing.store(false, Ordering::SeqCst);
    wait_until("the others to end", || callers.iter().filter(|caller| caller.is_finished()).count() == 15);
    for _ in 0..50 {
        assert!(is_open(&gateway.get("/data")));
    }
    assert_eq!(gateway.origin.calls("/data"), before + 1);
    gate.open();
    let admitted = callers.into_iter().map(|caller| caller.join().unwrap()).filter(|probe| *probe).count();
    assert_eq!(admitted, 1);
    wait_until("it to close", || gateway.get("/data").status == 200);
}

#[test]
fn b18_one_bad_host_does_not_open_the_breakers_of_others() {
    let (good, bad) = (Origin::start(), Origin::start());
    let status = switchable(&bad, "/data");
    status.store(500, Ordering::SeqCst);
    let setup = Setup { upstreams: vec![good.url(), bad.url()], ..Setup::default() };
    let rules = one(FOREVER);
    let gateway = Gateway::with(
        &rules.replace("resources: [data]", "resources: [data], key: [upstream_host]"),
        setup.clone(),
    );
    trip(&gateway, "/data");
    let calls = bad.calls("/data");
    let answers: Vec<_> = (0..20).map(|_| gateway.get("/data").status).collect();
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 10, "{answers:?}");
    assert_eq!(answers.iter().filter(|status| **status == 503).count(), 10, "{answers:?}");
    assert_eq!(bad.calls("/data"), calls);
    // Without the key, one breaker stands for both.
    let gateway = Gateway::with(&rules, setup);
    trip(&gateway, "/data");
    assert!((0..10).all(|_| is_open(&gateway.get("/data"))));
}

#[test]
fn b19_fallbacks_are_tried_in_order_and_the_last_is_503() {
    let rules = "
resources:
  - { id: data, match: { methods: [GET, HEAD], path: '/data/{item}' } }
  - { id: fixed, match: { path: /fixed } }
breakers:
  - id: cached
    resources: [data]
    trip: [ { error_count: { at_least: 3 } } ]
    min_requests: 3
    window: 1h
    open_for: 1h
    max_open: 1h
    fallback: [ { cache: { ttl: 5m } } ]
  - id: fixed
    resources: [fixed]
    trip: [ { error_count: { at_least: 3 } } ]
    min_requests: 3
    window: 1h
    open_for: 1h
    max_open: 1h
    fallback: [ { respond: { status: 503, json: { \"status\": \"busy\" } } } ]
";
    let gateway = Gateway::start(rules);
    let kept = |exchange: &mut tidegate_testkit::Exchange| {
        exchange.respond(200, &[("ETag", "\"v1\""), ("Content-Type", "text/plain")], b"good")
    };
    gateway.origin.on("/data/1", kept);
    gateway
        .origin
        .on("/data/private", |exchange| exchange.respond(200, &[("Cache-Control", "private")], b"private"));
    for target in ["/data/1", "/data/1?q=2", "/data/private"] {
        assert_eq!(gateway.get(target).status, 200);
    }
    assert_eq!(gateway.send("GET", "/data/1", &[("Authorization", "me")], b"").status, 200);
    let status = switchable(&gateway.origin, "/data/bad");
    status.store(500, Ordering::SeqCst);
    trip(&gateway, "/data/bad");
    let calls = gateway.origin.seen().len();
    for _ in 0..2 {
        let hit = gateway.get("/data/1");
        assert_eq!((hit.status, hit.text().as_str()), (200, "good"));
        assert_eq!(hit.header("etag"), Some("\"v1\""));
        assert!(hit.header("age").unwrap().parse::<u64>().unwrap() < 300);
        assert_eq!(hit.header("cache-status").unwrap().split(';').next(), Some("tidegate"), "{hit:?}");
        assert!(hit.header("cache-status").unwrap().contains("hit"), "{hit:?}");
    }
    assert_eq!(gateway.get("/data/1?q=2").text(), "good");
    // Not this target, not this one's answer, and not for somebody who says who he is.
    for (target, headers) in [("/data/2", vec![]), ("/data/1?q=3", vec![]), ("/data/private", vec![])] {
        let missed = gateway.send("GET", target, &headers, b"");
        assert_eq!(outcome(&missed), (503, "breaker-open".to_owned()), "{target}");
        assert_eq!(missed.header("age"), None);
    }
    assert_eq!(gateway.origin.seen().len(), calls);

    let status = switchable(&gateway.origin, "/fixed");
    status.store(500, Ordering::SeqCst);
    let fixed =
        wait_for("the fixed answer", || Some(gateway.get("/fixed")).filter(|answer| answer.status == 503));
    assert_eq!(
        (fixed.header("content-type"), fixed.text().as_str()),
        (Some("application/json"), "{\"status\":\"busy\"}")
    );
    assert!(retry_after(&fixed) >= 3600);
    let head = gateway.send("HEAD", "/fixed", &[], b"");
    assert_eq!((head.status, head.body.len()), (503, 0));
}

/// Replays, 409 and 422 are answered whatever the dependency does, and nothing is claimed.
#[test]
fn while_a_breaker_is_open_the_idempotency_gate_still_answers() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { path: '/pay/{kind}' }, timeout: 4m }
idempotency:
  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key } }
breakers:
  - { id: guard, resources: [pay], trip: [ { error_count: { at_least: 3 } } ], min_requests: 3, window: 1h, open_for: 1h, max_open: 1h }
",
    );
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/pay/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"held")
    });
    switchable(&gateway.origin, "/pay/bad").store(500, Ordering::SeqCst);
    assert_eq!(gateway.post("/pay/good", "done", "{}").status, 200);
    let running = gateway.post_later("/pay/held", "running", "{}");
    gateway.origin.wait_calls("/pay/held", 1);
    for call in 0..3 {
        assert_eq!(gateway.post("/pay/bad", &format!("bad{call}"), "{}").status, 500);
    }
    let mut database = gateway.database();
    let rows = "SELECT count(*) FROM tidegate_idempotency";
    assert_eq!(database.number(rows), 5);
    for _ in 0..3 {
        assert!(is_replay(&gateway.post("/pay/good", "done", "{}")));
        assert_eq!(
            outcome(&gateway.post("/pay/good", "done", "[]")),
            (422, "idempotency-key-reused".to_owned())
        );
        let busy = gateway.post("/pay/held", "running", "{}");
        assert_eq!(outcome(&busy), (409, "idempotency-in-progress".to_owned()));
        assert_eq!(
            outcome(&gateway.post("/pay/good", "a b", "{}")),
            (400, "idempotency-key-invalid".to_owned())
        );
        let refused = gateway.post("/pay/good", "new", "{}");
        assert_eq!(outcome(&refused), (503, "breaker-open".to_owned()));
        assert!(retry_after(&refused) >= 3600);
    }
    assert_eq!(database.number(rows), 5, "nothing was claimed");
    gate.open();
    assert_eq!(running.join().unwrap().text(), "held");
    assert!(is_replay(&gateway.post("/pay/held", "running", "{}")));
}

#[test]
fn b5_an_answer_that_makes_no_call_gives_the_probes_permit_back() {
    let gateway = Gateway::start(
        "
resources:
  - { id: pay, match: { path: '/pay/{kind}' }, timeout: 4m }
idempotency:
  - { id: once, resources: [pay], scope: [], key: { from: header.idempotency-key }, in_progress: { wait: 300ms } }
breakers:
  - { id: guard, resources: [pay], trip: [ { error_count: { at_least: 3 } } ], min_requests: 3, window: 1h, open_for: 100ms, max_open: 100ms, half_open: { probes: 1, probe_timeout: 1h } }
",
    );
    let gate = Gate::new();
    let held = gate.clone();
    gateway.origin.on("/pay/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"held")
    });
    let status = switchable(&gateway.origin, "/pay/x");
    assert_eq!(gateway.post("/pay/x", "done", "{}").status, 200);
    let running = gateway.post_later("/pay/held", "running", "{}");
    gateway.origin.wait_calls("/pay/held", 1);
    status.store(500, Ordering::SeqCst);
    let mut call = 0;
    wait_until("the breaker to open", || {
        call += 1;
        is_open(&gateway.post("/pay/x", &format!("bad{call}"), "{}"))
    });
    status.store(200, Ordering::SeqCst);
    let mut call = 0;
    // Whether a probe is due or not, these make no call; and one that waits holds no permit.
    let waiter = gateway.post_later("/pay/held", "running", "{}");
    let probe = wait_for("a probe", || {
        for _ in 0..3 {
            assert!(is_replay(&gateway.post("/pay/x", "done", "{}")));
            assert_eq!(gateway.post("/pay/x", "done", "[]").status, 422);
        }
        call += 1;
        Some(gateway.post("/pay/x", &format!("new{call}"), "{}")).filter(|response| response.status == 200)
    });
    assert!(!is_replay(&probe));
    assert_eq!(waiter.join().unwrap().status, 409);
    gate.open();
    assert_eq!(running.join().unwrap().status, 200);
}
