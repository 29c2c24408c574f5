//! Calls that code guards by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::env::Env;
use tidegate::stats::Gate;
use tidegate::{Guarded, Tidegate, Verdict, source};
use tidegate_core::Timestamp;
use tokio::time::{advance, timeout};

const SECOND: Duration = Duration::from_secs(1);

async fn with(rules: &str) -> Tidegate {
    Tidegate::builder()
        .rules(source::text("rules.yaml", format!("apiVersion: tidegate/v1\n{rules}")))
        .env(Env::tokio(Timestamp::from_secs(1000)))
        .start()
        .await
        .unwrap()
}

/// One breaker on `account`, which opens for 5 s at the first failure.
const BREAKER: &str = "
resources: [ { id: account, timeout: 2s }, { id: outer } ]
breakers:
  - { id: b, resources: [account], trip: [ { error_count: { at_least: 1 } } ], min_requests: 1, open_for: 5s }
  - { id: o, resources: [outer], trip: [ { error_count: { at_least: 1 } } ], min_requests: 1, open_for: 5s }
";

#[derive(Debug, PartialEq)]
struct Failed;

async fn good(gates: &Tidegate, id: &str) -> Result<u32, Guarded<Failed>> {
    gates.resource(id).call(async || Ok(7)).await
}

async fn bad(gates: &Tidegate, id: &str) -> Result<u32, Guarded<Failed>> {
    gates.resource(id).call(async || Err(Failed)).await
}

fn is_blocked<T: std::fmt::Debug, E: std::fmt::Debug>(result: &Result<T, Guarded<E>>) -> bool {
    matches!(result, Err(Guarded::Blocked(_)))
}

#[tokio::test(start_paused = true)]
async fn blocked_and_failed_are_told_apart() {
    let gates = with(BREAKER).await;
    assert_eq!(good(&gates, "account").await.unwrap(), 7);
    let failed = bad(&gates, "account").await;
    assert!(matches!(failed, Err(Guarded::Failed(Failed))), "{failed:?}");
    let blocked = good(&gates, "account").await;
    let Err(Guarded::Blocked(blocked)) = blocked else { panic!("{blocked:?}") };
    assert_eq!((blocked.gate(), blocked.rule()), (Some(Gate::Breaker), Some("b")));
    assert!(blocked.retry_after().is_some_and(|after| after >= 5 * SECOND));
    assert_eq!(blocked.to_string(), "resource `account` is blocked: breaker-open (b)");
    assert_eq!(good(&gates, "outer").await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_is_dropped_and_counts_as_a_timeout() {
    let gates = with(BREAKER).await;
    let slow = gates.resource("account").call(async || {
        tokio::time::sleep(60 * SECOND).await;
        Ok::<_, Failed>(1)
    });
    let started = tokio::time::Instant::now();
    let result = slow.await;
    assert!(matches!(result, Err(Guarded::TimedOut { after }) if after == 2 * SECOND), "{result:?}");
    assert_eq!(started.elapsed(), 2 * SECOND);
    assert!(is_blocked(&good(&gates, "account").await));
}

#[tokio::test(start_paused = true)]
async fn b10_a_timeout_that_comes_as_a_cancellation_counts_once() {
    let gates = with(&BREAKER.replace("at_least: 1", "at_least: 2")).await;
    for round in 0..2 {
        assert!(!is_blocked(&good(&gates, "account").await), "{round}");
        let slow = gates.resource("account").call(async || {
            std::future::pending::<()>().await;
            Ok::<_, Failed>(1)
        });
        // The caller's own timer fires with the resource's.
        let mut slow = Box::pin(slow);
        assert!(timeout(Duration::ZERO, &mut slow).await.is_err());
        advance(2 * SECOND).await;
        drop(slow);
    }
    assert!(is_blocked(&good(&gates, "account").await), "two timeouts");
}

#[tokio::test(start_paused = true)]
async fn b5_a_probe_that_is_dropped_gives_its_permit_back() {
    let gates = with(BREAKER).await;
    bad(&gates, "account").await.unwrap_err();
    advance(7 * SECOND).await;
    let mut probe = Box::pin(gates.resource("account").call(async || {
        std::future::pending::<()>().await;
        Ok::<_, Failed>(1)
    }));
    assert!(timeout(Duration::ZERO, &mut probe).await.is_err(), "it was admitted, and runs");
    assert!(is_blocked(&good(&gates, "account").await), "one probe at a time");
    drop(probe);
    assert!(good(&gates, "account").await.is_ok(), "the next probe closes it");
    assert!(good(&gates, "account").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn b20_an_inner_refusal_counts_neither_as_success_nor_as_failure_outside() {
    let gates = with(BREAKER).await;
    bad(&gates, "account").await.unwrap_err();
    let nested = async || gates.resource("outer").call(async || good(&gates, "account").await).await;
    for _ in 0..3 {
        let result = nested().await;
        assert!(matches!(result, Err(Guarded::Failed(Guarded::Blocked(_)))), "{result:?}");
    }
    let metrics = gates.gates().render_metrics();
    for result in ["success", "failure"] {
        let line =
            format!("tidegate_breaker_calls_total{{resource=\"outer\",rule=\"o\",result=\"{result}\"}} 0");
        assert!(metrics.lines().any(|found| found == line), "{result}: {metrics}");
    }
    // Half-open outside: the permit comes back, and the next probe decides.
    bad(&gates, "outer").await.unwrap_err();
    advance(7 * SECOND).await;
    bad(&gates, "account").await.unwrap_err();
    let result = nested().await;
    assert!(matches!(result, Err(Guarded::Failed(Guarded::Blocked(_)))), "{result:?}");
    assert!(good(&gates, "outer").await.is_ok());
    // An inner failure is a failure outside. (The second opening is twice as long, and up to a fifth more.)
    advance(13 * SECOND).await;
    let result = gates.resource("outer").call(async || bad(&gates, "account").await).await;
    assert!(matches!(result, Err(Guarded::Failed(Guarded::Failed(Failed)))), "{result:?}");
    assert!(is_blocked(&good(&gates, "outer").await));
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_say_what_a_result_means() {
    for (verdict, opens) in [
        (Verdict::Good, false),
        (Verdict::Ignore, false),
        (Verdict::Status(404), false),
        (Verdict::Status(500), true),
        (Verdict::Connect, true),
        (Verdict::Timeout, true),
        (Verdict::Reset, true),
    ] {
        let gates = with(BREAKER).await;
        let call = gates.resource("account").call_judged(async || Err::<(), _>(Failed), |_| verdict);
        assert!(matches!(call.await, Err(Guarded::Failed(Failed))));
        assert_eq!(is_blocked(&good(&gates, "account").await), opens, "{verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_are_kept_by_attributes_given_by_name() {
    let gates = with(
        "
resources: [ { id: mail, attributes: { tenant: { from: descriptor.tenant, missing: reject }, plan: { from: descriptor.plan } } } ]
limits:
  - id: per-tenant
    resources: [mail]
    key: [tenant, plan]
    token_bucket: { capacity: 1, refill: 1/h }
    overrides: [ { when: { plan: { equals: gold } }, token_bucket: { capacity: 2, refill: 1/h } } ]
",
    )
    .await;
    let send = async |tenant: Option<&str>, plan: Option<&str>| {
        let mut call = gates.resource("mail").attribute("colour", "blue");
        if let Some(tenant) = tenant {
            call = call.attribute("tenant", tenant);
        }
        if let Some(plan) = plan {
            call = call.attribute("plan", plan);
        }
        call.call(async || Ok::<_, Failed>(())).await
    };
    for (tenant, plan, passes) in [
        (Some("acme"), None, true),
        (Some("acme"), None, false),
        (Some("umbrella"), None, true),
        (Some("acme"), Some("gold"), true),
        (Some("acme"), Some("gold"), true),
        (Some("acme"), Some("gold"), false),
    ] {
        assert_eq!(send(tenant, plan).await.is_ok(), passes, "{tenant:?} {plan:?}");
    }
    let Err(Guarded::Blocked(blocked)) = send(None, None).await else { panic!("a tenant is required") };
    assert_eq!((blocked.gate(), blocked.refusal().name()), (None, "attribute-missing"));
}

#[tokio::test(start_paused = true)]
async fn l18_nine_callers_wait_for_three_permits_a_window() {
    let gates = with(
        "
resources: [ { id: job } ]
limits: [ { id: three, resources: [job], fixed_window: { limit: 3, window: 10s } } ]
",
    )
    .await;
    let passed = Arc::new(Mutex::new(Vec::new()));
    let mut callers = tokio::task::JoinSet::new();
    let started = tokio::time::Instant::now();
    for _ in 0..9 {
        let (gates, passed) = (gates.clone(), Arc::clone(&passed));
        callers.spawn(async move {
            let call = gates.resource("job").wait(60 * SECOND);
            call.call(async || {
                passed.lock().push(started.elapsed().as_secs());
                Ok::<_, Failed>(())
            })
            .await
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap().unwrap();
    }
    assert_eq!(*passed.lock(), [0, 0, 0, 10, 10, 10, 20, 20, 20]);
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded() {
    let gates = with(
        "
resources: [ { id: job } ]
limits: [ { id: one, resources: [job], fixed_window: { limit: 1, window: 10s } } ]
",
    )
    .await;
    assert!(good(&gates, "job").await.is_ok());
    let started = tokio::time::Instant::now();
    let impatient = gates.resource("job").wait(9 * SECOND).call(async || Ok::<_, Failed>(())).await;
    assert!(is_blocked(&impatient), "it would be in vain");
    assert_eq!(started.elapsed(), Duration::ZERO);
    let patient = gates.resource("job").wait(10 * SECOND).call(async || Ok::<_, Failed>(())).await;
    assert!(patient.is_ok());
    assert_eq!(started.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_another_s_call_to_end() {
    let gates = with(
        "
resources: [ { id: job, timeout: 60s } ]
limits: [ { id: alone, resources: [job], concurrency: { max: 1 } } ]
",
    )
    .await;
    let most = AtomicU32::new(0);
    let running = AtomicU32::new(0);
    let call = async || {
        let call = gates.resource("job").wait(10 * SECOND);
        call.call(async || {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(SECOND).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Failed>(())
        })
        .await
    };
    let (a, b, c) = tokio::join!(call(), call(), call());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(most.load(Ordering::SeqCst), 1);
    let held = gates.resource("job").call(async || {
        let second = gates.resource("job").wait(3 * SECOND).call(async || Ok::<_, Failed>(())).await;
        assert!(is_blocked(&second), "{second:?}");
        Ok::<_, Failed>(())
    });
    held.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_no_rule_knows_passes() {
    let gates = with(BREAKER).await;
    for _ in 0..3 {
        assert!(matches!(bad(&gates, "nobody").await, Err(Guarded::Failed(Failed))));
    }
    assert_eq!(good(&gates, "nobody").await.unwrap(), 7);
}
