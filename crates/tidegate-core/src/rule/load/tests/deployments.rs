//! What depends on where the rules will run, and on how many documents they are in.

use super::*;

const ONE: &str = "resources: [ { id: pay, attributes: { t: { from: header.t, missing: reject } } } ]\n";

fn faults_on(text: &str, deployment: Deployment) -> Vec<String> {
    load_on(text, deployment).map_or_else(|refused| lines(&refused.faults), |_| Vec::new())
}

#[test]
fn sharing_must_be_written_once_a_shared_store_is_configured() {
    let limit = |fields: &str| format!("limits: [ {{ id: l, resources: '*', {fields} }} ]");
    let bucket = "token_bucket: { capacity: 20, refill: 10/s }";
    for (fields, faults) in [
        (bucket.to_owned(), vec!["2:11 `sharing` is missing, and a shared store is configured"]),
        (format!("{bucket}, sharing: local"), vec![]),
        (format!("{bucket}, sharing: exact, on_store_failure: fail_open"), vec![]),
        (format!("{bucket}, sharing: leased, on_store_failure: fail_closed"), vec![]),
        (
            format!("{bucket}, sharing: exact"),
            vec!["2:91 `on_store_failure` is missing, and `sharing: exact` needs it"],
        ),
        ("concurrency: { max: 5 }, sharing: exact, on_store_failure: fail_open".to_owned(), vec![]),
        (
            "leaky_bucket: { rate: 5/s, queue: 5 }, sharing: leased, on_store_failure: fail_open".to_owned(),
            vec!["2:84 a leaky_bucket cannot be leased: its permits are places, not a supply"],
        ),
    ] {
        assert_eq!(faults_on(&limit(&fields), SHARED), faults, "{fields}");
    }
}

#[test]
fn a_refused_sharing_says_what_to_configure() {
    let text = "limits: [ { id: l, resources: '*', concurrency: { max: 5 }, sharing: exact, on_store_failure: fail_open } ]";
    let refused = load_text(text).unwrap_err();
    assert_eq!(refused.faults[0].message, "`sharing: exact` needs a shared store, and none is configured");
    assert!(refused.faults[0].help.starts_with("configure a shared store"), "{}", refused.faults[0].help);
}

#[test]
fn leases_need_a_release_that_has_them() {
    let text = "limits: [ { id: l, resources: '*', token_bucket: { capacity: 20, refill: 10/s }, sharing: leased, on_store_failure: fail_open } ]";
    let without = Deployment { leases: false, ..SHARED };
    assert_eq!(faults_on(text, without), ["2:91 `sharing: leased` is not in this release"]);
    assert_eq!(faults_on(text, SHARED), [""; 0]);
}

#[test]
fn commits_need_a_store_and_a_shell_that_can_do_them() {
    const STORE: &str = "needs a store that shares a transaction with the business write";
    const GATEWAY: &str = "not available through the gateway";
    const LIBRARY: &str = "works in the library only";
    const RELEASE: &str = "not available in this release";
    use IdempotencyBackend::{Memory, Mysql, Postgres, Redis, Sqlite};
    for (commit, backend, shell, expected) in [
        ("after_response", Memory, Shell::Gateway, vec![]),
        ("with_effects", Sqlite, Shell::Library, vec![]),
        ("with_effects", Postgres, Shell::Library, vec![]),
        ("one_transaction", Mysql, Shell::Library, vec![RELEASE]),
        ("with_effects", Memory, Shell::Library, vec![STORE]),
        ("with_effects", Redis, Shell::Library, vec![STORE]),
        ("one_transaction", Redis, Shell::Library, vec![STORE, RELEASE]),
        ("with_effects", Sqlite, Shell::Gateway, vec![GATEWAY]),
        ("one_transaction", Sqlite, Shell::Gateway, vec![LIBRARY]),
        ("with_effects", Memory, Shell::Gateway, vec![STORE, GATEWAY]),
    ] {
        let text = format!(
            "{ONE}idempotency: [ {{ id: i, resources: [pay], scope: [t], key: {{ from: header.k }}, commit: {commit} }} ]"
        );
        let deployment = Deployment { shared_store: false, leases: false, idempotency_store: backend, shell };
        let found = faults_on(&text, deployment);
        let same = found.len() == expected.len() && found.iter().zip(&expected).all(|(a, b)| a.contains(b));
        assert!(same, "{commit} {backend:?} {shell:?}: {found:?}");
    }
}

#[test]
fn several_documents_are_one_rule_set() {
    let first = Source::new("dir/a.yaml", format!("apiVersion: tidegate/v1\n{ONE}"));
    let second = Source::new(
        "dir/b.yaml",
        "apiVersion: tidegate/v1\nlimits: [ { id: l, resources: [pay], key: [t], concurrency: { max: 1 } } ]",
    );
    let loaded = load(&[first.clone(), second.clone()], &Deployment::default()).unwrap();
    assert_eq!((loaded.rules.resources.len(), loaded.rules.limits.len()), (1, 1));
    let span = loaded.positions.limit("l").unwrap();
    assert_eq!(loaded.positions.show(span), "dir/b.yaml:2:17");

    let third = Source::new("dir/c.yaml", format!("{ONE}limits: [ {{ id: l, resources: [pya] }} ]"));
    let refused = load(&[first, second, third], &Deployment::default()).unwrap_err();
    let all: Vec<String> = refused
        .faults
        .iter()
        .map(|f| format!("{}:{}:{} {}", f.source, f.line, f.column, f.message))
        .collect();
    check(
        &all,
        &[
            "dir/c.yaml:1:1 `apiVersion` is missing in the document",
            "dir/c.yaml:1:20 two resources are called `pay`; the first is at dir/a.yaml:2:20",
            "dir/c.yaml:2:11 an algorithm is missing in this limit",
            "dir/c.yaml:2:17 two limits are called `l`; the first is at dir/b.yaml:2:17",
            "dir/c.yaml:2:32 there is no resource `pya`",
        ],
    );
}

#[test]
fn a_document_that_cannot_be_read_hides_no_other_fault_and_causes_no_false_one() {
    let broken = Source::new("a.yaml", "apiVersion: tidegate/v1\nresources: [ { id: pay ");
    let other = Source::new(
        "b.yaml",
        "apiVersion: tidegate/v1\nlimits: [ { id: l, resources: [pay, maybe], concurrency: { max: 0 } } ]",
    );
    let refused = load(&[broken, other], &Deployment::default()).unwrap_err();
    assert_eq!(refused.faults.len(), 2, "{refused}");
    assert!(refused.faults[0].message.starts_with("this is not valid YAML: "));
    assert_eq!(refused.faults[1].message, "`0` is outside 1 to 999999999999999");
}

#[test]
fn the_api_version_comes_first() {
    for (text, fault) in [
        ("", "1:1 the document is empty: `apiVersion` is missing"),
        ("---\n", "1:1 the document is empty: `apiVersion` is missing"),
        ("# nothing\n", "1:1 the document is empty: `apiVersion` is missing"),
        ("{}", "1:1 `apiVersion` is missing in the document"),
        ("limits: []", "1:1 `apiVersion` is missing in the document"),
        ("apiVersion: tidegate/v2", "1:13 apiVersion `tidegate/v2` is not known"),
        ("apiVersion: 1", "1:13 text is expected, not the number `1`"),
        ("[1]", "1:1 the document must be a mapping, not a list"),
        ("hello", "1:1 the document must be a mapping, not the text `hello`"),
    ] {
        let refused = load(&[Source::new("r", text)], &Deployment::default()).unwrap_err();
        assert_eq!(lines(&refused.faults), [fault], "{text:?}");
    }
    let none = load(&[], &Deployment::default()).unwrap_err();
    assert_eq!(none.faults[0].message, "there is no rule document");
}

#[test]
fn the_number_of_documents_and_their_size_are_bounded() {
    let one = Source::new("r", "apiVersion: tidegate/v1");
    let refused = load(&vec![one; MAX_SOURCES + 1], &Deployment::default()).unwrap_err();
    assert_eq!(refused.faults[0].message, "there are more than 1000 rule documents");
    let large = Source::new("r", "#".repeat(4 << 20));
    let refused = load(&vec![large; 5], &Deployment::default()).unwrap_err();
    assert_eq!(refused.faults[0].message, "the rule documents together have more than 16777216 bytes");
}

#[test]
fn every_rule_has_a_position() {
    let loaded = load(&[Source::new("full.yaml", FULL)], &SHARED).unwrap();
    let at =
        |span: Option<crate::rule::Span>| span.map(|span| loaded.positions.show(span)).unwrap_or_default();
    let positions = &loaded.positions;
    assert_eq!(at(positions.resource("pay")), "full.yaml:4:9");
    assert_eq!(at(positions.resource_match("pay")), "full.yaml:5:65");
    assert_eq!(at(positions.resource_match("account")), "");
    assert_eq!(at(positions.limit("at-once")), "full.yaml:34:11");
    assert_eq!(at(positions.idempotency("pay-once")), "full.yaml:37:9");
    assert_eq!(at(positions.breaker("account-slow")), "full.yaml:53:9");
    assert_eq!(at(positions.segment("staff")), "full.yaml:69:11");
    assert_eq!(at(positions.flag("new-checkout")), "full.yaml:79:10");
    assert_eq!(at(positions.flag_rule("new-checkout", "ramp")), "full.yaml:84:15");
    assert_eq!(at(positions.limit("none")), "");
}
