use super::*;

#[test]
fn durations_use_the_largest_units() {
    for (nanos, expected) in [
        (0, "0s"),
        (1_000, "1us"),
        (250_000_000, "250ms"),
        (1_500_000_000, "1s500ms"),
        (90_000_000_000, "1m30s"),
        (5_400_000_000_000, "1h30m"),
        (86_400_000_000_000, "1d"),
        (90_061_001_001_000, "1d1h1m1s1ms1us"),
        (1, "1ns"),
    ] {
        assert_eq!(duration(Duration::from_nanos(nanos)), expected);
    }
    assert_eq!(duration(Duration::MAX), "213503982334601d7h15s999ms999us999ns");
}

#[test]
fn rates_use_a_unit_where_one_fits() {
    let check = |count, per, expected: &str| assert_eq!(rate(Rate { count, per }), expected);
    check(10, Duration::from_secs(1), "10/s");
    check(5, Duration::from_secs(10), "5/10s");
    check(1, Duration::from_mins(1), "1/m");
    check(7, Duration::from_millis(1), "7/ms");
    check(7, Duration::from_mins(90), "7/1h30m");
    check(7, Duration::from_hours(24), "7/d");
}

#[test]
fn percentages_keep_their_hundredths() {
    for (hundredths, expected) in [
        (0, "0"),
        (1, "0.01"),
        (10, "0.1"),
        (29, "0.29"),
        (57, "0.57"),
        (115, "1.15"),
        (1_000, "10"),
        (10_000, "100"),
    ] {
        assert_eq!(percent(Percentage::from_hundredths(hundredths).unwrap()), expected);
    }
    for hundredths in 0..=10_000 {
        let text = percent(Percentage::from_hundredths(hundredths).unwrap());
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let back: u16 = format!("{whole}{fraction:0<2}").parse().unwrap();
        assert_eq!(back, hundredths, "{text}");
    }
}

#[test]
fn sizes_use_the_largest_unit_that_divides_them() {
    for (count, expected) in [
        (0, "0B"),
        (1, "1B"),
        (1_024, "1KiB"),
        (1_025, "1025B"),
        (65_536, "64KiB"),
        (1 << 20, "1MiB"),
        (3 << 30, "3GiB"),
    ] {
        assert_eq!(bytes(count), expected);
    }
}

#[test]
fn literals_in_paths_are_encoded_where_they_would_mean_something_else() {
    let literal = |text: &str| PathSegment::Literal(text.to_owned());
    for (segments, expected) in [
        (vec![literal("")], "/"),
        (vec![literal("orders"), PathSegment::Param("order".into()), literal("pay")], "/orders/{order}/pay"),
        (vec![literal("files"), PathSegment::Rest("rest".into())], "/files/{*rest}"),
        (vec![literal("a"), literal("")], "/a/"),
        (vec![literal("{x}"), literal("50%"), literal("a?b#c"), literal("é")], "/%7Bx%7D/50%25/a%3Fb%23c/é"),
    ] {
        assert_eq!(path(&segments), expected);
    }
}
