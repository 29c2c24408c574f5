//! Every warning, alone; none of them refuses a document.

use super::*;

const ONE: &str = "\
resources: [ { id: pay, timeout: 10s, attributes: { t: { from: header.t, missing: reject } } }, { id: dep } ]
idempotency: [ { id: i, resources: [pay], scope: [t], key: { from: header.k } } ]
";

fn warnings_of(text: &str) -> Vec<String> {
    lines(&load_text(text).unwrap_or_else(|refused| panic!("{refused}")).warnings)
}

#[test]
fn windows_before_effects_that_count() {
    let limit = |resources: &str, algorithm: &str| {
        warnings_of(&format!("{ONE}limits: [ {{ id: l, resources: {resources}, {algorithm} }} ]"))
    };
    let message = |name: &str, column: u32| {
        format!(
            "4:{column} a {name} admits up to twice its limit around a boundary, and resource `pay` has an idempotency rule, hence effects that count"
        )
    };
    assert_eq!(limit("[pay]", "fixed_window: { limit: 5, window: 1s }"), [message("fixed_window", 52)]);
    assert_eq!(limit("'*'", "sliding_window: { limit: 5, window: 1s }"), [message("sliding_window", 52)]);
    for (resources, algorithm) in [
        ("[dep]", "fixed_window: { limit: 5, window: 1s }"),
        ("[pay]", "sliding_log: { limit: 5, window: 1s }"),
        ("[pay]", "token_bucket: { capacity: 5, refill: 1/s }"),
    ] {
        assert_eq!(limit(resources, algorithm), Vec::<String>::new(), "{resources} {algorithm}");
    }
}

#[test]
fn a_capacity_that_equals_the_refill_of_a_second() {
    let bucket = |bucket: &str| {
        warnings_of(&format!("limits: [ {{ id: l, resources: '*', token_bucket: {bucket} }} ]"))
    };
    let message =
        "2:50 the capacity 10 equals what refills in a second, so bursts over a second's worth are refused";
    for (text, warned) in [
        ("{ capacity: 10, refill: 10/s }", true),
        ("{ capacity: 10, refill: 600/m }", true),
        ("{ capacity: 10, refill: 20/2s }", true),
        ("{ capacity: 10, refill: 10/2s }", false),
        ("{ capacity: 11, refill: 10/s }", false),
        ("{ capacity: 9, refill: 10/s }", false),
        ("{ capacity: 10, refill: 601/m }", false),
    ] {
        let expected: &[&str] = if warned { &[message] } else { &[] };
        assert_eq!(bucket(text), expected, "{text}");
    }
}

#[test]
fn a_cost_that_never_passes() {
    let limit = |fields: &str| warnings_of(&format!("limits: [ {{ id: l, resources: '*', {fields} }} ]"));
    assert_eq!(
        limit("cost: 100, sliding_log: { limit: 10, window: 1s }"),
        ["2:42 a call costs 100 and the limit holds 10: no call can ever pass"]
    );
    assert_eq!(limit("cost: 10, sliding_log: { limit: 10, window: 1s }"), Vec::<String>::new());
}

#[test]
fn few_requests_for_a_breaker() {
    let breaker = |least: u64| {
        warnings_of(&format!(
            "breakers: [ {{ id: b, resources: '*', min_requests: {least}, trip: [ {{ error_count: {{ at_least: 5 }} }} ] }} ]"
        ))
    };
    assert_eq!(
        breaker(4),
        ["2:52 min_requests is 4: a single failure in a quiet minute may open this breaker"]
    );
    assert_eq!(breaker(5), Vec::<String>::new());
}

#[test]
fn idempotency_rules_that_promise_less() {
    let rule = |fields: &str| {
        let resources = ONE.lines().next().unwrap();
        warnings_of(&format!(
            "{resources}\nidempotency: [ {{ id: i, resources: [pay], key: {{ from: header.k }}, {fields} }} ]"
        ))
    };
    for (fields, expected) in [
        ("scope: [t]", vec![]),
        (
            "scope: []",
            vec!["3:75 with an empty scope, two callers who choose the same key get each other's answers"],
        ),
        (
            "scope: [t], on_unknown: retry",
            vec!["3:92 `on_unknown: retry` with `commit: after_response` may carry out one intent twice"],
        ),
        (
            "scope: [t], max_execution: 9s",
            vec![
                "3:95 max_execution (9s) is shorter than the timeout of resource `pay` (10s), so a call may outlive its record's lease",
            ],
        ),
        ("scope: [t], max_execution: 10s", vec![]),
    ] {
        assert_eq!(rule(fields), expected, "{fields}");
    }
}

#[test]
fn warnings_stand_beside_faults_in_a_refusal() {
    let refused = load_text(&format!(
        "{ONE}limits: [ {{ id: l, resources: [pay], fixed_window: {{ limit: 5, window: 1s }} }}, 5 ]"
    ))
    .unwrap_err();
    assert_eq!((refused.faults.len(), refused.warnings.len()), (1, 1));
    assert!(refused.to_string().contains("warning: a fixed_window admits"));
}
