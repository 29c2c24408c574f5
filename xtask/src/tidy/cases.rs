//! Each listed case has a test that carries its number.

use std::ops::RangeInclusive;

use super::{Finding, SourceFile};

/// Cases met in the field that must hold by now: limits, idempotency, breakers, rollout.
const CASES: &[(char, &[RangeInclusive<u8>])] = &[
    ('L', &[1..=11, 13..=13, 15..=16, 18..=18, 20..=21, 23..=23, 25..=27]),
    ('I', &[1..=15, 18..=24]),
    ('B', &[1..=20]),
    ('R', &[1..=10, 12..=15]),
];

pub(super) fn check(sources: &[SourceFile]) -> Vec<Finding> {
    let of_crates = sources.iter().filter(|source| source.path.starts_with("crates/"));
    let named: Vec<&str> = of_crates.flat_map(|source| functions(&source.text)).collect();
    let listed = CASES
        .iter()
        .flat_map(|(letter, ranges)| ranges.iter().cloned().flatten().map(move |number| (*letter, number)));
    let missing = listed.filter(|(letter, number)| {
        let prefix = format!("{}{number}_", letter.to_ascii_lowercase());
        !named.iter().any(|name| name.starts_with(&prefix))
    });
    missing
        .map(|(letter, number)| {
            let message = format!(
                "case {letter}{number} has no test: write `fn {}{number}_…()` under crates/",
                letter.to_ascii_lowercase()
            );
            Finding::new("xtask/src/tidy/cases.rs", 1, message)
        })
        .collect()
}

/// Names of the functions that a text defines.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    lines.flat_map(|line| {
        let after_fn = line
            .match_indices("fn ")
            .filter(|(at, _)| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
        after_fn.map(move |(at, _)| {
            line[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::file;

    fn missing(files: &[SourceFile]) -> Vec<String> {
        let case = |finding: &Finding| finding.message.split(' ').nth(1).unwrap_or_default().to_owned();
        check(files).iter().map(case).collect()
    }

    #[test]
    fn the_list_is_the_one_of_the_cases() {
        let all = missing(&[]);
        assert_eq!(all.len(), 21 + 22 + 20 + 14);
        for absent in
            ["L12", "L14", "L17", "L19", "L22", "L24", "L28", "I16", "I17", "I25", "B21", "R11", "R16"]
        {
            assert!(!all.contains(&absent.to_owned()), "{absent}");
        }
        for listed in ["L1", "L11", "L13", "L27", "I15", "I18", "I24", "B20", "R10", "R12", "R15"] {
            assert!(all.contains(&listed.to_owned()), "{listed}");
        }
    }

    #[test]
    fn a_case_needs_a_function_of_its_number() {
        let all = missing(&[]).len();
        for (text, found) in [
            ("fn l4_works() {}", 1),
            ("    async fn r10_works() {}\n    pub(super) fn b2_works() {}", 2),
            ("// fn l4_works() {}", 0),
            ("/// fn l4_works()", 0),
            ("fn l4works() {} fn xl4_works() {} let l4_works = 1;", 0),
            ("fn l1_works() {}", 1),
        ] {
            let with = missing(&[file("crates/a/tests/it/main.rs", text)]);
            assert_eq!(all - with.len(), found, "{text}");
        }
        assert_eq!(missing(&[file("xtask/src/a.rs", "fn l4_works() {}")]).len(), all, "only under crates/");
        assert!(missing(&[file("crates/a/src/a.rs", "fn l1_works() {}")]).contains(&"L10".to_owned()));
    }

    #[test]
    fn the_message_says_what_to_write() {
        let message = check(&[]).remove(0).message;
        assert_eq!(message, "case L1 has no test: write `fn l1_…()` under crates/");
    }
}
