use super::*;
use crate::document::{Source, tree};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn durations_are_exact() {
    for (text, expected) in [
        ("1us", Ok(Duration::from_micros(1))),
        ("250ms", Ok(Duration::from_millis(250))),
        ("0s", Ok(Duration::ZERO)),
        ("30s", Ok(SECOND * 30)),
        ("1h30m", Ok(SECOND * 5400)),
        ("1d2h3m4s5ms6us", Ok(SECOND * 93_784 + Duration::from_micros(5006))),
        ("213503d", Ok(SECOND * 86_400 * 213_503)),
        ("213504d", Err(NotDuration::Overflow)),
        ("99999999999999999999999s", Err(NotDuration::Overflow)),
        ("18446744073s1000ms", Err(NotDuration::Overflow)),
        ("30", Err(NotDuration::Bare)),
        ("1.5", Err(NotDuration::Bare)),
        ("", Err(NotDuration::Grammar)),
        ("s", Err(NotDuration::Grammar)),
        ("1.5s", Err(NotDuration::Grammar)),
        ("-1s", Err(NotDuration::Grammar)),
        ("1 s", Err(NotDuration::Grammar)),
        ("30m1h", Err(NotDuration::Grammar)),
        ("1m1m", Err(NotDuration::Grammar)),
        ("1S", Err(NotDuration::Grammar)),
        ("1sec", Err(NotDuration::Grammar)),
        ("1ns", Err(NotDuration::Grammar)),
        ("1h30", Err(NotDuration::Grammar)),
        ("١s", Err(NotDuration::Grammar)),
    ] {
        assert_eq!(parse_duration(text), expected, "{text}");
    }
}

#[test]
fn shown_durations_are_read_back() {
    for micros in [1_u64, 999, 1000, 61_000_001, 86_400_000_000, 31_622_400_000_000] {
        let span = Duration::from_micros(micros);
        assert_eq!(parse_duration(&show(span)), Ok(span), "{}", show(span));
    }
    assert_eq!(show(Duration::ZERO), "0s");
}

#[test]
fn sizes() {
    for (text, expected) in [
        ("0B", Ok(0)),
        ("512B", Ok(512)),
        ("64KiB", Ok(65_536)),
        ("1MiB", Ok(1 << 20)),
        ("1GiB", Ok(1 << 30)),
        ("2GiB", Err("`2GiB` is outside 0 to 1073741824 bytes")),
        ("99999999999999999999GiB", Err("`99999999999999999999GiB` is outside 0 to 1073741824 bytes")),
        ("1048576", Err("`1048576` is not a number of bytes")),
        ("1MB", Err("`1MB` is not a number of bytes")),
        ("1.5MiB", Err("`1.5MiB` is not a number of bytes")),
        ("MiB", Err("`MiB` is not a number of bytes")),
        ("[]", Err("a number of bytes is expected, not a list")),
    ] {
        let sources = [Source::new("t", text)];
        let mut report = Report::new(&sources);
        let root = tree::parse(&sources[0], 0, &mut report).unwrap();
        let found = bytes(&root, 0..=1 << 30, &mut report);
        let faults: Vec<String> = report.finish().0.into_iter().map(|fault| fault.message).collect();
        match expected {
            Ok(value) => assert_eq!((found, faults.len()), (Some(value), 0), "{text}"),
            Err(message) => assert_eq!((found, faults), (None, vec![message.to_owned()]), "{text}"),
        }
    }
}
