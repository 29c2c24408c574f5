//! A flag by percentage, and one by attribute.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tidegate_core::Value;
use tidegate_core::rollout::Flags;
use tidegate_core::rule::{Deployment, Source, load};
use unleash_yggdrasil::{Context, EngineState, UpdateMessage};

use crate::{Case, case, repeat};

pub const DOCUMENT: &str = r#"
apiVersion: tidegate/v1
resources: [ { id: r, attributes: { plan: { from: header.x-plan } } } ]
flags:
  - { key: share, default: "off", rules: [ { id: ramp, percentage: 50, serve: "on" } ] }
  - { key: plan, default: "off", rules: [ { id: paid, when: { plan: { in: [pro, team] } }, serve: "on" } ] }
"#;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let subjects: Arc<Vec<String>> = Arc::new((0..4096).map(|i| format!("user-{i:06}")).collect());
    let names = Arc::clone(&subjects);
    cases.push(case("flag, percentage", "floor: SHA-256(flag:subject) mod 10000", move |n, _| {
        repeat(n, |i| {
            let digest =
                Sha256::new().chain_update("share:").chain_update(&names[i as usize & 4095]).finalize();
            u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % 10_000 < 5_000
        })
    }));
    let loaded = load(&[Source::new("bench.yaml", DOCUMENT)], &Deployment::default()).expect("rules");
    let flags = Arc::new(Flags::compile(&loaded.rules).expect("flags"));
    let (evaluated, names) = (Arc::clone(&flags), Arc::clone(&subjects));
    cases.push(case("flag, percentage", "tidegate", move |n, _| {
        let index = evaluated.index("share").expect("flag");
        let attributes: &[(&str, Value<'_>)] = &[];
        repeat(n, |i| {
            let subject = Some(names[i as usize & 4095].as_str());
            evaluated.evaluate_at(index, subject, attributes).is_ok_and(|found| found.variant == "on")
        })
    }));
    let (engine, contexts) = yggdrasil(&subjects);
    let (asked, given) = (Arc::clone(&engine), Arc::clone(&contexts));
    cases.push(case("flag, percentage", "yggdrasil, 50 % rollout (murmur3)", move |n, _| {
        repeat(n, |i| asked.is_enabled("pct", &given[i as usize & 4095], &None))
    }));
    let plans = ["free", "pro", "team", "none"];
    cases.push(case("flag, attribute", "floor: two string comparisons", move |n, _| {
        repeat(n, |i| {
            let plan = std::hint::black_box(plans[i as usize & 3]);
            plan == "pro" || plan == "team"
        })
    }));
    cases.push(case("flag, attribute", "tidegate", move |n, _| {
        let index = flags.index("plan").expect("flag");
        repeat(n, |i| {
            let attributes = [("plan", Value::Text(plans[i as usize & 3]))];
            flags.evaluate_at(index, None, &attributes[..]).is_ok_and(|found| found.variant == "on")
        })
    }));
    cases.push(case("flag, attribute", "yggdrasil, one constraint", move |n, _| {
        repeat(n, |i| engine.is_enabled("plan", &contexts[i as usize & 4095], &None))
    }));
    cases
}

/// The peer's engine with a 50 % rollout and a constraint, and a context for each subject.
fn yggdrasil(subjects: &[String]) -> (Arc<EngineState>, Arc<Vec<Context>>) {
    let features = serde_json::json!({ "version": 2, "features": [
        { "name": "pct", "enabled": true, "strategies": [ { "name": "flexibleRollout",
            "parameters": { "rollout": "50", "stickiness": "userId", "groupId": "pct" } } ] },
        { "name": "plan", "enabled": true, "strategies": [ { "name": "default", "parameters": {},
            "constraints": [ { "contextName": "plan", "operator": "IN", "values": ["pro", "team"] } ] } ] }
    ] });
    let engine = EngineState::default();
    engine.take_state(UpdateMessage::FullResponse(serde_json::from_value(features).expect("features")));
    let plans = ["free", "pro", "team", "none"];
    let contexts = subjects.iter().enumerate().map(|(i, subject)| Context {
        user_id: Some(subject.clone()),
        properties: Some([("plan".to_owned(), plans[i & 3].to_owned())].into()),
        ..Context::default()
    });
    (Arc::new(engine), Arc::new(contexts.collect()))
}
