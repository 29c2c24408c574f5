//! No clock, randomness, I/O or async in the core.

use super::{Finding, SourceFile};

const CORE: &str = "crates/tidegate-core/src/";

/// What must not be named there, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("Instant", "take `now: Timestamp` as an argument"),
    ("SystemTime", "take `now: Timestamp` as an argument"),
    ("async", "keep the decision a plain function and await in tidegate-store"),
    ("await", "keep the decision a plain function and await in tidegate-store"),
    ("Future", "keep the decision a plain function and await in tidegate-store"),
    ("tokio", "keep the decision a plain function and await in tidegate-store"),
    ("rand", "take the random number as an argument"),
    ("getrandom", "take the random number as an argument"),
    ("thread_rng", "take the random number as an argument"),
    ("std::fs", "take the text as an argument"),
    ("std::io", "take the text as an argument"),
    ("std::env", "take the value as an argument"),
    ("std::process", "leave processes to the crates above"),
    ("std::thread", "leave threads to the crates above"),
    ("std::os", "leave the operating system to the crates above"),
    ("TcpStream", "leave sockets to the crates above"),
    ("TcpListener", "leave sockets to the crates above"),
    ("UdpSocket", "leave sockets to the crates above"),
    ("println", "return what is to be said"),
    ("eprintln", "return what is to be said"),
    ("dbg", "return what is to be said"),
];

pub(super) fn check(source: &SourceFile) -> Vec<Finding> {
    if !source.path.starts_with(CORE) || source.is_test() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in production_lines(&source.text) {
        for (word, instead) in BANNED {
            if names(line, word) {
                let message = format!("`{word}` in the core: {instead}");
                findings.push(Finding::new(&source.path, number, message));
            }
        }
    }
    findings
}

/// Lines with their numbers, without comments and without what stands under `#[cfg(test)]`.
fn production_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut test_indent: Option<usize> = None;
    let mut in_test = false;
    for (at, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.split("//").next().unwrap_or_default();
        if let Some(outer) = test_indent {
            // The item ends with a line that closes at its own indent, or with one that opens nothing.
            let attribute = code.trim_start().starts_with('#');
            in_test |= !attribute && code.trim_end().ends_with(['{', '(']);
            let closes = indent == outer && code.trim_start().starts_with(['}', ')']);
            let one_line = !in_test && !attribute && code.trim_end().ends_with([';', ',', '}']);
            if closes || one_line {
                test_indent = None;
                in_test = false;
            }
        } else if code.trim_start().starts_with("#[cfg(test)]")
            || code.trim_start().starts_with("#[cfg(all(test")
        {
            test_indent = Some(indent);
        } else {
            lines.push((at + 1, code));
        }
    }
    lines
}

/// Whether the line names the word, as a whole word; `std::{fs, io}` names `std::fs` too.
fn names(line: &str, word: &str) -> bool {
    let whole = |text: &str, word: &str| {
        let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        text.match_indices(word).any(|(at, _)| {
            boundary(text[..at].chars().next_back()) && boundary(text[at + word.len()..].chars().next())
        })
    };
    if whole(line, word) {
        return true;
    }
    let Some((module, item)) = word.split_once("::") else { return false };
    line.split_once(&format!("{module}::{{")).is_some_and(|(_, list)| whole(list, item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::file;

    #[track_caller]
    fn check_core(text: &str, expected: &[(usize, &str)]) {
        let found = check(&file("crates/tidegate-core/src/limit/gcra.rs", text));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, (line, word)) in found.iter().zip(expected) {
            assert_eq!(finding.line, *line, "{finding}");
            assert!(finding.message.starts_with(&format!("`{word}` in the core: ")), "{finding}");
        }
    }

    #[test]
    fn every_banned_word_is_found_where_it_stands() {
        check_core("fn a() {}\nlet now = Instant::now();", &[(2, "Instant")]);
        check_core("async fn a() { b().await }", &[(1, "async"), (1, "await")]);
        check_core("use std::{fs, sync::Arc};", &[(1, "std::fs")]);
        check_core("use std::thread::spawn;\nuse rand::Rng;", &[(1, "std::thread"), (2, "rand")]);
    }

    #[test]
    fn words_that_only_look_alike_pass() {
        check_core("let operand = 1; operand::go(); instantly(); Instantiate; fs::x; awaiting", &[]);
        check_core("// Instant::now is for env.rs\n/// never async\nlet a = 1; // rand", &[]);
        check_core("use std::net::IpAddr;\nuse std::time::Duration;", &[]);
    }

    #[test]
    fn tests_may_do_more() {
        check_core("#[cfg(test)]\nmod tests;\nuse tokio;", &[(3, "tokio")]);
        check_core(
            "#[cfg(test)]\nmod tests {\n    use std::thread;\n    fn a() {\n    }\n}\nuse tokio;",
            &[(7, "tokio")],
        );
        check_core("#[cfg(test)]\nuse std::thread;\nuse std::fs;", &[(3, "std::fs")]);
        let test = file("crates/tidegate-core/src/limit/tests.rs", "use std::thread;");
        assert_eq!(check(&test), []);
    }

    #[test]
    fn other_crates_may_wait() {
        assert_eq!(check(&file("crates/tidegate-store/src/lib.rs", "async fn a() {}")), []);
    }
}
