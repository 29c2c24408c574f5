use super::*;

#[test]
fn faults_that_are_not_kept_are_counted() {
    let sources = [Source::new("t", "")];
    let mut report = Report::new(&sources);
    for start in 0..MAX_FINDINGS {
        report.fault(Span { start: start as u32, ..Span::top(0) }, "m", "h");
    }
    assert!(!report.is_full(), "every fault was kept");
    assert_eq!(report.fault_count(), MAX_FINDINGS);
    for more in 1..=2 {
        report.fault(Span::top(0), "m", "h");
        assert!(report.is_full());
        assert_eq!(report.fault_count(), MAX_FINDINGS + more);
    }
    let (faults, warnings) = report.finish();
    assert_eq!((faults.len(), warnings.len()), (MAX_FINDINGS + 1, 0));
    assert_eq!(faults[MAX_FINDINGS].message, "there is more to find than is shown");
}

#[test]
fn what_is_not_shown_is_more_of_the_source_that_came_last() {
    let sources = [Source::new("a", ""), Source::new("b", "")];
    let mut report = Report::new(&sources);
    for start in 0..=MAX_FINDINGS {
        report.warn(Span { start: start as u32, line: 7, ..Span::top(1) }, "m", "h");
    }
    let (_, warnings) = report.finish();
    let last = warnings.last().unwrap();
    assert_eq!((last.severity, last.source.as_str(), last.line), (Severity::Warning, "b", 7));
    assert_eq!(last.message, "there is more to find than is shown");
}

#[test]
fn equal_findings_at_one_place_count_once() {
    let sources = [Source::new("t", "")];
    let mut report = Report::new(&sources);
    for (start, message) in [(0, "m"), (0, "m"), (1, "m"), (0, "n")] {
        report.fault(Span { start, ..Span::top(0) }, message, "h");
    }
    assert_eq!(report.fault_count(), 3);
}

#[test]
fn suggestions_end_once_many_words_were_compared() {
    let sources = [Source::new("t", "")];
    let mut report = Report::new(&sources);
    // Empty words take no time to compare.
    let known = |count: usize| std::iter::repeat_n("", count - 1).chain(["capacity"]);
    assert_eq!(report.nearest("capcity", known(MAX_COMPARISONS - 2)), Some("capacity"));
    assert_eq!(report.nearest("capcity", known(1)), Some("capacity"));
    assert_eq!(report.nearest("capcity", known(1)), Some("capacity"), "as many as are allowed");
    assert_eq!(report.nearest("capcity", known(1)), None, "one more");

    let mut report = Report::new(&sources);
    assert_eq!(report.nearest("capcity", known(MAX_COMPARISONS + 1)), None);
    assert_eq!(report.nearest("capcity", known(1)), None, "nothing is left after a list that is too long");
}
