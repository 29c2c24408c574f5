use super::*;

#[track_caller]
fn check(text: &str, expected: Result<(&str, u16), UrlError>) {
    let parsed = text.parse::<UpstreamUrl>();
    let expected = expected.map(|(host, port)| (host.to_owned(), port));
    assert_eq!(parsed.map(|url| (url.host().to_owned(), url.port())), expected, "{text}");
}

#[test]
fn urls_have_a_host_a_port_and_nothing_else() {
    check("http://127.0.0.1:9000", Ok(("127.0.0.1", 9000)));
    check("http://api.example.com/", Ok(("api.example.com", 80)));
    check("http://[::1]:9000", Ok(("::1", 9000)));
    for text in
        ["", "127.0.0.1:9000", "/path", "http://", "http://a:70000", "http://a:0", "http://a b", "http://a:x"]
    {
        check(text, Err(UrlError::Malformed(text.to_owned())));
    }
    check("https://a", Err(UrlError::Scheme("https://a".to_owned())));
    for text in ["http://a/base", "http://a?q", "http://user@a"] {
        check(text, Err(UrlError::Extra(text.to_owned())));
    }
}
