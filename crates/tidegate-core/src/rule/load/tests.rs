use std::time::Duration;

use super::*;
use crate::rule::model::{
    AfterStoreLoss, Algorithm, AttributeSource, Condition, Cost, FailureKind, Fallback, FallbackBody,
    FingerprintPart, InProgress, KeySource, Missing, Mode, OnStoreFailure, OnUnknown, PathSegment,
    Percentage, Rate, Resources, Scalar, ScalarKind, Serve, Sharing, Test, Trip,
};

mod deployments;
mod edges;
mod partly;
mod random;
mod refused;
mod warned;

/// The example with every field.
const FULL: &str = include_str!("full.yaml");
/// Where [`FULL`] can run.
const SHARED: Deployment = Deployment {
    shared_store: true,
    leases: true,
    idempotency_store: IdempotencyBackend::Sqlite,
    shell: Shell::Gateway,
};

/// Loads one document, whose first line is the apiVersion, as a gateway without configuration.
fn load_text(text: &str) -> Result<Loaded, Refused> {
    load_on(text, Deployment::default())
}

fn load_on(text: &str, deployment: Deployment) -> Result<Loaded, Refused> {
    load(&[Source::new("rules.yaml", format!("apiVersion: tidegate/v1\n{text}"))], &deployment)
}

/// `LINE:COL message` of each.
fn lines(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(|found| format!("{}:{} {}", found.line, found.column, found.message)).collect()
}

/// The faults of one document.
fn faults_of(text: &str) -> Vec<String> {
    match load_text(text) {
        Ok(_) => Vec::new(),
        Err(refused) => {
            for fault in &refused.faults {
                assert!(!fault.help.is_empty() && !fault.to_string().contains("\n\n"), "{fault}");
            }
            lines(&refused.faults)
        }
    }
}

/// The rules of a document that is accepted.
#[track_caller]
fn rules_of(text: &str) -> RuleSet {
    load_text(text).unwrap_or_else(|refused| panic!("{refused}")).rules
}

#[track_caller]
fn check(found: &[String], expected: &[&str]) {
    assert_eq!(found, expected);
}

#[test]
fn the_full_example_means_what_it_says() {
    let loaded =
        load(&[Source::new("full.yaml", FULL)], &SHARED).unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(lines(&loaded.warnings), Vec::<String>::new());
    let RuleSet { resources, limits, idempotency, breakers, segments, flags } = loaded.rules;

    let pay = &resources[0];
    let matcher = pay.matcher.as_ref().unwrap();
    assert_eq!(
        (matcher.hosts.as_slice(), matcher.methods.as_slice()),
        (&["api.example.com".to_owned()][..], &["POST".to_owned()][..])
    );
    let literal = |text: &str| PathSegment::Literal(text.to_owned());
    assert_eq!(matcher.path, [literal("orders"), PathSegment::Param("order".into()), literal("pay")]);
    assert_eq!(pay.timeout, Duration::from_secs(3));
    assert_eq!(pay.attribute("tenant").unwrap().from, AttributeSource::Header("x-tenant".into()));
    assert_eq!(pay.attribute("tenant").unwrap().missing, Missing::Reject);
    assert_eq!(pay.attribute("user").unwrap().missing, Missing::Share);
    assert_eq!(pay.attribute("weight").unwrap().from, AttributeSource::Body("/items/count".into()));
    assert_eq!(
        (pay.subject.as_deref(), pay.flags.as_slice()),
        (Some("user"), &["new-checkout".to_owned()][..])
    );
    assert_eq!((resources[1].matcher.is_none(), resources[1].timeout), (true, Duration::from_secs(30)));

    let first = &limits[0];
    assert_eq!((first.owner.as_deref(), first.mode), (Some("payments-oncall"), Mode::Enforce));
    assert_eq!(
        (&first.resources, &first.key),
        (&Resources::Listed(vec!["pay".into()]), &vec!["channel".to_owned()])
    );
    let rate = |count, secs| Rate { count, per: Duration::from_secs(secs) };
    assert_eq!(first.algorithm, Algorithm::TokenBucket { capacity: 20, refill: rate(10, 1) });
    assert_eq!(first.cost, Cost::Attribute { from: "weight".into(), default: 1, max: 100 });
    assert_eq!(first.overrides[0].algorithm, Algorithm::TokenBucket { capacity: 200, refill: rate(100, 1) });
    let app = Test::Equals(Scalar { text: "app".into(), kind: ScalarKind::String });
    assert_eq!(first.overrides[0].when, Condition::Attribute { name: "channel".into(), test: app });
    assert_eq!(
        (first.sharing, first.on_store_failure, first.after_store_loss),
        (Sharing::Exact, Some(OnStoreFailure::LocalFallback), AfterStoreLoss::Exhausted)
    );
    let window = Duration::from_secs(1);
    let others: Vec<(&Algorithm, Mode)> =
        limits[1..].iter().map(|limit| (&limit.algorithm, limit.mode)).collect();
    assert_eq!(
        others,
        [
            (&Algorithm::FixedWindow { limit: 100, window }, Mode::Shadow),
            (&Algorithm::SlidingLog { limit: 100, window }, Mode::Enforce),
            (&Algorithm::SlidingWindow { limit: 100, window }, Mode::Off),
            (&Algorithm::LeakyBucket { rate: rate(5, 10), queue: 0 }, Mode::Enforce),
            (&Algorithm::Concurrency { max: 64 }, Mode::Enforce),
        ]
    );
    assert_eq!((&limits[2].resources, limits[4].cost.clone()), (&Resources::All, Cost::Fixed(1)));

    let once = &idempotency[0];
    assert_eq!(
        (once.operation.as_str(), once.in_progress),
        ("charge", InProgress::Wait(Duration::from_secs(2)))
    );
    assert_eq!(
        once.fingerprint,
        [
            FingerprintPart::Method,
            FingerprintPart::Path,
            FingerprintPart::BodyPointer("/amount".into()),
            FingerprintPart::Attribute("user".into()),
            FingerprintPart::Query,
        ]
    );
    let header = AttributeSource::Header("idempotency-key".into());
    assert_eq!(once.key, KeySource::Attribute { from: header, required: true });
    assert_eq!((once.max_response, once.retention), (1 << 20, Duration::from_hours(24)));

    let slow = &breakers[0];
    let half = Percentage::from_hundredths(5000).unwrap();
    assert!(slow.per_upstream_host);
    assert_eq!(slow.failure[4], FailureKind::Status(429));
    assert_eq!(
        slow.trip,
        [
            Trip::SlowRatio { slower_than: Duration::from_millis(250), at_least: half },
            Trip::ErrorRatio { at_least: half },
            Trip::ErrorCount { at_least: 200 },
        ]
    );
    let body = FallbackBody::Json(serde_json::json!({"status": "busy"}));
    assert_eq!(
        slow.fallback,
        [Fallback::Cache { ttl: Duration::from_mins(5) }, Fallback::Respond { status: 503, body }]
    );

    let Condition::Any(parts) = &segments[1].when else { panic!("{segments:?}") };
    assert_eq!(parts[0], Condition::Segment("staff".into()));
    let Condition::All(parts) = &parts[1] else { panic!("{parts:?}") };
    let value = |text: &str, kind| Scalar { text: text.into(), kind };
    let values = vec![
        value("gold", ScalarKind::String),
        value("0123", ScalarKind::Number),
        value("1.10", ScalarKind::Number),
        value("true", ScalarKind::Bool),
        value("true", ScalarKind::String),
    ];
    let plan = Condition::Attribute { name: "plan".into(), test: Test::NotIn(values) };
    assert_eq!(parts[0], Condition::Not(Box::new(plan)));

    let flag = &flags[0];
    assert_eq!(flag.value("debug").unwrap().to_string(), r#"{"level":1.0,"tags":["a",null]}"#);
    let order: Vec<(&str, i64)> = flag.rules.iter().map(|rule| (rule.id.as_str(), rule.priority)).collect();
    assert_eq!(order, [("deny-umbrella", 100), ("allow-acme", 50), ("ramp", 10)]);
    let share = |hundredths| Percentage::from_hundredths(hundredths).unwrap();
    assert_eq!(
        flag.rules[1].serve,
        Serve::Split(vec![("on".into(), share(3333)), ("off".into(), share(6667))])
    );
    assert_eq!(flag.rules[2].percentage, Some(share(1000)));
}

#[test]
fn what_is_left_out_has_its_default() {
    let rules = rules_of(concat!(
        "resources: [ { id: r, attributes: { t: { from: header.t, missing: reject } } } ]\n",
        "limits: [ { id: l, resources: [r], concurrency: { max: 1 } } ]\n",
        "idempotency: [ { id: i, resources: [r], scope: [t], key: { from: header.k } } ]\n",
        "breakers: [ { id: b, resources: [r], trip: [ { error_count: { at_least: 1 } } ] } ]\n",
        "flags: [ { key: f, default: \"on\" } ]\n",
    ));
    let limit = &rules.limits[0];
    assert_eq!((limit.mode, limit.key.len(), &limit.cost), (Mode::Enforce, 0, &Cost::Fixed(1)));
    assert_eq!((limit.sharing, limit.on_store_failure), (Sharing::Local, None));
    let once = &rules.idempotency[0];
    assert_eq!(
        (once.operation.as_str(), once.on_unknown, once.in_progress),
        ("i", OnUnknown::Hold, InProgress::Reject)
    );
    assert_eq!(once.fingerprint, [FingerprintPart::Method, FingerprintPart::Path, FingerprintPart::Body]);
    assert_eq!((once.lease, once.max_execution), (Duration::from_secs(30), Duration::from_mins(5)));
    assert_eq!(once.replay_headers, ["content-type", "content-encoding", "location", "etag"]);
    let breaker = &rules.breakers[0];
    assert_eq!(
        (breaker.min_requests, breaker.window, breaker.per_upstream_host),
        (20, Duration::from_secs(10), false)
    );
    assert_eq!((breaker.open_for, breaker.max_open), (Duration::from_secs(5), Duration::from_mins(1)));
    assert_eq!((breaker.half_open.probes, breaker.half_open.probe_timeout), (1, Duration::from_secs(10)));
    assert_eq!(
        breaker.failure,
        [FailureKind::Connect, FailureKind::Timeout, FailureKind::Reset, FailureKind::ServerError]
    );
    assert_eq!(rules.flags[0].variants, [("on".to_owned(), true.into()), ("off".to_owned(), false.into())]);
    assert_eq!(rules_of(""), RuleSet::default());
}

/// The same rules as JSON, whatever its indentation, are the same rules.
#[test]
fn json_is_read_by_the_same_path() {
    let json = "{\n\t\"apiVersion\": \"tidegate/v1\",\n\t\"limits\": [\n\t\t{ \"id\": \"l\\u0031\", \"resources\": \"*\", \
                \"token_bucket\": { \"capacity\": 20, \"refill\": \"10/2s\" } }\n\t],\n\t\"flags\": [ { \"key\": \"f\", \
                \"default\": \"a\", \"variants\": { \"a\": 123456789012345678901234567890, \"b\": 1.0 } } ]\n}\n";
    let from_json = load(&[Source::new("rules.json", json)], &Deployment::default()).unwrap().rules;
    let from_yaml = rules_of(concat!(
        "limits:\n- {id: l1, resources: '*', token_bucket: {capacity: 20, refill: 10/2s}}\n",
        "flags:\n- {key: f, default: a, variants: {a: 123456789012345678901234567890, b: 1.0}}\n",
    ));
    assert_eq!(from_json, from_yaml);
    let value = from_json.flags[0].value("a").unwrap().to_string();
    assert_eq!(value, "123456789012345678901234567890");
    let faults = load(
        &[Source::new("r.json", "{\"apiVersion\":\"tidegate/v1\",\n\t\"limitz\":[]}")],
        &Deployment::default(),
    );
    check(&lines(&faults.unwrap_err().faults), &["2:2 unknown field `limitz` in the document"]);
}

#[test]
fn r9_one_bad_flag_refuses_the_document_whole_and_every_fault_is_listed() {
    let bad = FULL.replace("percentage: 10,", "percentage: 0.005,").replace("[umbrella]", "umbrella");
    let refused = load(&[Source::new("full.yaml", bad)], &SHARED).unwrap_err();
    check(
        &lines(&refused.faults),
        &["84:47 `0.005` is finer than 0.01", "85:67 a list is expected, not the text `umbrella`"],
    );
}

#[test]
fn r11_segments_may_form_a_diamond_but_no_cycle() {
    let diamond = "segments: [ { id: a, when: { any: [ { segment: b }, { segment: c } ] } }, { id: b, when: { segment: d } }, \
                   { id: c, when: { segment: d } }, { id: d, when: { x: { equals: 1 } } } ]";
    assert_eq!(rules_of(diamond).segments.len(), 4);
    let cycle = diamond.replace("{ x: { equals: 1 } }", "{ segment: a }");
    check(&faults_of(&cycle), &["2:167 the segment `a` asks itself: a → b → d → a"]);
}

#[test]
fn r15_on_off_yes_and_no_are_strings() {
    let rules = rules_of(
        "flags: [ { key: f, default: off, variants: { on: on, off: off, yes: yes, no: no, t: true, f: false } } ]\n\
         segments: [ { id: s, when: { a: { in: [on, off, yes, no, y, n, true, false] } } } ]\n\
         limits: [ { id: l, resources: '*', mode: off, concurrency: { max: 1 } } ]",
    );
    let values: Vec<String> =
        rules.flags[0].variants.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(values, ["on=\"on\"", "off=\"off\"", "yes=\"yes\"", "no=\"no\"", "t=true", "f=false"]);
    let Condition::Attribute { test: Test::In(values), .. } = &rules.segments[0].when else { panic!() };
    let kinds: Vec<ScalarKind> = values.iter().map(|value| value.kind).collect();
    assert_eq!(kinds[..6], [ScalarKind::String; 6]);
    assert_eq!(kinds[6..], [ScalarKind::Bool; 2]);
    assert_eq!(rules.limits[0].mode, Mode::Off);
    check(
        &faults_of(
            "idempotency: [ { id: i, resources: '*', scope: [], key: { from: header.k, required: yes } } ]",
        ),
        &["2:85 a boolean is expected, not the text `yes`"],
    );
}

#[test]
fn b2_the_same_rule_listed_twice_is_refused() {
    let rule = "  - { id: b, resources: '*', trip: [ { error_count: { at_least: 5 } } ] }\n";
    check(
        &faults_of(&format!("breakers:\n{rule}{rule}")),
        &["4:11 two breakers are called `b`; the first is at 3:11"],
    );
}

#[test]
fn l3_long_periods_and_large_capacities_load_exactly_or_not_at_all() {
    let bucket = |capacity: u64, refill: &str| {
        format!(
            "limits: [ {{ id: l, resources: '*', token_bucket: {{ capacity: {capacity}, refill: {refill} }} }} ]"
        )
    };
    for (capacity, days) in [((1 << 32) - 1, 1), ((1 << 32) + 1, 1), (crate::rule::MAX_COUNT, 12)] {
        let rules = rules_of(&bucket(capacity, &format!("{capacity}/{days}d")));
        let refill = Rate { count: capacity, per: Duration::from_hours(24 * days) };
        assert_eq!(rules.limits[0].algorithm, Algorithm::TokenBucket { capacity, refill });
    }
    check(
        &faults_of(&bucket(20, "86400000000001/86400s")),
        &["2:74 the rate is more than 1000000000/s, which no clock can tell from no limit"],
    );
    assert_eq!(rules_of(&bucket(20, "86400000000000/86400s")).limits.len(), 1);
    check(
        &faults_of(&bucket(1 << 32, "1/86400s")),
        &["2:62 an empty bucket would need 11767034 years at this rate, and 100 are the most"],
    );
    // 100 years to the second: one more is refused.
    assert_eq!(rules_of(&bucket(36_500, "1/d")).limits.len(), 1);
    check(
        &faults_of(&bucket(36_501, "1/d")),
        &["2:62 an empty bucket would need 101 years at this rate, and 100 are the most"],
    );
}

#[test]
fn twelve_different_faults_are_reported_at_once() {
    let text = "\
resources:
  - id: pay
    match: { path: orders }
    attributes: { user: { from: header.u } }
    subject: usr
limits:
  - { id: l, resources: [pay], key: [usr], token_bucket: { capcity: 20, capacity: 0, refill: 10 } }
  - { id: l, resources: [pya], sharing: exact, on_store_failure: fail_open, concurrency: { max: 1 } }
idempotency:
  - { id: i, resources: [pay], scope: [user], key: { from: header.k }, retention: 1m }
breakers:
  - { id: b, resources: [pay], trip: [ { error_ratio: { at_least: 50 } } ] }
flags:
  - { key: f, default: maybe, rules: [ { id: r, percentage: 0.005, serve: on, when: { segment: none } } ] }
";
    check(
        &faults_of(text),
        &[
            "4:20 the path `orders` does not begin with a slash",
            "6:14 the subject `usr` is not an attribute of this resource",
            "8:38 the attribute `usr` is not declared by `pay`",
            "8:60 unknown field `capcity` in token_bucket",
            "8:83 `0` is outside 1 to 999999999999999",
            "8:94 a rate is expected, not the number `10`",
            "9:11 two limits are called `l`; the first is at 8:11",
            "9:26 there is no resource `pya`",
            "9:41 `sharing: exact` needs a shared store, and none is configured",
            "11:40 the attribute `user` may be missing (`pay`), and a record cannot belong to nobody in particular",
            "11:83 retention (1m) is not longer than max_execution (5m) and lease (30s) together, so a record could end before its call",
            "13:67 `50` is not a ratio: it could mean a share or a percentage",
            "15:24 this flag has no variant `maybe`",
            "15:61 `0.005` is finer than 0.01",
            "15:96 there is no segment `none`",
        ],
    );
}

#[test]
fn a_refusal_is_rendered_for_people() {
    let refused =
        load_text("limits:\n  - { id: a, resources: '*', token_bucket: { capcity: 20, refill: 10/s } }\n")
            .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "\
rules.yaml:3:44: `capacity` is missing in token_bucket
  |
3 |   - { id: a, resources: '*', token_bucket: { capcity: 20, refill: 10/s } }
  |                                            ^
help: add `capacity: 20`

rules.yaml:3:46: unknown field `capcity` in token_bucket
  |
3 |   - { id: a, resources: '*', token_bucket: { capcity: 20, refill: 10/s } }
  |                                              ^^^^^^^
help: did you mean `capacity`? Known fields: capacity, refill"
    );
}
