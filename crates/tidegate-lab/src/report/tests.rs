use super::*;

#[track_caller]
fn check(expected: &Expectation, figure: impl Into<Figure>, verdict: Verdict) {
    assert_eq!(expected.check(&figure.into()), verdict, "{expected}");
}

#[test]
fn expectations_compare_figures_of_one_kind() {
    let exact = Expectation::exactly(1000_u64);
    check(&exact, 1000_u64, Verdict::Holds);
    check(&exact, 999_u64, Verdict::Fails);
    check(&exact, "1000", Verdict::Fails);
    let most = Expectation::AtMost(Figure::Count(5));
    check(&most, 5_u64, Verdict::Holds);
    check(&most, 6_u64, Verdict::Fails);
    check(&most, Duration::ZERO, Verdict::Fails);
    let between = Expectation::between(Duration::from_secs(5), Duration::from_secs(6));
    check(&between, Duration::from_secs(5), Verdict::Holds);
    check(&between, Duration::from_secs(6), Verdict::Holds);
    check(&between, Duration::from_millis(4_999), Verdict::Fails);
    check(&between, Duration::from_millis(6_001), Verdict::Fails);
    let race = Expectation::Race(Figure::Count(1000));
    check(&race, 1001_u64, Verdict::Holds);
    check(&race, 1000_u64, Verdict::NotSeen);
    check(&race, "many", Verdict::Fails);
}

#[test]
fn one_wrong_cell_makes_the_row_and_the_report_fail() {
    let good = Row::new("passed").naive(1031_u64, Expectation::Race(1000_u64.into()));
    let good = good.tidegate(1000_u64, Expectation::exactly(1000_u64));
    let wrong = Row::new("passed").tidegate(1000_u64, Expectation::exactly(999_u64));
    assert!(good.holds());
    assert!(!wrong.holds());
    assert!(Report::of(vec![good.clone()]).holds());
    let report = Report { id: "x", about: "y", ..Report::of(vec![good, wrong]) };
    assert!(!report.holds());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["holds"], false);
    assert_eq!(json["rows"][0]["naive"]["figure"], 1031);
    assert_eq!(json["rows"][0]["naive"]["expected"], "> 1000");
    assert_eq!(json["rows"][1]["tidegate"]["verdict"], "fails");
    assert_eq!(json["rows"][1]["naive"], serde_json::Value::Null);
    let text = report.to_string();
    assert!(text.contains("1031 (> 1000)"), "{text}");
    assert!(text.contains("1000 (EXPECTED = 999)  FAILED"), "{text}");
}
