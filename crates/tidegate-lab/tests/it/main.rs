//! Every experiment, as a user runs it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "clippy does not know the helpers of tests as tests")]

use std::ffi::OsString;
use std::io;
use std::process::Command;

use tidegate_lab::child::{ChildTask, carry_out};
use tidegate_lab::{EXPERIMENTS, Figure, Params, ParamsError, Report, Run, Verdict, find};

const TASK: &str = "TIDEGATE_LAB_TEST_TASK";

/// Not a test of its own: the process that `idempotency.crash` kills.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let args: Vec<OsString> = task.split('\n').map(OsString::from).collect();
    carry_out(&ChildTask::from_args(&args).unwrap()).unwrap();
}

fn this_program(task: &ChildTask) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let args = task.to_args().map(|arg| arg.into_string().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(TASK, args.join("\n"));
    Ok(command)
}

fn run(id: &str, set: &[(&str, &str)]) -> Report {
    let experiment = find(id).unwrap();
    let pairs: Vec<(String, String)> =
        set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let params = Params::of(experiment, &pairs).unwrap();
    let mut heard = Vec::new();
    let report = {
        let mut hear = |done, total| heard.push((done, total));
        experiment.run(&params, &mut Run::new().with_progress(&mut hear).with_child(&this_program)).unwrap()
    };
    // Progress grows, and ends where it said.
    assert!(heard.is_sorted_by_key(|(done, _)| *done), "{id}: {heard:?}");
    let (done, total) = heard.last().unwrap();
    assert_eq!(done, total, "{id}");
    report
}

/// Every row holds. Returns the report, for more.
#[track_caller]
fn check(id: &str, set: &[(&str, &str)]) -> Report {
    let report = run(id, set);
    println!("{report}");
    assert!(!report.rows.is_empty(), "{id}");
    for row in &report.rows {
        assert!(row.holds(), "{report}");
    }
    assert!(report.holds());
    report
}

/// Tidegate's figure of a row.
#[track_caller]
fn tidegate(report: &Report, what: &str) -> Figure {
    let row = report.rows.iter().find(|row| row.what == what);
    row.unwrap_or_else(|| panic!("no row {what:?}: {report}")).tidegate.clone().unwrap().figure
}

/// The naive way's.
#[track_caller]
fn naive(report: &Report, what: &str) -> Figure {
    let row = report.rows.iter().find(|row| row.what == what);
    row.unwrap_or_else(|| panic!("no row {what:?}: {report}")).naive.clone().unwrap().figure
}

#[track_caller]
fn both(report: &Report, what: &str, expected_naive: u64, expected: u64) {
    assert_eq!(naive(report, what), Figure::Count(expected_naive), "{what}");
    assert_eq!(tidegate(report, what), Figure::Count(expected), "{what}");
}

#[track_caller]
fn counts(report: &Report, expected: &[(&str, u64)]) {
    for (what, count) in expected {
        assert_eq!(tidegate(report, what), Figure::Count(*count), "{what}");
    }
}

#[test]
fn limit_boundary() {
    let report = check("limit.boundary", &[]);
    both(&report, "fixed window: calls that pass", 200, 200);
    both(&report, "fixed window: most in any second", 200, 200);
    both(&report, "sliding log: calls that pass", 200, 100);
    both(&report, "sliding log: most in any second", 200, 100);
    both(&report, "token bucket: calls that pass", 200, 101);
    both(&report, "token bucket: most in any second", 200, 101);
}

#[test]
fn limit_local_race() {
    let report = check("limit.local-race", &[]);
    for algorithm in ["fixed window", "sliding log", "token bucket"] {
        counts(&report, &[(&format!("{algorithm}: calls that pass"), 1000)]);
    }
    // Thirty-one others stand between looking and counting. That one run shows nothing is possible;
    // that ten do not, is not.
    let cell = |report: &Report| report.rows[0].naive.clone().unwrap();
    let seen = |report: &Report| cell(report).verdict() == Verdict::Holds;
    assert!(seen(&report) || (0..10).any(|_| seen(&run("limit.local-race", &[]))), "{:?}", cell(&report));
}

#[test]
fn limit_hot_update() {
    let report = check("limit.hot-update", &[]);
    counts(&report, &[("version in force after the rule with −5", 1), ("calls that pass in all", 800)]);
}

#[test]
fn idempotency_concurrent() {
    let report = check("idempotency.concurrent", &[]);
    counts(&report, &[("executions", 1), ("answers 409", 19), ("rows", 1)]);
}

#[test]
fn idempotency_replay() {
    let report = check("idempotency.replay", &[]);
    assert_eq!(tidegate(&report, "first answer"), Figure::Word("201 registration for alice".into()));
    counts(
        &report,
        &[("replays of that very answer", 5), ("rows after them", 1), ("status for another body", 422)],
    );
}

#[test]
fn idempotency_failures() {
    let report = check("idempotency.failures", &[]);
    counts(&report, &[("downstream times out: status", 504), ("bad argument: status", 400)]);
}

#[test]
fn idempotency_lease() {
    let report = check("idempotency.lease", &[]);
    both(&report, "rows", 2, 1);
    assert_eq!(naive(&report, "A"), Figure::Word("succeeded".into()));
    assert_eq!(tidegate(&report, "A"), Figure::Word("0 rows updated, rolled back".into()));
}

#[test]
fn idempotency_crash() {
    let report = check("idempotency.crash", &[]);
    both(&report, "rows", 2, 1);
}

#[test]
fn rollout_share() {
    let report = check("rollout.share", &[]);
    counts(
        &report,
        &[
            ("subjects hit at 10 %", 10_066),
            ("subjects hit at 20 %", 19_977),
            ("hit at 10 % and not at 20 %", 0),
        ],
    );
}

#[test]
fn rollout_reload() {
    let report = check("rollout.reload", &[]);
    counts(
        &report,
        &[("same results after saving the file again", 100_000), ("version in force after it", 1)],
    );
}

#[test]
fn rollout_salt() {
    let report = check("rollout.salt", &[]);
    both(&report, "subjects that both flags hit at 10 %", 10_085, 1_027);
}

#[test]
fn rollout_random() {
    let report = check("rollout.random", &[]);
    counts(&report, &[("subjects whose second answer differs", 0)]);
}

#[test]
fn rollout_rollback() {
    let report = check("rollout.rollback", &[]);
    counts(
        &report,
        &[
            ("results that 10 % → 50 % changes", 39_935),
            ("version in force after the rollback", 3),
            ("results as in version 1 after it", 100_000),
        ],
    );
}

#[test]
fn rollout_refused() {
    let report = check("rollout.refused", &[]);
    counts(&report, &[("120 %: version in force", 1), ("equal priority: version in force", 1)]);
}

#[test]
fn rollout_propagation() {
    let report = check("rollout.propagation", &[]);
    assert_eq!(naive(&report, "subjects that flip back and forth"), Figure::Count(3_961));
    assert_eq!(naive(&report, "changes of an answer"), Figure::Count(7_922));
    assert!(report.notes[0].contains("activate_at"), "{:?}", report.notes);
}

#[test]
fn breaker_small_sample() {
    check("breaker.small-sample", &[]);
}

#[test]
fn breaker_volume() {
    check("breaker.volume", &[]);
}

#[test]
fn breaker_slow() {
    check("breaker.slow", &[]);
}

#[test]
fn breaker_false_recovery() {
    check("breaker.false-recovery", &[]);
}

#[test]
fn breaker_retry_storm() {
    check("breaker.retry-storm", &[]);
}

#[test]
fn parameters_change_the_result() {
    let race = [("limit", "700"), ("threads", "8")];
    counts(&check("limit.local-race", &race), &[("token bucket: calls that pass", 700)]);
    counts(
        &check("limit.local-race", &[("threads", "3"), ("calls", "4")]),
        &[("sliding log: calls that pass", 12)],
    );
    both(
        &check("limit.boundary", &[("limit", "700"), ("calls", "700")]),
        "token bucket: calls that pass",
        1400,
        707,
    );
    counts(&check("limit.hot-update", &[("changed", "700")]), &[("calls that pass in all", 700)]);
    counts(&check("limit.hot-update", &[("changed", "500")]), &[("calls that pass in all", 600)]);
    check("rollout.share", &[("low", "0.5%"), ("high", "99.99%"), ("subjects", "20000")]);
    check("rollout.salt", &[("percentage", "50%"), ("subjects", "20000")]);
    check("rollout.rollback", &[("to", "0%"), ("subjects", "5000")]);
    check("rollout.random", &[("percentage", "50%"), ("seed", "7")]);
    for late in ["0s", "10s", "20s", "1m"] {
        check("rollout.propagation", &[("late", late), ("subjects", "5000")]);
    }
    for errors in ["19", "20"] {
        check("breaker.small-sample", &[("errors", errors)]);
    }
    check("breaker.volume", &[("count", "50")]);
    check("breaker.slow", &[("slow", "1")]);
    check("breaker.slow", &[("slow", "60"), ("takes", "1s")]);
    for seed in ["2", "3", "4", "5"] {
        check("breaker.retry-storm", &[("seed", seed)]);
        check("breaker.false-recovery", &[("seed", seed)]);
    }
    check("breaker.false-recovery", &[("open-for", "1s")]);
    check("breaker.false-recovery", &[("open-for", "30s"), ("max-open", "5m")]);
    counts(&check("idempotency.concurrent", &[("calls", "3"), ("work", "1ms")]), &[("answers 409", 2)]);
    counts(&check("idempotency.replay", &[("again", "2")]), &[("replays of that very answer", 2)]);
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let all: Vec<_> = EXPERIMENTS.iter().collect();
    let pair = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
    let unknown = Params::check_names(&pair("limt", "1"), &all).unwrap_err();
    assert!(
        matches!(&unknown, ParamsError::Unknown { nearest: Some(nearest), .. } if nearest == "limit"),
        "{unknown}"
    );
    Params::check_names(&pair("limit", "1"), &all).unwrap();
    // A parameter of another experiment alone is not one of the selected.
    Params::check_names(&pair("limit", "1"), &[find("rollout.salt").unwrap()]).unwrap_err();
    Params::of(find("limit.boundary").unwrap(), &pair("limit", "-5")).unwrap_err();
    for (id, name, value) in [
        ("limit.hot-update", "bad-after", "700"),
        ("rollout.share", "low", "30%"),
        ("rollout.rollback", "to", "10%"),
        ("breaker.volume", "count", "200"),
    ] {
        let error = Params::of(find(id).unwrap(), &pair(name, value)).unwrap_err();
        assert!(matches!(error, ParamsError::Together { .. }), "{id}: {error}");
    }

    let lease = find("idempotency.lease").unwrap();
    let error = Params::of(lease, &pair("retry", "200ms")).unwrap_err();
    assert!(error.to_string().contains("lease < retry < work"), "{error}");
}

#[test]
fn a_report_is_stable_json() {
    let json = serde_json::to_value(check("rollout.salt", &[("subjects", "1000")])).unwrap();
    assert_eq!(json["id"], "rollout.salt");
    assert_eq!(json["holds"], true);
    assert_eq!(json["parameters"]["subjects"], "1000");
    assert_eq!(json["parameters"]["percentage"], "10%");
    assert_eq!(json["rows"][0]["tidegate"]["verdict"], "holds");
}
