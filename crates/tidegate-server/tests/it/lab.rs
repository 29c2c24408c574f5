//! `tidegate lab`, as a process.

use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("lab").args(args).output().unwrap()
}

#[track_caller]
fn check(args: &[&str], code: i32) -> (String, String) {
    let output = lab(args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

#[test]
fn lab_prints_tables_or_json_and_no_bar_where_there_is_no_terminal() {
    let (out, err) = check(&["breaker.small-sample", "limit.hot-update"], 0);
    let (first, second) =
        (out.find("limit.hot-update:").unwrap(), out.find("breaker.small-sample:").unwrap());
    assert!(first < second, "{out}");
    assert!(out.contains("every expectation held (2 experiments)"), "{out}");
    assert_eq!(err, "");

    let (out, _) = check(&["limit.local-race", "--json", "--set", "limit=700", "--set", "threads=8"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["holds"], true);
    assert_eq!(json["experiments"][0]["id"], "limit.local-race");
    assert_eq!(json["experiments"][0]["rows"][0]["tidegate"]["figure"], 700);

    let (out, _) = check(&["--list", "rollout.*"], 0);
    assert!(out.contains("rollout.salt\n") && !out.contains("limit.boundary"), "{out}");
}

#[test]
fn lab_kills_a_child_of_its_own_program() {
    let (out, _) = check(&["idempotency.crash", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = json["experiments"][0]["rows"].as_array().unwrap().clone();
    let rows = rows.iter().find(|row| row["what"] == "rows").unwrap();
    assert_eq!((&rows["naive"]["figure"], &rows["tidegate"]["figure"]), (&2.into(), &1.into()));
}

#[test]
fn lab_shares_limits_on_a_redis_of_its_own() {
    // The figures themselves are held by the experiments' own expectations.
    let (out, _) = check(&["limit.shared-race", "limit.skew", "limit.outage", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let figures = |experiment: usize| {
        let rows = json["experiments"][experiment]["rows"].as_array().unwrap().clone();
        rows.iter().map(|row| row["tidegate"]["figure"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(figures(0), [Some(1000)]);
    assert_eq!(figures(1), [Some(1000), Some(0)]);
    assert_eq!(figures(2), [Some(2000), Some(4), Some(0), Some(4), Some(1000), Some(4), None]);
}

#[test]
fn lab_refuses_what_makes_no_sense() {
    for (args, said) in [
        (&["limit.boundry"][..], "did you mean `limit.boundary`"),
        (&["limit", "--set", "limt=1"], "did you mean `limit`"),
        (&["limit", "--set", "limit=0"], "a whole number from 1"),
        (&["idempotency.lease", "--set", "retry=100ms"], "lease < retry < work"),
    ] {
        let (out, err) = check(args, 2);
        assert_eq!(out, "");
        assert!(err.contains(said), "{err}");
    }
}
