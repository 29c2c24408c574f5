//! Clients that are too slow, too many or too talkative.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use tidegate::Body;
use tidegate_server::gateway::{Handler, Listener, ListenerConfig, Tracker};
use tidegate_testkit::{Connection, DEADLINE as SOON, Gate, Origin, request, wait_for, wait_until};

use crate::support::Gateway;

#[test]
fn a_head_that_trickles_is_cut() {
    let origin = Origin::start();
    let gateway = Gateway::with(&[&origin.url()], |listener, _| {
        listener.header_timeout = Duration::from_millis(200);
    });
    for first in ["GET / HT", "GET / HTTP/1.1\r\nHost: a\r\nX-Long: ", "PRI * HTTP/2.0\r\n"] {
        let mut connection = Connection::open(gateway.addr).unwrap();
        connection.send(first).unwrap();
        assert_eq!(connection.read_response(false).unwrap().status, 408, "{first:?}");
        assert!(connection.closed_within(SOON));
    }
    // Also after a request that was fine, and while bytes keep coming.
    let mut connection = Connection::open(gateway.addr).unwrap();
    assert_eq!(connection.request("GET", "/", &[], b"").unwrap().status, 200);
    connection.send("GET / HTTP/1.1\r\n").unwrap();
    let mut sent = 0;
    wait_until("the trickling client to be cut", || {
        sent += 1;
        connection.send(format!("X-{sent}: 1\r\n")).is_err() || gateway.connections() == 0
    });
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn an_idle_connection_is_closed() {
    let origin = Origin::start();
    let gateway = Gateway::with(&[&origin.url()], |listener, _| {
        listener.idle_timeout = Duration::from_millis(200);
    });
    let mut silent = Connection::open(gateway.addr).unwrap();
    assert!(silent.closed_within(SOON));
    // On a machine that stands still it may be idle for too long before it is used.
    let mut used = wait_for("a connection to be used in time", || {
        let mut connection = Connection::open(gateway.addr).unwrap();
        let answer = connection.request("GET", "/", &[], b"").ok()?;
        assert_eq!(answer.status, 200);
        Some(connection)
    });
    assert!(used.closed_within(SOON));
    // HTTP/2 as well: a preface, empty SETTINGS, and then nothing.
    let mut http2 = Connection::open(gateway.addr).unwrap();
    http2.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").unwrap();
    assert!(http2.closed_within(SOON));
    wait_until("all to be gone", || gateway.connections() == 0);
}

#[test]
fn a_long_answer_is_not_idleness() {
    let origin = Origin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"late")
    });
    let gateway = Gateway::with(&[&origin.url()], |listener, _| {
        listener.idle_timeout = Duration::from_millis(50);
        listener.header_timeout = Duration::from_millis(50);
    });
    // One that is idle for too long before its request has arrived is closed without an answer.
    let mut busy = wait_for("a request to arrive in time", || {
        let before = origin.calls("/held");
        let mut connection = Connection::open(gateway.addr).unwrap();
        connection.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
        wait_for("the request or the end", || {
            let arrived = origin.calls("/held") > before;
            (arrived || connection.closed_within(Duration::from_millis(5))).then_some(arrived)
        })
        .then_some(connection)
    });
    busy.stream().set_read_timeout(Some(SOON)).unwrap();
    // One that connected later has been idle for too long by the time that it is closed.
    assert!(Connection::open(gateway.addr).unwrap().closed_within(SOON));
    gate.open();
    assert_eq!(busy.read_response(false).unwrap().text(), "late");
}

#[test]
fn a_header_flood_is_refused() {
    let origin = Origin::start();
    let gateway = Gateway::with(&[&origin.url()], |listener, _| listener.max_header_size = 16 * 1024);
    let long = "x".repeat(20_000);
    let many: Vec<String> = (0..200).map(|i| format!("X-{i}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
    for headers in [&[("X-Long", long.as_str())][..], &many] {
        assert_eq!(request(gateway.addr, "GET", "/", headers, b"").status, 431);
    }
    assert_eq!(request(gateway.addr, "GET", &format!("/{long}"), &[], b"").status, 431);
    let endless = "X: ".to_owned() + &"x".repeat(2_000_000);
    let mut connection = Connection::open(gateway.addr).unwrap();
    // The connection may be cut before all of it has been taken.
    let _ = connection.send(format!("GET / HTTP/1.1\r\n{endless}"));
    assert!(connection.closed_within(SOON));
    assert_eq!(origin.seen().len(), 0);
}

#[test]
fn a_body_that_stops_arriving_is_given_up() {
    let origin = Origin::start();
    origin.on("/echo", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::with(&[&origin.url()], |listener, _| {
        listener.body_timeout = Duration::from_millis(200);
    });
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    assert_eq!(connection.read_response(false).unwrap().status, 400);
    assert!(connection.closed_within(SOON));
    wait_until("the upstream connection to be closed", || gateway.upstream.connections() == 0);
}

/// Answers before the body is asked for.
#[derive(Clone)]
struct Denies;

impl Handler for Denies {
    async fn handle(&self, _: Request<Body>, _: SocketAddr) -> Response<Body> {
        let mut response = Response::new(Body::full("denied"));
        *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        response
    }
}

#[test]
fn a_denial_is_read_by_a_client_that_is_still_sending() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let addr = listener.addr();
    let _server = listener.start(Denies, Tracker::new()).unwrap();
    for _ in 0..20 {
        let response = request(addr, "POST", "/", &[], &vec![b'x'; 900_000]);
        assert_eq!((response.status, response.text().as_str()), (429, "denied"));
    }
    // One that waits to be asked is not asked.
    let mut connection = Connection::open(addr).unwrap();
    connection
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(connection.read_head().unwrap().status, 429);
}

#[test]
fn connections_beyond_the_cap_are_refused() {
    let origin = Origin::start();
    let gateway = Gateway::with(&[&origin.url()], |listener, _| listener.max_connections = 2);
    let mut kept: Vec<_> = (0..2).map(|_| Connection::open(gateway.addr).unwrap()).collect();
    for connection in &mut kept {
        assert_eq!(connection.request("GET", "/", &[], b"").unwrap().status, 200);
    }
    let response = request(gateway.addr, "POST", "/", &[], &[b'x'; 1000]);
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert_eq!(kept[0].request("GET", "/", &[], b"").unwrap().status, 200);
    drop(kept);
    wait_until("a free place", || {
        tidegate_testkit::try_request(gateway.addr, "GET", "/", &[], b"").is_ok_and(|r| r.status == 200)
    });
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let origin = Origin::start();
    origin.on("/endless", |exchange| {
        exchange.start_chunked(&[])?;
        loop {
            exchange.chunk(&[b'x'; 8192])?;
        }
    });
    let gateway = Gateway::with(&[&origin.url()], |listener, _| {
        listener.write_timeout = Duration::from_millis(200);
    });
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    origin.wait_calls("/endless", 1);
    wait_until("both sides to be cut", || gateway.connections() == 0 && gateway.upstream.connections() == 0);
}
