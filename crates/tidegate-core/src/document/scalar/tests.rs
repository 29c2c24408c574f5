use super::*;
use crate::document::{Source, tree};

/// What `read` makes of the value in `text`: the value, or each fault's message and help.
fn read<T>(
    text: &str,
    read: impl FnOnce(&Node, &mut Report) -> Option<T>,
) -> Result<T, Vec<(String, String)>> {
    let sources = [Source::new("t", text)];
    let mut report = Report::new(&sources);
    let root = tree::parse(&sources[0], 0, &mut report).unwrap();
    let found = read(&root, &mut report);
    let faults: Vec<_> = report.finish().0.into_iter().map(|fault| (fault.message, fault.help)).collect();
    match found {
        Some(found) if faults.is_empty() => Ok(found),
        _ => Err(faults),
    }
}

fn fault<T>(message: &str, help: &str) -> Result<T, Vec<(String, String)>> {
    Err(vec![(message.to_owned(), help.to_owned())])
}

#[test]
fn decimals_of_the_core_schema() {
    for text in ["0", "-1", "+1", "1.", ".5", "1.5", "1e3", "1E-3", "-.5e+10", "007"] {
        assert!(is_decimal(text), "{text}");
    }
    for text in ["", "-", "+", ".", "e", "1e", "1e+", "1ex", "e5", ".e5", "1x", "x1", "1.x", "1.5.2", "--1"] {
        assert!(!is_decimal(text), "{text}");
    }
}

#[test]
fn text_that_looks_like_something_else_wants_quotes() {
    for (written, message, help) in [
        ("5", "text is expected, not the number `5`", "quote it: \"5\""),
        ("true", "text is expected, not the boolean `true`", "quote it: \"true\""),
        ("~", "text is expected, not null", "write one text here"),
        ("[]", "text is expected, not a list", "write one text here"),
        ("{}", "text is expected, not a mapping", "write one text here"),
    ] {
        assert_eq!(read(written, |node, report| text(node, report).map(str::to_owned)), fault(message, help));
    }
    assert_eq!(read("'5'", |node, report| text(node, report).map(str::to_owned)), Ok("5".to_owned()));
}

#[test]
fn what_was_reported_already_is_passed_over() {
    let faults = read("*nope", boolean).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].0.contains("no anchor"), "{faults:?}");
}

#[test]
fn free_text_may_have_4096_bytes() {
    for length in [1, 4095, 4096] {
        assert_eq!(read(&"x".repeat(length), free_text), Ok("x".repeat(length)));
    }
    for length in [4097, 5000] {
        let message = format!("this text has {length} bytes, and 4096 are the most");
        assert_eq!(read(&"x".repeat(length), free_text), fault(&message, "shorten it"));
    }
}

#[test]
fn names_have_1_to_128_visible_characters() {
    for good in ["a", "x~!", &"n".repeat(127), &"n".repeat(128)] {
        assert_eq!(read(good, name), Ok(good.to_owned()));
    }
    for bad in ["''", "a b", "'\u{e9}'", "'a '", &"n".repeat(129), &"n".repeat(200)] {
        let shown = quoted(bad.trim_matches('\''));
        let help = "use 1 to 128 visible ASCII characters without spaces";
        assert_eq!(read(bad, name), fault(&format!("{shown} is not a name"), help));
    }
}

#[test]
fn only_whole_hexadecimal_digits_make_a_number_of_another_radix() {
    for text in ["0x1F", "0o17", "0b1", "0Xff", "0O7", "0B0"] {
        assert!(is_radix(text) && is_ambiguous(text), "{text}");
    }
    for text in ["0x", "0xg", "0b1z", "x1", "1x1", "0", "0d1"] {
        assert!(!is_radix(text) && !is_ambiguous(text), "{text}");
    }
}
