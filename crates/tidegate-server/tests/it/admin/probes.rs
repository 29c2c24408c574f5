//! Alive, ready, draining.

use tidegate_testkit::{Connection, Gate, request, wait_until};

use super::{RULES, World, check_schema, json};

#[test]
fn it_is_alive_and_ready_once_rules_are_in_force() {
    let world = World::start();
    for path in ["/livez", "/readyz"] {
        let response = world.ask("GET", path, &[], b"");
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        check_schema(&world, path, "get", &response);
    }
    let ready = world.get("/readyz");
    assert_eq!(ready["status"], "ready");
    assert!(ready["version"].as_str().unwrap().starts_with("1; digest="), "{ready:#}");
    assert!(ready["stale_since"]["file"].is_null(), "{ready:#}");
}

#[test]
fn a_source_that_is_away_is_told_and_does_not_fail() {
    let world = World::start();
    std::fs::remove_file(&world.rules).unwrap();
    wait_until("the file to be missed", || !world.get("/readyz")["stale_since"]["file"].is_null());
    assert!(world.get("/readyz")["stale_since"]["file"].as_str().unwrap().ends_with('Z'));
    world.edit(RULES);
    wait_until("the file to be back", || world.get("/readyz")["stale_since"]["file"].is_null());
}

#[test]
fn a_drain_is_seen_on_both_ports_while_requests_end() {
    let mut world = World::with(RULES, &["--health", "127.0.0.1:0", "--drain", "1m"]);
    let health = world.gateway.wait_address("health on http://");
    let gate = Gate::new();
    let held = gate.clone();
    world.origin.on("/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"done")
    });
    let mut busy = Connection::open(world.addr).unwrap();
    busy.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    world.origin.wait_calls("/held", 1);
    world.gateway.terminate();
    for port in [world.admin, health] {
        wait_until("the drain to be seen", || request(port, "GET", "/readyz", &[], b"").status == 503);
        let draining = request(port, "GET", "/readyz", &[], b"");
        assert!(json(&draining)["detail"].as_str().unwrap().contains("draining"), "{}", draining.text());
        check_schema(&world, "/readyz", "get", &draining);
        assert_eq!(request(port, "GET", "/livez", &[], b"").status, 200);
        assert_eq!(request(port, "GET", "/metrics", &[], b"").status, 200);
    }
    assert_eq!(world.get("/v1/resources")["resources"][0]["id"], "pay");
    gate.open();
    assert_eq!(busy.read_response(false).unwrap().text(), "done");
    assert!(world.gateway.wait_exit().success());
    assert!(Connection::open(health).is_err(), "nobody is left");
}
