use super::*;

fn check<T>(read: impl Fn(&str) -> Result<T, Problem>, good: &[&str], bad: &[&str]) {
    for text in good {
        if let Err(problem) = read(text) {
            panic!("{text}: {problem}");
        }
    }
    for text in bad {
        let problem = read(text).err().unwrap_or_else(|| panic!("{text:?} was accepted"));
        assert!(!problem.message.is_empty() && !problem.help.is_empty(), "{text:?}");
    }
}

#[test]
fn regular_expressions_are_bounded() {
    check(
        regex,
        &["", "^a+$", "(?i)x|y", r"\p{Greek}"],
        &["(", "a{2,1}", r"\p{Nope}", "(?=a)", r"(a{1000}){1000}"],
    );
}

#[test]
fn version_ranges_are_separated_by_blanks_or_commas() {
    check(
        semver_range,
        &[">=1.2 <2", ">=1.2,<2", ">=1.2, <2", ">= 1.2  < 2", "^1.2.3", "~1", "=1.2.3-rc.1"],
        &["", " ", "one", ">=", "1.2.3.4", ">=1.2 || <1"],
    );
    let range = semver_range(">= 1.2 <2").unwrap();
    for (version, inside) in [("1.2.0", true), ("1.9.9", true), ("2.0.0", false), ("1.1.9", false)] {
        assert_eq!(range.matches(&version.parse().unwrap()), inside, "{version}");
    }
}

#[test]
fn networks_have_a_prefix_length() {
    check(
        network,
        &["10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32", "10.1.2.3/8"],
        &["10.0.0.1", "::1", "10.0.0.0/33", "::/129", "10.0.0/8", "localhost", ""],
    );
    assert_eq!(network("10.0.0.1").unwrap_err().help, "write 10.0.0.1/32");
    assert_eq!(network("::1").unwrap_err().help, "write ::1/128");
}

#[test]
fn times_are_rfc_3339() {
    check(
        rfc3339,
        &[
            "2026-01-31T12:00:00Z",
            "2026-01-31t12:00:00z",
            "2026-01-31T12:00:00.123456789+08:00",
            "2024-02-29T00:00:00-00:00",
        ],
        &[
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-02-30T12:00:00Z",
            "2026-01-31T25:00:00Z",
            "2026-01-31T12:00Z",
            "20260131T120000Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00+0800",
            "2026-01-31T12:00:00Z[Europe/Berlin]",
            "yesterday",
            "",
        ],
    );
}

#[test]
fn numbers_stay_short_and_plain() {
    check(check_number, &["0", "-1.5", "+3", &"9".repeat(64)], &["1e9", "1E-9", &"9".repeat(65)]);
}
