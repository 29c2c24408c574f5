use proptest::prelude::*;

use super::*;

fn check_with(encoded_slash: EncodedSlash, path: &str, expected: Result<&str, PathError>) {
    let normal = normalise(path, encoded_slash);
    assert_eq!(normal.as_deref(), expected.as_ref().map(|path| *path), "{path:?}");
    if let Ok(normal) = normal {
        let unchanged = normal == path;
        assert_eq!(
            matches!(normal, Cow::Borrowed(_)),
            unchanged || path.is_empty(),
            "{path:?} copied needlessly"
        );
        assert_eq!(normalise(&normal, encoded_slash).as_deref(), Ok(&*normal), "{path:?} twice");
    }
}

fn check(path: &str, expected: &str) {
    check_with(EncodedSlash::Refuse, path, Ok(expected));
    check_with(EncodedSlash::Keep, path, Ok(expected));
}

#[test]
fn what_is_normal_stays() {
    for path in [
        "/",
        "/a",
        "/a/",
        "/orders/5/pay",
        "/.well-known/x",
        "/...",
        "/a..b/.c/..d/e.",
        "/a;v=1/b;",
        "/a:b@c!$&'()*+,=~-._",
        "/caf%C3%A9",
        "/%FF",
        "/100%25",
        "/a%3Bb",
        "/%252e%252e/",
        "/A/a",
        "*",
        "/*",
        "/a;../b",
        "/...;x",
    ] {
        check(path, path);
    }
}

#[test]
fn dot_segments_and_slashes() {
    for (path, expected) in [
        ("", "/"),
        ("//", "/"),
        ("///a////b//", "/a/b/"),
        // RFC 3986 §5.2.4 and §5.4.
        ("/a/b/c/./../../g", "/a/g"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/b/../", "/a/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/../../a", "/a"),
        ("/a/../../../b/..", "/"),
        // Slashes become one first, so that `..` takes a segment with it and not an empty one.
        ("/a//../b", "/b"),
        ("/a/b//../c", "/a/c"),
        ("//..//a", "/a"),
        // Encoded dots are dots.
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/a/%2e/b", "/a/b"),
        ("/%2e%2e%2e", "/..."),
        ("/a/%2e%2e", "/"),
    ] {
        check(path, expected);
    }
}

#[test]
fn escapes() {
    for (path, expected) in [
        ("/%61%7E%2d%5f%41%39", "/a~-_A9"),
        // What follows an escape is looked at like what is before it.
        ("/%21a b", "/%21a%20b"),
        ("/aaaaa%21/../b", "/b"),
        ("/a%21%61", "/a%21a"),
        ("/a%21%2b", "/a%21%2B"),
        ("/a%21//b", "/a%21/b"),
        ("/a%2B%2b", "/a%2B%2B"),
        ("/a%2Bb%2C", "/a%2Bb%2C"),
        ("/%c3%a9", "/%C3%A9"),
        ("/é", "/%C3%A9"),
        ("/%C3é%A9", "/%C3%C3%A9%A9"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%20b"),
        ("/\"<>^`{|}[]", "/%22%3C%3E%5E%60%7B%7C%7D%5B%5D"),
        ("/a?b#c", "/a%3Fb%23c"),
        // Reserved characters keep their spelling.
        ("/%3b%3a!%21", "/%3B%3A!%21"),
        // Decoded once, not twice.
        ("/%2561", "/%2561"),
        ("/%25%36%31", "/%2561"),
    ] {
        check(path, expected);
    }
}

#[test]
fn what_is_refused() {
    let both = |path: &str, error| {
        check_with(EncodedSlash::Refuse, path, Err(error));
        check_with(EncodedSlash::Keep, path, Err(error));
    };
    both("a", PathError::NotAbsolute);
    both("http://x/", PathError::NotAbsolute);
    both("**", PathError::NotAbsolute);
    both(".", PathError::NotAbsolute);
    both("%2Fa", PathError::NotAbsolute);
    both("/a%", PathError::BrokenEscape { at: 2 });
    both("/a%2", PathError::BrokenEscape { at: 2 });
    both("/%%32%65", PathError::BrokenEscape { at: 1 });
    both("/%g1", PathError::BrokenEscape { at: 1 });
    both("/%é1", PathError::BrokenEscape { at: 1 });
    both("/%00", PathError::Control { at: 1 });
    both("/a%0d%0aX", PathError::Control { at: 2 });
    both("/a\0", PathError::Control { at: 2 });
    both("/a\t", PathError::Control { at: 2 });
    both("/%7F", PathError::Control { at: 1 });
    both("/\u{7f}", PathError::Control { at: 1 });
    both("/a/..;/b", PathError::DotWithParameters { at: 6 });
    both("/a/.;x=1", PathError::DotWithParameters { at: 8 });
    both("/a/%2e%2e;x/b", PathError::DotWithParameters { at: 11 });
    let long = format!("/{}", "a".repeat(MAX_PATH_BYTES));
    both(&long, PathError::TooLong);
    check(&long[..MAX_PATH_BYTES], &long[..MAX_PATH_BYTES]);
}

#[test]
fn encoded_slashes_and_backslashes() {
    for (path, at, kept) in [
        ("/a%2Fb", 2, "/a%2Fb"),
        ("/a%2fb", 2, "/a%2Fb"),
        ("/a\\b", 2, "/a%5Cb"),
        ("/a%5cb", 2, "/a%5Cb"),
        ("/a/..%2f..%2fb", 5, "/a/..%2F..%2Fb"),
        ("/a/..\\b", 5, "/a/..%5Cb"),
    ] {
        check_with(EncodedSlash::Refuse, path, Err(PathError::EncodedSlash { at }));
        check_with(EncodedSlash::Keep, path, Ok(kept));
    }
}

#[test]
fn comparison_sees_through_escapes_without_joining_different_paths() {
    for (path, expected) in [
        ("/a", "/a"),
        ("/a%21b", "/a!b"),
        ("/caf%C3%A9", "/café"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%252Fb", "/a%252Fb"),
        ("/100%25", "/100%25"),
        ("/%FFx%C3", "/%FFx%C3"),
        ("/%F0%9F%98%80%FF%41", "/😀%FFA"),
        ("/%", "/%25"),
    ] {
        assert_eq!(comparable(path), expected, "{path}");
    }
    for (text, expected) in [("a!b", "a!b"), ("a/b", "a%2Fb"), ("%2F", "%252F"), ("café", "café")] {
        assert_eq!(comparable_literal(text), expected, "{text}");
    }
}

/// The plain model: lists of segments, RFC 3986 in three steps.
fn plainly(path: &str) -> String {
    let mut stack: Vec<String> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).filter(|segment| !segment.is_empty()).collect();
    let mut open = path.ends_with('/');
    for (at, segment) in segments.iter().enumerate() {
        let segment =
            segment.replace("%2e", ".").replace("%2E", ".").replace("%61", "a").replace("%c3", "%C3");
        let last = at + 1 == segments.len();
        match &*segment {
            "." => open |= last,
            ".." => {
                stack.pop();
                open |= last;
            }
            _ => stack.push(segment),
        }
    }
    let slash = if open { "/" } else { "" };
    if stack.is_empty() { "/".to_owned() } else { format!("/{}{slash}", stack.join("/")) }
}

proptest! {
    #[test]
    fn normal_forms_are_normal(path in "(/|/?\\.{1,2}|%2[eEfF5]|%5[cC]|%[0-9a-fA-F]{2}|[a;\\\\ é%?]){0,12}") {
        for encoded_slash in [EncodedSlash::Refuse, EncodedSlash::Keep] {
            let Ok(normal) = normalise(&path, encoded_slash) else { continue };
            let again = normalise(&normal, encoded_slash);
            prop_assert_eq!(again.as_deref(), Ok(&*normal));
            prop_assert!(matches!(again, Ok(Cow::Borrowed(_))));
            prop_assert!(normal.starts_with('/') && !normal.contains("//"));
            prop_assert!(normal.is_ascii() && !normal.contains(['\\', ' ', '?', '\0']));
            for segment in normal.split('/') {
                let name = segment.split(';').next().unwrap();
                prop_assert!(name != "." && name != "..", "{}", normal);
            }
            if encoded_slash == EncodedSlash::Refuse {
                prop_assert!(!normal.contains("%2F") && !normal.contains("%5C"));
            }
        }
    }

    #[test]
    fn agrees_with_the_plain_model(path in "(/|/\\.|/\\.\\.|/%2e|/\\.%2E|a|%61|b|\\.|%c3|%3B){0,10}") {
        let path = format!("/{path}");
        prop_assert_eq!(normalise(&path, EncodedSlash::Refuse).unwrap(), plainly(&path));
    }

    #[test]
    fn any_text_is_normalised_or_refused(path in ".{0,24}") {
        let _ = normalise(&path, EncodedSlash::Keep);
        let _ = comparable(&path);
    }
}
