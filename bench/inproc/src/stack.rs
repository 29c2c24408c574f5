//! The pipeline as a whole, without a transport: limit, breaker and rollout around a call that does
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response};
use sha2::{Digest as _, Sha256};
use tidegate::breakers::CallResult;
use tidegate::call::{Call, CallError};
use tidegate::env::Env;
use tidegate::loader::Loader;
use tidegate::rules::Compile as _;
use tidegate::{Body, Gates, Settings, Tidegate, pipeline, source};
use tidegate_core::Value;
use tidegate_core::rollout::Flags;
use tidegate_core::rule::version::{Digest, Version};
use tidegate_core::rule::{Deployment, Source, load};
use tidegate_store::memory::limits::Ask;
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
    gates.install(
        Version { number: 1, digest: Digest::from_bytes(candidate.digest) },
        Arc::new(candidate.rules),
    );
    gates
}

fn request(path: &str) -> Request<Body> {
    let request = Request::get(path).header("host", "a").header("x-user-id", "alice");
    request.body(Body::empty()).expect("a request")
}

pub fn cases() -> Vec<Case> {
    let mut cases = decisions();
    let gates = gates();
    let walk = move |path: &'static str, status: u16, gates: Gates| {
        move |n: u64, _: usize| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            repeat(n, |_| {
                let answer = pipeline::handle(&gates, request(path), [127, 0, 0, 1].into(), &Nothing);
                runtime.block_on(answer).status() == status
            })
        }
    };
    cases.push(case("pipeline", "floor: the request made, the call awaited, no gate", |n, _| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        repeat(n, |_| {
            let answer = Nothing.call(request("/accounts/7"), Duration::from_secs(1));
            runtime.block_on(answer).is_ok_and(|answer| answer.status() == 200)
        })
    }));
    cases.push(case("pipeline", "no resource matches", walk("/none", 200, gates.clone())));
    cases.push(case("pipeline", "limit + breaker + rollout", walk("/accounts/7", 200, gates.clone())));
    cases.push(case("pipeline", "denied by a limit", walk("/denied/7", 429, gates)));
    cases
}

/// The decisions of three gates in a row, as library code asks for them, beside the sum of their floors.
/// (An idempotency claim is a store's work, not a decision's.)
fn decisions() -> Vec<Case> {
    let subjects: Arc<Vec<String>> = Arc::new((0..4096).map(|i| format!("user-{i:06}")).collect());
    let (slot, count, start) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let names = Arc::clone(&subjects);
    let floor = move |n, _: usize| {
        repeat(n, |i| {
            let now = start.elapsed().as_nanos() as u64;
            let taken = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| Some(at.max(now) + 1));
            count.fetch_add(start.elapsed().as_nanos() as u64 & 1, Ordering::AcqRel);
            let digest =
                Sha256::new().chain_update("share:").chain_update(&names[i as usize & 4095]).finalize();
            let drawn = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % 10_000 < 10_000;
            taken.is_ok() && drawn
        })
    };
    let env = Env::system();
    let limits = crate::limit::limits(
        "apiVersion: tidegate/v1\nresources: [ { id: r } ]\nlimits: [ { id: l, resources: [r], token_bucket: { capacity: 1000000000, refill: 1000000000/s } } ]",
    );
    let breakers = crate::breaker::breakers();
    let loaded =
        load(&[Source::new("bench.yaml", crate::flag::DOCUMENT)], &Deployment::default()).expect("rules");
    let flags = Flags::compile(&loaded.rules).expect("flags");
    let ours = move |n, _: usize| {
        let share = flags.index("share").expect("flag");
        let attributes: &[(&str, Value<'_>)] = &[];
        repeat(n, |i| {
            let started = env.now();
            let subject = Some(subjects[i as usize & 4095].as_str());
            let labelled = flags.evaluate_at(share, subject, attributes).is_ok();
            let ask = Ask { rule: 0, variant: 0, key: &[], cost: 1 };
            let admitted = limits.decide(&[ask], started).admitted;
            let Ok(admission) = breakers.admit(&[0], "", started, i) else { return false };
            let now = env.now();
            admission.record(CallResult::Status(200), now.since(started), now, i);
            labelled && admitted
        })
    };
    let document = "apiVersion: tidegate/v1\nresources: [ { id: r } ]\nlimits: [ { id: l, resources: [r], token_bucket: { capacity: 1000000000, refill: 1000000000/s } } ]\nbreakers: [ { id: b, resources: [r], trip: [ { error_ratio: { at_least: 50% } } ] } ]";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let built = Tidegate::builder().rules(source::text("rules.yaml", document)).start();
    let tidegate = runtime.block_on(built).expect("rules");
    let call = move |n, _: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut yes = 0;
            for _ in 0..n {
                let called = tidegate.resource("r").call(async || Ok::<(), std::io::Error>(()));
                yes += u64::from(std::hint::black_box(called.await.is_ok()));
            }
            yes
        })
    };
    vec![
        case("three gates", "floor: clock + CAS, add + clock, SHA-256 mod", floor),
        case("three gates", "tidegate: limit, flag, breaker and its result", ours),
        case("three gates", "tidegate: a guarded call, timeout, log, metrics", call),
    ]
}
