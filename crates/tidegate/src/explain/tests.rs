//! What explain says, beside what the gates then do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tidegate_core::idempotency::record::State;
use tidegate_core::rule::version::{Digest, Version};
use tidegate_core::rule::{Deployment, IdempotencyBackend, Shell};
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tidegate_store::traits::ListAsk;

use super::*;
use crate::call::{Call, CallError};
use crate::env::{Env, ManualClock};
use crate::loader::Loader;
use crate::rules::Compile as _;
use crate::{Body, Settings, pipeline};

const RULES: &str = r#"
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { methods: [POST], path: "/orders/{order}/pay" }
    attributes:
      tenant: { from: header.x-tenant, missing: reject }
      user: { from: header.x-user }
      weight: { from: header.x-weight }
    subject: user
    flags: [new-checkout]
  - id: read
    match: { methods: [GET], path: /read }
limits:
  - { id: pay-per-tenant, resources: [pay], key: [tenant], token_bucket: { capacity: 3, refill: 1/m },
      cost: { from: weight, default: 1, max: 5 },
      overrides: [ { when: { tenant: { equals: big } }, token_bucket: { capacity: 5, refill: 1/m } } ] }
  - { id: watched, resources: [pay], mode: shadow, fixed_window: { limit: 1, window: 1h } }
idempotency:
  - { id: pay-once, resources: [pay], scope: [tenant], key: { from: header.idempotency-key, required: true },
      retention: 24h }
breakers:
  - { id: bank, resources: [pay], key: [upstream_host], trip: [ { error_count: { at_least: 1 } } ], min_requests: 1 }
  - { id: reads, resources: [read], trip: [ { error_count: { at_least: 1 } } ], min_requests: 1,
      fallback: [ { cache: { ttl: 1h } }, { respond: { status: 299, text: busy } } ] }
flags:
  - key: new-checkout
    default: "off"
    rules:
      - { id: acme, priority: 9, when: { tenant: { equals: acme } }, serve: "on" }
      - { id: ramp, priority: 1, percentage: 10, serve: "on" }
"#;

struct World {
    gates: Gates,
    clock: ManualClock,
}

/// Answers with the status that the path names, else 201.
#[derive(Clone)]
struct Bank;

impl Call for Bank {
    async fn call(&self, request: Request<Body>, _: Duration) -> Result<Response<Body>, CallError> {
        let status = request.headers().get("x-answer").and_then(|status| status.to_str().ok()?.parse().ok());
        let mut response = Response::new(Body::full("done"));
        *response.status_mut() = status.unwrap_or(StatusCode::CREATED);
        Ok(response)
    }

    fn host(&self) -> &'static str {
        "bank:80"
    }
}

impl World {
    fn new() -> Self {
        let (env, clock) = Env::manual(Timestamp::from_secs(1_700_000_000));
        let records = env.clone();
        let store = MemoryIdempotency::new(Arc::new(move || records.now()), MemoryLimits::default());
        let gates = Gates::new(env, Settings::default(), Arc::new(store));
        let deployment = Deployment {
            shared_store: false,
            leases: false,
            idempotency_store: IdempotencyBackend::Memory,
            shell: Shell::Gateway,
        };
        let loaded = Loader::new(deployment).load(&[("rules.yaml".into(), RULES.into())]).unwrap();
        let version = Version { number: 7, digest: Digest::from_bytes(loaded.digest) };
        gates.install(version, Arc::new(loaded.rules));
        Self { gates, clock }
    }

    async fn explain(&self, request: Request<Bytes>) -> Explanation {
        let hosts = vec!["bank:80".to_owned()];
        let question = Question { request, client: "192.0.2.1".parse().unwrap(), hosts };
        explain(&self.gates, question).await.unwrap()
    }

    async fn send(&self, request: Request<Bytes>) -> Response<Body> {
        let client = "192.0.2.1".parse().unwrap();
        pipeline::handle(&self.gates, request.map(Body::full), client, &Bank).await
    }

    async fn records(&self) -> usize {
        let ask = ListAsk { limit: 100, ..ListAsk::default() };
        self.gates.records().list(&ask).await.unwrap().len()
    }
}

fn pay(headers: &[(&str, &str)]) -> Request<Bytes> {
    let mut request = Request::post("/orders//7/pay?x=1").header("host", "api.example.com");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Bytes::from_static(b"{}")).unwrap()
}

fn resource(explanation: &Explanation) -> &Explained {
    explanation.resource.as_ref().unwrap()
}

#[tokio::test]
async fn each_gate_says_its_part() {
    let world = World::new();
    let explained = world
        .explain(pay(&[("x-tenant", "acme"), ("idempotency-key", "k1"), ("tidegate-flags", "forged")]))
        .await;
    assert_eq!(explained.version.number, 7);
    assert_eq!(explained.target, "/orders/7/pay?x=1");
    assert_eq!(explained.verdict, Verdict::Called { wait: Duration::ZERO });
    let pay = resource(&explained);
    assert_eq!(pay.id, "pay");
    assert_eq!(pay.attributes[0].value, Some(Scalar::Text("acme".into())));
    assert_eq!((pay.attributes[1].value.clone(), pay.subject.clone()), (None, None));
    let flag = pay.flags[0].result.as_ref().unwrap();
    assert_eq!((flag.variant.as_str(), flag.rule.as_deref()), ("on", Some("acme")));
    assert_eq!(pay.flags[0].rules[1].outcome, Outcome::NotAsked);
    let limit = &pay.limits[0];
    assert_eq!(limit.key, [("tenant".to_owned(), Some("acme".to_owned()))]);
    assert_eq!((limit.decision.admitted(), limit.decision.remaining, limit.cost), (true, 2, 1));
    assert_eq!((pay.limits[1].rule.as_str(), pay.limits[1].mode), ("watched", Mode::Shadow));
    let guard = pay.idempotency.as_ref().unwrap();
    assert_eq!(guard.record.as_ref().unwrap().key(), "k1");
    assert!(matches!(guard.answer, IdempotencyAnswer::Execute(How::New)), "{guard:?}");
    assert_eq!((pay.breakers[0].host.as_deref(), pay.breakers[0].refuses_for), (Some("bank:80"), None));
}

#[tokio::test]
async fn asking_changes_nothing() {
    let world = World::new();
    let request = || pay(&[("x-tenant", "acme"), ("idempotency-key", "k1")]);
    let before = world.gates.render_metrics();
    for _ in 0..100 {
        world.explain(request()).await;
    }
    assert_eq!(world.records().await, 0, "nothing was claimed");
    let after = world.gates.render_metrics();
    // Asking the store is measured like any request to it. Series have no order.
    let of_gates = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| !line.contains("store_request")).map(ToOwned::to_owned).collect()
    };
    assert_eq!(of_gates(&before), of_gates(&after), "nothing was counted, no key was made");
    // The whole limit is still there: three pass, the fourth does not.
    for (key, expected) in [("k1", 201), ("k2", 201), ("k3", 201), ("k4", 429)] {
        let sent = world.send(pay(&[("x-tenant", "acme"), ("idempotency-key", key)])).await;
        assert_eq!(sent.status(), expected, "{key}");
    }
}

#[tokio::test]
async fn what_is_said_is_what_is_done() {
    let world = World::new();
    world.send(pay(&[("x-tenant", "acme"), ("idempotency-key", "k1")])).await;
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("x-tenant", "acme"), ("idempotency-key", "k1")], "replay 201"),
        (&[("x-tenant", "second")], "400 idempotency-key-missing"),
        (&[("x-tenant", "second"), ("idempotency-key", "a b")], "400 idempotency-key-invalid"),
        (&[("idempotency-key", "k2")], "400 attribute-missing"),
        (&[("x-tenant", "acme"), ("idempotency-key", "k2"), ("x-weight", "6")], "400 cost-invalid"),
        (&[("x-tenant", "acme"), ("idempotency-key", "k2"), ("x-weight", "2")], "429 quota-exceeded"),
        (&[("x-tenant", "big"), ("idempotency-key", "k2"), ("x-weight", "5")], "call"),
        (&[("x-tenant", "other"), ("idempotency-key", "k2"), ("x-weight", "5")], "429 quota-exceeded"),
    ];
    for (headers, expected) in cases {
        let said = match world.explain(pay(headers)).await.verdict {
            Verdict::Refused(refusal) => format!("{} {}", refusal.status().as_u16(), refusal.name()),
            Verdict::Replayed { status } => format!("replay {status}"),
            Verdict::Called { .. } => "call".to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(said, *expected, "{headers:?}");
        let done = world.send(pay(headers)).await;
        let status = done.status().as_u16();
        let done = match expected.split(' ').next() {
            Some("replay") => done.headers().contains_key("idempotent-replayed") && status == 201,
            Some("call") => status == 201,
            refused => refused == Some(status.to_string().as_str()),
        };
        assert!(done, "{headers:?}: said {expected}, got {status}");
    }
    let other_body =
        pay(&[("x-tenant", "acme"), ("idempotency-key", "k1")]).map(|_| Bytes::from_static(b"[]"));
    let Verdict::Refused(refusal) = world.explain(other_body).await.verdict else { panic!("a mismatch") };
    assert_eq!(refusal, Refusal::KeyReused { rule: "pay-once".into(), fields: vec!["body".into()] });
}

#[tokio::test]
async fn an_open_breaker_is_told_with_its_wait_and_a_replay_goes_before_it() {
    let world = World::new();
    let headers = [("x-tenant", "acme"), ("idempotency-key", "k1")];
    world.send(pay(&headers)).await;
    world.send(pay(&[("x-tenant", "acme"), ("idempotency-key", "k2"), ("x-answer", "500")])).await;
    let explained = world.explain(pay(&[("x-tenant", "acme"), ("idempotency-key", "k3")])).await;
    let Verdict::Refused(Refusal::BreakerOpen { rule, retry_after }) = &explained.verdict else {
        panic!("{:?}", explained.verdict)
    };
    assert_eq!(rule, "bank");
    assert!(!retry_after.is_zero() && *retry_after <= Duration::from_secs(6), "{retry_after:?}");
    assert_eq!(resource(&explained).breakers[0].refuses_for, Some(*retry_after));
    assert_eq!(world.explain(pay(&headers)).await.verdict, Verdict::Replayed { status: 201 });
    let found = world.explain(pay(&[("x-tenant", "acme"), ("idempotency-key", "k2")])).await;
    let found = resource(&found).idempotency.as_ref().unwrap().found.clone().unwrap();
    assert_eq!((found.state, found.attempts, found.version), (State::Processing, 1, 7));
    // Once the probe is due it would be admitted, and asking does not take it.
    world.clock.advance(Duration::from_secs(6));
    for _ in 0..3 {
        let explained = world.explain(pay(&[("x-tenant", "big"), ("idempotency-key", "k4")])).await;
        assert_eq!(explained.verdict, Verdict::Called { wait: Duration::ZERO });
        assert_eq!(resource(&explained).breakers[0].status.next_probe, Some(Duration::ZERO));
    }
    let metrics = world.gates.render_metrics();
    assert!(metrics.contains("tidegate_breaker_state{rule=\"bank\",state=\"half-open\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_fallback_is_told_by_its_layer() {
    let world = World::new();
    let read = |answer: &str| {
        Request::get("/read").header("host", "a").header("x-answer", answer).body(Bytes::new()).unwrap()
    };
    world.send(read("500")).await;
    let explained = world.explain(read("200")).await;
    let fallback = Verdict::Fallback { rule: "reads".into(), layer: "respond", status: Some(299) };
    assert_eq!(explained.verdict, fallback);
    assert_eq!(world.send(read("200")).await.status().as_u16(), 299);
}

#[tokio::test]
async fn what_no_resource_is_and_what_no_path_is() {
    let world = World::new();
    let none = world.explain(Request::get("/a/../b").body(Bytes::new()).unwrap()).await;
    assert_eq!((none.target.as_str(), none.verdict), ("/b", Verdict::Unmatched));
    let bad = world.explain(Request::get("/a%2Fb").body(Bytes::new()).unwrap()).await;
    let Verdict::Refused(Refusal::PathInvalid { .. }) = bad.verdict else { panic!("{:?}", bad.verdict) };
    let (env, _) = Env::manual(Timestamp::EPOCH);
    let clock = env.clone();
    let store = MemoryIdempotency::new(Arc::new(move || clock.now()), MemoryLimits::default());
    let gates = Gates::new(env, Settings::default(), Arc::new(store));
    let question =
        Question { request: Request::new(Bytes::new()), client: "::1".parse().unwrap(), hosts: Vec::new() };
    assert!(explain(&gates, question).await.is_none(), "no rules, nothing to say");
}
