use super::*;

fn at(text: &str, line: u32, column: u32, start: usize, length: u32) -> Diagnostic {
    let span = Span { source: 0, line, column, start: start as u32, length };
    let sources = [Source::new("rules.yaml", text)];
    Diagnostic::new(
        Severity::Fault,
        &sources,
        span,
        "unknown field `capcity`".into(),
        "write capacity".into(),
    )
}

#[test]
fn a_fault_shows_its_line_and_a_caret() {
    let text = "limits:\n  - token_bucket: { capcity: 20 }\n";
    let start = text.find("capcity").unwrap();
    assert_eq!(
        at(text, 2, 21, start, 7).to_string(),
        "rules.yaml:2:21: unknown field `capcity`\n  \
         |\n\
         2 |   - token_bucket: { capcity: 20 }\n  \
         |                     ^^^^^^^\n\
         help: write capacity"
    );
}

#[test]
fn a_warning_says_so_and_a_place_without_text_has_no_snippet() {
    let sources = [Source::new("a", "")];
    let found = Diagnostic::new(Severity::Warning, &sources, Span::top(0), "m".into(), "h".into());
    assert_eq!(found.to_string(), "a:1:1: warning: m\nhelp: h");
    assert_eq!(Diagnostic::without_text("b", "m", "h").to_string(), "b:1:1: m\nhelp: h");
}

#[test]
fn json_carries_everything_but_the_snippet() {
    assert_eq!(
        at("capcity: 1", 1, 1, 0, 7).to_json(),
        json!({"severity": "fault", "file": "rules.yaml", "line": 1, "column": 1, "length": 7,
               "message": "unknown field `capcity`", "help": "write capacity"})
    );
}

#[test]
fn a_long_line_is_cut_around_the_place() {
    let text = format!("{}capcity{}", "a".repeat(5000), "b".repeat(5000));
    let found = at(&text, 1, 5001, 5000, 7);
    assert_eq!(found.snippet.chars().count(), SNIPPET_WIDTH);
    assert_eq!(found.snippet.chars().skip(found.lead).take(7).collect::<String>(), "capcity");
    assert_eq!(found.length, 7);
}

#[test]
fn carets_stay_in_their_line_and_control_characters_out_of_the_terminal() {
    let text = "key:\t\u{1b}[31mred\nnext: line\n";
    let found = at(text, 1, 1, 0, 100);
    assert_eq!(found.snippet, "key: \u{fffd}[31mred");
    assert_eq!(found.length as usize, found.snippet.chars().count());
}

#[test]
fn places_outside_the_text_or_inside_a_character_do_no_harm() {
    for (start, length) in [(0, u32::MAX), (1, 1), (2, 5), (3, 0), (4_000_000_000_usize, u32::MAX)] {
        let found = at("é\né", 1, 1, start, length);
        assert!(found.length >= 1, "{start} {length}");
        assert!(found.to_string().contains("help: "));
    }
    for (start, length, snippet, lead, meant) in
        [(1, 1, "é", 0, 1), (2, 1, "é", 1, 1), (4, 1, "é", 0, 1), (3, 1, "é", 0, 1), (9, 9, "é", 1, 1)]
    {
        let found = at("é\né", 1, 1, start, length);
        assert_eq!(
            (found.snippet.as_str(), found.lead, found.length),
            (snippet, lead, meant),
            "{start} {length}"
        );
    }
    let found = at("aéb", 1, 1, 0, 2);
    assert_eq!((found.snippet.as_str(), found.length), ("aéb", 1), "ends inside a character");
}

#[test]
fn quotes_are_cut() {
    assert_eq!(quoted("a\nb"), "`a\u{fffd}b`");
    assert_eq!(quoted(&"x".repeat(61)), format!("`{}…`", "x".repeat(60)));
    assert_eq!(quoted(&"x".repeat(60)), format!("`{}`", "x".repeat(60)));
}

#[test]
fn a_login_in_a_url_is_not_shown() {
    for (text, shown) in [
        ("no url", "no url"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://me:secret@host", "redis://*********@host"),
        ("url: \"redis://me:pa@ss@host\", mail: a@b", "url: \"redis://********@host\", mail: a@b"),
        ("'a://x@h' a://y@h b", "'a://*@h' a://*@h b"),
        ("a://h b@c", "a://h b@c"),
        ("a://", "a://"),
    ] {
        assert_eq!(without_logins(text), shown);
    }
}
