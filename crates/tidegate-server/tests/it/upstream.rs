//! Upstreams that are down, slow or broken, and what is never done twice.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate::call::CallErrorKind::{self, Connect, RequestBody, Reset, Timeout};
use tidegate_testkit::{ClosedPort, Connection, Gate, Origin, request, try_request, wait_until};

use crate::support::{Gateway, HURRIED};

#[test]
fn an_upstream_that_is_down_is_a_502_and_nothing_was_sent() {
    let closed = ClosedPort::take();
    let gateway = Gateway::with(&[&closed.url()], |_, _| {});
    let response = request(gateway.addr, "POST", "/", &[], b"pay");
    assert_eq!(response.status, 502);
    assert!(response.text().starts_with("cannot connect to http://127.0.0.1:"), "{}", response.text());
    assert_eq!(gateway.failures(), [(Connect, false)]);
    assert_eq!(gateway.upstream.connections(), 0);
}

#[test]
fn an_upstream_that_does_not_answer_is_a_504_and_may_have_acted() {
    let origin = Origin::start();
    origin.on("/never", |exchange| {
        exchange.wait_closed();
        Ok(())
    });
    let gateway = Gateway::start(&origin);
    // A machine that stands still may let the time pass before anything is sent, and then it says so.
    wait_until("a request to be sent in time", || {
        assert_eq!(request(gateway.addr, "POST", "/never", &[(HURRIED, "1")], b"pay").status, 504);
        let [.., last] = gateway.failures()[..] else { panic!("a 504 is a failure") };
        assert!(
            last == (Timeout, true) || last == (Timeout, false) && origin.calls("/never") == 0,
            "{last:?}"
        );
        last.1
    });
    // The origin may be slower to see the one request that was sent than the gateway to give it up.
    origin.wait_calls("/never", 1);
    wait_until("the connection to be closed", || gateway.upstream.connections() == 0);
    assert_eq!(origin.calls("/never"), 1);
}

#[test]
fn broken_answers_are_a_502_and_are_not_asked_for_again() {
    let origin = Origin::start();
    origin
        .on("/close", |exchange| {
            exchange.close();
            Ok(())
        })
        .on("/close-in-head", |exchange| {
            exchange.close();
            exchange.raw("HTTP/1.1 200 O")
        })
        .on("/reset", tidegate_testkit::Exchange::reset)
        .on("/nonsense", |exchange| exchange.raw("I am no HTTP server\r\n\r\n"))
        .on("/binary", |exchange| exchange.raw([0, 159, 146, 150]))
        .on("/bad-length", |exchange| exchange.raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"))
        .on("/huge-head", |exchange| {
            exchange.raw(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000)))
        })
        .on("/many-headers", |exchange| {
            exchange.raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: 1\r\n".repeat(500)))
        })
        .on("/interim", |exchange| {
            // For as long as it is listened to.
            let many = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1000);
            while exchange.raw(&many).is_ok() {}
            Ok(())
        })
        .on("/long-interim", |exchange| {
            // Few enough, and together longer than a head may be.
            let long = format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", "X: 34567890\r\n".repeat(90)).repeat(90);
            exchange.raw(long + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
    let gateway = Gateway::start(&origin);
    let paths = [
        "/close",
        "/close-in-head",
        "/reset",
        "/nonsense",
        "/binary",
        "/bad-length",
        "/huge-head",
        "/many-headers",
        "/interim",
        "/long-interim",
    ];
    for path in paths {
        // On a connection that has been used before, where sending again would be tempting.
        assert_eq!(request(gateway.addr, "GET", "/fine", &[], b"").status, 200);
        assert_eq!(request(gateway.addr, "POST", path, &[], b"pay").status, 502, "{path}");
        assert_eq!(origin.calls(path), 1, "{path}");
    }
    assert_eq!(gateway.failures(), [(Reset, true); 10]);
}

#[test]
fn interim_responses_of_a_slow_call_are_passed_over() {
    let origin = Origin::start();
    origin.on("/slow", |exchange| {
        exchange.raw("HTTP/1.1 102 Processing\r\n\r\n".repeat(100))?;
        exchange.raw("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
    });
    let gateway = Gateway::start(&origin);
    // One client stays on one worker, whose connection to the origin is as good as before each time.
    let mut client = Connection::open(gateway.addr).unwrap();
    for _ in 0..3 {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let response = client.read_response(false).unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "done"));
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_answer_that_breaks_off_has_no_clean_end() {
    let origin = Origin::start();
    origin
        .on("/length", |exchange| {
            exchange.close();
            exchange.raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        })
        .on("/chunked", |exchange| {
            exchange.close();
            exchange.start_chunked(&[])?;
            exchange.chunk(b"half")
        })
        .on("/reset", |exchange| {
            exchange.start_chunked(&[])?;
            exchange.chunk(b"half")?;
            exchange.reset()
        })
        .on("/bad-chunk", |exchange| {
            exchange.start_chunked(&[])?;
            exchange.raw("zz\r\n")
        })
        .on("/stalls", |exchange| {
            exchange.start_chunked(&[])?;
            exchange.chunk(b"half")?;
            exchange.wait_closed();
            Ok(())
        });
    let gateway = Gateway::with(&[&origin.url()], |_, upstream| {
        upstream.body_timeout = Duration::from_millis(300);
    });
    for path in ["/length", "/chunked", "/reset", "/bad-chunk", "/stalls"] {
        let error = try_request(gateway.addr, "GET", path, &[], b"").unwrap_err();
        let cut = [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset];
        assert!(cut.contains(&error.kind()), "{path}: {error}");
        assert_eq!(origin.calls(path), 1, "{path}");
    }
    // An HTTP/1.0 client knows the end of this one by the end of the connection only.
    let mut old = Connection::open(gateway.addr).unwrap();
    old.send("GET /chunked HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.read_response(false).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    wait_until("no broken connection to be kept", || gateway.upstream.connections() == 0);
    assert_eq!(gateway.failures(), []);
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    let origin = Origin::start();
    origin.on("/until-close", |exchange| {
        exchange.close();
        exchange.raw("HTTP/1.1 200 OK\r\n\r\nall of it")
    });
    origin.on("/old", |exchange| {
        exchange.close();
        exchange.raw("HTTP/1.0 200 OK\r\n\r\nall of it")
    });
    let gateway = Gateway::start(&origin);
    for path in ["/until-close", "/old"] {
        let response = request(gateway.addr, "GET", path, &[], b"");
        assert_eq!((response.status, response.text().as_str()), (200, "all of it"));
        assert_eq!(response.header("transfer-encoding"), Some("chunked"), "a proxy knows the end");
    }
}

#[test]
fn a_length_beside_a_coding_does_not_reach_the_client() {
    let origin = Origin::start();
    origin.on("/both", |exchange| {
        exchange.raw(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n0\r\n\r\n",
        )
    });
    let gateway = Gateway::start(&origin);
    let mut client = Connection::open(gateway.addr).unwrap();
    for _ in 0..2 {
        let response = client.request("GET", "/both", &[], b"").unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "all"));
        assert_eq!(response.header("content-length"), None);
    }
}

#[test]
fn a_client_that_breaks_off_its_body_is_the_one_to_blame() {
    let origin = Origin::start();
    origin.on("/echo", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n")
        .unwrap();
    assert_eq!(connection.read_response(false).unwrap().status, 400);
    assert_eq!(gateway.failures(), [(RequestBody, true)]);
}

#[test]
fn a_pooled_connection_that_was_closed_is_not_used() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let mut client = Connection::open(gateway.addr).unwrap();
    for round in 1..=20 {
        assert_eq!(client.request("POST", "/pay", &[], b"pay").unwrap().status, 200, "round {round}");
        assert_eq!(origin.calls("/pay"), round);
        origin.close_connections();
        wait_until("the gateway to notice", || gateway.upstream.connections() <= 1);
        // Longer than a connection may be idle before it is looked at again.
        let since = tidegate_testkit::wait::Deadline::after(Duration::from_millis(6));
        wait_until("some time to pass", || since.passed());
    }
    assert_eq!(gateway.failures(), []);
    assert_eq!(origin.connections(), 20);
}

#[test]
fn a_request_that_met_a_closing_connection_is_not_sent_twice() {
    let origin = Origin::start();
    // Reads the request and closes: whether it acted, nobody can tell.
    origin.on("/pay", |exchange| {
        exchange.close();
        Ok(())
    });
    let gateway = Gateway::start(&origin);
    for round in 1..=10 {
        assert_eq!(request(gateway.addr, "GET", "/warm", &[], b"").status, 200);
        assert_eq!(request(gateway.addr, "POST", "/pay", &[], b"pay").status, 502);
        assert_eq!(request(gateway.addr, "GET", "/warm", &[], b"").status, 200);
        assert_eq!(origin.calls("/pay"), round);
    }
}

#[test]
fn urls_are_taken_in_turn_and_one_that_is_down_is_passed_over() {
    let (one, two) = (Origin::start(), Origin::start());
    let closed = ClosedPort::take();
    let gateway = Gateway::with(&[&one.url(), &closed.url(), &two.url()], |_, _| {});
    for _ in 0..9 {
        assert_eq!(request(gateway.addr, "GET", "/", &[], b"").status, 200);
    }
    assert_eq!((one.calls("/"), two.calls("/")), (3, 6));
    assert_eq!(gateway.failures(), []);
}

#[test]
fn connections_to_an_upstream_are_bounded_and_calls_wait() {
    let origin = Origin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"held")
    });
    let gateway = Gateway::with(&[&origin.url()], |_, upstream| {
        upstream.max_connections = NonZeroUsize::new(3).unwrap();
    });
    let mut clients: Vec<_> = (0..12).map(|_| Connection::open(gateway.addr).unwrap()).collect();
    for client in &mut clients {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    origin.wait_calls("/held", 3);
    assert_eq!(gateway.upstream.connections(), 3);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.read_response(false).unwrap().text(), "held");
    }
    assert_eq!((origin.calls("/held"), origin.connections()), (12, 3));
}

#[test]
fn waiting_for_a_connection_counts_against_the_timeout() {
    let origin = Origin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/held", move |exchange| {
        // The answer has begun, so that only its body is out.
        exchange.start_chunked(&[])?;
        held.wait();
        exchange.chunk(b"")
    });
    let gateway = Gateway::with(&[&origin.url()], |_, upstream| {
        upstream.max_connections = NonZeroUsize::MIN;
    });
    let mut first = Connection::open(gateway.addr).unwrap();
    first.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(first.read_head().unwrap().status, 200);
    assert_eq!(request(gateway.addr, "GET", "/other", &[(HURRIED, "1")], b"").status, 504);
    let expected: [(CallErrorKind, bool); 1] = [(Timeout, false)];
    assert_eq!(gateway.failures(), expected);
    assert_eq!(origin.calls("/other"), 0);
    gate.open();
    assert_eq!(first.read_chunk().unwrap(), None);
    assert_eq!(request(gateway.addr, "GET", "/other", &[], b"").status, 200);
}

#[test]
fn idle_upstream_connections_are_bounded_and_end() {
    let origin = Origin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"held")
    });
    let gateway = Gateway::with(&[&origin.url()], |_, upstream| {
        upstream.max_idle = 2;
        upstream.idle_timeout = Duration::from_millis(300);
    });
    let mut clients: Vec<_> = (0..8).map(|_| Connection::open(gateway.addr).unwrap()).collect();
    for client in &mut clients {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    origin.wait_calls("/held", 8);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.read_response(false).unwrap().status, 200);
    }
    wait_until("no more than the idle ones to stay", || gateway.upstream.connections() <= 2);
    wait_until("the idle ones to end", || gateway.upstream.connections() == 0);
}
