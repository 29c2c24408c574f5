//! One intent, one effect: claims in a service with its business rows in SQLite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use tidegate::env::Env;
use tidegate::{Body, Claim, CommitError, Outcome};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::{Owner, State};
use tidegate_core::time::nanos;
use tidegate_store::IdempotencyStore as _;
use tidegate_store::traits::{ListAsk, Settled};
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::time::timeout;

use super::world::{Answer, DEADLINE, LEASE, RULES, Registrar, World, answer, post, register, send};

async fn state(world: &World) -> State {
    let listed = world.records.list(&ListAsk { limit: 10, ..ListAsk::default() }).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed[0].state
}

/// Answers with what it is given, and counts.
fn fixed(
    make: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> (
    impl Fn(Request<Body>) -> std::future::Ready<Response<Body>> + Clone + Send + Sync + 'static,
    Arc<AtomicU32>,
) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let handler = move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(make())
    };
    (handler, count)
}

#[tokio::test]
async fn i1_of_twenty_concurrent_calls_one_executes_and_the_others_get_409() {
    let world = World::new(RULES).await;
    let (registrar, mut begun) = Registrar::new(&world);
    let (registrar, go) = registrar.waiting();
    let (told, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..20 {
        let (tidegate, registrar, told) = (world.tidegate.clone(), registrar.clone(), told.clone());
        tokio::spawn(async move {
            let answer = send(&tidegate, &registrar, register("k1")).await;
            let _ = told.send(answer);
        });
    }
    timeout(DEADLINE, begun.recv()).await.unwrap();
    for _ in 0..19 {
        let refused = timeout(DEADLINE, answers.recv()).await.unwrap().unwrap();
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    }
    go.add_permits(1);
    let executed = timeout(DEADLINE, answers.recv()).await.unwrap().unwrap();
    assert_eq!((executed.status, executed.replayed()), (201, false), "{executed:?}");
    assert_eq!((registrar.count(), world.rows().await), (1, 1));
}

/// Two instances on one database; their own clocks are ten minutes apart, and each may lie on either
/// side of the store's.
#[tokio::test]
async fn i15_of_two_instances_ten_minutes_apart_neither_takes_a_live_lease() {
    let store_now = Env::system().now().as_nanos();
    let apart = nanos(Duration::from_mins(5));
    let (ahead, behind) = (store_now + apart, store_now - apart);
    for (first, second) in [(ahead, behind), (behind, ahead)] {
        let world = World::new(RULES).await;
        let at = |now| Env::manual(Timestamp::from_nanos(now)).0;
        let (first, second) = (world.instance(at(first)).await, world.instance(at(second)).await);
        let (registrar, mut begun) = Registrar::new(&world);
        let (slow, go) = registrar.clone().waiting();
        let running = tokio::spawn({
            let (first, slow) = (first.clone(), slow.clone());
            async move { send(&first, &slow, register("k1")).await }
        });
        timeout(DEADLINE, begun.recv()).await.unwrap();
        // Five minutes are ten leases, and the lease lives all the same; what is left of it is the
        // store's word too.
        let refused = send(&second, &registrar, register("k1")).await;
        assert_eq!(refused.status, 409, "{refused:?}");
        let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=LEASE.as_secs()).contains(&wait), "{refused:?}");
        go.add_permits(1);
        let done = running.await.unwrap();
        assert_eq!((done.status, done.replayed()), (201, false), "{done:?}");
        for instance in [&first, &second] {
            let replay = send(instance, &registrar, register("k1")).await;
            assert_eq!((replay.status, replay.replayed(), &replay.body), (201, true, &done.body));
        }
        assert_eq!((registrar.count(), world.rows().await), (1, 1));
        // Only when the store's clock has passed the lease is a silent attempt's key free.
        let (silent, _never) = registrar.clone().waiting();
        let lost = tokio::spawn({
            let (first, silent) = (first.clone(), silent.clone());
            async move { send(&first, &silent, register("k2")).await }
        });
        timeout(DEADLINE, begun.recv()).await.unwrap();
        assert_eq!(send(&second, &registrar, register("k2")).await.status, 409);
        world.shift.advance(LEASE);
        assert_eq!(send(&second, &registrar, register("k2")).await.status, 201);
        lost.abort();
    }
}

#[tokio::test]
async fn a_retry_replays_and_another_body_is_422() {
    let world = World::new(RULES).await;
    let (registrar, _begun) = Registrar::new(&world);
    let first = world.send(&registrar, register("k1")).await;
    let again = world.send(&registrar, register("k1")).await;
    assert_eq!((first.status, first.replayed()), (201, false));
    assert_eq!((again.status, again.replayed(), &again.body), (201, true, &first.body));
    let other = world.send(&registrar, post("/registrations", "k1", "bob@example.com")).await;
    assert_eq!(other.status, 422, "{other:?}");
    assert!(other.body.contains("body") && !other.body.contains("bob"), "{other:?}");
    assert_eq!((registrar.count(), world.rows().await), (1, 1));
}

#[tokio::test]
async fn i2_an_attempt_whose_lease_ended_rolls_back_and_gives_the_winner_s_result() {
    let world = World::new(RULES).await;
    let (registrar, mut begun) = Registrar::new(&world);
    let (slow, go) = registrar.clone().waiting();
    let late = tokio::spawn({
        let (tidegate, slow) = (world.tidegate.clone(), slow.clone());
        async move { send(&tidegate, &slow, register("k1")).await }
    });
    timeout(DEADLINE, begun.recv()).await.unwrap();
    world.shift.advance(LEASE);
    let winner = world.send(&registrar, register("k1")).await;
    assert_eq!((winner.status, winner.body.as_str()), (201, "attempt 2"), "{winner:?}");
    go.add_permits(1);
    let loser = late.await.unwrap();
    assert_eq!((loser.status, loser.body.as_str(), loser.replayed()), (201, "attempt 2", true), "{loser:?}");
    assert_eq!((registrar.count(), world.rows().await), (2, 1));
    let line = "tidegate_idempotency_outcomes_total{resource=\"register\",rule=\"register-once\",outcome=\"superseded\"} 1";
    assert!(world.metric(line), "{}", world.tidegate.gates().render_metrics());
}

#[tokio::test]
async fn i2_a_superseded_attempt_without_a_winner_s_result_is_409() {
    let world = World::new(RULES).await;
    let (registrar, mut begun) = Registrar::new(&world);
    let (registrar, go) = registrar.waiting();
    let mut tries = Vec::new();
    for _ in 0..2 {
        let (tidegate, registrar) = (world.tidegate.clone(), registrar.clone());
        tries.push(tokio::spawn(async move { send(&tidegate, &registrar, register("k1")).await }));
        timeout(DEADLINE, begun.recv()).await.unwrap();
        world.shift.advance(LEASE);
    }
    // Waiters for a semaphore go in order: the first attempt comes first.
    go.add_permits(1);
    let late = tries.remove(0).await.unwrap();
    assert_eq!(late.status, 409, "{late:?}");
    assert!(late.body.contains("superseded"), "{late:?}");
    assert_eq!(world.rows().await, 0);
    go.add_permits(1);
    assert_eq!(tries.remove(0).await.unwrap().status, 201);
    assert_eq!(world.rows().await, 1);
}

#[tokio::test]
async fn i9_raw_empty_and_compressed_bodies_are_byte_equal_on_replay() {
    // The beginning of a gzip stream; nothing here looks into it.
    const GZIP: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    for (body, encoding) in [(&b"\x00\xff\r\n\x80"[..], None), (b"", None), (GZIP, Some("gzip"))] {
        let world = World::new(RULES).await;
        let (handler, count) = fixed(move || {
            let mut response = Response::new(Body::full(body));
            if let Some(encoding) = encoding {
                response.headers_mut().insert("content-encoding", HeaderValue::from_static(encoding));
            }
            response
        });
        for replayed in [false, true] {
            let said = world.send(&handler, post("/refunds", "k1", "")).await;
            assert_eq!((&said.bytes[..], said.replayed()), (body, replayed));
            assert_eq!(said.headers.get("content-encoding").map(|value| value.to_str().unwrap()), encoding);
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn i13_a_key_without_a_rule_is_passed_on() {
    let world = World::new(RULES.split("  - id: refund-once").next().unwrap()).await;
    let handler = |request: Request<Body>| async move {
        assert!(Claim::of(&request.into_parts().0).is_none());
        answer(StatusCode::OK, "")
    };
    for _ in 0..2 {
        let said = world.send(&handler, post("/refunds", "k1", "")).await;
        assert_eq!((said.status, said.replayed()), (200, false));
    }
}

#[tokio::test]
async fn i23_refusals_of_tidegate_are_never_stored() {
    let world = World::new(&format!(
        "{RULES}
limits: [ {{ id: three, resources: [refund], token_bucket: {{ capacity: 3, refill: 1/h }} }} ]
breakers: [ {{ id: b, resources: [refund], trip: [ {{ error_count: {{ at_least: 1 }} }} ], min_requests: 1 }} ]
"
    ))
    .await;
    let (fails, count) = fixed(|| {
        let mut response = answer(StatusCode::INTERNAL_SERVER_ERROR, "");
        response.extensions_mut().insert(Outcome::NotApplied);
        response
    });
    for (key, status) in [("k1", 500), ("k1", 503), ("k2", 503), ("k1", 429), ("k3", 429)] {
        assert_eq!(world.send(&fails, post("/refunds", key, "")).await.status, status, "{key}");
    }
    assert_eq!((state(&world).await, count.load(Ordering::SeqCst)), (State::Released, 1));
}

#[tokio::test]
async fn i10_keys_are_compared_as_they_are() {
    let world = World::new(RULES).await;
    let (handler, count) = fixed(|| answer(StatusCode::CREATED, ""));
    let mut expected = 0;
    let longest = "k".repeat(255);
    let too_long = "k".repeat(256);
    for (key, status) in [
        ("k1", 201),
        ("k1 ", 400),
        ("\"k1 \"", 400),
        (" k1", 400),
        ("ABC", 201),
        ("abc", 201),
        (&longest, 201),
        (&too_long, 400),
        ("k\t1", 400),
        ("k\u{1F600}", 400),
        ("", 400),
    ] {
        let mut request = post("/refunds", "", "");
        let value = HeaderValue::from_bytes(key.as_bytes()).unwrap();
        request.headers_mut().insert("idempotency-key", value);
        let said = world.send(&handler, request).await;
        assert_eq!(said.status, status, "{key:?}: {said:?}");
        expected += u32::from(status == 201);
        assert_eq!(count.load(Ordering::SeqCst), expected, "{key:?}");
    }
    // The quoted form is the same key.
    let quoted = world.send(&handler, post("/refunds", "\"k1\"", "")).await;
    assert_eq!((quoted.status, quoted.replayed()), (201, true));
    assert_eq!(count.load(Ordering::SeqCst), expected);
}

#[tokio::test]
async fn i14_a_client_that_goes_away_does_not_stop_the_execution() {
    let world = World::new(RULES).await;
    let (registrar, mut begun) = Registrar::new(&world);
    let (registrar, go) = registrar.waiting();
    let client = tokio::spawn({
        let (tidegate, registrar) = (world.tidegate.clone(), registrar.clone());
        async move { send(&tidegate, &registrar, register("k1")).await }
    });
    timeout(DEADLINE, begun.recv()).await.unwrap();
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    go.add_permits(1);
    timeout(DEADLINE, world.tidegate.gates().drained()).await.unwrap();
    let retry = world.send(&registrar, register("k1")).await;
    assert_eq!((retry.status, retry.replayed()), (201, true), "{retry:?}");
    assert_eq!((registrar.count(), world.rows().await), (1, 1));
}

#[tokio::test]
async fn shutdown_waits_for_what_has_begun() {
    let world = World::new(RULES).await;
    let (registrar, mut begun) = Registrar::new(&world);
    let (registrar, go) = registrar.waiting();
    let client = tokio::spawn({
        let (tidegate, registrar) = (world.tidegate.clone(), registrar.clone());
        async move { send(&tidegate, &registrar, register("k1")).await }
    });
    timeout(DEADLINE, begun.recv()).await.unwrap();
    client.abort();
    assert!(!world.tidegate.shutdown(Duration::ZERO).await, "it still runs");
    go.add_permits(1);
    assert!(world.tidegate.shutdown(DEADLINE).await);
    assert_eq!((state(&world).await, world.rows().await), (State::Succeeded, 1));
}

#[tokio::test]
async fn i21_a_late_commit_after_a_release_and_a_new_claim_touches_nothing() {
    let world = World::new(RULES).await;
    let (registrar, mut begun) = Registrar::new(&world);
    let (slow, go) = registrar.clone().waiting();
    let late = tokio::spawn({
        let (tidegate, slow) = (world.tidegate.clone(), slow.clone());
        async move { send(&tidegate, &slow, register("k1")).await }
    });
    timeout(DEADLINE, begun.recv()).await.unwrap();
    let seen = world.records.list(&ListAsk { limit: 1, ..ListAsk::default() }).await.unwrap().remove(0);
    let settled = world.records.force_release(&seen.id, seen.fence, Owner([7; 16])).await.unwrap();
    assert_eq!(settled, Settled::Done);
    let winner = world.send(&registrar, register("k1")).await;
    assert_eq!(winner.status, 201);
    go.add_permits(1);
    let loser = late.await.unwrap();
    assert_eq!((loser.status, loser.replayed(), &loser.body), (201, true, &winner.body), "{loser:?}");
    assert_eq!((registrar.count(), world.rows().await), (2, 1));
}

#[tokio::test]
async fn i24_one_key_in_two_operations_is_two_intents() {
    let world = World::new(RULES).await;
    let (registrar, _begun) = Registrar::new(&world);
    let (refund, refunds) = fixed(|| answer(StatusCode::OK, "refunded"));
    assert_eq!(world.send(&registrar, register("k1")).await.status, 201);
    let second = world.send(&refund, post("/refunds", "k1", "ann@example.com")).await;
    assert_eq!((second.status, second.replayed()), (200, false));
    assert_eq!((registrar.count(), refunds.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_panic_leaves_the_outcome_unknown_and_comes_through() {
    let world = World::new(RULES).await;
    let handler = |_: Request<Body>| async { panic!("out of paper") };
    let task = tokio::spawn({
        let tidegate = world.tidegate.clone();
        async move { send(&tidegate, &handler, post("/refunds", "k1", "")).await }
    });
    let panic = task.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of paper"));
    assert_eq!(state(&world).await, State::Processing);
    world.shift.advance(LEASE);
    let (again, count) = fixed(|| answer(StatusCode::OK, ""));
    let held = world.send(&again, post("/refunds", "k1", "")).await;
    assert_eq!(held.status, 409, "{held:?}");
    assert!(held.body.contains("outcome-unknown"), "{held:?}");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_handler_may_say_how_it_ended() {
    // (status, what the handler says, the record after it, whether a retry executes)
    for (status, said, left, again) in [
        (200, None, State::Succeeded, false),
        (400, None, State::Failed, false),
        (401, None, State::Released, true),
        (500, None, State::Processing, false),
        (503, Some(Outcome::NotApplied), State::Released, true),
        (400, Some(Outcome::NotApplied), State::Released, true),
        (500, Some(Outcome::Final), State::Failed, false),
        (200, Some(Outcome::Unknown), State::Processing, false),
    ] {
        let world = World::new(RULES).await;
        let (handler, count) = fixed(move || {
            let mut response = answer(StatusCode::from_u16(status).unwrap(), "");
            response.extensions_mut().extend(
                said.map(|said| {
                    let mut one = http::Extensions::new();
                    one.insert(said);
                    one
                })
                .unwrap_or_default(),
            );
            response
        });
        let first = world.send(&handler, post("/refunds", "k1", "")).await;
        assert_eq!(first.status, status, "{said:?}");
        assert_eq!(state(&world).await, left, "{status} {said:?}");
        let second = world.send(&handler, post("/refunds", "k1", "")).await;
        let expected = if left == State::Processing { 409 } else { status };
        assert_eq!(second.status, expected, "{status} {said:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1 + u32::from(again), "{status} {said:?}");
    }
}

#[tokio::test]
async fn a_success_that_was_not_committed_is_completed_apart_and_counted() {
    let world = World::new(RULES).await;
    let (handler, count) = fixed(|| answer(StatusCode::CREATED, "made"));
    let line = |outcome: &str, times: u32| {
        format!(
            "tidegate_idempotency_outcomes_total{{resource=\"register\",rule=\"register-once\",outcome=\"{outcome}\"}} {times}"
        )
    };
    world.send(&handler, register("k1")).await;
    let again = world.send(&handler, register("k1")).await;
    assert_eq!((again.status, again.replayed(), count.load(Ordering::SeqCst)), (201, true, 1));
    assert!(world.metric(&line("commit_missing", 1)));
    // A refusal writes nothing: there was nothing to commit.
    let (refuses, _) = fixed(|| answer(StatusCode::FORBIDDEN, "no"));
    world.send(&refuses, register("k2")).await;
    assert!(world.send(&refuses, register("k2")).await.replayed());
    assert!(world.metric(&line("commit_missing", 1)));
}

/// Runs `handler` under a claim of `/registrations` with the database at hand.
async fn with_claim<F, R>(world: &World, key: &str, handler: F) -> Answer
where
    F: Fn(Claim, sqlx::SqlitePool) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send,
{
    let db = world.db.clone();
    let handler = move |request: Request<Body>| {
        let claim = Claim::of(&request.into_parts().0).unwrap();
        handler(claim, db.clone())
    };
    world.send(&handler, register(key)).await
}

async fn begin(db: &sqlx::SqlitePool) -> sqlx::Transaction<'static, sqlx::Sqlite> {
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("INSERT INTO registrations (address) VALUES ('x')").execute(&mut *tx).await.unwrap();
    tx
}

#[tokio::test]
async fn what_was_committed_wins_over_what_the_handler_returns() {
    let world = World::new(RULES).await;
    let handler = |claim: Claim, db: sqlx::SqlitePool| async move {
        let tx = begin(&db).await;
        claim.commit(tx, answer(StatusCode::CREATED, "made")).await.unwrap();
        answer(StatusCode::INTERNAL_SERVER_ERROR, "the printer is on fire")
    };
    let said = with_claim(&world, "k1", handler).await;
    assert_eq!((said.status, said.body.as_str()), (201, "made"), "{said:?}");
    assert_eq!(state(&world).await, State::Succeeded);
}

#[tokio::test]
async fn a_claim_is_committed_once() {
    let world = World::new(RULES).await;
    let handler = |claim: Claim, db: sqlx::SqlitePool| async move {
        let response =
            claim.clone().commit(begin(&db).await, answer(StatusCode::CREATED, "made")).await.unwrap();
        let twice = claim.commit(begin(&db).await, answer(StatusCode::CREATED, "made")).await;
        assert!(matches!(twice, Err(CommitError::Spent)), "{twice:?}");
        response
    };
    let said = with_claim(&world, "k1", handler).await;
    assert_eq!((said.status, world.rows().await), (201, 1), "{said:?}");
}

#[tokio::test]
async fn a_claim_kept_beyond_its_execution_rolls_back() {
    let world = World::new(RULES).await;
    let (give, take) = oneshot::channel();
    let give = Arc::new(Mutex::new(Some(give)));
    let handler = move |claim: Claim, _: sqlx::SqlitePool| {
        let give = Arc::clone(&give);
        async move {
            let _ = give.lock().await.take().unwrap().send(claim);
            answer(StatusCode::ACCEPTED, "later")
        }
    };
    assert_eq!(with_claim(&world, "k1", handler).await.status, 202);
    let claim: Claim = take.await.unwrap();
    let late = claim.commit(begin(&world.db).await, answer(StatusCode::CREATED, "made")).await;
    assert!(matches!(late, Err(CommitError::Spent)), "{late:?}");
    assert_eq!(world.rows().await, 0);
}

#[tokio::test]
async fn a_transaction_on_another_database_is_refused() {
    let world = World::new(RULES).await;
    let other = World::new(RULES).await;
    let elsewhere = other.db.clone();
    let handler = move |claim: Claim, _: sqlx::SqlitePool| {
        let elsewhere = elsewhere.clone();
        async move {
            let failed = claim.commit(begin(&elsewhere).await, answer(StatusCode::CREATED, "")).await;
            assert!(matches!(failed, Err(CommitError::OtherDatabase)), "{failed:?}");
            answer(StatusCode::INTERNAL_SERVER_ERROR, "")
        }
    };
    assert_eq!(with_claim(&world, "k1", handler).await.status, 500);
    assert_eq!((world.rows().await, other.rows().await), (0, 0));
}

#[tokio::test]
async fn a_commit_that_the_database_refuses_leaves_nothing_and_the_claim_open() {
    let world = World::new(RULES).await;
    sqlx::query("CREATE TABLE child (parent INTEGER REFERENCES missing (id) DEFERRABLE INITIALLY DEFERRED)")
        .execute(&world.db)
        .await
        .unwrap();
    sqlx::query("CREATE TABLE missing (id INTEGER PRIMARY KEY)").execute(&world.db).await.unwrap();
    let handler = |claim: Claim, db: sqlx::SqlitePool| async move {
        let mut tx = begin(&db).await;
        sqlx::query("INSERT INTO child (parent) VALUES (1)").execute(&mut *tx).await.unwrap();
        let refused = claim.clone().commit(tx, answer(StatusCode::CREATED, "")).await;
        assert!(matches!(refused, Err(CommitError::Refused(_))), "{refused:?}");
        let tx = begin(&db).await;
        claim.commit(tx, answer(StatusCode::CREATED, "second try")).await.unwrap()
    };
    let said = with_claim(&world, "k1", handler).await;
    assert_eq!((said.status, said.body.as_str(), world.rows().await), (201, "second try", 1));
}

#[tokio::test]
async fn a_commit_that_is_dropped_half_way_is_decided_by_the_row() {
    for polls in 1..12_u32 {
        let world = World::new(RULES).await;
        let handler = move |claim: Claim, db: sqlx::SqlitePool| async move {
            let tx = begin(&db).await;
            let mut commit = Box::pin(claim.commit(tx, answer(StatusCode::CREATED, "made")));
            for _ in 0..polls {
                let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(commit.as_mut().poll(cx)));
                if polled.await.is_ready() {
                    break;
                }
                // Lets SQLite's own thread go on, or not.
                tokio::task::yield_now().await;
            }
            drop(commit);
            answer(StatusCode::FORBIDDEN, "given up")
        };
        let first = with_claim(&world, "k1", handler).await;
        world.shift.advance(LEASE);
        let (registrar, _begun) = Registrar::new(&world);
        let second = world.send(&registrar, register("k1")).await;
        assert_eq!((second.status, world.rows().await), (201, 1), "{polls}: {first:?} {second:?}");
        if first.status == 201 {
            assert_eq!((&*second.body, second.replayed()), ("made", true), "{polls}: {first:?} {second:?}");
        } else {
            assert!(first.body.contains("outcome-unknown"), "{polls}: {first:?}");
        }
        assert_eq!(registrar.count() == 0, second.replayed(), "{polls}");
    }
}

#[tokio::test]
async fn a_long_body_is_given_whole_and_not_kept() {
    let world =
        World::new(&RULES.replace("commit: with_effects", "commit: with_effects\n    max_response: 8B"))
            .await;
    let handler = |claim: Claim, db: sqlx::SqlitePool| async move {
        claim.commit(begin(&db).await, answer(StatusCode::CREATED, "longer than that")).await.unwrap()
    };
    let first = with_claim(&world, "k1", handler).await;
    assert_eq!((first.status, first.body.as_str()), (201, "longer than that"));
    let again = with_claim(&world, "k1", handler).await;
    assert_eq!((again.status, again.body.as_str(), again.replayed()), (201, "", true));
    assert_eq!(again.headers["tidegate-body"], "omitted");
    assert_eq!(world.rows().await, 1);
}

#[tokio::test]
async fn a_claim_tells_what_it_is() {
    let world = World::new(RULES).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = Arc::clone(&seen);
        move |claim: Claim, _: sqlx::SqlitePool| {
            let seen = Arc::clone(&seen);
            async move {
                assert!(!claim.is_superseded());
                assert!(claim.time_left() <= LEASE && !claim.time_left().is_zero());
                let key = |step: &str| claim.key_for(step).as_str().to_owned();
                seen.lock().await.push((claim.token(), claim.attempt(), key("a"), key("b")));
                let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, "");
                response.extensions_mut().insert(Outcome::NotApplied);
                response
            }
        }
    };
    for key in ["k1", "k1", "k2"] {
        with_claim(&world, key, handler.clone()).await;
    }
    let seen = seen.lock().await.clone();
    assert_eq!((seen[0].0, seen[0].1), (1, 1));
    assert_eq!((seen[1].0, seen[1].1), (2, 2));
    assert_eq!((&seen[0].2, &seen[0].3), (&seen[1].2, &seen[1].3), "the same in every attempt");
    assert_ne!(seen[0].2, seen[0].3, "another for each step");
    assert_ne!(seen[0].2, seen[2].2, "another for each intent");
}

#[tokio::test]
async fn renewals_tell_a_claim_that_it_was_superseded() {
    let rules = RULES.replace("lease: 30s\n    max_execution: 30s", "lease: 300ms\n    max_execution: 1h");
    let world = World::new(&rules).await;
    let (begun, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, told) = (Arc::clone(&begun), Arc::clone(&told));
        move |claim: Claim, db: sqlx::SqlitePool| {
            let (begun, told) = (Arc::clone(&begun), Arc::clone(&told));
            async move {
                begun.notify_one();
                claim.superseded().await;
                assert!(claim.is_superseded());
                told.notify_one();
                let late = claim.commit(begin(&db).await, answer(StatusCode::CREATED, "")).await;
                assert!(matches!(late, Err(CommitError::Superseded)), "{late:?}");
                answer(StatusCode::CREATED, "")
            }
        }
    };
    let attempt = async {
        let answer = with_claim(&world, "k1", handler).await;
        assert_eq!((answer.status, world.rows().await), (409, 0), "{answer:?}");
    };
    let operator = async {
        begun.notified().await;
        let seen = world.records.list(&ListAsk { limit: 1, ..ListAsk::default() }).await.unwrap().remove(0);
        world.records.force_release(&seen.id, seen.fence, Owner([7; 16])).await.unwrap();
        told.notified().await;
    };
    timeout(DEADLINE, async { tokio::join!(attempt, operator) }).await.unwrap();
}
