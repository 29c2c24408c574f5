//! Ending in order, and not starting.

use std::time::Duration;

use tidegate_server::gateway::{BindError, Drained, Listener, ListenerConfig};
use tidegate_testkit::{Connection, Gate, Origin, wait_until};

use crate::support::Gateway;

const LONG: Duration = Duration::from_mins(1);

fn held(origin: &Origin, path: &str) -> Gate {
    let gate = Gate::new();
    let held = gate.clone();
    origin.on(path, move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"done")
    });
    gate
}

#[test]
fn a_shutdown_finishes_what_has_begun() {
    let origin = Origin::start();
    let gate = held(&origin, "/held");
    let gateway = Gateway::start(&origin);
    let addr = gateway.addr;
    let mut idle = Connection::open(addr).unwrap();
    assert_eq!(idle.request("GET", "/", &[], b"").unwrap().status, 200);
    let mut silent = Connection::open(addr).unwrap();
    let mut busy = Connection::open(addr).unwrap();
    busy.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    origin.wait_calls("/held", 1);

    let shutdown = std::thread::spawn(move || gateway.shutdown(LONG));
    assert!(idle.closed_within(LONG), "an idle connection is closed");
    assert!(silent.closed_within(LONG), "one that never spoke too");
    wait_until("no new connection to be taken", || Connection::open(addr).is_err());
    assert!(!shutdown.is_finished());
    gate.open();
    let response = busy.read_response(false).unwrap();
    assert_eq!((response.text().as_str(), response.header("connection")), ("done", Some("close")));
    assert_eq!(shutdown.join().unwrap(), Drained::default());
}

#[test]
fn a_shutdown_waits_for_tasks() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let task = gateway.tasks.enter();
    let shutdown = std::thread::spawn(move || gateway.shutdown(LONG));
    assert!(!shutdown.is_finished());
    drop(task);
    assert_eq!(shutdown.join().unwrap(), Drained::default());
}

#[test]
fn a_shutdown_gives_up_and_says_what_was_cut() {
    let origin = Origin::start();
    let gate = held(&origin, "/held");
    origin.on("/ws", |exchange| {
        exchange
            .raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")?;
        exchange.wait_closed();
        Ok(())
    });
    let gateway = Gateway::start(&origin);
    let _task = gateway.tasks.enter();
    let mut busy = Connection::open(gateway.addr).unwrap();
    busy.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut upgraded = Connection::open(gateway.addr).unwrap();
    upgraded
        .send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    assert_eq!(upgraded.read_head().unwrap().status, 101);
    origin.wait_calls("/held", 1);
    assert_eq!(gateway.shutdown(Duration::from_millis(200)), Drained { connections: 2, tasks: 1 });
    assert!(busy.closed_within(LONG));
    assert!(upgraded.closed_within(LONG));
    gate.open();
}

#[test]
fn an_upgraded_stream_may_end_within_the_drain() {
    let origin = Origin::start();
    origin.on("/ws", |exchange| {
        exchange
            .raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")?;
        let bytes = exchange.read_exactly(3)?;
        exchange.raw(bytes)?;
        exchange.close();
        Ok(())
    });
    let gateway = Gateway::start(&origin);
    let mut upgraded = Connection::open(gateway.addr).unwrap();
    upgraded
        .send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    assert_eq!(upgraded.read_head().unwrap().status, 101);
    let addr = gateway.addr;
    let shutdown = std::thread::spawn(move || gateway.shutdown(LONG));
    wait_until("no new connection to be taken", || Connection::open(addr).is_err());
    upgraded.send("bye").unwrap();
    assert_eq!(upgraded.read_exactly(3).unwrap(), b"bye");
    drop(upgraded);
    assert_eq!(shutdown.join().unwrap(), Drained::default());
}

#[test]
fn an_address_that_cannot_be_had_is_explained() {
    let origin = Origin::start();
    let in_use = Listener::bind(origin.addr(), ListenerConfig::default()).unwrap_err();
    assert!(matches!(in_use, BindError::InUse { .. }));
    let message = in_use.to_string();
    assert!(message.contains(&format!("{} is in use by another program", origin.addr())), "{message}");
    assert!(message.contains("--listen"), "{message}");
    let elsewhere = Listener::bind("192.0.2.1:8080".parse().unwrap(), ListenerConfig::default()).unwrap_err();
    assert!(matches!(elsewhere, BindError::NotLocal { .. }), "{elsewhere}");
}
