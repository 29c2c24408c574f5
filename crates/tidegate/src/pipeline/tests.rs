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
