//! The document lists what the router has, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use http::Request;
use http::header::ALLOW;
use serde_json::Value;
use tidegate::Settings;
use tidegate::env::Env;
use tidegate_store::memory::rules::MemoryRules;
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tower::Service as _;

use super::guard::Peer;
use super::*;

fn subject() -> Subject {
    let env = Env::system();
    let (rules, records) = (env.clone(), env.clone());
    let records = MemoryIdempotency::new(Arc::new(move || records.now()), MemoryLimits::default());
    let gates = Gates::new(env, Settings::default(), Arc::new(records));
    Subject::new(gates, Arc::new(MemoryRules::new(move || rules.now())), Vec::new())
}

async fn ask(router: &mut Router, method: &str, path: &str) -> axum::response::Response {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(extensions) = request.extensions_mut() {
        extensions.insert(Peer("127.0.0.1:1".parse().unwrap()));
    }
    router.call(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// The methods of each path in the document.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document: Value = serde_json::from_str(&openapi::document()).unwrap();
    let methods = |operations: &Value| -> BTreeSet<String> {
        operations.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect()
    };
    let paths = document["paths"].as_object().unwrap();
    paths.iter().map(|(path, operations)| (path.clone(), methods(operations))).collect()
}

#[tokio::test]
async fn the_document_lists_each_operation_and_no_other() {
    let routed: BTreeSet<String> =
        administration().into_iter().map(|(documented, _, _)| documented.to_owned()).collect();
    let documented = documented();
    assert_eq!(routed, documented.keys().cloned().collect());
    let mut router = router(subject());
    for (path, methods) in documented {
        let path = path.replace("{key}", "k");
        let refused = ask(&mut router, "PATCH", &path).await;
        assert_eq!(refused.status(), 405, "{path}");
        assert_eq!(refused.headers()["content-type"], "application/problem+json", "{path}");
        let allowed: BTreeSet<String> = refused.headers()[ALLOW]
            .to_str()
            .unwrap()
            .split(',')
            .map(|method| method.trim().to_owned())
            .collect();
        // What answers GET answers HEAD.
        let mut expected = methods.clone();
        if methods.contains("GET") {
            expected.insert("HEAD".to_owned());
        }
        assert_eq!(allowed, expected, "{path}");
    }
}

#[tokio::test]
async fn without_rules_it_lives_and_is_not_ready() {
    let mut router = router(subject());
    for (path, expected) in [
        ("/livez", 200),
        ("/readyz", 503),
        ("/metrics", 200),
        ("/v1/rules", 503),
        ("/v1/resources", 503),
        ("/v1/flags/a/explain", 503),
        ("/v1/audit", 200),
        ("/openapi.json", 200),
        ("/", 404),
        ("/v1", 404),
        ("/v1/flags", 404),
        ("/livez/", 404),
    ] {
        let response = ask(&mut router, "GET", path).await;
        assert_eq!(response.status(), expected, "{path}");
        assert_eq!(response.headers()["cache-control"], "no-store", "{path}");
        if expected >= 400 {
            assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
        }
    }
}

#[tokio::test]
async fn the_health_router_has_the_probes_only() {
    let mut router = health_router(subject());
    for (_, path, _) in administration() {
        let probe = ["/livez", "/readyz", "/metrics"].contains(&path);
        let status = ask(&mut router, "GET", path).await.status();
        assert_eq!(status != 404, probe, "{path}: {status}");
    }
}

#[tokio::test]
async fn a_request_without_a_peer_is_refused() {
    let mut router = router(subject());
    let request = Request::get("/livez").header("host", "localhost").body(Body::empty()).unwrap();
    assert_eq!(router.call(request).await.unwrap().status(), 403);
}
