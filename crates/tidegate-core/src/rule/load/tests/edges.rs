//! Both sides of bounds, and the help that goes with a fault.

use super::*;

/// Message and help of the only fault.
#[track_caller]
fn fault(text: &str) -> (String, String) {
    let refused = load_text(text).expect_err(text);
    let [fault] = refused.faults.as_slice() else { panic!("{text}: {refused}") };
    (fault.message.clone(), fault.help.clone())
}

#[track_caller]
fn check_help(text: &str, help: &str) {
    assert_eq!(fault(text).1, help, "{text}");
}

#[track_caller]
fn check_good(text: &str, good: bool) {
    assert_eq!(load_text(text).is_ok(), good, "{}", &text[..text.len().min(300)]);
}

fn source(from: &str) -> String {
    format!("resources: [ {{ id: a, attributes: {{ t: {{ from: \"{from}\" }} }} }} ]")
}

#[test]
fn a_source_without_its_name_is_shown_one() {
    for (from, example) in [
        ("client.port", "client.ip"),
        ("body.id", "body./order/id"),
        ("header.", "header.x-tenant"),
        ("cookie.", "cookie.session"),
        ("query.", "query.page"),
        ("path.", "path.order"),
        ("descriptor.", "descriptor.tenant"),
    ] {
        check_help(&source(from), &format!("write `{example}`, for example"));
    }
    for (length, good) in [(511, true), (512, true), (513, false), (600, false)] {
        check_good(&source(&format!("query.{}", "x".repeat(length))), good);
    }
    let long = fault(&source(&format!("header.{}", "x".repeat(513))));
    assert!(long.0.ends_with(": the name is too long"), "{}", long.0);
}

#[test]
fn a_condition_in_another_shape_is_shown_the_right_one() {
    let when = |when: &str| format!("segments: [ {{ id: s, when: {{ a: {when} }} }} ]");
    check_help(&when("x"), "write `a: { equals: x }`");
    check_help(&when("5"), "write `a: { equals: 5 }`");
    check_help(&when("[x]"), "write `a: { in: [a, b] }`");
    let known =
        "equals, in, not_in, starts_with, ends_with, matches, gt, gte, lt, lte, semver, cidr, before, after";
    check_help(&when("{ any: [] }"), &format!("write `any` outside of the attribute; known tests: {known}"));
    check_help(&when("{ equalz: x }"), &format!("did you mean `equals`? Known tests: {known}"));
    check_help(&when("{ something: x }"), &format!("known tests: {known}"));
}

#[test]
fn names_of_flags_and_variants_are_bounded() {
    let key = |length: usize| format!("flags: [ {{ key: {}, default: \"off\" }} ]", "k".repeat(length));
    for (length, good) in [(1, true), (255, true), (256, true), (257, false), (300, false)] {
        check_good(&key(length), good);
    }
    let variants = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|name| format!("{name}: 1")).collect();
        format!("flags: [ {{ key: f, default: a, variants: {{ a: 0, {} }} }} ]", names.join(", "))
    };
    for (name, good) in [
        ("v".repeat(127), true),
        ("v".repeat(128), true),
        ("v".repeat(129), false),
        ("v".repeat(150), false),
        ("\"\"".to_owned(), false),
        ("\"a b~\"".to_owned(), true),
        ("\"é\"".to_owned(), false),
        ("\"a\\tb\"".to_owned(), false),
    ] {
        check_good(&variants(&[name]), good);
    }
    let many = |count: usize| variants(&(1..count).map(|n| format!("v{n}")).collect::<Vec<_>>());
    for (count, good) in [(999, true), (1000, true), (1001, false), (1010, false)] {
        check_good(&many(count), good);
    }
}

#[test]
fn attributes_of_a_resource_are_bounded_in_number_and_name() {
    let attributes = |names: &[String]| {
        let all: Vec<String> = names.iter().map(|name| format!("{name}: {{ from: client.ip }}")).collect();
        format!("resources: [ {{ id: a, attributes: {{ {} }} }} ]", all.join(", "))
    };
    for (count, good) in [(99, true), (100, true), (101, false), (110, false)] {
        check_good(&attributes(&(0..count).map(|n| format!("n{n}")).collect::<Vec<_>>()), good);
    }
    for (name, good) in [
        ("n".repeat(128), true),
        ("n".repeat(129), false),
        ("\"\"".to_owned(), false),
        ("\"a b\"".to_owned(), false),
        ("\"é\"".to_owned(), false),
    ] {
        check_good(&attributes(&[name]), good);
    }
    let help = |name: &str| fault(&attributes(&[name.to_owned()])).1;
    assert_eq!(help("\"a b\""), "use 1 to 128 visible ASCII characters without spaces");
    assert!(help("path").starts_with("choose another name; method, path,"), "{}", help("path"));
}

#[test]
fn defaults_and_equal_bounds_are_accepted() {
    let resource = "resources: [ { id: a, attributes: { t: { from: header.t, missing: reject } } } ]\n";
    let guard =
        |key: &str| format!("{resource}idempotency: [ {{ id: i, resources: [a], scope: [t], key: {key} }} ]");
    let rules = rules_of(&guard("{ from: header.k }"));
    assert_eq!(rules.idempotency[0].max_response, 1_048_576);
    for (window, good) in [("24h", true), ("24h1us", false), ("1s", true)] {
        check_good(&guard(&format!("{{ derive: [t], window: {window} }}")), good);
    }
    let cost = |default: u64| {
        format!(
            "{resource}limits: [ {{ id: l, resources: [a], cost: {{ from: t, default: {default}, max: 5 }}, \
             concurrency: {{ max: 9 }} }} ]"
        )
    };
    for (default, good) in [(4, true), (5, true), (6, false)] {
        check_good(&cost(default), good);
    }
    let open = |open_for: &str| {
        format!(
            "resources: [ {{ id: a }} ]\nbreakers: [ {{ id: b, resources: [a], open_for: {open_for}, max_open: 9s, \
             trip: [ {{ error_count: {{ at_least: 5 }} }} ] }} ]"
        )
    };
    for (open_for, good) in [("8s", true), ("9s", true), ("9s1us", false)] {
        check_good(&open(open_for), good);
    }
}

#[test]
fn paths_and_hosts_are_bounded_and_ports_are_no_part_of_a_host() {
    let path =
        |length: usize| format!("resources: [ {{ id: a, match: {{ path: /{} }} }} ]", "p".repeat(length - 1));
    for (length, good) in [(2047, true), (2048, true), (2049, false), (2100, false)] {
        check_good(&path(length), good);
    }
    let host = |host: &str| format!("resources: [ {{ id: a, match: {{ path: /, hosts: [\"{host}\"] }} }} ]");
    let any = "write a name such as api.example.com, *.example.com for all below it, or an address";
    for (name, help) in [
        ("api.example:443", "write api.example: a host is matched without its port"),
        ("API.example:1", "write api.example: a host is matched without its port"),
        ("api.example:http", any),
        ("::1", any),
        ("a:b:1", any),
        ("a:b:c", any),
        ("a b", any),
    ] {
        check_help(&host(name), help);
    }
}

#[test]
fn shares_are_shown_how_to_write_them() {
    let percentage = |value: &str| {
        format!(
            "flags: [ {{ key: f, default: \"off\", rules: [ {{ id: r, serve: \"on\", percentage: {value} }} ] }} ]"
        )
    };
    for (value, help) in [
        ("\"10\"", "write 10 without quotes and without a % sign"),
        ("10%", "write 10 without quotes and without a % sign"),
        ("0.5%", "write 0.5 without quotes and without a % sign"),
        ("half", "write a number from 0 to 100, such as 10 or 0.25"),
        ("[]", "write a number from 0 to 100, such as 10 or 0.25"),
        ("true", "write a number from 0 to 100, such as 10 or 0.25"),
    ] {
        check_help(&percentage(value), help);
    }
    let ratio = |value: &str| {
        format!(
            "breakers: [ {{ id: b, resources: '*', trip: [ {{ error_ratio: {{ at_least: {value} }} }} ] }} ]"
        )
    };
    for (value, help) in [
        ("1", "write 100% or 1.0"),
        ("100", "write 100% or 1.0"),
        ("5", "write 5%, or a fraction such as 0.5"),
        ("half", "write 50% or 0.5"),
        ("101", "write 50% or 0.5"),
        ("[]", "write 50% or 0.5"),
    ] {
        check_help(&ratio(value), help);
    }
}

#[test]
fn an_attribute_must_be_declared_by_every_resource_there_is() {
    let resource = |id: &str, attributes: &str| format!("{{ id: {id}, attributes: {{ {attributes} }} }}");
    let reject = "t: { from: header.t, missing: reject }";
    let share = "t: { from: header.t, missing: share }";
    let other = "u: { from: header.u, missing: reject }";
    let with = |resources: &[String], rule: &str| format!("resources: [ {} ]\n{rule}", resources.join(", "));
    let limit = "limits: [ { id: l, resources: '*', key: [t], concurrency: { max: 9 } } ]";
    let guard = "idempotency: [ { id: i, resources: '*', scope: [t], key: { from: header.k } } ]";
    let (a, b, lacking) = (resource("a", reject), resource("b", share), resource("c", other));
    for rule in [limit, guard] {
        check_good(&with(std::slice::from_ref(&a), rule), true);
        for resources in
            [vec![lacking.clone()], vec![a.clone(), lacking.clone()], vec![lacking.clone(), a.clone()]]
        {
            assert_eq!(fault(&with(&resources, rule)).0, "the attribute `t` is not declared by `c`");
        }
    }
    // A limit can do with an attribute that may be missing, a record cannot.
    check_good(&with(&[a.clone(), b.clone()], limit), true);
    for resources in [vec![b.clone()], vec![a.clone(), b.clone()], vec![b, a]] {
        let message = fault(&with(&resources, guard)).0;
        assert!(message.starts_with("the attribute `t` may be missing (`b`)"), "{message}");
    }
    // Of a resource whose attributes could not all be read, nothing is said to be lacking.
    let broken = resource("c", "t2: 5");
    for rule in [limit, guard, "limits: [ { id: l, resources: [c], key: [t], concurrency: { max: 9 } } ]"] {
        let message = fault(&with(std::slice::from_ref(&broken), rule)).0;
        assert_eq!(message, "an attribute must be a mapping, not the number `5`");
    }
}

#[test]
fn messages_name_five_and_then_others() {
    let with = |count: usize| {
        let resources: Vec<String> = (0..count).map(|n| format!("{{ id: r{n} }}")).collect();
        let resources = resources.join(", ");
        format!(
            "resources: [ {resources} ]\nlimits: [ {{ id: l, resources: '*', key: [t], concurrency: {{ max: 9 }} }} ]"
        )
    };
    let five = "the attribute `t` is not declared by `r0`, `r1`, `r2`, `r3`, `r4`";
    for (count, message) in [
        (1, "the attribute `t` is not declared by `r0`".to_owned()),
        (5, five.to_owned()),
        (6, format!("{five}, others")),
        (7, format!("{five}, others")),
    ] {
        assert_eq!(fault(&with(count)).0, message);
    }
    let serve = |count: usize| {
        let variants: Vec<String> = (0..count).map(|n| format!("v{n}: 1")).collect();
        let variants = variants.join(", ");
        format!(
            "flags: [ {{ key: f, default: v0, variants: {{ {variants} }}, rules: [ {{ id: r, serve: something }} ] }} ]"
        )
    };
    let five = "serve one of `v0`, `v1`, `v2`, `v3`, `v4`";
    for (count, shown) in
        [(5, five.to_owned()), (6, format!("{five}, others")), (9, format!("{five}, others"))]
    {
        check_help(&serve(count), &format!("{shown}, or add it under `variants`"));
    }
}

#[test]
fn long_cycles_of_segments_are_cut() {
    // `lead` segments lead to a cycle of `length`.
    let cycle = |lead: usize, length: usize| {
        let segments: Vec<String> = (0..lead + length)
            .map(|n| {
                let next = if n + 1 == lead + length { lead } else { n + 1 };
                format!("{{ id: s{n}, when: {{ segment: s{next} }} }}")
            })
            .collect();
        fault(&format!("segments: [ {} ]", segments.join(", "))).0
    };
    for (lead, length, shown) in [
        (0, 4, "`s0` asks itself: s0 → s1 → s2 → s3 → s0"),
        (0, 5, "`s0` asks itself: s0 → s1 → s2 → s3 → s4 → s0"),
        (0, 6, "`s0` asks itself: s0 → s1 → s2 → s3 → s4 → …"),
        (0, 9, "`s0` asks itself: s0 → s1 → s2 → s3 → s4 → …"),
        (3, 2, "`s3` asks itself: s3 → s4 → s3"),
        (3, 3, "`s3` asks itself: s3 → s4 → s5 → s3"),
    ] {
        assert_eq!(cycle(lead, length), format!("the segment {shown}"), "{lead} {length}");
    }
}

#[test]
fn rules_of_one_operation_agree_and_a_resource_has_one() {
    let resource =
        |id: &str| format!("{{ id: {id}, attributes: {{ t: {{ from: header.t, missing: reject }} }} }}");
    let with = |rules: &str| {
        format!("resources: [ {}, {} ]\nidempotency: [ {rules} ]", resource("a"), resource("b"))
    };
    let rule = |id: &str, covered: &str, more: &str| {
        format!(
            "{{ id: {id}, resources: [{covered}], scope: [t], key: {{ from: header.k }}, fingerprint: [body]{more} }}"
        )
    };
    let pair = |more: &str| with(&format!("{}, {}", rule("i", "a", ", operation: o"), rule("j", "b", more)));
    check_good(&pair(", operation: o"), true);
    let place = |text: &str| {
        let found = faults_of(text);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].split(' ').next().unwrap().to_owned()
    };
    // The fault stands at the operation if it is written, else at the name that stands for it.
    let written = pair(", operation: o, retention: 25h");
    let at = |text: &str, part: &str| format!("3:{}", text.lines().last().unwrap().find(part).unwrap() + 1);
    assert_eq!(place(&written), at(&written, "o, retention"));
    let named =
        with(&format!("{}, {}", rule("i", "a", ", operation: o"), rule("o", "b", ", retention: 25h")));
    assert_eq!(place(&named), at(&named, "o, resources: [b]"));
    // A resource that is listed twice has one rule all the same.
    let twice = fault(&with(&rule("i", "a, a", "")));
    assert!(twice.0.starts_with("`a` is listed twice"), "{}", twice.0);
}
