//! What passes through, and how.

use std::io::Write as _;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_server::gateway::HostHeader;
use tidegate_testkit::{Connection, DEADLINE, Gate, Origin, request, wait_until};

use crate::support::{Gateway, runtime};

#[test]
fn a_request_and_its_answer_pass_unchanged() {
    let origin = Origin::start();
    origin.answer(
        "/a/b",
        418,
        &[("X-Answer", "1"), ("X-Answer", "2"), ("ETag", "\"v1\"")],
        "short and stout",
    );
    let gateway = Gateway::start(&origin);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("Host", "api.example.com"), ("Traceparent", trace), ("X-Two", "1"), ("X-Two", "2")];
    let response = request(gateway.addr, "PATCH", "/a/b?q=%2F&r", &headers, b"hello");
    assert_eq!((response.status, response.text().as_str()), (418, "short and stout"));
    assert_eq!(response.header_all("x-answer"), ["1", "2"]);
    assert_eq!(response.header("etag"), Some("\"v1\""));
    let seen = origin.last();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("PATCH", "/a/b?q=%2F&r"));
    assert_eq!(seen.header("host"), Some("api.example.com"));
    assert_eq!(seen.header("traceparent"), Some(trace));
    assert_eq!(seen.header("content-length"), Some("5"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-host"), Some("api.example.com"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("via"), Some("1.1 tidegate"));
    assert_eq!(seen.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-two")).count(), 2);
}

#[test]
fn the_host_can_be_the_upstreams_or_a_fixed_one() {
    let origin = Origin::start();
    let authority = origin.addr().to_string();
    let fixed = HostHeader::Fixed("inner".parse().unwrap());
    for (host, expected) in [(HostHeader::Upstream, authority.as_str()), (fixed, "inner")] {
        let gateway = Gateway::with(&[&origin.url()], |_, upstream| upstream.host = host);
        assert_eq!(request(gateway.addr, "GET", "/", &[("Host", "api")], b"").status, 200);
        assert_eq!(origin.last().header("host"), Some(expected));
        assert_eq!(origin.last().header("x-forwarded-host"), Some("api"));
    }
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send("GET /old HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(connection.read_response(false).unwrap().status, 200);
    assert_eq!(origin.last().header("host"), Some(authority.as_str()));
}

#[test]
fn both_bodies_are_streamed() {
    let origin = Origin::start();
    origin.on("/stream", |exchange| {
        exchange.start_chunked(&[])?;
        while let Some(piece) = exchange.piece()? {
            exchange.chunk(&piece)?;
        }
        exchange.chunk(b"")
    });
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection.send("POST /stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    // Each piece comes back before the next is sent: nothing waits for the end of either body.
    connection.send("3\r\none\r\n").unwrap();
    assert_eq!(connection.read_head().unwrap().header("transfer-encoding"), Some("chunked"));
    assert_eq!(connection.read_chunk().unwrap().unwrap(), b"one");
    connection.send("3\r\ntwo\r\n").unwrap();
    assert_eq!(connection.read_chunk().unwrap().unwrap(), b"two");
    connection.send("0\r\n\r\n").unwrap();
    assert_eq!(connection.read_chunk().unwrap(), None);
    assert_eq!(connection.request("GET", "/next", &[], b"").unwrap().status, 200);
}

#[test]
fn large_bodies_arrive_whole() {
    let origin = Origin::start();
    origin.on("/echo", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::start(&origin);
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let response = request(gateway.addr, "PUT", "/echo", &[], &body);
    assert!(response.body == body, "{} of {} bytes", response.body.len(), body.len());
}

#[test]
fn every_framing_of_a_request_is_passed_on() {
    let origin = Origin::start();
    origin.on("/echo", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::start(&origin);
    for method in ["GET", "DELETE", "POST"] {
        let mut connection = Connection::open(gateway.addr).unwrap();
        let head = format!("{method} /echo HTTP/1.1\r\nHost: a\r\n");
        connection.send(format!("{head}Content-Length: 3\r\n\r\nabc")).unwrap();
        assert_eq!(connection.read_response(false).unwrap().text(), "abc", "{method} with a length");
        connection.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")).unwrap();
        assert_eq!(connection.read_response(false).unwrap().text(), "abc", "{method} with chunks");
        connection.send(format!("{head}\r\n")).unwrap();
        assert_eq!(connection.read_response(false).unwrap().text(), "", "{method} without a body");
    }
}

#[test]
fn answers_without_a_body_leave_the_connections_in_order() {
    let origin = Origin::start();
    origin.answer("/empty", 200, &[], "").answer("/none", 200, &[], "0123456789");
    origin.on("/304", |exchange| {
        exchange.raw("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 10\r\n\r\n")
    });
    origin.on("/204", |exchange| exchange.raw("HTTP/1.1 204 No Content\r\n\r\n"));
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    for (method, target, status, length) in [
        ("GET", "/empty", 200, Some("0")),
        ("HEAD", "/none", 200, Some("10")),
        ("GET", "/304", 304, None),
        ("GET", "/204", 204, None),
        ("GET", "/none", 200, Some("10")),
    ] {
        let response = connection.request(method, target, &[], b"").unwrap();
        assert_eq!(
            (response.status, response.header("content-length")),
            (status, length),
            "{method} {target}"
        );
    }
    assert_eq!(origin.connections(), 1, "each answer left the upstream connection usable");
}

#[test]
fn connections_are_kept_on_both_sides() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    for _ in 0..20 {
        assert_eq!(connection.request("GET", "/", &[], b"").unwrap().text(), "ok");
    }
    // Pipelined as well.
    connection.send("GET /p HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)).unwrap();
    for _ in 0..3 {
        assert_eq!(connection.read_response(false).unwrap().text(), "ok");
    }
    assert_eq!((origin.connections(), gateway.connections(), gateway.upstream.connections()), (1, 1, 1));
    let response = connection.request("GET", "/", &[("Connection", "close")], b"").unwrap();
    assert_eq!(response.header("connection"), Some("close"));
    assert!(connection.closed_within(DEADLINE));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn what_is_meant_for_one_hop_ends_there() {
    let origin = Origin::start();
    origin.answer(
        "/",
        200,
        &[("Connection", "X-Hop, keep-alive"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5")],
        "",
    );
    let gateway = Gateway::start(&origin);
    let headers = [
        ("Connection", "x-mine, x-forwarded-for"),
        ("X-Mine", "1"),
        ("Keep-Alive", "300"),
        ("Proxy-Connection", "keep-alive"),
        ("Upgrade", "h2c"),
        ("TE", "trailers, gzip"),
    ];
    let response = request(gateway.addr, "GET", "/", &headers, b"");
    for name in ["connection", "x-hop", "keep-alive"] {
        assert_eq!(response.header(name), None, "{name}");
    }
    let seen = origin.last();
    for name in ["x-mine", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("te"), Some("trailers"));
    assert_eq!(seen.header("connection"), Some("te"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "a client cannot have ours removed");
}

#[test]
fn trailers_pass_both_ways() {
    let origin = Origin::start();
    origin.on("/", |exchange| {
        exchange.body()?;
        let sum = exchange.trailers().iter().find(|(name, _)| name.eq_ignore_ascii_case("x-sum"));
        let sum = sum.map(|(_, value)| value.clone()).unwrap_or_default();
        exchange.start_chunked(&[("Trailer", "X-Sum")])?;
        exchange.chunk(b"data")?;
        exchange.raw(format!("0\r\nX-Sum: {sum}\r\n\r\n"))
    });
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.send(format!("{head}1\r\na\r\n0\r\nX-Sum: 42\r\n\r\n")).unwrap();
    let response = connection.read_response(false).unwrap();
    assert_eq!((response.text().as_str(), response.trailers.len()), ("data", 1));
    assert_eq!(response.trailers[0].1, "42");
}

#[test]
fn trailers_cannot_speak_as_tidegate() {
    let origin = Origin::start();
    origin.on("/", |exchange| {
        exchange.body()?;
        let names: Vec<_> = exchange.trailers().iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        exchange.start_chunked(&[("Trailer", "Tidegate-Version, X-Seen")])?;
        exchange.chunk(b"data")?;
        exchange.raw(format!("0\r\nTidegate-Version: 9\r\nX-Seen: {}\r\n\r\n", names.join(" ")))
    });
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    let names = "Tidegate-Fence, tidegate_key, X-Sum, X-Forwarded-For, X-Request-Id";
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: {names}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let trailers =
        "Tidegate-Fence: 9\r\ntidegate_key: k\r\nX-Sum: 4\r\nX-Forwarded-For: 9.9.9.9\r\nX-Request-Id: r\r\n";
    connection.send(format!("{head}1\r\na\r\n0\r\n{trailers}\r\n")).unwrap();
    let response = connection.read_response(false).unwrap();
    let seen: Vec<_> =
        response.trailers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(seen, [("x-seen", "x-sum")]);
}

#[test]
fn a_websocket_is_joined_with_the_upstreams() {
    let origin = Origin::start();
    origin.on("/ws", |exchange| {
        let key = exchange.request.header("sec-websocket-key").unwrap_or_default().to_owned();
        exchange.raw(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Key: {key}\r\n\r\nhello"
        ))?;
        loop {
            let bytes = exchange.read_exactly(4)?;
            exchange.raw(bytes)?;
        }
    });
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    let upgrade = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
    connection.send(upgrade).unwrap();
    let head = connection.read_head().unwrap();
    assert_eq!(
        (head.status, head.header("upgrade"), head.header("x-key")),
        (101, Some("websocket"), Some("k"))
    );
    assert_eq!(connection.read_exactly(5).unwrap(), b"hello");
    for message in [b"ping", b"pong"] {
        connection.send(message).unwrap();
        assert_eq!(connection.read_exactly(4).unwrap(), message);
    }
    assert_eq!(gateway.upstream.connections(), 1, "an upgraded stream counts");
    drop(connection);
    wait_until("the upstream's side to be closed", || gateway.upstream.connections() == 0);
    wait_until("the client's side to be closed", || gateway.connections() == 0);
}

#[test]
fn a_refused_upgrade_is_a_plain_answer() {
    let origin = Origin::start();
    origin.answer("/ws", 403, &[], "no");
    origin.on("/unasked", |exchange| {
        exchange.raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
    });
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    let headers = [("Connection", "upgrade"), ("Upgrade", "websocket")];
    assert_eq!(connection.request("GET", "/ws", &headers, b"").unwrap().text(), "no");
    assert_eq!(origin.last().header("upgrade"), Some("websocket"));
    assert_eq!(request(gateway.addr, "GET", "/unasked", &[], b"").status, 502);
}

#[test]
fn a_body_is_called_for_when_it_is_needed() {
    let origin = Origin::start();
    origin.on("/echo", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    connection
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(connection.read_head().unwrap().status, 100);
    connection.send("hello").unwrap();
    assert_eq!(connection.read_response(false).unwrap().text(), "hello");
    assert_eq!(origin.last().header("expect"), None, "the gateway has seen to it");
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let origin = Origin::start();
    origin.on("/refuse", |exchange| {
        exchange
            .raw("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")?;
        exchange.body()?;
        exchange.close();
        Ok(())
    });
    let gateway = Gateway::start(&origin);
    let response = request(gateway.addr, "POST", "/refuse", &[], &vec![b'x'; 600_000]);
    assert_eq!((response.status, response.text().as_str()), (413, "big"));
}

#[test]
fn http2_with_prior_knowledge_is_served() {
    let origin = Origin::start();
    origin.on("/echo", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::start(&origin);
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/held", move |exchange| {
        held.wait();
        exchange.respond(200, &[("Connection", "keep-alive")], b"held")
    });
    runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.addr).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let send = |path: &str, body: &'static [u8]| {
            let request = Request::post(format!("http://api.example.com{path}"))
                .version(Version::HTTP_2)
                .header("cookie", "a=1")
                .header("cookie", "b=2")
                .body(Full::new(Bytes::from_static(body)))
                .unwrap();
            let mut sender = sender.clone();
            async move {
                let response = sender.send_request(request).await.unwrap();
                (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
            }
        };
        let slow = tokio::spawn(send("/held", b""));
        // The other stream is not held up.
        assert_eq!(send("/echo", b"hello").await, (200, Bytes::from_static(b"hello")));
        gate.open();
        assert_eq!(slow.await.unwrap(), (200, Bytes::from_static(b"held")));
    });
    let seen = origin.seen().into_iter().find(|seen| seen.target == "/echo").unwrap();
    assert_eq!(seen.header("host"), Some("api.example.com"));
    assert_eq!(seen.header("cookie"), Some("a=1; b=2"));
    assert_eq!(seen.header("content-length"), Some("5"));
}

#[test]
fn malformed_requests_are_refused_without_the_upstream() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    for (bytes, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET nopath HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
        ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nBad Header: 1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        ("PRI * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
    ] {
        let mut connection = Connection::open(gateway.addr).unwrap();
        connection.send(bytes).unwrap();
        let answer = connection.read_response(false).map(|response| response.status);
        assert_eq!(answer.ok(), Some(status), "{bytes:?}");
    }
    assert_eq!(origin.seen().len(), 0);
}

#[test]
fn conflicting_framing_is_never_passed_on() {
    let origin = Origin::start();
    origin.on("/", tidegate_testkit::Exchange::echo);
    let gateway = Gateway::start(&origin);
    let mut connection = Connection::open(gateway.addr).unwrap();
    let both = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.send(format!("{both}2\r\nab\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
    let response = connection.read_response(false).unwrap();
    // RFC 9112, 6.3: chunked wins, and the connection ends with it.
    if response.status == 200 {
        assert_eq!(response.text(), "ab");
        assert_eq!(origin.last().header("content-length"), None);
    }
    assert!(connection.closed_within(DEADLINE));
    assert_eq!(origin.calls("/smuggled"), 0);
}

#[test]
fn a_client_that_goes_away_frees_the_upstream() {
    let origin = Origin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/held", move |exchange| {
        exchange.wait_closed();
        held.open();
        Ok(())
    });
    let gateway = Gateway::start(&origin);
    let connection = Connection::open(gateway.addr).unwrap();
    connection.stream().write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    origin.wait_calls("/held", 1);
    drop(connection);
    gate.wait();
    wait_until("the connection to be gone", || gateway.upstream.connections() == 0);
}
