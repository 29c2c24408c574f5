//! The pipeline as a whole, without a transport: limit, breaker and rollout around a call that does
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tidegate::call::{Call, CallError};
use tidegate::env::Env;
use tidegate::loader::Loader;
use tidegate::rules::Compile as _;
use tidegate::{Body, Gates, Settings, pipeline};
use tidegate_core::rule::Deployment;
use tidegate_core::rule::version::{Digest, Version};
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};

use crate::{Case, case, repeat};

const DOCUMENT: &str = include_str!("../../gateway/rules.yaml");

#[derive(Clone)]
struct Nothing;

impl Call for Nothing {
    async fn call(&self, _: Request<Body>, _: Duration) -> Result<Response<Body>, CallError> {
        Ok(Response::new(Body::empty()))
    }

    fn host(&self) -> &str {
        "origin"
    }
}

fn gates() -> Gates {
    let env = Env::system();
    let clock = env.clone();
    let records = MemoryIdempotency::new(Arc::new(move || clock.now()), MemoryLimits::default());
    let gates = Gates::new(env, Settings::default(), Arc::new(records));
    let sources = [("rules.yaml".to_owned(), DOCUMENT.to_owned())];
    let candidate = Loader::new(Deployment::default()).load(&sources).expect("rules");
    gates.install(Version { number: 1, digest: Digest::from_bytes(candidate.digest) }, Arc::new(candidate.rules));
    gates
}

pub fn cases() -> Vec<Case> {
    let gates = gates();
    let walk = move |path: &'static str, status: u16, gates: Gates| {
        move |n: u64, _: usize| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            repeat(n, |_| {
                let request = Request::get(path).header("host", "a").header("x-user-id", "alice");
                let request = request.body(Body::empty()).expect("a request");
                let answer = pipeline::handle(&gates, request, [127, 0, 0, 1].into(), &Nothing);
                runtime.block_on(answer).status() == status
            })
        }
    };
    vec![
        case("pipeline", "no resource matches", walk("/none", 200, gates.clone())),
        case("pipeline", "limit + breaker + rollout", walk("/accounts/7", 200, gates.clone())),
        case("pipeline", "denied by a limit", walk("/denied/7", 429, gates)),
    ]
}
