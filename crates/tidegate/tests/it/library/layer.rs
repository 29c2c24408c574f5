//! The layer around a plain tower service and around an axum router.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::{Request, Response, StatusCode};
use tidegate::env::Env;
use tidegate::{Body, ClientAddr, Guarded, Outcome, Tidegate, source};
use tidegate_core::Timestamp;
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use super::world::{Answer, DEADLINE, RULES, World, answer, register, send};

async fn with(rules: &str) -> Tidegate {
    Tidegate::builder()
        .rules(source::text("rules.yaml", format!("apiVersion: tidegate/v1\n{rules}")))
        .env(Env::tokio(Timestamp::from_secs(1000)))
        .start()
        .await
        .unwrap()
}

fn get_request(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// What a service that is no handler may end with.
#[derive(Debug, PartialEq)]
struct Broken;

async fn hello(_: Request<Body>) -> Response<Body> {
    answer(StatusCode::OK, "hello")
}

#[tokio::test(start_paused = true)]
async fn a_tower_service_is_limited_and_labelled() {
    let gates = with(
        "
resources: [ { id: hello, match: { path: /hello }, subject: user, flags: [new],
               attributes: { user: { from: header.x-user } } } ]
limits: [ { id: two, resources: [hello], token_bucket: { capacity: 2, refill: 1/s } } ]
flags: [ { key: new, default: 'on' } ]
",
    )
    .await;
    let seen = |request: Request<Body>| async move {
        assert_eq!(request.headers()["tidegate-flags"], "new=\"on\"");
        assert!(request.headers().contains_key("x-request-id"));
        answer(StatusCode::OK, "hello")
    };
    for (status, remaining) in [(200, 1), (200, 0), (429, 0)] {
        let said = send(&gates, &seen, get_request("/hello")).await;
        assert_eq!(said.status, status, "{said:?}");
        assert_eq!(
            said.headers["ratelimit"],
            format!("\"two\";r={remaining};t={}", 2 - remaining),
            "{said:?}"
        );
        assert!(said.headers.contains_key("tidegate-version") && said.headers.contains_key("x-request-id"));
    }
    let free = |_: Request<Body>| async { answer(StatusCode::OK, "free") };
    assert_eq!(send(&gates, &free, get_request("/elsewhere")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_the_resource_s_timeout_and_others_have_none() {
    let gates = with("resources: [ { id: slow, match: { path: /slow }, timeout: 2s } ]").await;
    let slow = |_: Request<Body>| async {
        tokio::time::sleep(Duration::from_mins(2)).await;
        answer(StatusCode::OK, "at last")
    };
    let started = tokio::time::Instant::now();
    assert_eq!(send(&gates, &slow, get_request("/slow")).await.status, 504);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert_eq!(send(&gates, &slow, get_request("/elsewhere")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_an_idempotency_rule_is_dropped_with_its_request() {
    struct Told(Arc<Notify>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let gates = with("resources: [ { id: slow, match: { path: /slow } } ]").await;
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, dropped) = (Arc::clone(&begun), Arc::clone(&dropped));
        move |_: Request<Body>| {
            let (begun, told) = (Arc::clone(&begun), Told(Arc::clone(&dropped)));
            async move {
                begun.notify_one();
                std::future::pending::<()>().await;
                drop(told);
                answer(StatusCode::OK, "")
            }
        }
    };
    let client = tokio::spawn({
        let gates = gates.clone();
        async move { send(&gates, &handler, get_request("/slow")).await }
    });
    begun.notified().await;
    client.abort();
    tokio::time::timeout(DEADLINE, dropped.notified()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_count_as_failures_and_come_through() {
    let gates = with(
        "
resources: [ { id: r, match: { path: /r } } ]
breakers: [ { id: b, resources: [r], trip: [ { error_count: { at_least: 2 } } ], min_requests: 2 } ]
",
    )
    .await;
    let fails = tower::service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(Broken) });
    assert_eq!(gates.layer().layer(fails).oneshot(get_request("/r")).await.unwrap_err(), Broken);
    let panics = |_: Request<Body>| async { panic!("no") };
    let task = tokio::spawn({
        let gates = gates.clone();
        async move { send(&gates, &panics, get_request("/r")).await }
    });
    assert!(task.await.unwrap_err().is_panic());
    let open = send(&gates, &hello, get_request("/r")).await;
    assert_eq!(open.status, 503, "{open:?}");
}

#[tokio::test(start_paused = true)]
async fn b14_an_error_that_middleware_turned_into_a_500_is_a_failure() {
    let gates = with(
        "
resources: [ { id: r, match: { path: /r } } ]
breakers: [ { id: b, resources: [r], trip: [ { error_count: { at_least: 2 } } ], min_requests: 2 } ]
",
    )
    .await;
    let fails = tower::service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(Broken) });
    let caught = fails.map_result(|result| {
        Ok::<_, Broken>(result.unwrap_or_else(|Broken| answer(StatusCode::INTERNAL_SERVER_ERROR, "")))
    });
    let service = gates.layer().layer(caught);
    for status in [500, 500, 503] {
        assert_eq!(service.clone().oneshot(get_request("/r")).await.unwrap().status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn b20_a_handler_whose_inner_guard_refuses_is_no_failure_of_its_own_breaker() {
    let gates = with(
        "
resources: [ { id: r, match: { path: /r } }, { id: dependency } ]
limits: [ { id: none-left, resources: [dependency], token_bucket: { capacity: 1, refill: 1/h } } ]
breakers: [ { id: b, resources: [r], trip: [ { error_count: { at_least: 1 } } ], min_requests: 1 } ]
",
    )
    .await;
    gates.resource("dependency").call(async || Ok::<_, ()>(())).await.unwrap();
    let handler = {
        let gates = gates.clone();
        move |_: Request<Body>| {
            let gates = gates.clone();
            async move {
                match gates.resource("dependency").call(async || Ok::<_, ()>(())).await {
                    Err(Guarded::Blocked(_)) => answer(StatusCode::SERVICE_UNAVAILABLE, "busy"),
                    other => answer(StatusCode::IM_A_TEAPOT, &format!("{other:?}")),
                }
            }
        }
    };
    for _ in 0..5 {
        let said = send(&gates, &handler, get_request("/r")).await;
        assert_eq!((said.status, said.body.as_str()), (503, "busy"));
    }
    assert_eq!(send(&gates, &hello, get_request("/r")).await.status, 200, "still closed");
    let fails = |_: Request<Body>| async { answer(StatusCode::SERVICE_UNAVAILABLE, "its own fault") };
    send(&gates, &fails, get_request("/r")).await;
    let open = send(&gates, &hello, get_request("/r")).await;
    assert_eq!(open.status, 503, "a failure of its own opens it");
}

#[tokio::test(start_paused = true)]
async fn the_client_s_address_comes_from_the_extension_or_from_the_service() {
    let gates = with(
        "
resources: [ { id: r, match: { path: /r }, attributes: { ip: { from: client.ip, missing: reject } } } ]
limits: [ { id: one, resources: [r], key: [ip], token_bucket: { capacity: 1, refill: 1/h } } ]
",
    )
    .await;
    let from = |last: u8| {
        let mut request = get_request("/r");
        request.extensions_mut().insert(ClientAddr(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))));
        request
    };
    for (request, status) in [(from(1), 200), (from(1), 429), (from(2), 200), (get_request("/r"), 400)] {
        let said = send(&gates, &hello, request).await;
        assert_eq!(said.status, status, "{said:?}");
    }
    let layer =
        gates.layer().client_addr(|parts| parts.headers.get("x-real-ip")?.to_str().ok()?.parse().ok());
    let service = layer.layer(tower::service_fn(|request| async {
        Ok::<_, std::convert::Infallible>(hello(request).await)
    }));
    for status in [200, 429] {
        let request = Request::get("/r").header("x-real-ip", "2001:db8::1").body(Body::empty()).unwrap();
        let said = service.clone().oneshot(request).await.unwrap();
        assert_eq!(said.status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_calls_say_what_they_mean_for_a_record() {
    let gates = with(
        "
resources: [ { id: dependency } ]
limits: [ { id: one, resources: [dependency], token_bucket: { capacity: 1, refill: 1/h } } ]
",
    )
    .await;
    gates.resource("dependency").call(async || Ok::<_, ()>(())).await.unwrap();
    let refused = gates.resource("dependency").call(async || Ok::<_, ()>(())).await;
    let Err(Guarded::Blocked(blocked)) = refused else { panic!("{refused:?}") };
    let response = blocked.respond(Outcome::NotApplied);
    assert_eq!(response.extensions().get(), Some(&Outcome::NotApplied));
    let said = Answer::of(response).await;
    assert_eq!(
        (said.status, said.headers["content-type"].as_bytes()),
        (429, &b"application/problem+json"[..])
    );
    assert!(said.body.contains("\"rule\":\"one\""), "{said:?}");
}

#[tokio::test]
async fn an_axum_router_keeps_its_state_and_its_parameters() {
    let world = World::new(&format!(
        "{RULES}
limits: [ {{ id: three, resources: [register], token_bucket: {{ capacity: 3, refill: 1/h }} }} ]
"
    ))
    .await;
    let router = Router::new()
        .route(
            "/users/{name}",
            get(|axum::extract::Path(name): axum::extract::Path<String>| async move { name }),
        )
        .route("/registrations", post(|body: String| async move { (StatusCode::CREATED, body) }))
        .route_layer(world.tidegate.layer());
    let call = |request: Request<Body>| {
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await.unwrap();
            let (head, body) = response.into_parts();
            Answer::of(Response::from_parts(head, Body::stream(body))).await
        }
    };
    assert_eq!(call(get_request("/users/ann")).await.body, "ann");
    assert_eq!(call(get_request("/nothing")).await.status, 404);
    for (replayed, status) in [(false, 201), (true, 201), (true, 201), (false, 429)] {
        let said = call(register("k1")).await;
        assert_eq!((said.status, said.replayed()), (status, replayed), "{said:?}");
    }
}
