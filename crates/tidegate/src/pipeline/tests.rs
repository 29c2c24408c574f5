use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};

use super::*;
use crate::Settings;
use crate::env::Env;

#[derive(Clone)]
struct Nothing;

impl Call for Nothing {
    async fn call(&self, _: Request<Body>, _: Duration) -> Result<Response<Body>, CallError> {
        Ok(Response::new(Body::empty()))
    }

    fn host(&self) -> &'static str {
        ""
    }
}

fn gates() -> Gates {
    let records = MemoryIdempotency::new(Arc::new(|| Timestamp::EPOCH), MemoryLimits::default());
    Gates::new(Env::system(), Settings::default(), Arc::new(records))
}

/// The state of a request is copied when its task begins: what it holds by value, each request pays
/// for in copies. It was 5 KiB once, and 7 % of the gateway's time.
#[test]
fn a_requests_state_stays_small() {
    let gates = gates();
    let handling = handle(&gates, Request::new(Body::empty()), [127, 0, 0, 1].into(), &Nothing);
    let size = size_of_val(&handling);
    assert!(size <= 3 * 1024, "{size} bytes");
}

#[tokio::test]
async fn without_a_version_in_force_nothing_is_let_through() {
    let response = handle(&gates(), Request::new(Body::empty()), [127, 0, 0, 1].into(), &Nothing).await;
    assert_eq!(response.status(), 503);
}

const RULES: &str = r"
apiVersion: tidegate/v1
resources:
  - id: reads
    match: { methods: [GET], path: /reads }
    attributes: { hop: { from: header.via, missing: reject } }
  - id: plain
    match: { methods: [GET], path: /plain }
  - id: denied
    match: { methods: [GET], path: /denied }
    attributes: { user: { from: header.x-user, missing: share } }
limits:
  - { id: never, resources: [denied], key: [user], token_bucket: { capacity: 1, refill: 1/d } }
";

/// Tells its name, and answers with what it was told.
#[derive(Clone, Default)]
struct Telling(Arc<std::sync::atomic::AtomicUsize>);

impl Call for Telling {
    async fn call(&self, request: Request<Body>, _: Duration) -> Result<Response<Body>, CallError> {
        let mut response = Response::new(Body::empty());
        for told in request.headers().get_all("via") {
            response.headers_mut().append("saw", told.clone());
        }
        Ok(response)
    }

    fn tell(&self, headers: &mut http::HeaderMap) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        headers.append("via", HeaderValue::from_static("told"));
    }

    fn host(&self) -> &'static str {
        ""
    }
}

#[tokio::test]
async fn what_a_call_is_told_is_there_for_all_that_read_it_and_costs_a_denial_nothing() {
    use crate::rules::Compile as _;

    let gates = gates();
    let deployment = tidegate_core::rule::Deployment::default();
    let source = ("rules.yaml".to_owned(), RULES.to_owned());
    let candidate = crate::loader::Loader::new(deployment).load(&[source]).unwrap();
    let digest = tidegate_core::rule::version::Digest::from_bytes(candidate.digest);
    let version = tidegate_core::rule::version::Version { number: 1, digest };
    gates.install(version, Arc::new(candidate.rules));
    let call = Telling::default();
    for (path, status, asked) in
        [("/reads", 200, 1), ("/plain", 200, 2), ("/none", 200, 3), ("/denied", 200, 4), ("/denied", 429, 4)]
    {
        let request = Request::get(path).header("host", "a").body(Body::empty()).unwrap();
        let response = handle(&gates, request, [127, 0, 0, 1].into(), &call).await;
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(call.0.load(std::sync::atomic::Ordering::Relaxed), asked, "{path}");
        if status == 200 {
            assert_eq!(response.headers().get_all("saw").iter().collect::<Vec<_>>(), ["told"], "{path}");
        } else {
            assert_eq!(response.headers()["ratelimit-policy"], "\"never\";q=1;w=86400");
        }
    }
}
