use super::*;

fn map(headers: &[(&str, &str)]) -> HeaderMap {
    headers
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap()))
        .collect()
}

#[track_caller]
fn check(upgrade: bool, before: &[(&str, &str)], after: &[(&str, &str)]) {
    let mut headers = map(before);
    let left = strip_hop_by_hop(&mut headers, upgrade);
    assert_eq!(headers, map(after), "{before:?}");
    assert_eq!(left, after.iter().any(|(name, _)| *name == "upgrade"));
}

#[test]
fn what_is_meant_for_this_hop_is_removed() {
    check(true, &[("a", "1")], &[("a", "1")]);
    check(true, &[("connection", "close"), ("a", "1")], &[("a", "1")]);
    check(
        true,
        &[("connection", "x-one, Keep-Alive ,,x-two"), ("x-one", "1"), ("x-two", "2"), ("x-three", "3")],
        &[("x-three", "3")],
    );
    check(true, &[("connection", "x-one"), ("connection", "x-two"), ("x-one", "1"), ("x-two", "2")], &[]);
    check(true, &[("keep-alive", "timeout=5"), ("proxy-connection", "keep-alive")], &[]);
    check(true, &[("transfer-encoding", "chunked"), ("proxy-authorization", "secret")], &[]);
    check(
        true,
        &[("connection", "host, content-length"), ("host", "a"), ("content-length", "3")],
        &[("host", "a"), ("content-length", "3")],
    );
}

#[test]
fn trailers_stay_announced() {
    check(true, &[("te", "gzip, Trailers")], &[("te", "trailers"), ("connection", "te")]);
    check(true, &[("te", "gzip")], &[]);
    check(true, &[("trailer", "x-sum"), ("connection", "close")], &[("trailer", "x-sum")]);
}

#[test]
fn an_upgrade_stays_only_where_it_is_asked_for_and_allowed() {
    let asked = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
    check(true, &asked, &[("connection", "upgrade"), ("upgrade", "websocket")]);
    check(false, &asked, &[]);
    check(true, &[("upgrade", "websocket")], &[]);
    check(
        true,
        &[("connection", "upgrade, http2-settings"), ("upgrade", "h2c"), ("http2-settings", "x")],
        &[],
    );
    check(true, &[("connection", "upgrade"), ("upgrade", "websocket, H2C")], &[]);
}

#[test]
fn the_upstream_is_told_who_asked() {
    let peer: IpAddr = "::ffff:10.0.0.9".parse().unwrap();
    let claimed = [
        ("host", "api.example.com"),
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-for", "2.2.2.2"),
        ("x-forwarded-host", "claimed"),
        ("x-forwarded-proto", "https"),
    ];
    for (hops, host, proto) in [(0, "api.example.com", "http"), (1, "claimed", "https")] {
        let mut headers = map(&claimed);
        add_forwarded(&mut headers, peer, hops);
        let expected = map(&[
            ("host", "api.example.com"),
            ("x-forwarded-for", "1.1.1.1, 2.2.2.2, 10.0.0.9"),
            ("x-forwarded-host", host),
            ("x-forwarded-proto", proto),
            ("via", "1.1 tidegate"),
        ]);
        assert_eq!(headers, expected, "{hops} hops");
    }
    let mut headers = map(&[("x-forwarded-host", "claimed")]);
    add_forwarded(&mut headers, peer, 0);
    assert_eq!(headers.get("x-forwarded-host"), None);
}

#[test]
fn the_longest_address_has_room() {
    for peer in ["1.2.3.4", "255.255.255.255", "2001:db8::1", "1111:2222:3333:4444:5555:6666:7777:8888"] {
        let mut headers = HeaderMap::new();
        add_forwarded(&mut headers, peer.parse().unwrap(), 0);
        assert_eq!(headers["x-forwarded-for"], peer);
    }
}
