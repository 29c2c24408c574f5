//! Whatever loading accepts can be carried out as it is written.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::{CostPlan, Plan, PlanFault};
use crate::document::Source;
use crate::limit;
use crate::rule::load::{Deployment, load};

mod resolved;

/// Whether the document loads. If so, every condition and route of it compiles, and no number of it is
/// one that counters would bring inside their bounds.
fn check(text: &str) -> bool {
    let Ok(loaded) = load(&[Source::new("r.yaml", text)], &Deployment::default()) else { return false };
    for rule in &loaded.rules.limits {
        let overrides = rule.overrides.iter().map(|other| &other.algorithm);
        for algorithm in std::iter::once(&rule.algorithm).chain(overrides) {
            assert_eq!(limit::check(algorithm), Ok(()), "{text}");
        }
    }
    if let Err(faults) = Plan::new(loaded.rules) {
        panic!("{faults:?}\n{text}");
    }
    true
}

/// Runs `check` on many documents, of which at least `least` must load.
fn check_many(documents: &impl Strategy<Value = String>, cases: u32, least: usize) {
    let accepted = std::cell::Cell::new(0);
    let mut runner = TestRunner::new_with_rng(
        Config { cases, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let found = runner.run(documents, |text| {
        accepted.set(accepted.get() + usize::from(check(&text)));
        Ok(())
    });
    found.unwrap_or_else(|error| panic!("{error}"));
    assert!(accepted.get() >= least, "only {} of {cases} documents load", accepted.get());
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// One of some words, as they are.
fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    select(words).prop_map(str::to_owned)
}

fn list(item: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(item, 0..=most).prop_map(|items| format!("[{}]", items.join(", ")))
}

/// A test and its value: near what is accepted, on both sides of it.
fn test_text() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        any::<String>(),
        "[a-z()|*+?{}0-9,\\\\.\\[\\]^$]{0,12}",
        "(v?[0-9]{1,3}(\\.[0-9x]{1,2}){0,3}(-[a-z0-9.]{1,4})?)",
        "([<>=~^*]{0,2} ?v?[0-9]{1,3}(\\.[0-9x]{1,2}){0,3}(-[a-z0-9.]{0,4})?[ ,|]?){0,3}",
        "[0-9a-f:.]{0,12}(/[0-9]{1,3})?",
        "(1?[0-9]{1,2}\\.){3}[0-9]{1,2}/[0-9]{1,2}",
        "20[0-3][0-9]-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\\.[0-9]{0,12})?([Zz]|[+-][0-9]{2}:[0-9]{2})?",
    ]
    .prop_map(|text| quoted(&text));
    let number = prop_oneof![
        "[-+]?[0-9]{0,4}(\\.[0-9]{0,3})?([eE][-+]?[0-9]{1,11})?",
        (1015_usize..1030).prop_map(|digits| "9".repeat(digits)),
    ];
    let names = word(&["equals", "starts_with", "ends_with", "matches", "semver", "cidr", "before", "after"]);
    prop_oneof![
        4 => (names, text.clone()).prop_map(|(name, text)| format!("{name}: {text}")),
        1 => (word(&["gt", "gte", "lt", "lte"]), number).prop_map(|(name, number)| format!("{name}: {number}")),
        1 => (word(&["in", "not_in", "cidr"]), list(text, 3)).prop_map(|(name, list)| format!("{name}: {list}")),
    ]
}

/// A test that loads.
fn good_test() -> impl Strategy<Value = String> {
    word(&[
        "equals: x",
        "in: [1, 1.0, \"true\", y]",
        "not_in: []",
        "starts_with: a, ends_with: b",
        "matches: \"^a+$\"",
        "gt: 1e3",
        "gte: .5, lt: +10",
        "semver: \">= 1.2 <2\"",
        "cidr: 10.0.0.1",
        "cidr: [10.0.0.0/8, \"::ffff:10.0.0.0/104\"]",
        "before: \"2030-01-31 08:00:00+01:00\"",
    ])
}

fn condition(test: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        5 => (word(&["a", "b"]), test).prop_map(|(name, test)| format!("{{ {name}: {{ {test} }} }}")),
        1 => word(&["{ segment: s0 }", "{ segment: s1 }", "{ segment: s2 }"]),
    ];
    leaf.prop_recursive(6, 12, 3, |inner| {
        prop_oneof![
            list(inner.clone(), 3).prop_map(|parts| format!("{{ all: {parts} }}")),
            list(inner.clone(), 3).prop_map(|parts| format!("{{ any: {parts} }}")),
            inner.prop_map(|inner| format!("{{ not: {inner} }}")),
        ]
    })
}

#[test]
fn any_condition_text_that_loads_compiles() {
    let flag = test_text().prop_map(|test| {
        format!(
            "apiVersion: tidegate/v1\nflags: [ {{ key: f, default: \"on\", rules: [ {{ id: r, serve: \"on\", \
             when: {{ a: {{ {test} }} }} }} ] }} ]"
        )
    });
    check_many(&flag, 4_000, 1_000);
}

/// Numbers of limits on both sides of every bound.
fn algorithm() -> impl Strategy<Value = String> {
    let count = word(&["1", "20", "1000000", "999999999999999", "1000000000000000", "0"]);
    let span = word(&["1s", "1ms", "366d", "366d1us", "1h30m", "1us"]);
    let rate = prop_oneof![
        word(&["10/s", "1/ns", "1000/us", "1001/us", "1000000000/s", "1000000001/s", "1/366d", "1/367d"]),
        (count.clone(), word(&["s", "us", "12d", "366d"])).prop_map(|(count, per)| format!("{count}/{per}")),
    ];
    let window = (word(&["fixed_window", "sliding_log", "sliding_window"]), count.clone(), span)
        .prop_map(|(kind, limit, window)| format!("{kind}: {{ limit: {limit}, window: {window} }}"));
    prop_oneof![
        (count.clone(), rate.clone()).prop_map(|(capacity, refill)| format!(
            "token_bucket: {{ capacity: {capacity}, refill: {refill} }}"
        )),
        (rate, count.clone())
            .prop_map(|(rate, queue)| format!("leaky_bucket: {{ rate: {rate}, queue: {queue} }}")),
        window,
        count.prop_map(|max| format!("concurrency: {{ max: {max} }}")),
    ]
}

#[test]
fn l3_limits_that_load_count_exactly_what_they_say() {
    let document = algorithm().prop_map(|algorithm| {
        format!("apiVersion: tidegate/v1\nlimits: [ {{ id: l, resources: \"*\", {algorithm} }} ]")
    });
    check_many(&document, 1_000, 200);
}

/// Documents whose rules name resources, attributes, segments, flags and variants, which may exist.
fn document() -> impl Strategy<Value = String> {
    let attributes = word(&[
        "{ a: { from: header.a, missing: reject }, b: { from: client.ip } }",
        "{ a: { from: body./a, missing: reject }, b: { from: query.b } }",
        "{ a: { from: path.x, missing: reject }, b: { from: descriptor.b } }",
    ]);
    let matcher = (
        word(&["", "hosts: [a.example], ", "hosts: [\"*.example\", b.example], "]),
        word(&["", "methods: [GET], ", "methods: [POST, PUT], "]),
        word(&["/{x}", "/{x}/b", "/a/{x}", "/a/{*x}", "/{*x}", "/b/{x}/c"]),
    )
        .prop_map(|(hosts, methods, path)| format!("{{ {hosts}{methods}path: \"{path}\" }}"));
    let resource = (matcher, attributes, word(&["", ", subject: a", ", flags: [f0]"]))
        .prop_map(|(matcher, attributes, more)| format!("match: {matcher}, attributes: {attributes}{more}"));
    let covered = || word(&["\"*\"", "[r0]", "[r0, r1]", "[r1]"]);
    let limit = (
        covered(),
        word(&["[]", "[a]", "[a, b]"]),
        word(&["1", "{ from: a, max: 10 }"]),
        prop::option::of(condition(good_test())),
        word(&["enforce", "shadow", "off"]),
    )
        .prop_map(|(covered, key, cost, when, mode)| {
            let overrides = when
                .map(|when| format!("overrides: [ {{ when: {when}, concurrency: {{ max: 5 }} }} ], "))
                .unwrap_or_default();
            format!("resources: {covered}, key: {key}, cost: {cost}, {overrides}mode: {mode}, concurrency: {{ max: 9 }}")
        });
    let guard =
        (covered(), word(&["[a]", "[]"]), word(&["{ from: header.k }", "{ derive: [a], window: 1s }"]))
            .prop_map(|(covered, scope, key)| format!("resources: {covered}, scope: {scope}, key: {key}"));
    let breaker = covered()
        .prop_map(|covered| format!("resources: {covered}, trip: [ {{ error_count: {{ at_least: 5 }} }} ]"));
    let segment = condition(good_test()).prop_map(|when| format!("when: {when}"));
    let serve = word(&["\"on\"", "\"off\"", "{ split: { \"on\": 50, \"off\": 50 } }"]);
    let rule =
        (1_i64..9, prop::option::of(condition(good_test())), serve).prop_map(|(priority, when, serve)| {
            let when = when.map(|when| format!("when: {when}, ")).unwrap_or_default();
            format!("priority: {priority}, {when}serve: {serve}")
        });
    let flag =
        numbered("id: q", rule, 0..=2).prop_map(|rules| format!("default: \"off\", rules: [ {rules} ]"));
    (
        numbered("id: r", resource, 2..=2),
        numbered("id: l", limit, 0..=2),
        numbered("id: i", guard, 0..=1),
        numbered("id: b", breaker, 0..=1),
        numbered("id: s", segment, 3..=3),
        numbered("key: f", flag, 1..=2),
    )
        .prop_map(|(resources, limits, idempotency, breakers, segments, flags)| {
            format!(
                "apiVersion: tidegate/v1\nresources: [ {resources} ]\nlimits: [ {limits} ]\n\
                 idempotency: [ {idempotency} ]\nbreakers: [ {breakers} ]\nsegments: [ {segments} ]\n\
                 flags: [ {flags} ]\n"
            )
        })
}

/// Entries named `NAME0`, `NAME1`, …
fn numbered(
    name: &'static str,
    entry: impl Strategy<Value = String>,
    count: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = String> {
    prop::collection::vec(entry, count).prop_map(move |entries| {
        let named = entries.iter().enumerate().map(|(at, entry)| format!("{{ {name}{at}, {entry} }}"));
        named.collect::<Vec<_>>().join(", ")
    })
}

#[test]
fn any_document_that_loads_compiles() {
    check_many(&document(), 1_000, 300);
}

/// Both sides of how deep and how large conditions may be, through segments or not.
#[test]
fn conditions_at_their_bounds_load_if_they_compile() {
    let flag = |segments: &str, when: &str| {
        format!(
            "apiVersion: tidegate/v1\nsegments: [ {segments} ]\nflags: [ {{ key: f, default: \"on\", rules: [ {{ id: r, \
             serve: \"on\", when: {when} }} ] }} ]"
        )
    };
    let leaf = "{ a: { equals: x } }";
    let mut deepest = 0;
    for depth in 25..40 {
        let nested = |levels: usize| format!("{}{leaf}{}", "{ not: ".repeat(levels), " }".repeat(levels));
        let plain = check(&flag("", &nested(depth - 1)));
        let halves = check(&flag(&format!("{{ id: s, when: {} }}", nested(9)), &{
            format!("{}{{ segment: s }}{}", "{ not: ".repeat(depth - 11), " }".repeat(depth - 11))
        }));
        assert_eq!(plain, halves, "{depth}");
        if plain {
            deepest = depth;
        }
    }
    assert_eq!(deepest, crate::rule::bounds::MAX_CONDITION_DEPTH);
    let mut largest = 0;
    for tests in 4_090..4_100 {
        let wide = |tests: usize| format!("{{ any: [ {} ] }}", vec![leaf; tests].join(", "));
        let plain = check(&flag("", &wide(tests)));
        let named = check(&flag(
            &format!("{{ id: s, when: {} }}", wide(2_000)),
            &format!("{{ all: [ {{ segment: s }}, {{ segment: s }}, {} ] }}", wide(tests - 4_000)),
        ));
        assert_eq!(plain, named, "{tests}");
        if plain {
            largest = tests;
        }
    }
    assert_eq!(largest, crate::rule::bounds::MAX_TESTS);
}
