use super::*;
use crate::attribute::Value;
use crate::rule::model::{Condition, FlagRule, Scalar, ScalarKind, Segment, Sticky, Test};

/// No attributes at all.
const NOTHING: &[(&str, Value<'_>)] = &[];

fn share(hundredths: u16) -> Percentage {
    Percentage::from_hundredths(hundredths).unwrap()
}

fn tenant(name: &str) -> Condition {
    let scalar = Scalar { text: name.to_owned(), kind: ScalarKind::String };
    Condition::Attribute { name: "tenant".into(), test: Test::In(vec![scalar]) }
}

fn rule(id: &str, priority: i64, serve: &str) -> FlagRule {
    let serve = model::Serve::Variant(serve.to_owned());
    FlagRule { id: id.to_owned(), priority, when: None, percentage: None, serve }
}

fn ramp(hundredths: u16) -> FlagRule {
    FlagRule { percentage: Some(share(hundredths)), ..rule("ramp", 10, "on") }
}

fn split(id: &str, shares: &[(&str, u16)]) -> FlagRule {
    let shares = shares.iter().map(|(name, part)| ((*name).to_owned(), share(*part))).collect();
    FlagRule { serve: model::Serve::Split(shares), ..rule(id, 0, "") }
}

fn flag(key: &str, variants: &[(&str, &str)], default: &str, rules: Vec<FlagRule>) -> model::Flag {
    let json = |text: &str| serde_json::from_str(text).unwrap();
    model::Flag {
        key: key.to_owned(),
        variants: variants.iter().map(|(name, value)| ((*name).to_owned(), json(value))).collect(),
        default: default.to_owned(),
        sticky: Sticky::None,
        rules,
    }
}

const ON_OFF: &[(&str, &str)] = &[("on", "true"), ("off", "false")];

/// The flag of the documentation, at `hundredths`.
fn checkout(hundredths: u16) -> model::Flag {
    let rules = vec![
        // Not in order of priority: compiling sorts.
        ramp(hundredths),
        FlagRule { when: Some(tenant("umbrella")), ..rule("deny-umbrella", 100, "off") },
        FlagRule { when: Some(tenant("acme")), ..rule("allow-acme", 50, "on") },
    ];
    flag("new-checkout", ON_OFF, "off", rules)
}

fn flags(flags: Vec<model::Flag>) -> Flags {
    Flags::compile(&RuleSet { flags, ..RuleSet::default() }).unwrap()
}

fn faults(flags: Vec<model::Flag>, segments: Vec<Segment>) -> Vec<FlagsFault> {
    Flags::compile(&RuleSet { segments, flags, ..RuleSet::default() }).unwrap_err()
}

fn variants<'a>(flags: &'a Flags, key: &str, subjects: u32) -> Vec<&'a str> {
    let index = flags.index(key).unwrap();
    (0..subjects)
        .map(|n| flags.evaluate_at(index, Some(&format!("u{n}")), NOTHING).unwrap().variant)
        .collect()
}

fn differences(left: &[&str], right: &[&str]) -> usize {
    left.iter().zip(right).filter(|(left, right)| left != right).count()
}

#[test]
fn the_first_rule_that_matches_decides() {
    let flags = flags(vec![checkout(1_000)]);
    let check = |tenant: Option<&str>, subject, variant, reason, rule, bucket| {
        let attributes: Vec<(&str, Value<'_>)> =
            tenant.map(|name| ("tenant", Value::Text(name))).into_iter().collect();
        let result = flags.evaluate("new-checkout", Some(subject), &attributes[..]).unwrap();
        assert_eq!(
            (result.variant, result.reason, result.rule, result.bucket),
            (variant, reason, rule, bucket),
            "{tenant:?} {subject}"
        );
        assert_eq!(result.value, &Json::Bool(variant == "on"));
        assert_eq!((result.flag, result.split_bucket), ("new-checkout", None));
    };
    check(Some("umbrella"), "user-7760", "off", Reason::TargetingMatch, Some("deny-umbrella"), None);
    check(Some("acme"), "user-1", "on", Reason::TargetingMatch, Some("allow-acme"), None);
    check(Some("other"), "user-7760", "on", Reason::Split, Some("ramp"), Some(0));
    check(None, "user-1", "off", Reason::Default, None, Some(7683));
}

#[test]
fn rules_of_one_priority_stand_in_document_order() {
    let flags = flags(vec![flag(
        "f",
        ON_OFF,
        "off",
        vec![rule("a", 1, "on"), rule("b", 1, "on"), rule("c", 2, "on")],
    )]);
    let order: Vec<&str> = flags.flag("f").unwrap().rules.iter().map(|rule| &*rule.id).collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn reasons_have_the_names_of_openfeature() {
    let flags = flags(vec![flag("plain", ON_OFF, "on", vec![])]);
    let result = flags.evaluate("plain", None, NOTHING).unwrap();
    assert_eq!((result.variant, result.reason), ("on", Reason::Static));
    let names: Vec<&str> =
        [Reason::Static, Reason::TargetingMatch, Reason::Split, Reason::Default, Reason::Error]
            .map(Reason::name)
            .into();
    assert_eq!(names, ["STATIC", "TARGETING_MATCH", "SPLIT", "DEFAULT", "ERROR"]);
    assert_eq!(Reason::Split.to_string(), "SPLIT");
}

#[test]
fn r1_r2_the_ends_of_a_ramp() {
    for (subject, hundredths, expected) in [
        ("user-6502", 10_000, "on"),
        ("user-6502", 9_999, "off"),
        ("user-7760", 0, "off"),
        ("user-7760", 1, "on"),
    ] {
        let flags = flags(vec![checkout(hundredths)]);
        let result = flags.evaluate("new-checkout", Some(subject), NOTHING).unwrap();
        assert_eq!(result.variant, expected, "{subject} at {hundredths}");
    }
}

#[test]
fn r3_shares_of_100000_subjects_through_the_engine() {
    let (ten, twenty, fifty) =
        (flags(vec![checkout(1_000)]), flags(vec![checkout(2_000)]), flags(vec![checkout(5_000)]));
    let [ten, twenty, fifty] = [&ten, &twenty, &fifty].map(|flags| variants(flags, "new-checkout", 100_000));
    let on = |results: &[&str]| results.iter().filter(|variant| **variant == "on").count();
    assert_eq!((on(&ten), on(&twenty)), (10_066, 19_977));
    assert!(ten.iter().zip(&twenty).all(|(ten, twenty)| *ten == "off" || *twenty == "on"));
    assert_eq!(differences(&ten, &fifty), 39_935);
    // Rolled back, and the same document compiled once more: every subject as before.
    let again = flags(vec![checkout(1_000)]);
    assert_eq!(differences(&ten, &variants(&again, "new-checkout", 100_000)), 0);
}

#[test]
fn r4_variants_among_the_chosen_are_even() {
    let quarters = [("a", 2_500), ("b", 2_500), ("c", 2_500), ("d", 2_500)];
    let rule = FlagRule { percentage: Some(share(1_000)), ..split("ramp", &quarters) };
    let names = [("off", "0"), ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")];
    let flags = flags(vec![flag("new-checkout", &names, "off", vec![rule])]);
    let results = variants(&flags, "new-checkout", 100_000);
    let count = |name| results.iter().filter(|variant| **variant == name).count();
    assert_eq!(count("off"), 100_000 - 10_066);
    for name in ["a", "b", "c", "d"] {
        // A quarter of 10,066 ± 5 standard deviations (43 each).
        assert!(count(name).abs_diff(2_516) < 215, "{name}: {}", count(name));
    }
    let chosen = flags.evaluate("new-checkout", Some("user-7760"), NOTHING).unwrap();
    assert_eq!((chosen.bucket, chosen.reason, chosen.rule), (Some(0), Reason::Split, Some("ramp")));
    assert_eq!(chosen.split_bucket, Some(split_bucket("new-checkout", "user-7760")));
}

#[test]
fn r5_only_the_moved_share_changes() {
    let with = |a, b| {
        flags(vec![flag("f", &[("a", "1"), ("b", "2")], "a", vec![split("s", &[("a", a), ("b", b)])])])
    };
    let (before, after) = (with(5_000, 5_000), with(6_000, 4_000));
    for (n, (old, new)) in
        variants(&before, "f", 20_000).iter().zip(variants(&after, "f", 20_000)).enumerate()
    {
        let moved = (5_000..6_000).contains(&split_bucket("f", &format!("u{n}")));
        assert_eq!(*old != new, moved, "u{n}: {old} to {new}");
        assert!(!moved || (*old, new) == ("b", "a"));
    }
    // A share of nothing is never served, at either end.
    let none = flags(vec![flag(
        "f",
        &[("a", "1"), ("b", "2"), ("c", "3")],
        "a",
        vec![split("s", &[("a", 0), ("b", 10_000), ("c", 0)])],
    )]);
    assert!(variants(&none, "f", 1_000).iter().all(|variant| *variant == "b"));
}

#[test]
fn r6_a_subject_is_needed_only_once_a_percentage_is_reached() {
    let compiled =
        flags(vec![checkout(1_000), flag("s", ON_OFF, "off", vec![split("s", &[("on", 10_000)])])]);
    let acme: &[(&str, Value<'_>)] = &[("tenant", Value::Text("acme"))];
    let result = compiled.evaluate("new-checkout", None, acme).unwrap();
    assert_eq!((result.variant, result.rule), ("on", Some("allow-acme")));
    let error = compiled.evaluate("new-checkout", None, NOTHING).unwrap_err();
    assert_eq!(error, EvaluateError::SubjectMissing { flag: "new-checkout".into(), rule: "ramp".into() });
    assert_eq!(error.code(), "TARGETING_KEY_MISSING");
    let error = compiled.evaluate("s", None, NOTHING).unwrap_err();
    assert_eq!(error, EvaluateError::SubjectMissing { flag: "s".into(), rule: "s".into() });
    // Also at 0 % and 100 %, so that moving the percentage never changes what a request needs.
    for hundredths in [0, 10_000] {
        let compiled = flags(vec![checkout(hundredths)]);
        assert!(compiled.evaluate("new-checkout", None, NOTHING).is_err());
    }
    // Not reached: the percentage stands behind a condition that does not hold.
    let hidden = FlagRule { when: Some(tenant("acme")), ..ramp(1_000) };
    let compiled = flags(vec![flag("f", ON_OFF, "off", vec![hidden])]);
    assert_eq!(compiled.evaluate("f", None, NOTHING).unwrap().reason, Reason::Default);
    // The empty subject is a subject.
    let compiled = flags(vec![checkout(1_000)]);
    let result = compiled.evaluate("new-checkout", Some(""), NOTHING).unwrap();
    assert_eq!(result.bucket, Some(bucket("new-checkout", "")));
}

#[test]
fn r8_keys_with_slashes_percent_signs_and_unicode() {
    let keys = ["team/flag", "team%2Fflag", "flagge-ü", "旗", "a b", "..", ""];
    let compiled = flags(keys.map(|key| flag(key, ON_OFF, "on", vec![])).into());
    for key in keys {
        assert_eq!(compiled.evaluate(key, None, NOTHING).unwrap().flag, key);
    }
    assert_eq!(compiled.keys().collect::<Vec<_>>(), keys);
    let error = compiled.evaluate("TEAM/flag", None, NOTHING).unwrap_err();
    assert_eq!((error.code(), error.to_string()), ("FLAG_NOT_FOUND", "there is no flag `TEAM/flag`".into()));
    assert!(compiled.evaluate_at(FlagIndex(99), None, NOTHING).is_err());
}

#[test]
fn r13_numbers_are_numbers_and_keep_their_spelling() {
    for (written, integer, float) in [
        ("1", Some(1), Some(1.0)),
        ("1.0", Some(1), Some(1.0)),
        ("10e-1", Some(1), Some(1.0)),
        ("1.5", None, Some(1.5)),
        ("9007199254740993", Some(9_007_199_254_740_993), Some(9_007_199_254_740_992.0)),
        ("1e30", None, Some(1e30)),
        ("\"1\"", None, None),
        ("true", None, None),
    ] {
        let compiled = flags(vec![flag("n", &[("v", written)], "v", vec![])]);
        let result = compiled.evaluate("n", None, NOTHING).unwrap();
        assert_eq!((result.integer(), result.float()), (integer, float), "{written}");
    }
    // A float stays one on the wire, at any depth.
    for written in ["1.0", "1", "1.10", "[1.0,{\"a\":2.50}]", "0.1234567890123456789"] {
        let compiled = flags(vec![flag("n", &[("v", written)], "v", vec![])]);
        let result = compiled.evaluate("n", None, NOTHING).unwrap();
        assert_eq!(serde_json::to_string(result.value).unwrap(), written);
    }
    // Too large for a float, which has no other spelling of it.
    let compiled = flags(vec![flag("n", &[("v", "1e999")], "v", vec![])]);
    assert_eq!(compiled.evaluate("n", None, NOTHING).unwrap().float(), None);
}

#[test]
fn every_fault_is_reported() {
    let bad = Condition::Attribute { name: "x".into(), test: Test::Gt("ten".into()) };
    let with = |when| FlagRule { when: Some(when), ..rule("r", 0, "on") };
    let faults = faults(
        vec![
            flag("a:b", ON_OFF, "off", vec![]),
            flag("d", ON_OFF, "maybe", vec![rule("r", 0, "never")]),
            flag("twice", ON_OFF, "off", vec![]),
            flag("twice", ON_OFF, "off", vec![]),
            flag(
                "s",
                ON_OFF,
                "off",
                vec![split("less", &[("on", 9_999)]), split("more", &[("on", 10_000), ("off", 1)])],
            ),
            flag("c", ON_OFF, "off", vec![with(bad.clone())]),
            flag(
                "seg",
                ON_OFF,
                "off",
                vec![with(Condition::Segment("bad".into())), with(Condition::Segment("lost".into()))],
            ),
        ],
        vec![Segment { id: "bad".into(), when: bad }],
    );
    let messages: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let expected = [
        "segment `bad`: `ten` is not a usable decimal number",
        "the flag key `a:b` contains `:`",
        "flag `d` has no variant `maybe`",
        "flag `d` has no variant `never`",
        "two flags have the key `twice`",
        "flag `s`, rule `less`: the shares of the split add up to 9999",
        "flag `s`, rule `more`: the shares of the split add up to 10001",
        "flag `c`, rule `r`: `ten` is not a usable decimal number",
        "flag `seg`, rule `r`: there is no segment `lost`",
    ];
    assert_eq!(messages.len(), expected.len(), "{messages:#?}");
    for (message, expected) in messages.iter().zip(expected) {
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn segments_decide() {
    let staff = Segment { id: "staff".into(), when: tenant("acme") };
    let when = Some(Condition::Not(Box::new(Condition::Segment("staff".into()))));
    let rules = RuleSet {
        segments: vec![staff],
        flags: vec![flag("f", ON_OFF, "on", vec![FlagRule { when, ..rule("others", 0, "off") }])],
        ..RuleSet::default()
    };
    let compiled = Flags::compile(&rules).unwrap();
    let acme: &[(&str, Value<'_>)] = &[("tenant", Value::Text("acme"))];
    assert_eq!(compiled.evaluate("f", None, acme).unwrap().variant, "on");
    assert_eq!(compiled.evaluate("f", None, NOTHING).unwrap().variant, "off");
}

#[test]
fn reasons_have_places_below_their_number() {
    let all = [Reason::Static, Reason::TargetingMatch, Reason::Split, Reason::Default, Reason::Error];
    assert_eq!(all.map(Reason::index), [0, 1, 2, 3, 4]);
    assert_eq!(all.len(), Reason::COUNT);
    for reason in all {
        assert_eq!(reason.to_string(), reason.name());
    }
}

#[test]
fn a_variant_is_told_with_its_place() {
    let three = &[("a", "1"), ("b", "2"), ("c", "3")];
    let all = flags(three.iter().map(|(name, _)| flag(name, three, name, vec![])).collect());
    for (at, (name, _)) in three.iter().enumerate() {
        let found = all.evaluate(name, None, NOTHING).unwrap();
        assert_eq!((found.variant, found.variant_index), (*name, at));
    }
}
