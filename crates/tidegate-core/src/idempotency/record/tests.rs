use proptest::prelude::*;

use super::*;

fn kept(listed: &[&str], headers: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    let listed: Vec<String> = listed.iter().map(|&name| name.to_owned()).collect();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    let response = StoredResponse::keep(200, headers, None, &listed).unwrap();
    response.headers().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

#[test]
fn i7_only_listed_headers_are_kept_and_some_never() {
    let headers = [
        ("Content-Type", "text/plain"),
        ("Set-Cookie", "a=1"),
        ("Date", "Mon, 30 Nov 2026 20:12:11 GMT"),
        ("Connection", "keep-alive"),
        ("Transfer-Encoding", "chunked"),
        ("RateLimit", "\"burst\";r=1"),
        ("RateLimit-Policy", "\"burst\";q=1"),
        ("RateLimit-Remaining", "1"),
        ("X-RateLimit-Limit", "1"),
        ("Tidegate-Version", "1"),
        ("Idempotent-Replayed", "true"),
        ("Content-Length", "3"),
        ("X-Other", "1"),
        ("ETag", "\"1\""),
    ];
    let expected =
        [("Content-Type".to_owned(), b"text/plain".to_vec()), ("ETag".to_owned(), b"\"1\"".to_vec())];
    assert_eq!(kept(&["content-type", "etag"], &headers), expected);
    // Listing them does not help.
    let all: Vec<_> = headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let all: Vec<_> = all.iter().map(String::as_str).filter(|name| *name != "x-other").collect();
    assert_eq!(kept(&all, &headers), expected);
}

#[test]
fn i8_values_stay_apart_and_in_order() {
    let headers = [
        ("link", "</a>; rel=next"),
        ("last-modified", "Mon, 30 Nov 2026 20:12:11 GMT"),
        ("Link", "</b>; rel=prev"),
        ("etag", ""),
    ];
    let response = StoredResponse::new(200, headers, Some(Bytes::new())).unwrap();
    let read = StoredResponse::from_stored(200, &response.headers_to_bytes(), Some(Bytes::new()));
    assert_eq!(read.as_ref(), Some(&response));
    let read: Vec<_> = read.iter().flat_map(StoredResponse::headers).map(|(name, _)| name).collect();
    assert_eq!(read, ["link", "last-modified", "Link", "etag"]);
}

#[test]
fn responses_that_cannot_be_repeated_are_refused() {
    let new =
        |status, name: &str, value: &[u8]| StoredResponse::new(status, [(name, value)], None).map(|_| ());
    assert_eq!(new(200, "etag", b"x: y"), Ok(()));
    for status in [0, 100, 101, 199, 600, u16::MAX] {
        assert_eq!(new(status, "etag", b""), Err(ResponseError::Status { status }));
    }
    for name in ["", "a b", "a:", "é", "a\r\n"] {
        assert_eq!(new(200, name, b""), Err(ResponseError::Name { name: name.to_owned() }));
    }
    for value in ["\r", "\n", "a\0b", "a\r\nset-cookie: x=1"] {
        assert_eq!(new(200, "etag", value.as_bytes()), Err(ResponseError::Value { name: "etag".to_owned() }));
    }
    for headers in [&b"etag"[..], b"etag: 1", b"etag:1\r\n", b": 1\r\n", b"\r\n", b"\xff: 1\r\n"] {
        assert_eq!(StoredResponse::from_stored(200, headers, None), None, "{headers:?}");
    }
}

#[test]
fn states_and_owners_have_one_spelling() {
    for state in [State::Processing, State::Succeeded, State::Failed, State::Released] {
        assert_eq!(State::parse(state.as_str()), Some(state));
    }
    assert_eq!(State::parse("processing"), None);
    let owner = Owner([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
    assert_eq!(owner.to_string(), "000102030405060708090a0b0c0d0eff");
    assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
    assert_eq!(format!("{owner:?}"), "Owner(000102030405060708090a0b0c0d0eff)");
    for bad in ["", "00", "+00102030405060708090a0b0c0d0eff", "000102030405060708090a0b0c0d0eff0"] {
        assert_eq!(Owner::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_result_is_what_was_kept() {
    let new = |status, body: Option<&'static str>| {
        StoredResponse::new(status, [("etag", "1"), ("link", "</a>")], body.map(Bytes::from)).unwrap()
    };
    for (status, state) in [
        (200, State::Succeeded),
        (399, State::Succeeded),
        (400, State::Failed),
        (401, State::Failed),
        (599, State::Failed),
    ] {
        let made = new(status, None);
        assert_eq!((made.status(), made.state()), (status, state));
        assert_eq!(Stage::Finished(Arc::new(made)).state(), state);
    }
    let (some, none) = (new(200, Some("secret")), new(200, None));
    assert_eq!((some.body(), none.body()), (Some(&Bytes::from("secret")), None));
    // The headers' text, 32 bytes for each of them, and the body.
    assert_eq!((some.size(), none.size()), (13 + 2 * 32 + 6, 13 + 2 * 32));
    assert_eq!(format!("{some:?}"), "StoredResponse(200, 2 headers, body Some(6))");
    assert_eq!(format!("{none:?}"), "StoredResponse(200, 2 headers, body None)");
}

proptest! {
    #[test]
    fn stored_headers_round_trip(
        headers in proptest::collection::vec(
            ("[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", proptest::collection::vec(any::<u8>(), 0..20)), 0..8),
        body in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
    ) {
        let body = body.map(Bytes::from);
        if let Ok(response) = StoredResponse::new(201, headers, body.clone()) {
            let read = StoredResponse::from_stored(201, &response.headers_to_bytes(), body);
            prop_assert_eq!(read, Some(response));
        }
    }
}
