use super::*;

use std::collections::BTreeMap;
use tidegate_lab::{Cell, Expectation, Figure, Row};

fn args(ids: &[&str], set: &[&str]) -> Args {
    let owned = |given: &[&str]| given.iter().map(|text| (*text).to_owned()).collect();
    Args { ids: owned(ids), json: true, set: owned(set), list: false }
}

/// A report with one row, of which Tidegate's figure is 1000.
fn report(expected: u64) -> Report {
    let cell = Cell { figure: Figure::Count(1000), expected: Expectation::Exactly(Figure::Count(expected)) };
    Report {
        id: "limit.test",
        about: "a test",
        parameters: BTreeMap::new(),
        rows: vec![Row { what: "calls that pass".to_owned(), naive: None, tidegate: Some(cell) }],
        notes: Vec::new(),
    }
}

#[test]
fn one_wrong_expectation_is_exit_1() {
    assert_eq!(outcome(&[report(1000)]), Exit::Fine);
    assert_eq!(outcome(&[report(1000), report(999)]), Exit::Refused);
    assert_eq!(summary(&[report(1000), report(999)]), "FAILED: limit.test");
}

#[test]
fn what_makes_no_sense_is_exit_2_before_anything_is_run() {
    for (ids, set, said) in [
        (&["limit.boundry"][..], &[][..], "did you mean `limit.boundary`"),
        (&["limit"], &["limt=7"], "did you mean `limit`"),
        (&["rollout"], &["limit=7"], "no selected experiment"),
        (&["limit"], &["limit"], "NAME=VALUE"),
        (&["limit"], &["limit=-5"], "a whole number from 1"),
        (&[], &["retry=100ms"], "lease < retry < work"),
    ] {
        let args = args(ids, set);
        let why = plan(&args).unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
        assert_eq!(run(&args).unwrap(), Exit::Usage, "{why}");
    }
}
