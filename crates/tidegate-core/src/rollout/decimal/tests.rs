use proptest::prelude::*;

use super::*;

fn check(left: &str, right: &str, expected: Ordering) {
    let (left_number, right_number) = (Decimal::parse(left).unwrap(), Decimal::parse(right).unwrap());
    assert_eq!(left_number.compare(right_number), expected, "{left} to {right}");
    assert_eq!(right_number.compare(left_number), expected.reverse(), "{right} to {left}");
    assert_eq!(left_number == right_number, expected.is_eq(), "{left} to {right}");
    assert_eq!(left_number.partial_cmp(&right_number), Some(expected), "{left} to {right}");
    let owned = left_number.to_owned();
    assert_eq!(owned.borrowed().compare(right_number), expected, "owned {left} to {right}");
}

#[test]
fn equal_values_are_equal_however_written() {
    for (left, right) in [
        ("1", "1.0"),
        ("1", "1."),
        ("0.5", ".5"),
        ("+1", "1"),
        ("10e-1", "1"),
        ("1E+2", "100"),
        ("0.0001e4", "1"),
        ("-0", "0"),
        ("-0.000e5", "+0"),
        ("0123", "123"),
        ("1e0000000000000000000000002", "100"),
        ("100.100", "1001e-1"),
        ("1e1000000000", "10e999999999"),
    ] {
        check(left, right, Ordering::Equal);
    }
}

#[test]
fn order_is_exact_where_floats_are_not() {
    for (left, right) in [
        ("0.1", "0.10000000000000000001"),
        ("9007199254740992", "9007199254740993"),
        ("99999999999999999999999999999", "100000000000000000000000000000"),
        ("9.99", "10"),
        ("-1", "0"),
        ("-1", "1"),
        ("-10", "-9.5"),
        ("-1e5", "-1e-5"),
        ("0", "1e-1000000000"),
        ("9e999999999", "1e1000000000"),
        ("0.009", "0.01"),
        ("19", "101"),
    ] {
        check(left, right, Ordering::Less);
    }
}

#[test]
fn a_decimal_shows_its_sign_digits_and_magnitude() {
    for (text, shown) in [
        ("1.5e3", "Decimal(\"1.5\" at 10^3)"),
        ("-0.0250", "Decimal(-\"25\" at 10^-2)"),
        ("0", "Decimal(\"\" at 10^0)"),
    ] {
        assert_eq!(format!("{:?}", Decimal::parse(text).unwrap()), shown);
    }
}

#[test]
fn what_is_no_number() {
    let long = "1".repeat(MAX_DECIMAL_BYTES + 1);
    for text in [
        "",
        ".",
        "+",
        "-",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1e-",
        "1.2.3",
        "1 ",
        " 1",
        "1_000",
        "1,5",
        "0x1f",
        "0o7",
        "inf",
        "-inf",
        "NaN",
        ".inf",
        ".nan",
        "Infinity",
        "++1",
        "1e5.0",
        "1e1000000001",
        "1e-1000000001",
        "1e99999999999999999999999999",
        "１",
        "1é",
        "true",
        &long,
    ] {
        assert!(Decimal::parse(text).is_none(), "{text:?}");
    }
    assert!(Decimal::parse(&long[1..]).is_some());
}

#[test]
fn whole_numbers_fit_or_do_not() {
    for (text, expected) in [
        ("0", Some(0)),
        ("-0.0", Some(0)),
        ("1", Some(1)),
        ("1.0", Some(1)),
        ("10e-1", Some(1)),
        ("1.5", None),
        ("0.5", None),
        ("5e-1", None),
        ("1e18", Some(1_000_000_000_000_000_000)),
        ("1e19", None),
        ("1e1000000000", None),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("-9223372036854775808", Some(i64::MIN)),
        ("-9223372036854775809", None),
        ("922337203685477580.7e1", Some(i64::MAX)),
    ] {
        assert_eq!(Decimal::parse(text).unwrap().to_i64(), expected, "{text}");
    }
}

/// A number as digits × 10^exponent, and one of the ways to write it.
fn written() -> impl Strategy<Value = (i128, String)> {
    (-2_000_i128..2_000, 0_u32..8, 0_usize..6, any::<bool>()).prop_map(|(digits, exponent, point, upper)| {
        // Value: digits × 10^exponent; written with `point` digits after the point and the exponent raised.
        let shown = format!("{:0width$}", digits.unsigned_abs(), width = point + 1);
        let (whole, part) = shown.split_at(shown.len() - point);
        let sign = if digits < 0 { "-" } else { "" };
        let e = if upper { 'E' } else { 'e' };
        let dot = if point == 0 { "" } else { "." };
        let text = format!("{sign}{whole}{dot}{part}{e}{}", i64::from(exponent) + point as i64);
        (digits * 10_i128.pow(exponent), text)
    })
}

proptest! {
    #[test]
    fn compares_like_integers((left, left_text) in written(), (right, right_text) in written()) {
        let (left_number, right_number) =
            (Decimal::parse(&left_text).unwrap(), Decimal::parse(&right_text).unwrap());
        prop_assert_eq!(left_number.compare(right_number), left.cmp(&right), "{} {}", left_text, right_text);
        prop_assert_eq!(left_number.to_i64(), i64::try_from(left).ok());
    }

    #[test]
    fn any_text_is_read_or_refused_and_never_panics(text in "[-+.eE0-9]{0,12}|.{0,12}") {
        if let Some(number) = Decimal::parse(&text) {
            prop_assert!(number.compare(number.to_owned().borrowed()).is_eq());
            let _ = number.to_i64();
        }
    }
}
