use super::*;
use crate::document::{Source, tree};

/// What `read` makes of one value, or the message of its only fault.
fn read<T>(text: &str, read: fn(&Node, &mut Report) -> Option<T>) -> Result<T, String> {
    let sources = [Source::new("t", text)];
    let mut report = Report::new(&sources);
    let root = tree::parse(&sources[0], 0, &mut report).unwrap();
    let found = read(&root, &mut report);
    let mut faults = report.finish().0;
    match (found, faults.pop()) {
        (Some(value), None) => Ok(value),
        (None, Some(fault)) if faults.is_empty() => Err(fault.message),
        (_, fault) => panic!("{text}: {fault:?} {faults:?}"),
    }
}

fn check_percentage(text: &str, expected: Result<u16, &str>) {
    let found = read(text, percentage).map(Percentage::hundredths);
    assert_eq!(found, expected.map_err(str::to_owned), "{text}");
}

#[test]
fn r3_every_two_decimal_percentage_hits_exactly_its_buckets() {
    for hundredths in 0..=10_000_u16 {
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        check_percentage(&format!("{whole}.{rest:02}"), Ok(hundredths));
        if rest == 0 {
            check_percentage(&whole.to_string(), Ok(hundredths));
        }
        if rest % 10 == 0 {
            check_percentage(&format!("{whole}.{}", rest / 10), Ok(hundredths));
        }
    }
}

#[test]
fn r3_percentages_that_a_float_would_miss_and_those_that_are_refused() {
    for (text, expected) in [
        ("0.29", Ok(29)),
        ("0.57", Ok(57)),
        ("1.15", Ok(115)),
        ("10.000", Ok(1000)),
        ("007", Ok(700)),
        ("0.005", Err("`0.005` is finer than 0.01")),
        ("99.999", Err("`99.999` is finer than 0.01")),
        ("100.01", Err("`100.01` is outside 0 to 100")),
        ("101", Err("`101` is outside 0 to 100")),
        ("99999999999999999999999999", Err("`99999999999999999999999999` is outside 0 to 100")),
        ("-1", Err("`-1` is outside 0 to 100")),
        ("1e1", Err("`1e1` is not a plain decimal number")),
        ("+5", Err("`+5` is not a plain decimal number")),
        ("5.", Err("`5.` is not a plain decimal number")),
        (".5", Err("`.5` is not a plain decimal number")),
        (".nan", Err("a percentage is expected, not the text `.nan`")),
        ("10%", Err("a percentage is expected, not the text `10%`")),
        ("\"10\"", Err("a percentage is expected, not the text `10`")),
        ("true", Err("a percentage is expected, not the boolean `true`")),
    ] {
        check_percentage(text, expected);
    }
}

#[test]
fn ratios_say_what_they_mean() {
    for (text, expected) in [
        ("50%", Ok(5000)),
        ("\"50%\"", Ok(5000)),
        ("0.5", Ok(5000)),
        ("\"0.5\"", Ok(5000)),
        ("1.0", Ok(10_000)),
        ("100%", Ok(10_000)),
        ("0.01%", Ok(1)),
        ("0.0001", Ok(1)),
        ("33.33%", Ok(3333)),
        ("50", Err("`50` is not a ratio: it could mean a share or a percentage")),
        ("1", Err("`1` is not a ratio: it could mean a share or a percentage")),
        ("half", Err("`half` is not a ratio: it could mean a share or a percentage")),
        ("0%", Err("a ratio of zero would always trip")),
        ("0.0", Err("a ratio of zero would always trip")),
        ("1.5", Err("`1.5` is outside 0 to 1")),
        ("101%", Err("`101` is outside 0 to 100")),
        ("0.00001", Err("`0.00001` is finer than 0.0001")),
        ("0.005%", Err("`0.005` is finer than 0.01")),
        ("-0.5", Err("`-0.5` is outside 0 to 1")),
        ("[0.5]", Err("a ratio is expected, not a list")),
    ] {
        let found = read(text, ratio).map(Percentage::hundredths);
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }
}

#[test]
fn rates() {
    let per = Duration::from_secs;
    for (text, expected) in [
        ("10/s", Ok((10, per(1)))),
        ("5/10s", Ok((5, per(10)))),
        ("1/1h30m", Ok((1, per(5400)))),
        ("7/d", Ok((7, per(86_400)))),
        ("2000/ms", Ok((2000, Duration::from_millis(1)))),
        ("999999999999999/12d", Ok((MAX_COUNT, per(12 * 86_400)))),
        ("1000/us", Ok((1000, MIN_PERIOD))),
        ("1001/us", Err("the rate is more than 1000000000/s, which no clock can tell from no limit")),
        ("1000000000000000/s", Err("the count of `1000000000000000/s` is outside 1 to 999999999999999")),
        ("0/s", Err("the count of `0/s` is outside 1 to 999999999999999")),
        ("1/0s", Err("the period of `1/0s` is outside 1us to 366d")),
        ("1/367d", Err("the period of `1/367d` is outside 1us to 366d")),
        ("1/99999999999999d", Err("the period of `1/99999999999999d` is outside 1us to 366d")),
        ("10", Err("a rate is expected, not the number `10`")),
        ("10/", Err("`10/` is not a rate")),
        ("/s", Err("`/s` is not a rate")),
        ("10/10", Err("`10/10` is not a rate")),
        ("10 / s", Err("`10 / s` is not a rate")),
        ("-1/s", Err("`-1/s` is not a rate")),
        ("1.5/s", Err("`1.5/s` is not a rate")),
        ("10 per s", Err("`10 per s` is not a rate")),
    ] {
        let found = read(text, rate).map(|rate| (rate.count, rate.per));
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }
}

#[test]
fn counts() {
    for (text, expected) in [
        ("1", Ok(1)),
        ("4294967297", Ok(4_294_967_297)),
        ("999999999999999", Ok(MAX_COUNT)),
        ("1000000000000000", Err("`1000000000000000` is outside 1 to 999999999999999")),
        ("99999999999999999999999", Err("`99999999999999999999999` is outside 1 to 999999999999999")),
        ("0", Err("`0` is outside 1 to 999999999999999")),
        ("-5", Err("`-5` is outside 1 to 999999999999999")),
        ("0123", Err("`0123` has leading zeros, which some readers take for octal")),
        ("0x1F", Err("`0x1F` is not decimal")),
        ("0o17", Err("`0o17` is not decimal")),
        ("10.0", Err("`10.0` is not a whole number in digits")),
        ("1e3", Err("`1e3` is not a whole number in digits")),
        ("1_000", Err("a whole number is expected, not the text `1_000`")),
        ("\"20\"", Err("a number is expected, not the text `20`")),
        ("on", Err("a whole number is expected, not the text `on`")),
        ("{}", Err("a whole number is expected, not a mapping")),
    ] {
        assert_eq!(read(text, count), expected.map_err(str::to_owned), "{text}");
    }
}
