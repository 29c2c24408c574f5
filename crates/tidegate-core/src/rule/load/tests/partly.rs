//! Documents of which a part cannot be read, or which are too many or too large.

use super::*;
use crate::document::Report;

#[test]
fn references_into_a_section_with_a_nameless_entry_are_not_judged() {
    let bucket = "token_bucket: { capacity: 20, refill: 10/s }";
    let limit = format!("limits: [ {{ id: l, resources: [ghost], {bucket} }} ]\n");
    let flag = "flags: [ { key: f, default: \"off\", rules: [ { id: r, when: { segment: ghost }, serve: \"on\" } ] } ]\n";
    let resource = "resources: [ { id: pay, flags: [ghost] } ]\n";
    for (section, user) in [("resources", limit.as_str()), ("segments", flag), ("flags", resource)] {
        let missing = faults_of(user);
        assert!(missing.len() == 1 && missing[0].contains("ghost"), "{section}: {missing:?}");
        // No mapping; one without its name; one whose name cannot be read.
        for entry in ["5", "{}", "{ id: 5, key: 5 }"] {
            let broken = format!("{section}: [ {entry} ]\n");
            let found = faults_of(&format!("{broken}{user}"));
            assert!(!found.is_empty(), "{section}: {entry}");
            assert!(found.iter().all(|fault| !fault.contains("ghost")), "{section}: {entry}: {found:?}");
            // Also when it stands in another document, before or after.
            let document =
                |name: &str, text: &str| Source::new(name, format!("apiVersion: tidegate/v1\n{text}"));
            let mut sources = [document("a.yaml", &broken), document("b.yaml", user)];
            for _ in 0..2 {
                let refused = load(&sources, &Deployment::default()).unwrap_err();
                let found = lines(&refused.faults);
                assert!(found.iter().all(|fault| !fault.contains("ghost")), "{section}: {entry}: {found:?}");
                sources.reverse();
            }
        }
    }
}

#[test]
fn the_version_is_asked_for_by_its_name() {
    for text in ["", "~\n", "apiVersion: tidegate/v2\n"] {
        let refused = load(&[Source::new("rules.yaml", text)], &Deployment::default()).unwrap_err();
        assert_eq!(refused.faults.len(), 1);
        assert_eq!(refused.faults[0].help, "write `apiVersion: tidegate/v1`", "{text}");
    }
}

#[test]
fn a_set_without_what_could_not_be_read_is_incomplete() {
    let bucket = "token_bucket: { capacity: 20, refill: 10/s }";
    for (text, complete) in [
        (
            format!(
                "limits: [ {{ id: a, resources: '*', {bucket} }}, {{ id: b, resources: '*', {bucket} }} ]"
            ),
            true,
        ),
        (format!("limits: [ {{ id: a, resources: '*', {bucket} }}, {{ id: b, resources: '*' }} ]"), false),
        ("resources: [ { id: 5 }, { id: a } ]".to_owned(), false),
        ("segments: [ { id: s } ]".to_owned(), false),
        ("flags: [ { key: f, default: \"off\", rules: [ { id: r, serve: \"on\" } ] } ]".to_owned(), true),
        (
            "flags: [ { key: f, default: \"off\", rules: [ { id: r } ] }, { key: g, default: \"off\" } ]"
                .to_owned(),
            false,
        ),
    ] {
        let sources = [Source::new("rules.yaml", format!("apiVersion: tidegate/v1\n{text}"))];
        let mut report = Report::new(&sources);
        let mut drafts = Drafts::default();
        parse::source(&sources[0], 0, &mut drafts, &mut report);
        assert_eq!(report.fault_count() == 0, complete, "{text}");
        assert_eq!(build(drafts).1, complete, "{text}");
    }
}

#[test]
fn all_documents_together_may_have_16_mib() {
    // Each is refused at its first character, which takes no time.
    let document = |bytes: usize| Source::new("rules.yaml", format!("]{}", " ".repeat(bytes - 1)));
    let quarter = MAX_TOTAL_BYTES / 4;
    for (last, fits) in [(quarter, true), (quarter - 1, true), (quarter + 1, false), (quarter + 9, false)] {
        let sources = [quarter, quarter, quarter, last].map(document);
        let refused = load(&sources, &Deployment::default()).unwrap_err();
        let message = "the rule documents together have more than 16777216 bytes";
        assert_eq!(refused.faults.iter().all(|fault| fault.message != message), fits, "{last}");
        assert_eq!(refused.faults.len(), if fits { 4 } else { 1 }, "{last}");
    }
}

#[test]
fn there_may_be_a_thousand_documents() {
    let many = |count: usize| vec![Source::new("rules.yaml", "apiVersion: tidegate/v1\n"); count];
    assert!(load(&many(MAX_SOURCES), &Deployment::default()).is_ok());
    let refused = load(&many(MAX_SOURCES + 1), &Deployment::default()).unwrap_err();
    assert_eq!(refused.faults[0].message, "there are more than 1000 rule documents");
}
