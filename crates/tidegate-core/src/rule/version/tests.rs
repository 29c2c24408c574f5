use std::time::Duration;

use super::*;
use crate::rule::model::*;
use crate::rule::sample::*;

#[test]
fn the_canonical_form_writes_everything_out() {
    let expected = [
        r#"{"apiVersion": "tidegate/v1", "#,
        r#""resources": [{"id": "pay", "match": {"hosts": ["api.example.com"], "methods": ["POST"], "path": "/orders/{order}"}, "#,
        r#""timeout": "3s", "attributes": {"tenant": {"from": "header.x-tenant", "missing": "reject"}, "#,
        r#""ip": {"from": "client.ip", "missing": "share"}}, "subject": "tenant", "flags": ["new-checkout"]}, "#,
        r#"{"id": "account", "timeout": "30s", "attributes": {}, "flags": []}], "#,
        r#""limits": [{"id": "pay-per-tenant", "description": "a \"quoted\"\nline\u2028", "mode": "off", "resources": "*", "#,
        r#""key": ["tenant"], "token_bucket": {"capacity": 20, "refill": "5/10s"}, "#,
        r#""cost": {"from": "weight", "default": 1, "max": 100}, "#,
        r#""overrides": [{"when": {"tenant": {"equals": "app"}}, "token_bucket": {"capacity": 200, "refill": "100/s"}}], "#,
        r#""sharing": "leased", "on_store_failure": "local_fallback", "after_store_loss": "exhausted"}], "#,
        r#""idempotency": [{"id": "pay-once", "resources": ["pay"], "operation": "charge", "scope": ["tenant"], "#,
        r#""key": {"derive": ["tenant", "body./sku"], "window": "10s"}, "fingerprint": ["method", "path", "body"], "#,
        r#""commit": "after_response", "on_unknown": "retry", "lease": "30s", "max_execution": "5m", "retention": "1d", "#,
        r#""in_progress": {"wait": "1s500ms"}, "max_response": "1MiB", "replay_headers": ["etag"]}], "#,
        r#""breakers": [{"id": "account-slow", "resources": ["account"], "key": ["upstream_host"], "#,
        r#""failure": ["connect", "5xx", 429], "trip": [{"slow_ratio": {"slower_than": "250ms", "at_least": "50%"}}, "#,
        r#"{"error_ratio": {"at_least": "0.29%"}}, {"error_count": {"at_least": 200}}], "min_requests": 20, "#,
        r#""window": "10s", "open_for": "5s", "max_open": "1m", "half_open": {"probes": 1, "probe_timeout": "10s"}, "#,
        r#""fallback": [{"cache": {"ttl": "5m"}}, {"respond": {"status": 503, "json": {"a": [null], "b": 1.10}}}, "#,
        r#"{"respond": {"status": 503, "text": "busy"}}, {"respond": {"status": 503}}]}], "#,
        r#""segments": [{"id": "staff", "when": {"email": {"ends_with": "@example.com"}}}], "#,
        r#""flags": [{"key": "new-checkout", "variants": {"on": true, "off": false}, "default": "off", "sticky": "session", "#,
        r#""rules": [{"id": "ramp", "priority": -10, "when": {"segment": "staff"}, "percentage": 1.15, "serve": "on"}, "#,
        r#"{"id": "split", "priority": -20, "serve": {"split": {"off": 33.33, "on": 66.67}}}]}]}"#,
    ];
    assert_eq!(canonical(&everything()), expected.concat());
    assert_eq!(
        canonical(&RuleSet::default()),
        r#"{"apiVersion": "tidegate/v1", "resources": [], "limits": [], "idempotency": [], "breakers": [], "segments": [], "flags": []}"#
    );
}

#[test]
fn the_canonical_form_is_json() {
    let value: serde_json::Value = serde_json::from_str(&canonical(&everything())).unwrap();
    assert_eq!(value["limits"][0]["description"], "a \"quoted\"\nline\u{2028}");
    assert_eq!(value["flags"][0]["rules"][0]["percentage"].to_string(), "1.15");
}

#[track_caller]
fn check_condition(condition: &Condition, expected: &str) {
    let mut out = String::new();
    super::condition(condition).write(&mut out);
    assert_eq!(out, expected);
}

#[test]
fn conditions_keep_text_and_kind_and_structure() {
    let kinds = Test::In(vec![
        scalar("1.10", ScalarKind::Number),
        scalar("1.10", ScalarKind::String),
        scalar("0123", ScalarKind::Number),
        scalar("true", ScalarKind::Bool),
        scalar("on", ScalarKind::String),
    ]);
    check_condition(&is("a", kinds), r#"{"a": {"in": [1.10, "1.10", 0123, true, "on"]}}"#);
    check_condition(&is("a", Test::Gte(text("-5.50"))), r#"{"a": {"gte": -5.50}}"#);
    check_condition(&is("a", Test::Lt(text("0123"))), r#"{"a": {"lt": 0123}}"#);
    check_condition(&is("a", Test::Lt(text("1}"))), r#"{"a": {"lt": "1}"}}"#);
    check_condition(
        &is("a", Test::Cidr(texts(&["10.0.0.0/8", "::/0"]))),
        r#"{"a": {"cidr": ["10.0.0.0/8", "::/0"]}}"#,
    );

    let (gte, lt) = (is("age", Test::Gte(text("5"))), is("age", Test::Lt(text("9"))));
    let staff = Condition::Segment(text("staff"));
    let both = |parts: &[&Condition]| Condition::All(parts.iter().map(|&part| part.clone()).collect());
    check_condition(&both(&[&gte, &lt]), r#"{"age": {"gte": 5, "lt": 9}}"#);
    check_condition(&both(&[&gte]), r#"{"all": [{"age": {"gte": 5}}]}"#);
    check_condition(&both(&[]), r#"{"all": []}"#);
    check_condition(&both(&[&gte, &gte]), r#"{"all": [{"age": {"gte": 5}}, {"age": {"gte": 5}}]}"#);
    check_condition(&both(&[&staff, &gte]), r#"{"segment": "staff", "age": {"gte": 5}}"#);
    check_condition(
        &both(&[&both(&[&gte, &lt]), &staff]),
        r#"{"age": {"gte": 5, "lt": 9}, "segment": "staff"}"#,
    );
    check_condition(
        &both(&[&both(&[&gte, &lt]), &gte]),
        r#"{"all": [{"age": {"gte": 5, "lt": 9}}, {"age": {"gte": 5}}]}"#,
    );
    check_condition(
        &Condition::Not(Box::new(Condition::Any(vec![both(&[&staff, &gte]), lt]))),
        r#"{"not": {"any": [{"segment": "staff", "age": {"gte": 5}}, {"age": {"lt": 9}}]}}"#,
    );
}

#[test]
fn digests_differ_with_the_rules_and_with_nothing_else() {
    let rules = everything();
    assert_eq!(Digest::of(&rules), Digest::of(&rules.clone()));
    let changes: [fn(&mut RuleSet); 6] = [
        |rules| rules.resources[0].timeout = Duration::from_secs(4),
        |rules| rules.limits[0].mode = Mode::Shadow,
        |rules| rules.limits[0].owner = Some(String::new()),
        |rules| rules.idempotency[0].lease += Duration::from_micros(1),
        |rules| rules.breakers[0].trip.swap(0, 1),
        |rules| rules.flags[0].rules[1].percentage = Some(Percentage::FULL),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut changed = everything();
        change(&mut changed);
        assert_ne!(Digest::of(&changed), Digest::of(&rules), "change {index}");
    }
    // FIPS 180-2, appendix B.1.
    assert_eq!(
        Digest::of_canonical("abc").to_string(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn digests_and_versions_read_back() {
    let digest = Digest::of_canonical("abc");
    let version = Version { number: 12, digest };
    assert_eq!(version.to_string(), "12; digest=ba7816bf8f01");
    assert_eq!(version.to_string().parse(), Ok(version.name()));
    assert_eq!("12;digest=ba7816bf8f01".parse(), Ok(version.name()));
    assert_eq!(digest.to_string().parse(), Ok(digest));
    assert_eq!(digest.short().to_string().parse(), Ok(digest.short()));
    assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
    assert_eq!(format!("{digest:?}"), format!("Digest({digest})"));
    assert_eq!(format!("{:?}", digest.short()), "ShortDigest(ba7816bf8f01)");

    for (bad, error) in [
        ("", VersionError::Form),
        ("12", VersionError::Form),
        ("x; digest=ba7816bf8f01", VersionError::Form),
        ("+1; digest=ba7816bf8f01", VersionError::Form),
        ("; digest=ba7816bf8f01", VersionError::Form),
        ("99999999999999999999; digest=ba7816bf8f01", VersionError::Form),
        ("12; ba7816bf8f01", VersionError::Form),
        ("12; digest=ba7816bf8f0", VersionError::Digest { digits: 12 }),
        ("12; digest=BA7816BF8F01", VersionError::Digest { digits: 12 }),
        ("12; digest=ba7816bf8f01ff", VersionError::Digest { digits: 12 }),
        ("12; digest=ba7816bf8f0é", VersionError::Digest { digits: 12 }),
    ] {
        assert_eq!(bad.parse::<VersionName>(), Err(error), "{bad}");
    }
    assert_eq!("ba78".parse::<Digest>(), Err(VersionError::Digest { digits: 64 }));
}
