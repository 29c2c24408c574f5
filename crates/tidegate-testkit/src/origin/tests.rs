use super::*;
use crate::{Connection, Gate, request, try_request};

#[test]
fn answers_counts_and_keeps_the_connection() {
    let origin = Origin::start();
    origin.answer("/a", 201, &[("X-One", "1")], "made").on("/echo", Exchange::echo);
    let mut connection = Connection::open(origin.addr()).unwrap();
    let response = connection.request("POST", "/a?q=1", &[("X-Two", "2")], b"hello").unwrap();
    assert_eq!(
        (response.status, response.header("x-one"), response.text().as_str()),
        (201, Some("1"), "made")
    );
    assert_eq!(connection.request("POST", "/echo", &[], b"hello").unwrap().text(), "hello");
    assert_eq!((origin.calls("/a"), origin.calls("/echo"), origin.connections()), (1, 1, 1));
    assert_eq!(origin.seen()[0].header("x-two"), Some("2"));
}

#[test]
fn scripts_can_stream_hold_close_and_reset() {
    let origin = Origin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin
        .on("/stream", move |exchange| {
            exchange.start_chunked(&[])?;
            exchange.chunk(b"one")?;
            held.wait();
            exchange.chunk(b"two")?;
            exchange.chunk(b"")
        })
        .on("/close", |exchange| {
            exchange.close();
            Ok(())
        })
        .on("/reset", Exchange::reset);
    let mut connection = Connection::open(origin.addr()).unwrap();
    connection.send("GET /stream HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(connection.read_head().unwrap().status, 200);
    assert_eq!(connection.read_chunk().unwrap().unwrap(), b"one");
    gate.open();
    assert_eq!(connection.read_chunk().unwrap().unwrap(), b"two");
    assert_eq!(connection.read_chunk().unwrap(), None);
    assert_eq!(request(origin.addr(), "GET", "/other", &[], b"").text(), "ok");
    let closed = try_request(origin.addr(), "GET", "/close", &[], b"").unwrap_err();
    assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
    let reset = try_request(origin.addr(), "GET", "/reset", &[], b"").unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
}
