//! Who is kept out, and what a client can hold on to.

use std::time::Duration;

use tidegate_testkit::{Connection, request};

use super::{World, json};

#[test]
fn a_rebound_name_and_a_foreign_page_are_refused() {
    let world = World::start();
    let port = world.admin.port();
    let own = format!("http://localhost:{port}");
    let localhost = format!("localhost:{port}");
    for (headers, expected) in [
        (&[("host", "attacker.example")][..], 421),
        (&[("host", "attacker.example:9080")], 421),
        (&[("host", "127.0.0.1.attacker.example")], 421),
        (&[("host", &localhost)], 200),
        (&[("host", "[::1]:9080")], 200),
        (&[("origin", "http://attacker.example")], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("host", &localhost), ("origin", &own)], 200),
    ] {
        for path in ["/v1/rules", "/livez", "/none"] {
            let response = world.ask("GET", path, headers, b"");
            let expected = if path == "/none" && expected == 200 { 404 } else { expected };
            assert_eq!(response.status, expected, "{path} {headers:?}");
            if expected >= 400 {
                assert_eq!(response.header("content-type"), Some("application/problem+json"));
                assert_eq!(json(&response)["status"], expected);
            }
        }
    }
}

#[test]
fn unknown_paths_and_methods_are_told_apart() {
    let world = World::start();
    for (method, path, expected, allow) in [
        ("GET", "/", 404, None),
        ("GET", "/v1/none", 404, None),
        ("GET", "/metrics/", 404, None),
        ("POST", "/v1/rules", 405, Some("GET,HEAD")),
        ("DELETE", "/livez", 405, Some("GET,HEAD")),
        ("GET", "/v1/explain", 405, Some("POST")),
        ("HEAD", "/v1/rules", 200, None),
    ] {
        let response = Connection::open(world.admin).unwrap().request(method, path, &[], b"").unwrap();
        assert_eq!((response.status, response.header("allow")), (expected, allow), "{method} {path}");
        if expected >= 400 {
            assert_eq!(json(&response)["status"], expected, "{method} {path}");
        }
    }
}

#[test]
fn floods_and_silence_hold_nothing_up() {
    let world = World::start();
    let many: Vec<String> = (0..200).map(|i| format!("X-{i}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(world.ask("GET", "/livez", &many, b"").status, 431);
    let long = "x".repeat(1_000_000);
    assert_eq!(world.ask("GET", "/livez", &[("x-long", &long)], b"").status, 431);
    // When silent connections have taken every place, the next is answered as soon as one is free.
    let mut silent: Vec<_> = (0..64).map(|_| Connection::open(world.admin).unwrap()).collect();
    let mut next = Connection::open(world.admin).unwrap();
    next.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    silent.pop();
    assert_eq!(next.read_response(false).unwrap().status, 200);
    // And clients of the service have ports of their own.
    assert_eq!(request(world.addr, "GET", "/items/1", &[], b"").status, 200);
}

#[test]
fn the_health_port_has_the_probes_and_nothing_else() {
    let world = World::with(super::RULES, &["--health", "127.0.0.1:0"]);
    let health = world.gateway.wait_address("health on http://");
    assert_ne!(health, world.admin);
    for (path, expected) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/metrics", 200),
        ("/v1/rules", 404),
        ("/v1/resources", 404),
        ("/v1/explain", 404),
        ("/v1/audit", 404),
        ("/v1/flags/new-checkout/explain", 404),
        ("/openapi.json", 404),
        ("/", 404),
    ] {
        // Probes come from elsewhere, under whatever name.
        let response = request(health, "GET", path, &[("host", "pod.example:1")], b"");
        assert_eq!(response.status, expected, "{path}");
    }
    assert_eq!(request(health, "POST", "/v1/explain", &[], b"{}").status, 404);
}

#[test]
fn a_port_in_use_is_explained_and_a_network_address_refused() {
    let world = World::start();
    let command = |flags: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]);
        command.args(["--store", "memory:", "--rules"]).arg(&world.rules).args(flags);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let admin = world.admin.to_string();
    let (code, said) = command(&["--admin", &admin]);
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("{admin} is in use")) && said.contains("--admin"), "{said}");
    let (code, said) = command(&["--admin", "127.0.0.1:0", "--health", &admin]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--health"), "{said}");
    let (code, said) = command(&["--admin", "0.0.0.0:0"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("no password"), "{said}");
}

#[test]
fn a_shutdown_does_not_wait_for_idle_administrators() {
    let mut world = World::start();
    let mut idle = Connection::open(world.admin).unwrap();
    assert_eq!(idle.request("GET", "/livez", &[], b"").unwrap().status, 200);
    world.gateway.terminate();
    assert!(world.gateway.wait_exit().success());
    assert!(idle.closed_within(Duration::from_secs(5)));
}
