//! Flags as the upstream sees them.

use tidegate_testkit::Connection;

use super::gateway::{Gateway, number_of};

const FLAGS: &str = r#"
resources:
  - id: shop
    match: { path: /shop }
    attributes:
      user: { from: header.x-user-id }
      tenant: { from: header.x-tenant }
    subject: user
    flags: [new-checkout, theme, words, off-for-all]
flags:
  - key: new-checkout
    default: "off"
    rules:
      - { id: deny, priority: 100, when: { tenant: { in: [umbrella] } }, serve: "off" }
      - { id: allow, priority: 50, when: { tenant: { in: [acme] } }, serve: "on" }
      - { id: ramp, priority: 10, percentage: 76.84, serve: "on" }
  - key: theme
    variants: { dark: dark, light: { css: x } }
    default: light
    rules:
      - { id: half, priority: 1, serve: { split: { dark: 0, light: 100 } } }
  - key: words
    variants: { on: yes, off: no }
    default: on
  - key: off-for-all
    default: "off"
"#;

fn flags(gateway: &Gateway, headers: &[(&str, &str)]) -> String {
    assert_eq!(gateway.send("GET", "/shop", headers, b"").status, 200);
    gateway.origin.last().header("tidegate-flags").unwrap().to_owned()
}

#[test]
fn the_upstream_is_told_each_flag_of_its_resource() {
    let gateway = Gateway::start(FLAGS);
    let rest = "theme=\"light\", words=\"on\", off-for-all=\"off\"";
    for (headers, expected) in [
        // Bucket 7683 of `new-checkout:user-1`.
        (vec![("X-User-Id", "user-1")], "on"),
        (vec![("X-User-Id", "user-6502")], "off"),
        (vec![("X-User-Id", "user-1"), ("X-Tenant", "umbrella")], "off"),
        (vec![("X-User-Id", "user-6502"), ("X-Tenant", "acme")], "on"),
        // Nobody in particular: what a rule by tenant decides is decided, and a percentage is not.
        (vec![("X-Tenant", "acme")], "on"),
        (vec![], "off"),
    ] {
        let expected = format!("new-checkout=\"{expected}\", {rest}");
        assert_eq!(flags(&gateway, &headers), expected, "{headers:?}");
    }
    assert_eq!(gateway.get("/elsewhere").status, 200);
    assert_eq!(gateway.origin.last().header("tidegate-flags"), None);
}

#[test]
fn r15_words_are_strings_and_only_true_and_false_are_booleans() {
    let gateway = Gateway::start(FLAGS);
    assert!(flags(&gateway, &[]).contains("words=\"on\""));
    // A bare `on` names the variant; a boolean does not.
    gateway.edit(&FLAGS.replace("default: on\n", "default: true\n"));
    let refusal = gateway
        .program()
        .wait_line("the refusal", |line| line.contains("rules.yaml:").then(|| line.to_owned()));
    assert!(refusal.contains("refused"), "{refusal}");
    assert_eq!(gateway.version(), 1);
}

#[test]
fn what_clients_send_as_ours_never_arrives() {
    let rules = FLAGS.to_owned()
        + "idempotency:\n  - { id: once, resources: [shop], scope: [], key: { from: header.idempotency-key, required: false } }\n";
    let gateway = Gateway::start(&rules);
    let forged = [
        ("Tidegate-Flags", "new-checkout=\"on\", theme=\"dark\""),
        ("TIDEGATE-FENCE", "99"),
        ("tidegate-owner", "me"),
        ("Tidegate-Attempt", "7"),
        ("Tidegate-Outcome", "retryable"),
        ("Tidegate-Anything", "x"),
        ("Tidegate_Flags", "new-checkout=\"on\""),
        ("Tidegate_Fence", "99"),
        ("Idempotent-Replayed", "true"),
    ];
    for target in ["/shop", "/elsewhere"] {
        for key in [None, Some(("Idempotency-Key", "k1"))] {
            // Naming them in Connection must not take ours away either.
            for connection in ["close", "close, Tidegate-Flags, Tidegate-Fence, X-Request-Id, Host"] {
                let mut headers = forged.to_vec();
                headers.push(("Connection", connection));
                headers.extend(key);
                let response = gateway.send("POST", target, &headers, b"{}");
                assert_eq!(response.status, 200);
                if key.is_some() && target == "/shop" && response.header("idempotent-replayed").is_some() {
                    continue;
                }
                let seen = gateway.origin.last();
                let ours: Vec<_> = seen
                    .headers
                    .iter()
                    .filter(|(name, _)| name.to_ascii_lowercase().replace('_', "-").starts_with("tidegate"))
                    .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
                    .collect();
                assert!(ours.iter().all(|(name, value)| !name.contains('_') && value != "99"), "{ours:?}");
                let names: Vec<_> = ours.iter().map(|(name, _)| name.as_str()).collect();
                match (target, key) {
                    ("/elsewhere", _) => assert!(names.is_empty(), "{ours:?}"),
                    (_, None) => assert_eq!(names, ["tidegate-flags"]),
                    (_, Some(_)) => {
                        for name in ["tidegate-flags", "tidegate-fence", "tidegate-owner", "tidegate-attempt"]
                        {
                            assert_eq!(names.iter().filter(|other| **other == name).count(), 1, "{ours:?}");
                        }
                        assert_eq!(seen.header("tidegate-fence"), Some("1"));
                    }
                }
                if target == "/shop" {
                    assert!(seen.header("tidegate-flags").unwrap().contains("theme=\"light\""), "{seen:?}");
                }
                assert!(seen.header("x-request-id").is_some() && seen.header("host").is_some(), "{seen:?}");
                assert_eq!(seen.header("idempotent-replayed"), None);
            }
        }
    }
}

#[test]
fn a_retry_sees_the_flags_of_the_first_try() {
    let rules = |percentage: &str| {
        FLAGS.replace("76.84", percentage)
            + "idempotency:\n  - { id: once, resources: [shop], scope: [], key: { from: header.idempotency-key } }\n"
    };
    let gateway = Gateway::start(&rules("76.83"));
    let post =
        || gateway.send("POST", "/shop", &[("Idempotency-Key", "k1"), ("X-User-Id", "user-1")], b"{}").status;
    gateway.origin.answer("/shop", 429, &[], "");
    assert_eq!(post(), 429);
    let first = gateway.origin.last().header("tidegate-flags").unwrap().to_owned();
    assert!(first.starts_with("new-checkout=\"off\""), "{first}");
    gateway.edit(&rules("100"));
    gateway.wait_version(2);
    assert_eq!(post(), 429);
    let seen = gateway.origin.last();
    assert_eq!(seen.header("tidegate-attempt"), Some("2"));
    assert_eq!(seen.header("tidegate-flags"), Some(first.as_str()));
    gateway.origin.answer("/shop", 200, &[], "");
    assert!(
        flags(&gateway, &[("X-User-Id", "user-1"), ("Idempotency-Key", "k2")]).contains("checkout=\"on\"")
    );
}

#[test]
fn r9_one_bad_flag_refuses_the_document_whole() {
    let gateway = Gateway::start(FLAGS);
    let bad = FLAGS
        .replace("percentage: 76.84", "percentage: 101")
        .replace("default: light", "default: blue")
        .replace("flags: [new-checkout,", "flags: [no-such-flag, new-checkout,");
    gateway.edit(&bad);
    for fault in ["101", "blue", "no-such-flag"] {
        gateway
            .program()
            .wait_line(fault, |line| (line.contains("rules.yaml:") && line.contains(fault)).then_some(()));
    }
    assert_eq!(gateway.version(), 1);
    assert!(flags(&gateway, &[("X-User-Id", "user-1")]).starts_with("new-checkout=\"on\""));
    gateway.edit(&FLAGS.replace("76.84", "0"));
    gateway.wait_version(2);
    assert!(flags(&gateway, &[("X-User-Id", "user-1")]).starts_with("new-checkout=\"off\""));
}

#[test]
fn r10_an_older_version_never_replaces_a_newer_one() {
    let gateway = Gateway::start(FLAGS);
    let mut connection = Connection::open(gateway.addr).unwrap();
    let mut last = 0;
    let contents = ["0", "100", "50", "0", "25"];
    for (edit, percentage) in contents.iter().enumerate() {
        gateway.edit(&FLAGS.replace("76.84", percentage));
        let number = edit as u64 + 2;
        tidegate_testkit::wait_until("the version", || {
            let now = number_of(&connection.request("GET", "/shop", &[], b"").unwrap());
            assert!(now >= last, "{now} after {last}");
            last = now;
            now == number
        });
    }
    // Another node whose file is older than what is in force publishes it anew: a higher number.
    let sibling = gateway.sibling();
    assert!(sibling.version() >= last);
}
