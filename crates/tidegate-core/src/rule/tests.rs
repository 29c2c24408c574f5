//! The corpus of rule documents in `tests/corpus`, which every reader of documents is held against.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::load::{Deployment, load};
use super::model::*;
use super::version::{Digest, canonical};
use crate::document::Source;
use crate::document::tree::MAX_KEY_BYTES;

/// What a bad document says of the schema in its first line.
pub(super) const REJECTS: &str = "# schema: rejects";
pub(super) const CANNOT_TELL: &str = "# schema: cannot tell";

/// Names and texts of all documents in `tests/corpus/KIND`.
pub(super) fn documents(kind: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(kind);
    let mut found: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

fn read(name: &str, text: &str) -> Result<RuleSet, super::Refused> {
    let deployment = Deployment {
        shared_store: text.lines().take(2).any(|line| line == "# needs: shared store"),
        leases: true,
        ..Deployment::default()
    };
    load(&[Source::new(name, text)], &deployment).map(|loaded| loaded.rules)
}

#[test]
fn good_documents_load_and_bad_ones_are_refused() {
    let mut wrong = Vec::new();
    for (name, text) in documents("good") {
        if let Err(refused) = read(&name, &text) {
            wrong.push(refused.to_string());
        }
    }
    for (name, text) in documents("bad") {
        match read(&name, &text) {
            Ok(_) => wrong.push(format!("{name} loads")),
            Err(refused) if refused.faults.len() > 1 => {
                wrong.push(format!("{name} has two faults:\n{refused}"));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn canonical_forms_read_back_as_the_same_rules() {
    for (name, text) in documents("good") {
        let rules = read(&name, &text).unwrap();
        let form = canonical(&rules);
        let deployment = Deployment { shared_store: true, leases: true, ..Deployment::default() };
        let again = load(&[Source::new("canonical", form.as_str())], &deployment);
        let again = again.unwrap_or_else(|refused| panic!("{name}: {refused}")).rules;
        assert_eq!(again, rules, "{name}");
        assert_eq!(canonical(&again), form, "{name}");
        assert_eq!(Digest::of(&again), Digest::of_canonical(&form), "{name}");
    }
}

/// YAML reads a key of more than 1024 characters only with a `?` before it, and the canonical form has
/// none; escaped, a character becomes six.
#[test]
fn long_keys_read_back_or_are_refused() {
    for (name, accepted) in [
        ("n".repeat(MAX_KEY_BYTES), true),
        ("\\u0001".repeat(MAX_KEY_BYTES), true),
        ("n".repeat(MAX_KEY_BYTES + 1), false),
        ("é".repeat(MAX_KEY_BYTES / 2 + 1), false),
        ("n".repeat(2000), false),
    ] {
        let text = format!(
            "apiVersion: tidegate/v1\nflags: [ {{ key: f, default: v, variants: {{ v: {{ ? \"{name}\" : 1 }} }}, \
             rules: [ {{ id: r, serve: v, when: {{ ? \"{name}\" : {{ equals: x }} }} }} ] }} ]\n"
        );
        match read("r", &text) {
            Ok(rules) => {
                assert!(accepted, "{name}");
                assert_eq!(read("canonical", &canonical(&rules)).as_ref(), Ok(&rules));
            }
            Err(refused) => {
                assert!(!accepted, "{refused}");
                let most = format!("bytes, and {MAX_KEY_BYTES} are the most");
                assert!(refused.faults[0].message.ends_with(&most), "{refused}");
            }
        }
    }
}

/// Aliases make a short document long, and what every node loads is the long form.
#[test]
fn rules_that_are_too_long_written_out_are_refused() {
    let lines =
        |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<Vec<_>>().concat();
    let document = |values: &[&str], segments: usize, flags: usize| {
        let segment = |n: usize| format!("  - {{ id: s{n}, when: {{ a: {{ in: *list }} }} }}\n");
        let flag = |n: usize| format!("  - {{ key: f{n}, default: \"on\" }}\n");
        format!(
            "apiVersion: tidegate/v1\nx-list: &list [ {} ]\nsegments:\n{}flags:{}\n{}",
            values.join(", "),
            lines(segments, &segment),
            if flags == 0 { " []" } else { "" },
            lines(flags, &flag)
        )
    };
    let long = "x".repeat(1000);
    assert!(read("fits", &document(&vec![long.as_str(); 830], 5, 0)).is_ok());
    let refused = read("too many bytes", &document(&vec![long.as_str(); 840], 5, 0)).unwrap_err();
    assert_eq!(refused.faults.len(), 1);
    let said = refused.faults[0].message.as_str();
    assert!(
        said.starts_with("written out in full, the rules have 42") && said.ends_with("are the most"),
        "{said}"
    );

    // Every default is a value, too.
    let refused = read("too many values", &document(&vec!["1"; 9_900], 97, 4_000)).unwrap_err();
    let said = refused.faults[0].message.as_str();
    assert_eq!(said, "written out in full, the rules have 1021188 values, and 1000000 are the most");
}

// ---- random rules through the canonical form -------------------------------------------------------

fn any_scalar() -> impl Strategy<Value = Scalar> {
    let number = "[-+]?(0|[0-9]{1,9})(\\.[0-9]{0,5})?([eE][-+]?[0-9]{1,3})?";
    prop_oneof![
        any::<String>().prop_map(|text| Scalar { text, kind: ScalarKind::String }),
        "(on|off|yes|null|true|1e3|0x1F|~|- a|a: b|#)"
            .prop_map(|text| Scalar { text, kind: ScalarKind::String }),
        number.prop_map(|text| Scalar { text, kind: ScalarKind::Number }),
        any::<bool>().prop_map(|value| Scalar { text: value.to_string(), kind: ScalarKind::Bool }),
    ]
}

fn any_test() -> impl Strategy<Value = Test> {
    let number = || "[-+]?[0-9]{1,9}(\\.[0-9]{0,5})?";
    let scalars = || proptest::collection::vec(any_scalar(), 0..3);
    prop_oneof![
        any_scalar().prop_map(Test::Equals),
        scalars().prop_map(Test::In),
        scalars().prop_map(Test::NotIn),
        any::<String>().prop_map(Test::StartsWith),
        any::<String>().prop_map(Test::EndsWith),
        "[a-z.]{0,5}\\$?".prop_map(Test::Matches),
        number().prop_map(Test::Gt),
        number().prop_map(Test::Gte),
        number().prop_map(Test::Lt),
        number().prop_map(Test::Lte),
        ">=[1-9]\\.[0-9]( <[1-9]0)?".prop_map(Test::Semver),
        Just(Test::Cidr(vec!["10.0.0.0/8".to_owned(), "2001:db8::/32".to_owned()])),
        "20[0-9]{2}-01-01T00:00:00Z".prop_map(Test::Before),
        "20[0-9]{2}-01-01T00:00:00Z".prop_map(Test::After),
    ]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let leaf = ("[a-c]", any_test()).prop_map(|(name, test)| Condition::Attribute { name, test });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Condition::All),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Condition::Any),
            inner.prop_map(|inner| Condition::Not(Box::new(inner))),
        ]
    })
}

fn any_path() -> impl Strategy<Value = Vec<PathSegment>> {
    let literal = "[a-zA-Z0-9 %{}?#é!~\\\\.-]{1,8}"
        .prop_filter("dot segments are none", |text| text != "." && text != "..")
        .prop_map(PathSegment::Literal);
    let end = prop_oneof![
        Just(PathSegment::Literal(String::new())),
        Just(PathSegment::Param("x".to_owned())),
        Just(PathSegment::Rest("x".to_owned()))
    ];
    (proptest::collection::vec(literal, 0..4), end).prop_map(|(mut segments, end)| {
        segments.push(end);
        segments
    })
}

proptest! {
    #[test]
    fn any_canonical_form_reads_back_as_the_same_rules(
        when in any_condition(),
        priority in -1_000_000_000_i64..1_000_000_000,
        percentage in proptest::option::of(0_u16..=10_000),
        path in any_path(),
        timeout in 1_000_u64..86_400_000_000,
        capacity in 1_u64..1_000_000,
        per in 1_u64..1_000_000_000,
        max_response in 0_u64..=64 << 20,
        description in "[ -~é\\t\\n\\u{85}\\u{2028}\\u{feff}]{0,20}",
    ) {
        let everything = super::sample::everything();
        let mut rules = RuleSet {
            resources: everything.resources[..1].to_vec(),
            limits: everything.limits,
            idempotency: everything.idempotency,
            flags: everything.flags,
            ..RuleSet::default()
        };
        let refill = Rate { count: capacity, per: Duration::from_micros(per) };
        let resource = &mut rules.resources[0];
        resource.timeout = Duration::from_micros(timeout);
        resource.matcher = Some(Match { hosts: vec![], methods: vec!["POST".to_owned()], path });
        let limit = &mut rules.limits[0];
        (limit.cost, limit.description, limit.overrides) = (Cost::Fixed(1), Some(description), vec![]);
        limit.algorithm = Algorithm::TokenBucket { capacity, refill };
        rules.idempotency[0].max_response = max_response;
        let flag = &mut rules.flags[0];
        flag.sticky = Sticky::None;
        flag.rules.truncate(1);
        flag.rules[0].when = Some(when);
        flag.rules[0].priority = priority;
        flag.rules[0].percentage = percentage.and_then(Percentage::from_hundredths);

        let form = canonical(&rules);
        let deployment = Deployment { shared_store: true, leases: true, ..Deployment::default() };
        let again = load(&[Source::new("canonical", form.as_str())], &deployment);
        prop_assert_eq!(again.map(|loaded| loaded.rules).map_err(|refused| refused.to_string()), Ok(rules));
    }
}
