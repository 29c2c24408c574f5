//! What is in force, and what it has done.

use serde_json::{Value, json};
use tidegate_testkit::{Gate, wait_until};

use super::{RULES, World, check_schema};

#[test]
fn the_rules_in_force_are_shown_whole() {
    let world = World::start();
    let shown = world.get("/v1/rules");
    assert_eq!(shown["version"], 1);
    assert_eq!(shown["digest"].as_str().unwrap().len(), 64);
    assert_eq!(shown["source"], "rules.yaml");
    assert_eq!(shown["rules"]["limits"][0]["id"], "pay-per-tenant");
    assert_eq!(shown["rules"]["idempotency"][0]["lease"], "30s", "defaults are written out");
    for absent in ["refusal", "drift", "unusable", "pending"] {
        assert!(shown[absent].is_null(), "{absent}: {shown:#}");
    }
    assert!(shown["in_force_since"].as_str().unwrap().ends_with('Z'), "{shown:#}");
    check_schema(&world, "/v1/rules", "get", &world.ask("GET", "/v1/rules", &[], b""));
}

#[test]
fn a_refused_file_is_shown_and_changes_nothing() {
    let world = World::start();
    let before = world.get("/v1/rules");
    world.edit(&RULES.replace("capacity: 3", "capacity: 0"));
    wait_until("the refusal", || !world.get("/v1/rules")["refusal"].is_null());
    let after = world.get("/v1/rules");
    assert_eq!(after["refusal"]["faults"], 1);
    assert!(after["refusal"]["rendered"].as_str().unwrap().contains("rules.yaml:"), "{after:#}");
    for kept in ["version", "digest", "in_force_since", "rules"] {
        assert_eq!(after[kept], before[kept], "{kept}");
    }
    let refused = after["loads"]
        .as_array()
        .unwrap()
        .iter()
        .find(|load| load["source"] == "file" && load["result"] == "refused");
    assert_eq!(refused.unwrap()["count"], 1);
    check_schema(&world, "/v1/rules", "get", &world.ask("GET", "/v1/rules", &[], b""));
}

#[test]
fn a_resource_tells_what_it_has_seen() {
    let world = World::start();
    let resource = |id: &str| -> Value {
        let shown = world.get("/v1/resources");
        let found = shown["resources"].as_array().unwrap().iter().find(|resource| resource["id"] == id);
        found.cloned().unwrap_or_else(|| panic!("no {id} in {shown:#}"))
    };
    let fresh = resource("pay");
    assert_eq!(
        fresh["match"],
        json!({ "hosts": ["api.example.com"], "methods": ["POST"], "path": "/orders/{order}/pay" })
    );
    assert_eq!((&fresh["admitted"], &fresh["blocked"]), (&json!(0), &json!([])));
    assert_eq!(fresh["breakers"][0]["state"], "closed");
    assert_eq!(fresh["breakers"][0]["host"], world.origin.addr().to_string());
    assert!(fresh["breakers"][0]["next_probe_seconds"].is_null());
    assert!(resource("ledger")["match"].is_null());

    // Three calls, a replay that is none, a denial, a missing key, and a key of another request.
    assert_eq!(world.pay("acme", "k1").status, 200);
    assert_eq!(world.pay("acme", "k1").header("idempotent-replayed"), Some("true"));
    assert_eq!(world.pay("acme", "k2").status, 200);
    assert_eq!(world.pay("acme", "k3").status, 429);
    assert_eq!(world.pay("other", "").status, 400);
    assert_eq!(world.pay("other", "k1").status, 200);
    let reused = [("Host", "api.example.com"), ("X-Tenant", "other"), ("Idempotency-Key", "k1")];
    let answer = tidegate_testkit::request(world.addr, "POST", "/orders/7/pay", &reused, b"[]");
    assert_eq!(answer.status, 422);
    let seen = resource("pay");
    assert_eq!((&seen["admitted"], &seen["succeeded"], &seen["failed"]), (&json!(3), &json!(3), &json!(0)));
    let blocked = json!([
        { "gate": "limit", "rule": "pay-per-tenant", "count": 1 },
        { "gate": "idempotency", "rule": "pay-once", "count": 2 },
    ]);
    assert_eq!(seen["blocked"], blocked);
    assert_eq!(seen["latency_seconds"]["calls"], 3);
    let [p50, p90, p99] = ["p50", "p90", "p99"].map(|q| seen["latency_seconds"][q].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p90 && p90 <= p99, "{seen:#}");

    // One that fails opens the breaker, and the next is blocked by it.
    world.origin.answer("/orders/7/pay", 500, &[], "");
    assert_eq!(world.pay("third", "k1").status, 500);
    assert_eq!(world.pay("third", "k2").status, 503);
    let seen = resource("pay");
    assert_eq!((&seen["admitted"], &seen["failed"]), (&json!(4), &json!(1)));
    assert_eq!(seen["blocked"][2], json!({ "gate": "breaker", "rule": "bank", "count": 1 }));
    let breaker = &seen["breakers"][0];
    assert_eq!((&breaker["state"], &breaker["trips"]), (&json!("open"), &json!(1)));
    let next = breaker["next_probe_seconds"].as_f64().unwrap();
    assert!(3500.0 < next && next <= 3600.0 * 1.2, "{breaker:#}");
    check_schema(&world, "/v1/resources", "get", &world.ask("GET", "/v1/resources", &[], b""));
}

#[test]
fn a_call_in_flight_is_counted_until_it_ends() {
    let world = World::start();
    let gate = Gate::new();
    let held = gate.clone();
    world.origin.on("/items/7", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"")
    });
    let addr = world.addr;
    let client =
        std::thread::spawn(move || tidegate_testkit::request(addr, "GET", "/items/7", &[], b"").status);
    world.origin.wait_calls("/items/7", 1);
    let in_flight = || world.get("/v1/resources")["resources"][1]["in_flight"].clone();
    assert_eq!(in_flight(), 1);
    gate.open();
    assert_eq!(client.join().unwrap(), 200);
    wait_until("the call to be over", || in_flight() == 0);
}
