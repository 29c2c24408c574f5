use http::Method;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

fn answer(status: u16, pairs: &[(&'static str, &str)]) -> response::Parts {
    let mut parts = Response::builder().status(status).body(()).unwrap().into_parts().0;
    parts.headers = headers(pairs);
    parts
}

fn key(name: &str) -> Key {
    Key::call(name, None, [])
}

fn fit(request: &[(&'static str, &str)], answer: &response::Parts) -> Storable {
    examine(&Method::GET, &headers(request), false, answer).unwrap()
}

fn cache() -> Cache {
    Cache::new(Limits::default())
}

/// Keeps an answer to `GET` with these headers, and asks for it `later`.
fn kept(pairs: &[(&'static str, &str)], later: Duration) -> Option<Hit> {
    let (cache, answer) = (cache(), answer(200, pairs));
    cache.put(key("a"), fit(&[], &answer), &answer, Bytes::from_static(b"good"), NOW).unwrap();
    cache.get(&key("a"), &HeaderMap::new(), NOW + later)
}

#[test]
fn only_what_is_everybodys_or_the_subjects_is_kept() {
    let none: &[(&str, &str)] = &[];
    for (method, request, subject, status, response, expected) in [
        (Method::GET, none, false, 200, none, Ok(())),
        (Method::HEAD, none, false, 200, none, Ok(())),
        (Method::GET, none, false, 203, none, Ok(())),
        (Method::GET, none, false, 204, none, Ok(())),
        (Method::POST, none, false, 200, none, Err(NotStored::Method)),
        (Method::PUT, none, true, 200, none, Err(NotStored::Method)),
        (Method::GET, &[("range", "bytes=0-1")], false, 200, none, Err(NotStored::Method)),
        (Method::GET, none, false, 206, none, Err(NotStored::Status)),
        (Method::GET, none, false, 201, none, Err(NotStored::Status)),
        (Method::GET, none, false, 304, none, Err(NotStored::Status)),
        (Method::GET, none, false, 404, none, Err(NotStored::Status)),
        (Method::GET, none, false, 500, none, Err(NotStored::Status)),
        (Method::GET, &[("authorization", "x")], false, 200, none, Err(NotStored::Authorization)),
        (Method::GET, &[("authorization", "x")], true, 200, none, Ok(())),
        (Method::GET, none, true, 200, &[("set-cookie", "a=b")], Err(NotStored::SetCookie)),
        (Method::GET, &[("cookie", "session=a")], false, 200, none, Err(NotStored::Cookie)),
        (Method::GET, &[("cookie", "session=a")], true, 200, none, Ok(())),
        (Method::GET, &[("cookie", "session=a")], false, 200, &[("vary", "Accept, Cookie")], Ok(())),
        (Method::GET, &[("cookie", "theme=a")], false, 200, &[("cache-control", "public")], Ok(())),
        (Method::GET, &[("cookie", "theme=a")], false, 200, &[("vary", "Accept")], Err(NotStored::Cookie)),
        (Method::GET, &[("cache-control", "no-store")], true, 200, none, Err(NotStored::NoStore)),
        (Method::GET, &[("cache-control", "no-cache")], true, 200, none, Ok(())),
        (Method::GET, none, true, 200, &[("cache-control", "No-Store")], Err(NotStored::NoStore)),
        (Method::GET, none, true, 200, &[("cache-control", "max-age=1 , private")], Err(NotStored::Private)),
        (Method::GET, none, true, 200, &[("cache-control", "private=\"x-a\"")], Err(NotStored::Private)),
        (
            Method::GET,
            none,
            true,
            200,
            &[("cache-control", "public"), ("cache-control", "private")],
            Err(NotStored::Private),
        ),
        (Method::GET, none, true, 200, &[("cache-control", "no-cache")], Err(NotStored::Revalidate)),
        (Method::GET, none, true, 200, &[("cache-control", "must-revalidate")], Err(NotStored::Revalidate)),
        (
            Method::GET,
            none,
            true,
            200,
            &[("cache-control", "s-maxage=0, max-age=9")],
            Err(NotStored::Revalidate),
        ),
        (Method::GET, none, true, 200, &[("cache-control", "s-maxage=x")], Err(NotStored::Revalidate)),
        (Method::GET, none, true, 200, &[("cache-control", "max-age=0")], Ok(())),
        (Method::GET, none, true, 200, &[("cache-control", "max-age=9, must-revalidate")], Ok(())),
        (Method::GET, none, true, 200, &[("cache-control", "x=\"a, private, \\\", no-store\"")], Ok(())),
        (Method::GET, none, true, 200, &[("cache-control", "x=\"a, private")], Err(NotStored::Unreadable)),
        (Method::GET, none, true, 200, &[("cache-control", "x=\u{e9}")], Err(NotStored::Unreadable)),
        (Method::GET, none, true, 200, &[("vary", "accept, *")], Err(NotStored::Vary)),
        (Method::GET, none, true, 200, &[("vary", "a b")], Err(NotStored::Vary)),
        (Method::GET, none, true, 200, &[("vary", "Accept, accept,, origin")], Ok(())),
    ] {
        let got = examine(&method, &headers(request), subject, &answer(status, response)).map(drop);
        assert_eq!(got, expected, "{method} {request:?} {subject} {status} {response:?}");
    }
    let many = (0..17).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(",");
    let answer = answer(200, &[("vary", &many)]);
    assert_eq!(examine(&Method::GET, &HeaderMap::new(), false, &answer), Err(NotStored::Vary));
}

#[test]
fn an_answer_tells_its_age_and_where_it_comes_from() {
    let hit = kept(
        &[("content-type", "text/plain"), ("age", "7"), ("cache-status", "edge; fwd=miss")],
        Duration::from_millis(30_900),
    )
    .unwrap();
    assert_eq!(hit.age(), Duration::from_millis(37_900));
    let response = hit.respond(Duration::from_mins(5));
    assert_eq!(response.status(), 200);
    let all = |name: &str| {
        let values = response.headers().get_all(name).iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(all("age"), ["37"]);
    assert_eq!(all("cache-status"), ["edge; fwd=miss", "tidegate; hit; ttl=262; detail=breaker-open"]);
    assert_eq!(all("content-type"), ["text/plain"]);
    assert_eq!(all("content-length"), ["4"]);
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(4));
}

#[test]
fn headers_of_one_hop_or_one_exchange_are_not_kept() {
    let hit = kept(
        &[
            ("connection", "X-Hop, close"),
            ("x-hop", "1"),
            ("keep-alive", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "999"),
            ("x-request-id", "1"),
            ("tidegate-version", "1"),
            ("ratelimit", "\"a\";r=1"),
            ("etag", "\"e\""),
            ("x-many", "1"),
            ("x-many", "2"),
        ],
        Duration::ZERO,
    );
    let response = hit.unwrap().respond(Duration::ZERO);
    let mut names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["age", "cache-status", "content-length", "etag", "x-many"]);
    assert_eq!(response.headers().get_all("x-many").iter().count(), 2);
    assert_eq!(response.headers()["content-length"], "4");
}

#[test]
fn an_answer_to_head_keeps_the_length_that_the_origin_named() {
    let (cache, answer) = (cache(), answer(200, &[("content-length", "999")]));
    let storable = examine(&Method::HEAD, &HeaderMap::new(), false, &answer).unwrap();
    cache.put(key("a"), storable, &answer, Bytes::new(), NOW).unwrap();
    let hit = cache.get(&key("a"), &HeaderMap::new(), NOW).unwrap();
    assert_eq!(hit.respond(Duration::ZERO).headers()["content-length"], "999");
}

#[test]
fn what_must_be_revalidated_is_used_only_while_it_is_fresh() {
    for (control, age, last) in [
        ("max-age=10, must-revalidate", "0", 9),
        ("max-age=10, proxy-revalidate", "4", 5),
        ("s-maxage=10, max-age=1", "0", 9),
        ("max-age=\"10\", must-revalidate", "0", 9),
    ] {
        for (seconds, expected) in [(last, true), (last + 1, false)] {
            let hit = kept(&[("cache-control", control), ("age", age)], Duration::from_secs(seconds));
            assert_eq!(hit.is_some(), expected, "{control} {seconds}");
        }
    }
    assert!(
        kept(&[("cache-control", "max-age=1")], Duration::from_hours(1)).is_some(),
        "the rule's ttl decides"
    );
    assert!(kept(&[("age", "nonsense")], Duration::from_secs(3)).unwrap().age() == Duration::from_secs(3));
    assert_eq!(
        kept(&[("age", "99999999999999999999")], Duration::from_secs(3)).unwrap().age().as_secs(),
        u64::MAX
    );
}

#[test]
fn a_variant_answers_only_requests_that_agree() {
    let (cache, answer) = (cache(), answer(200, &[("vary", "accept-language, x-none")]));
    let storable = fit(&[("accept-language", "de")], &answer);
    cache.put(key("a"), storable, &answer, Bytes::new(), NOW).unwrap();
    for (request, expected) in [
        (headers(&[("accept-language", "de"), ("accept", "x")]), true),
        (headers(&[("accept-language", "en")]), false),
        (headers(&[]), false),
        (headers(&[("accept-language", "de"), ("accept-language", "en")]), false),
        (headers(&[("accept-language", "de"), ("x-none", "")]), false),
    ] {
        assert_eq!(cache.get(&key("a"), &request, NOW).is_some(), expected, "{request:?}");
    }
}

#[test]
fn keys_differ_in_each_part_and_in_where_parts_end() {
    let request = |host: &str, target: &str, subject: Option<&str>, channel: Option<&str>| {
        Key::request("pay", &Method::GET, host, target, subject, [("channel", channel)])
    };
    let keys = [
        request("a", "/x", None, None),
        request("a", "/x", None, Some("")),
        request("a", "/x", Some(""), None),
        request("a", "/x", Some("u"), None),
        request("a", "/x", None, Some("u")),
        request("a", "/x?q", None, None),
        request("a/", "x", None, None),
        Key::request("pay", &Method::HEAD, "a", "/x", None, [("channel", None)]),
        Key::request("pa", &Method::GET, "a", "/x", None, [("channel", None)]),
        Key::request("pay", &Method::GET, "a", "/x", None, [("channe", None)]),
        Key::request("pay", &Method::GET, "a", "/x", None, []),
        Key::call("pay", None, []),
        Key::call("pay", Some("u"), []),
        Key::call("pay", None, [("channel", Some("u"))]),
    ];
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(keys.iter().position(|other| other == key), Some(place));
    }
    assert_eq!(request("a", "/x", Some("u"), None), keys[3]);
}

#[test]
fn the_cache_is_bounded_in_answers_bytes_and_body() {
    let cache = Cache::new(Limits { entries: 3, bytes: 10_000, body: 4_000 });
    let answer = answer(200, &[("etag", "\"e\"")]);
    let put = |name: &str, bytes: usize| {
        cache.put(key(name), fit(&[], &answer), &answer, Bytes::from(vec![0; bytes]), NOW)
    };
    assert_eq!(put("a", 4_001), Err(NotStored::TooLarge { limit: 4_000 }));
    for number in 0..50 {
        put(&number.to_string(), 4_000).unwrap();
        let (entries, bytes) = cache.size();
        assert!(entries <= 2 && bytes <= 10_000, "{entries} {bytes}");
    }
    for number in 0..50 {
        put(&number.to_string(), 1).unwrap();
    }
    assert_eq!(cache.size().0, 3);
    assert!(cache.get(&key("49"), &HeaderMap::new(), NOW).is_some());
    assert!(cache.get(&key("46"), &HeaderMap::new(), NOW).is_none());
    let tiny = Cache::new(Limits { entries: 3, bytes: 100, body: 4_000 });
    let whole = tiny.put(key("a"), fit(&[], &answer), &answer, Bytes::new(), NOW);
    assert_eq!(whole, Err(NotStored::TooLarge { limit: 100 }));
    assert_eq!(cache.most_body(), 4_000);
}

#[test]
fn the_newer_answer_takes_the_place_of_the_older() {
    let (cache, first, second) = (cache(), answer(200, &[]), answer(203, &[]));
    cache.put(key("a"), fit(&[], &first), &first, Bytes::from_static(b"old"), NOW).unwrap();
    let later = NOW + Duration::from_secs(9);
    cache.put(key("a"), fit(&[], &second), &second, Bytes::from_static(b"new"), later).unwrap();
    let hit = cache.get(&key("a"), &HeaderMap::new(), later).unwrap();
    assert_eq!(hit.age(), Duration::ZERO);
    assert_eq!(hit.respond(Duration::ZERO).status(), 203);
    assert_eq!(cache.size().0, 1);
}
