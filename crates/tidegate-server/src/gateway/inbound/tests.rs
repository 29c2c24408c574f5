use super::*;

fn request(method: &str, target: &str, version: Version, headers: &[(&str, &str)]) -> Request<()> {
    let mut builder = Request::builder().method(method).uri(target).version(version);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap()
}

#[track_caller]
fn check(mut request: Request<()>, expected: Result<(&str, Option<&str>), Refusal>) {
    let outcome = normalise(&mut request);
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
    match (outcome, expected) {
        (Ok(_), Ok((target, expected_host))) => {
            assert_eq!(request.uri().to_string(), target);
            assert_eq!(host.as_deref(), expected_host);
        }
        (outcome, expected) => assert_eq!(outcome.err(), expected.err(), "{request:?}"),
    }
}

#[test]
fn exactly_one_valid_host_is_needed() {
    let one = |host| request("GET", "/a", Version::HTTP_11, &[("host", host)]);
    for host in ["a.example:80", "127.0.0.1", "[::1]:8080", "a_b"] {
        check(one(host), Ok(("/a", Some(host))));
    }
    for host in ["", "a b", "a/b", "user@a", "a:b:c", "a,b@c", "a:b", "[::1]:x", "[::1"] {
        check(one(host), Err(Refusal::Host));
    }
    check(request("GET", "/a", Version::HTTP_11, &[]), Err(Refusal::Host));
    check(request("GET", "/a", Version::HTTP_11, &[("host", "a"), ("host", "b")]), Err(Refusal::Host));
    check(request("GET", "/a", Version::HTTP_10, &[]), Ok(("/a", None)));
}

#[test]
fn the_target_says_whom_the_client_meant() {
    let absolute = |target| request("GET", target, Version::HTTP_11, &[("host", "other")]);
    check(absolute("http://a:1/b?c"), Ok(("/b?c", Some("a:1"))));
    check(absolute("http://a"), Ok(("/", Some("a"))));
    check(absolute("http://u:p@a/"), Err(Refusal::Host));
    check(absolute("http://a:b/"), Err(Refusal::Host));
    check(request("GET", "http://a/b", Version::HTTP_2, &[]), Ok(("/b", Some("a"))));
    check(request("OPTIONS", "*", Version::HTTP_11, &[("host", "a")]), Ok(("*", Some("a"))));
    check(request("GET", "*", Version::HTTP_11, &[("host", "a")]), Err(Refusal::Target));
    check(request("CONNECT", "a:1", Version::HTTP_11, &[("host", "a")]), Err(Refusal::Connect));
}

#[test]
fn split_cookies_become_one() {
    let mut split = request("GET", "http://a/", Version::HTTP_2, &[("cookie", "a=1"), ("cookie", "b=2")]);
    normalise(&mut split).unwrap();
    let cookies: Vec<_> = split.headers().get_all(COOKIE).iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}
