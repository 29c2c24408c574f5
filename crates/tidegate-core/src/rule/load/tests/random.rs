//! No text at all makes the reader panic, hang or change its mind.

use proptest::prelude::*;

use super::*;
use crate::document::report::MAX_FINDINGS;
use crate::rollout::Flags;
use crate::rule::bounds::{MAX_CONDITION_DEPTH, MAX_REGEXES, MAX_RULES, MAX_TESTS};

fn read_twice(text: &str) {
    let sources = [Source::new("r.yaml", text)];
    for deployment in [Deployment::default(), SHARED] {
        match (load(&sources, &deployment), load(&sources, &deployment)) {
            (Ok(a), Ok(b)) => {
                assert_eq!(a.rules, b.rules);
                assert_eq!(a.warnings, b.warnings);
                assert!(Flags::compile(&a.rules).is_ok(), "what was accepted must run");
            }
            (Err(a), Err(b)) => {
                assert!(!a.faults.is_empty());
                assert_eq!(a.to_string(), b.to_string());
                for fault in a.faults.iter().chain(&a.warnings) {
                    assert!(fault.line >= 1 && fault.column >= 1 && fault.length >= 1, "{fault:?}");
                    assert!(!fault.message.contains('\n') && !fault.help.is_empty(), "{fault:?}");
                }
            }
            (a, b) => panic!("{:?} {:?}", a.is_ok(), b.is_ok()),
        }
    }
}

/// A change of a document: where in it, how much of it goes, and what comes instead.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let token = prop::sample::select(vec![
        "",
        " ",
        "\n",
        "  ",
        "\t",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "&a ",
        "*a",
        "!t ",
        "# ",
        "|",
        ">",
        "0",
        "-1",
        "1e9",
        "0x1",
        "99999999999999999999",
        "50",
        "50%",
        "1/0s",
        "0s",
        "9999999d",
        "null",
        "~",
        "true",
        "True",
        "on",
        "*",
        "id: pay",
        "staff",
        "\u{0}",
        "\u{feff}",
        "é",
        "😀",
        "---\n",
        "...",
        "<<: ",
        "? ",
        "%YAML 1.1\n",
    ]);
    let random = prop_oneof![4 => token.prop_map(str::to_owned), 1 => "\\PC{0,8}"];
    prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, random), 1..6)
}

fn edited(edits: Vec<(prop::sample::Index, usize, String)>) -> String {
    let mut text: Vec<char> = FULL.chars().collect();
    for (at, gone, new) in edits {
        let start = at.index(text.len().max(1));
        let end = (start + gone).min(text.len());
        text.splice(start.min(end)..end, new.chars());
    }
    text.into_iter().collect()
}

proptest! {
    #[test]
    fn any_text_is_read_without_harm(text in "\\PC{0,200}|[ \\n\\t:,\\[\\]{}&*!|>'\"#%@`a-c0-9-]{0,200}") {
        read_twice(&text);
        read_twice(&format!("apiVersion: tidegate/v1\n{text}"));
    }

    #[test]
    fn any_edit_of_a_good_document_is_read_without_harm(edits in edits()) {
        read_twice(&edited(edits));
    }
}

/// Each line of the example taken out, cut short or doubled.
#[test]
fn every_line_may_be_missing_cut_or_doubled() {
    let lines: Vec<&str> = FULL.lines().collect();
    for index in 0..lines.len() {
        let half: String = lines[index].chars().take(lines[index].chars().count() / 2).collect();
        for new in [vec![], vec![half.as_str()], vec![lines[index], lines[index]]] {
            let mut changed = lines.clone();
            changed.splice(index..=index, new);
            read_twice(&changed.join("\n"));
        }
    }
}

#[test]
fn findings_are_bounded_and_say_that_there_are_more() {
    let text: String = (0..MAX_FINDINGS + 5).map(|n| format!("unknown{n}: 1\n")).collect::<Vec<_>>().concat();
    let refused = load_text(&text).unwrap_err();
    assert_eq!(refused.faults.len(), MAX_FINDINGS + 1);
    assert_eq!(refused.faults[MAX_FINDINGS].message, "there is more to find than is shown");
}

#[test]
fn sections_are_bounded() {
    let segments: String = (0..=MAX_RULES)
        .map(|n| format!("- {{ id: s{n}, when: {{ a: {{ equals: 1 }} }} }}\n"))
        .collect::<Vec<_>>()
        .concat();
    let refused = load_text(&format!("segments:\n{segments}")).unwrap_err();
    assert_eq!(lines(&refused.faults), ["10003:3 `segments` has more than 10000 entries"]);
}

#[test]
fn chains_of_segments_are_bounded_in_length_and_in_what_they_cost() {
    let chain = |length: usize, ask: &str| -> String {
        let links = (0..length).map(|n| {
            let next = ask.replace('N', &(n + 1).to_string());
            format!("- {{ id: s{n}, when: {next} }}\n")
        });
        format!(
            "segments:\n{}- {{ id: s{length}, when: {{ a: {{ equals: 1 }} }} }}\n",
            links.collect::<String>()
        )
    };
    assert_eq!(faults_of(&chain(MAX_CONDITION_DEPTH - 1, "{ segment: sN }")), Vec::<String>::new());
    assert_eq!(faults_of(&chain(MAX_CONDITION_DEPTH, "{ segment: sN }")).len(), 1);
    let found = faults_of(&chain(9000, "{ segment: sN }"));
    let message = format!("the condition nests deeper than {MAX_CONDITION_DEPTH} levels, segments included");
    assert!(!found.is_empty() && found.iter().all(|fault| fault.ends_with(&message)), "{found:?}");
    let twice = "{ all: [ { segment: sN }, { segment: sN } ] }";
    assert_eq!(faults_of(&chain(MAX_TESTS.ilog2() as usize, twice)), Vec::<String>::new());
    let found = faults_of(&chain(13, "{ all: [ { segment: sN }, { segment: sN } ] }"));
    let message = format!("with its segments written out, the condition has more than {MAX_TESTS} tests");
    assert!(!found.is_empty() && found.iter().all(|fault| fault.ends_with(&message)), "{found:?}");
}

#[test]
fn many_unknown_names_do_not_make_suggestions_slow() {
    let known: String = (0..5000).map(|n| format!("- {{ id: resource-{n} }}\n")).collect::<Vec<_>>().concat();
    let names: String = (0..9000).map(|n| format!("resuorce-{n}, ")).collect::<Vec<_>>().concat();
    let text = format!(
        "resources:\n{known}limits:\n- {{ id: l, concurrency: {{ max: 1 }}, resources: [{names}] }}\n"
    );
    assert_eq!(faults_of(&text).len(), 9000);
}
#[test]
fn regular_expressions_are_bounded_in_number() {
    let segments = |count: usize| {
        let one = |n: usize| format!("- {{ id: s{n}, when: {{ a: {{ matches: x }} }} }}\n");
        format!("segments:\n{}", (0..count).map(one).collect::<Vec<_>>().concat())
    };
    assert_eq!(faults_of(&segments(MAX_REGEXES)), Vec::<String>::new());
    check(&faults_of(&segments(MAX_REGEXES + 1)), &["1003:38 there are more than 1000 regular expressions"]);
}
