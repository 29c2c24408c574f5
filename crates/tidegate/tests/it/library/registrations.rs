//! The example's own router.

use std::sync::atomic::Ordering;

use http::{Request, Response};
use tempfile::TempDir;
use tidegate::Body;
use tower::ServiceExt as _;

use super::world::Answer;

#[allow(dead_code, unreachable_pub, reason = "the example is a program of its own")]
#[path = "../../../examples/registrations.rs"]
mod example;

fn request(tenant: &str, key: &str, address: &str) -> Request<axum::body::Body> {
    Request::post("/registrations")
        .header("x-tenant", tenant)
        .header("idempotency-key", key)
        .body(address.to_owned().into())
        .unwrap()
}

#[tokio::test]
async fn a_sign_up_service_behind_the_gates() {
    let directory = TempDir::new().unwrap();
    let app = example::App::start(&directory.path().join("registrations.db")).await.unwrap();
    let (db, checker) = (app.db.clone(), app.checker.clone());
    let router = app.router();
    let call = async |tenant: &str, key: &str, address: &str| {
        let response = router.clone().oneshot(request(tenant, key, address)).await.unwrap();
        let (head, body) = response.into_parts();
        Answer::of(Response::from_parts(head, Body::stream(body))).await
    };
    let first = call("acme", "1", "ann@example.com").await;
    assert_eq!((first.status, first.body.as_str()), (201, r#"{"address":"ann@example.com","id":1}"#));
    assert_eq!(first.headers["content-type"], "application/json");
    let again = call("acme", "1", "ann@example.com").await;
    assert_eq!((again.status, again.replayed(), &again.body), (201, true, &first.body));
    assert_eq!(again.headers["content-type"], "application/json");
    assert_eq!(call("acme", "1", "bob@example.com").await.status, 422);
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM registrations").fetch_one(&db).await.unwrap();
    assert_eq!(rows, 1);
    // The dependency fails: the key stays free. At the third failure its breaker opens.
    checker.down.store(true, Ordering::Relaxed);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(call("umbrella", "2", "bob@example.com").await.status);
    }
    assert_eq!(statuses, [502, 502, 502, 503]);
    assert_eq!(call("umbrella", "3", "bob@example.com").await.status, 503);
    let limited = call("umbrella", "3", "bob@example.com").await;
    assert_eq!(limited.status, 429, "five at once for each tenant: {limited:?}");
    // What was done is still told.
    assert!(call("acme", "1", "ann@example.com").await.replayed());
    let tenant: String = sqlx::query_scalar("SELECT tenant FROM registrations").fetch_one(&db).await.unwrap();
    assert_eq!(tenant, "/acme");
}
