use crate::attribute::Value;
use crate::rule::RuleSet;
use crate::rule::model::{Condition, Flag, FlagRule, ScalarKind, Segment, Serve, Sticky};

use super::*;

fn tenant_in(names: &[&str]) -> Condition {
    let scalar = |text: &&str| Scalar { text: (*text).to_owned(), kind: ScalarKind::String };
    Condition::Attribute { name: "tenant".into(), test: Test::In(names.iter().map(scalar).collect()) }
}

fn rule(id: &str, priority: i64, when: Option<Condition>, percentage: Option<u16>) -> FlagRule {
    let percentage = percentage.map(|hundredths| Percentage::from_hundredths(hundredths).unwrap());
    FlagRule { id: id.into(), priority, when, percentage, serve: Serve::Variant("on".into()) }
}

fn flags(rules: Vec<FlagRule>) -> Flags {
    let variants = vec![("on".into(), true.into()), ("off".into(), false.into())];
    let key = "new-checkout".into();
    let flag = Flag { key, variants, default: "off".into(), sticky: Sticky::None, rules };
    let segments = vec![Segment {
        id: "staff".into(),
        when: Condition::Attribute { name: "email".into(), test: Test::EndsWith("@example.com".into()) },
    }];
    Flags::compile(&RuleSet { flags: vec![flag], segments, ..RuleSet::default() }).unwrap()
}

/// The explanation's text, whose result must be what evaluating gives.
fn check(rules: Vec<FlagRule>, subject: Option<&str>, attributes: &[(&str, Value<'_>)], expected: &[&str]) {
    let flags = flags(rules);
    let explanation = flags.explain("new-checkout", subject, attributes).unwrap();
    assert_eq!(explanation.result, flags.evaluate("new-checkout", subject, attributes));
    assert_eq!(explanation.to_string().lines().collect::<Vec<_>>(), expected);
}

fn documented() -> Vec<FlagRule> {
    vec![
        rule("deny-umbrella", 100, Some(tenant_in(&["umbrella"])), None),
        rule("allow-acme", 50, Some(tenant_in(&["acme"])), None),
        rule("ramp", 10, None, Some(1_000)),
    ]
}

#[test]
fn each_rule_that_was_passed_over_and_why() {
    check(
        documented(),
        Some("user-1"),
        &[("tenant", Value::Text("other"))],
        &[
            "deny-umbrella (priority 100): passed over, tenant in [umbrella] is false: it is \"other\"",
            "allow-acme (priority 50): passed over, tenant in [acme] is false: it is \"other\"",
            "ramp (priority 10): passed over, bucket 7683 is not below 1000 (10 %)",
            "new-checkout = off (DEFAULT)",
        ],
    );
    check(
        documented(),
        Some("user-1"),
        &[("tenant", Value::Text("acme"))],
        &[
            "deny-umbrella (priority 100): passed over, tenant in [umbrella] is false: it is \"acme\"",
            "allow-acme (priority 50): decided",
            "ramp (priority 10): not asked, an earlier rule decided",
            "new-checkout = on (TARGETING_MATCH)",
        ],
    );
    check(
        documented(),
        None,
        &[],
        &[
            "deny-umbrella (priority 100): passed over, tenant in [umbrella] is false: it is absent",
            "allow-acme (priority 50): passed over, tenant in [acme] is false: it is absent",
            "ramp (priority 10): draws by subject, and there is none",
            "new-checkout has no result: rule `ramp` of flag `new-checkout` draws by subject, and the request has none; send a targeting key",
        ],
    );
}

#[test]
fn conditions_name_the_test_that_is_false() {
    let test = |name: &str, test| Condition::Attribute { name: name.into(), test };
    let text = |text: &str| text.to_owned();
    let all: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let many: Vec<&str> = all.iter().map(String::as_str).collect();
    let scalar = |text: &str| Scalar { text: text.into(), kind: ScalarKind::Number };
    for (condition, expected) in [
        (
            Condition::Segment("staff".into()),
            "not in segment staff: email ends_with @example.com is false: it is absent",
        ),
        (
            Condition::Any(vec![tenant_in(&["a"]), test("n", Test::Gt(text("3")))]),
            "none holds: tenant in [a] is false: it is \"x\\ny\"; n gt 3 is false: it is the number 3.0",
        ),
        (
            Condition::All(vec![test("n", Test::Gte(text("3"))), test("n", Test::Lt(text("3")))]),
            "n lt 3 is false: it is the number 3.0",
        ),
        (Condition::Any(vec![]), "`any` of nothing never holds"),
        (
            Condition::Not(Box::new(Condition::All(vec![
                test("n", Test::Lte(text("3"))),
                Condition::Any(vec![
                    test("n", Test::Equals(scalar("3"))),
                    Condition::Segment("staff".into()),
                ]),
                Condition::Not(Box::new(Condition::Any(vec![]))),
                Condition::All(vec![]),
            ]))),
            "not ((n lte 3 and (n equals 3 or segment staff) and not never and always)) is false",
        ),
        (tenant_in(&many), "tenant in [t0, t1, t2, t3, t4, t5, t6, t7, 4 more] is false: it is \"x\\ny\""),
        (test("n", Test::NotIn(vec![scalar("3")])), "n not_in [3] is false: it is the number 3.0"),
        (test("b", Test::StartsWith(text("t"))), "b starts_with t is false: it is the boolean true"),
        (test("c", Test::Matches(text("."))), "c matches . is false: it is an object or array"),
        (test("tenant", Test::Semver(text(">=1 <2"))), "tenant semver \">=1 <2\" is false: it is \"x\\ny\""),
        (
            test("tenant", Test::Cidr(vec![text("10.0.0.0/8")])),
            "tenant cidr [10.0.0.0/8] is false: it is \"x\\ny\"",
        ),
        (
            test("d", Test::Before(text("2030-01-01T00:00:00Z"))),
            "d before 2030-01-01T00:00:00Z is false: it is absent",
        ),
        (
            test("d", Test::After(text("2030-01-01T00:00:00Z"))),
            "d after 2030-01-01T00:00:00Z is false: it is absent",
        ),
    ] {
        let line = format!("r (priority 0): passed over, {expected}");
        check(
            vec![rule("r", 0, Some(condition), None)],
            None,
            &[
                ("tenant", Value::Text("x\ny")),
                ("n", Value::Number("3.0")),
                ("b", Value::Bool(true)),
                ("c", Value::Compound),
            ],
            &[&line, "new-checkout = off (DEFAULT)"],
        );
    }
}

#[test]
fn long_text_is_cut() {
    let long = "é".repeat(SHOWN_CHARS + 1);
    let shown = Short(&long).to_string();
    assert_eq!(shown.chars().count(), SHOWN_CHARS + 1);
    assert!(shown.ends_with('…'));
    assert_eq!(Short(&long[2..]).to_string(), &long[2..]);
}

#[test]
fn long_lists_are_cut() {
    struct Listed(usize);
    impl fmt::Display for Listed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            list(f, 0..self.0, ", ")
        }
    }
    for (count, shown) in [
        (0, ""),
        (1, "0"),
        (8, "0, 1, 2, 3, 4, 5, 6, 7"),
        (9, "0, 1, 2, 3, 4, 5, 6, 7, 1 more"),
        (30, "0, 1, 2, 3, 4, 5, 6, 7, 22 more"),
    ] {
        assert_eq!(Listed(count).to_string(), shown);
    }
}

#[test]
fn percentages_as_people_write_them() {
    for (hundredths, expected) in
        [(0, "0 %"), (10_000, "100 %"), (50, "0.5 %"), (1_234, "12.34 %"), (1_205, "12.05 %")]
    {
        assert_eq!(Percent(Percentage::from_hundredths(hundredths).unwrap()).to_string(), expected);
    }
}

#[test]
fn an_unknown_flag_has_no_explanation() {
    let nothing: &[(&str, Value<'_>)] = &[];
    let error = flags(vec![]).explain("other", None, nothing).unwrap_err();
    assert_eq!(error.code(), "FLAG_NOT_FOUND");
}
