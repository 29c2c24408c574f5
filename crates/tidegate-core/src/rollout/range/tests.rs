use proptest::prelude::*;

use super::*;

fn check(range: &str, version: &str, expected: bool) {
    let parsed = Range::parse(range).unwrap_or_else(|error| panic!("{range}: {error}"));
    let holds = Version::parse(version).is_some_and(|version| parsed.contains(version));
    assert_eq!(holds, expected, "{version} in {range}");
}

#[test]
fn r12_ranges_with_v_build_metadata_and_partial_versions() {
    for (range, version, expected) in [
        // The range of the documentation.
        (">=1.2 <2", "1.2.0", true),
        (">=1.2 <2", "1.99.99", true),
        (">=1.2 <2", "1.1.9", false),
        (">=1.2 <2", "2.0.0", false),
        // A leading v, either side.
        (">=1.2 <2", "v1.5.0", true),
        (">=1.2 <2", "V1.5.0", true),
        (">=v1.2 <v2", "1.5.0", true),
        (">=1.2 <2", "vv1.5.0", false),
        // Build metadata counts for nothing.
        ("=1.2.3", "1.2.3+build.7", true),
        ("=1.2.3+a", "1.2.3+b", true),
        (">1.2.3", "1.2.3+99", false),
        ("1.2.3", "1.2.3+a-b.01", true),
        // A partial version in an attribute is filled up with zeros.
        (">=1.2 <2", "1.2", true),
        (">=1.2 <2", "1", false),
        (">=1.2 <2", "2", false),
        ("=1.2.0", "1.2", true),
        ("=1.2.0", "1.2+build", true),
        // A partial version in a range stands for all that begin so.
        ("1.2", "1.2.9", true),
        ("=1.2", "1.2.0-rc.1", false),
        ("=1.2", "1.2.1-rc.1", true),
        ("=1.2", "1.3.0-rc.1", false),
        (">1.2", "1.3.0-rc.1", false),
        ("1.2", "1.3.0", false),
        ("1", "1.99.0", true),
        (">1.2", "1.2.9", false),
        (">1.2", "1.3.0", true),
        ("<=1.2", "1.2.9", true),
        ("<=1.2", "1.3.0", false),
        ("<=1.2", "1.3.0-rc.1", false),
        // Pre-releases come before their release.
        ("<2", "2.0.0-rc.1", false),
        (">=2", "2.0.0-rc.1", false),
        (">=2.0.0-0", "2.0.0-rc.1", true),
        ("<2.0.0", "2.0.0-rc.1", true),
        (">=2.0.0", "2.0.0-rc.1", false),
        (">=1.0.0-alpha.2", "1.0.0-alpha.10", true),
        (">1.0.0-alpha.1", "1.0.0-alpha.beta", true),
        (">1.0.0-1", "1.0.0-99999999999999999999999999", true),
        (">1.0.0-99999999999999999999999998", "1.0.0-99999999999999999999999999", true),
        // Spaces and bounds.
        (">= 1.2  < 2", "1.5.0", true),
        ("<=18446744073709551615.0.0", "18446744073709551615.0.0", true),
        (">1.0.0 >1.2.0 <3 <2", "1.5.0", true),
        (">1.0.0 >1.2.0 <3 <2", "1.2.0", false),
        (">1.0.0 >1.2.0 <3 <2", "2.1.0", false),
        (">=1.0.0 >1.0.0", "1.0.0", false),
        (">1.0.0 >=1.0.0", "1.0.0", false),
        ("<=1.0.0 <1.0.0", "1.0.0", false),
        ("<1.0.0 <=1.0.0", "1.0.0", false),
        ("=1.0.0 >=1.0.0 <=1.0.0", "1.0.0", true),
    ] {
        check(range, version, expected);
    }
}

#[test]
fn r12_what_is_no_version() {
    let long = format!("1.2.3+{}", "a".repeat(MAX_VERSION_BYTES));
    for text in [
        "",
        "v",
        "1.",
        ".1",
        "1..2",
        "1.2.3.4",
        "01.2.3",
        "1.02.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3-a..b",
        "1.2.3+",
        "1.2.3+a..b",
        "1.2.3+a+b",
        "1.2-rc.1",
        "a.b.c",
        "1.2.x",
        "1.2.3-é",
        " 1.2.3",
        "1.2.3 ",
        "-1.2.3",
        "+1",
        "1.2.3-a b",
        "18446744073709551616.0.0",
        "latest",
        &long,
    ] {
        assert!(Version::parse(text).is_none(), "{text:?}");
    }
    let longest = format!("1.2.3+{}", "a".repeat(MAX_VERSION_BYTES - 6));
    assert!(Version::parse(&longest).is_some() && Version::parse(&format!("{longest}a")).is_none());
}

#[test]
fn bad_ranges_say_how_to_mend_them() {
    let many = ">=1 ".repeat(MAX_COMPARATORS + 1);
    assert!(Range::parse(&">=1 ".repeat(MAX_COMPARATORS)).is_ok());
    for (range, help) in [
        ("", "write for example \">=1.2 <2\""),
        ("^1.2", "for `^1.2` write \">=1.2 <2\""),
        (">=x", "write for example `1.2`, `1.2.3` or `1.2.3-rc.1`"),
        (&many, "two are always enough"),
        (">2 <1", "its lower end is above its upper end"),
    ] {
        let found = Range::parse(range).unwrap_err();
        assert!(found.help().contains(help), "{range}: {}", found.help());
        assert!(found.to_string().contains(&found.help()), "{found}");
    }
    for (range, expected) in [
        ("", "is empty"),
        ("  ", "is empty"),
        ("^1.2", "`^` is no operator"),
        ("~1.2", "`~` is no operator"),
        ("==1.2", "`==` is no operator"),
        ("*", "`*` is no operator"),
        ("1.2 || 2", "`||` is no operator"),
        (">=1.2,<2", "`1.2,<2` is not a version"),
        (">=1.2.x", "`1.2.x` is not a version"),
        (">=", "`` is not a version"),
        (">=2 <1", "no version is in the range `>=2 <1`"),
        (">1.0.0 <1.0.0", "no version is in the range"),
        ("=1.2.3 >1.2.3", "no version is in the range"),
        (">18446744073709551615", "is not a version"),
        (&many, "more than 16 comparators"),
    ] {
        let message = Range::parse(range).unwrap_err().to_string();
        assert!(message.contains(expected), "{range}: {message}");
    }
}

#[test]
fn disjoint_ranges_are_seen() {
    let check = |left: &str, right: &str, expected| {
        let (left_range, right_range) = (Range::parse(left).unwrap(), Range::parse(right).unwrap());
        assert_eq!(left_range.is_disjoint(&right_range), expected, "{left} and {right}");
        assert_eq!(right_range.is_disjoint(&left_range), expected, "{right} and {left}");
    };
    check("<2", ">=2", true);
    check("<2.0.0", ">=2", true);
    check("<2.0.0", ">=2.0.0-0", false);
    check("<2", ">=2.0.0-0", true);
    check("<=2.0.0", ">=2.0.0", false);
    check("<2.0.0", ">=2.0.0", true);
    check("1.2", "1.3", true);
    check("1", "1.3", false);
    check("<5", "<1", false);
}

fn identifier() -> impl Strategy<Value = String> {
    prop_oneof!["0|[1-9][0-9]{0,2}", "[0-9]{0,2}[a-c-][0-9a-c-]{0,2}"]
}

fn version() -> impl Strategy<Value = String> {
    let pre = proptest::collection::vec(identifier(), 0..3);
    (0_u64..3, 0_u64..3, 0_u64..3, pre).prop_map(|(major, minor, patch, pre)| {
        let dash = if pre.is_empty() { "" } else { "-" };
        format!("{major}.{minor}.{patch}{dash}{}", pre.join("."))
    })
}

proptest! {
    #[test]
    fn order_is_that_of_semantic_versioning(left in version(), right in version()) {
        let expected = semver::Version::parse(&left).unwrap().cmp_precedence(&right.parse().unwrap());
        let order = Version::parse(&left).unwrap().compare(Version::parse(&right).unwrap());
        prop_assert_eq!(order, expected);
    }

    #[test]
    fn comparators_agree_with_the_order(bound in version(), version in version()) {
        let (bound_version, parsed) = (Version::parse(&bound).unwrap(), Version::parse(&version).unwrap());
        let order = parsed.compare(bound_version);
        for (operator, expected) in [
            ("<", order.is_lt()), ("<=", order.is_le()), ("=", order.is_eq()), (">=", order.is_ge()), (">", order.is_gt()),
        ] {
            prop_assert_eq!(Range::parse(&format!("{operator}{bound}")).unwrap().contains(parsed), expected);
        }
    }

    #[test]
    fn a_partial_version_is_read_as_npm_desugars_it(partial in "[0-2](\\.[0-2])?", version in version()) {
        let parsed = Version::parse(&version).unwrap();
        let holds = |range: &str| Range::parse(range).unwrap().contains(parsed);
        let mut numbers: Vec<u64> = partial.split('.').map(|part| part.parse().unwrap()).collect();
        let whole = |numbers: &[u64]| format!("{}.{}.0", numbers[0], numbers.get(1).unwrap_or(&0));
        let first = whole(&numbers);
        *numbers.last_mut().unwrap() += 1;
        let next = whole(&numbers);
        for (short, long) in [
            (format!("<{partial}"), format!("<{first}-0")),
            (format!("<={partial}"), format!("<{next}-0")),
            (format!(">{partial}"), format!(">={next}")),
            (format!(">={partial}"), format!(">={first}")),
            (format!("={partial}"), format!(">={first} <{next}-0")),
            (partial.clone(), format!(">={first} <{next}-0")),
        ] {
            prop_assert_eq!(holds(&short), holds(&long), "{} is {}", short, long);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[<>=^~ v0-2.+a-]{0,16}|.{0,16}") {
        let _ = Range::parse(&text);
        let _ = Version::parse(&text);
    }
}
