//! What one record remembers, and who may change it.

use bytes::Bytes;
use tidegate_core::idempotency::How;
use tidegate_core::idempotency::record::{Fence, State};
use tidegate_core::idempotency::transition::Verdict;
use tidegate_store::memory::{MemoryIdempotency, MemoryLimits};
use tidegate_store::rules::{AuditKind, NewAuditEntry, RuleStore as _};
use tidegate_store::sql::sqlite::SqliteRules;
use tidegate_store::traits::{ListAsk, Renewed, Settled, Shown};

use super::*;

#[tokio::test]
async fn i2_a_superseded_attempt_touches_nothing() {
    let world = World::new().await;
    // Renewal off: the execution may take no longer than its lease.
    let short = |number| ClaimAsk { max_execution: LEASE, ..fenced(number) };
    let a = held(&*world.store, "k1", &short(1)).await;
    world.shift.advance(LEASE);
    let b = held(&*world.store, "k1", &short(2)).await;
    assert_eq!((b.how(), b.fence().token), (How::TakenOver, 2));
    assert_eq!(pay(&world.pool, &b, &response("b")).await.unwrap(), Fenced::Done);
    let before = world.store.read(&id("k1")).await.unwrap().unwrap().record;

    assert_eq!(world.store.renew(&a).await.unwrap(), Renewed::Superseded);
    assert_eq!(world.store.complete(&a, &response("a")).await.unwrap(), Fenced::Superseded);
    assert_eq!(pay(&world.pool, &a, &response("a")).await.unwrap(), Fenced::Superseded);
    assert_eq!(world.store.release(&a).await.unwrap(), Fenced::Superseded);

    assert_eq!(world.store.read(&id("k1")).await.unwrap().unwrap().record, before);
    assert_eq!(world.payments().await, 1);
    // The loser is told the winner's result.
    let Answer::Replay { response: told, .. } = answer(&*world.store, "k1", &short(1)).await else {
        panic!()
    };
    assert_eq!(*told, *response("b"));
}

#[tokio::test]
async fn i3_a_repeated_claim_is_still_its_own() {
    let world = World::new().await;
    let first = held(&*world.store, "k1", &hold(1)).await;
    let again = held(&*world.store, "k1", &hold(1)).await;
    assert_eq!((again.how(), again.fence()), (How::Repeated, first.fence()));
    // Also from the point of view of another connection, and after the lease.
    world.shift.advance(LEASE);
    let again = held(&world.another().await, "k1", &hold(1)).await;
    assert_eq!(again.fence(), first.fence());
    // The same holds for the end: the second acknowledgement says what the lost one said.
    let response = response("done");
    assert_eq!(world.store.complete(&first, &response).await.unwrap(), Fenced::Done);
    assert_eq!(world.store.complete(&first, &response).await.unwrap(), Fenced::Done);
    assert!(matches!(answer(&*world.store, "k1", &hold(2)).await, Answer::Replay { .. }));
}

#[tokio::test]
async fn i8_i9_headers_and_bodies_are_replayed_byte_for_byte() {
    let world = World::new().await;
    let gzip: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x4b\x04\0\x43\xbe\xb7\xe8\x01\0\0\0";
    let headers: [(&str, &[u8]); 6] = [
        ("content-type", b"text/plain; charset=\"utf-8\""),
        ("link", b"</a>; rel=next, </b>; rel=prev"),
        ("link", b"</c>"),
        ("last-modified", b"Mon, 30 Nov 2026 20:12:11 GMT"),
        ("x-latin", b"caf\xe9: \x80\xff"),
        ("x-empty", b""),
    ];
    let long = vec![b'x'; 100_000];
    for (at, body) in [&b"\0\xff\r\n'\";--"[..], b"", gzip, &long].into_iter().enumerate() {
        let stored = Arc::new(StoredResponse::new(200, headers, Some(Bytes::copy_from_slice(body))).unwrap());
        // Both ways of completing.
        for in_transaction in [false, true] {
            let key = format!("k{at}-{in_transaction}");
            let attempt = held(&*world.store, &key, &fenced(1)).await;
            let done = if in_transaction {
                pay(&world.pool, &attempt, &stored).await.unwrap()
            } else {
                world.store.complete(&attempt, &stored).await.unwrap()
            };
            assert_eq!(done, Fenced::Done);
            let answered = answer(&*world.store, &key, &fenced(2)).await;
            let Answer::Replay { response: replayed, first } = answered else { panic!() };
            assert_eq!(replayed, stored, "{key}");
            assert_eq!(replayed.body().map(|body| &body[..]), Some(body), "{key}");
            assert!(replayed.headers().eq(headers), "{key}");
            assert_eq!(first, fenced(1).first);
        }
    }
}

#[tokio::test]
async fn i19_a_response_without_its_body_says_so() {
    let world = World::new().await;
    let stored = StoredResponse::new(200, [("etag", "\"1\"")], None).unwrap();
    let attempt = held(&*world.store, "k1", &fenced(1)).await;
    assert_eq!(pay(&world.pool, &attempt, &stored).await.unwrap(), Fenced::Done);
    let Answer::Replay { response: replayed, .. } = answer(&*world.store, "k1", &fenced(2)).await else {
        panic!()
    };
    assert_eq!((replayed.status(), replayed.body()), (200, None));
    assert!(replayed.headers().eq([("etag", &b"\"1\""[..])]));
    assert_eq!(world.payments().await, 1);
}

#[tokio::test]
async fn i15_only_the_stores_clock_decides_leases() {
    let world = World::new().await;
    let other = world.another().await;
    let skew = Duration::from_mins(5);
    let first = held(&*world.store, "k1", &fenced(1)).await;
    let shown = world.store.read(&id("k1")).await.unwrap().unwrap();
    // By a clock five minutes ahead the lease is over; the store knows better.
    assert!(shown.now + skew > shown.record.lease_until);
    let Answer::InProgress { retry_after } = answer(&other, "k1", &fenced(2)).await else { panic!() };
    assert!(retry_after <= LEASE && retry_after > Duration::ZERO, "{retry_after:?}");
    // By a clock five minutes behind it is alive; the store knows better.
    world.shift.advance(LEASE);
    let now = other.now().await.unwrap();
    assert!(now.before(skew) < shown.record.lease_until && now >= shown.record.lease_until);
    let second = held(&other, "k1", &fenced(2)).await;
    assert_eq!((second.how(), second.fence().token), (How::TakenOver, first.fence().token + 1));
}

#[tokio::test]
async fn i21_a_late_completion_does_not_touch_a_record_made_again() {
    let world = World::new().await;
    let old = held(&*world.store, "k1", &hold(1)).await;
    assert_eq!(world.store.release(&old).await.unwrap(), Fenced::Done);
    let new = held(&*world.store, "k1", &hold(2)).await;
    assert_eq!((new.how(), new.fence().token, new.attempt()), (How::Released, 2, 2));
    assert_eq!(world.store.complete(&old, &response("late")).await.unwrap(), Fenced::Superseded);

    let old = held(&*world.store, "k2", &hold(1)).await;
    world.shift.advance(RETENTION);
    assert!(world.store.purge(10).await.unwrap() > 0);
    assert_eq!(world.store.read(&id("k2")).await.unwrap(), None);
    let new = held(&*world.store, "k2", &hold(2)).await;
    // The tokens are equal: the owner alone tells.
    assert_eq!((new.how(), new.fence().token), (How::New, old.fence().token));
    assert_eq!(world.store.complete(&old, &response("late")).await.unwrap(), Fenced::Superseded);
    assert_eq!(pay(&world.pool, &old, &response("late")).await.unwrap(), Fenced::Superseded);
    assert_eq!(world.payments().await, 0);
    assert_eq!(world.store.complete(&new, &response("new")).await.unwrap(), Fenced::Done);
}

#[tokio::test]
async fn i24_refund_with_the_key_of_charge_is_another_intent() {
    let world = World::new().await;
    let clock: tidegate_store::memory::Clock = Arc::new(|| tidegate_core::Timestamp::from_secs(1));
    let memory = MemoryIdempotency::new(clock, MemoryLimits::default());
    let stores: [&dyn IdempotencyStore; 2] = [&*world.store, &memory];
    for store in stores {
        let ids = ["charge", "refund"].map(|operation| RecordId::from_stored(operation, "/acme", "k1"));
        for id in &ids {
            let Claimed::Held(attempt) = store.claim(id, &hold(1)).await.unwrap() else { panic!("{id}") };
            assert_eq!((attempt.how(), attempt.id()), (How::New, id));
            assert_eq!(store.complete(&attempt, &response("done")).await.unwrap(), Fenced::Done);
        }
        // Nor do keys fold or pad.
        for key in ["K1", "k10", "k"] {
            held(store, key, &hold(1)).await;
        }
    }
}

#[tokio::test]
async fn operators_list_resolve_and_release() {
    let world = World::new().await;
    let store = &*world.store;
    for key in ["k1", "k2", "k3"] {
        held(store, key, &hold(1)).await;
    }
    let lines = store.list(&ListAsk { limit: 2, ..ListAsk::default() }).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.id.key()).collect::<Vec<_>>(), ["k1", "k2"]);
    let next = ListAsk { after: Some(id("k2")), state: Some(State::Processing), limit: 100 };
    assert_eq!(store.list(&next).await.unwrap().len(), 1);
    let none = ListAsk { state: Some(State::Succeeded), limit: 100, ..ListAsk::default() };
    assert_eq!(store.list(&none).await.unwrap(), []);

    let (seen, by) = (lines[0].fence, owner(99));
    let happened = Verdict::Happened(response("by hand"));
    let early = store.resolve(&id("k1"), seen, by, &happened).await.unwrap();
    assert!(matches!(early, Settled::Leased { left } if left <= LEASE));
    world.shift.advance(LEASE);
    assert!(matches!(answer(store, "k1", &hold(2)).await, Answer::OutcomeUnknown { .. }));
    for _ in 0..2 {
        assert_eq!(store.resolve(&id("k1"), seen, by, &happened).await.unwrap(), Settled::Done);
    }
    assert_eq!(store.resolve(&id("k1"), seen, owner(98), &happened).await.unwrap(), Settled::Changed);
    let Answer::Replay { response: told, .. } = answer(store, "k1", &hold(2)).await else { panic!() };
    assert_eq!(*told, *response("by hand"));

    let seen = lines[1].fence;
    assert_eq!(store.resolve(&id("k2"), seen, by, &Verdict::NotApplied).await.unwrap(), Settled::Done);
    assert_eq!(held(store, "k2", &hold(2)).await.fence().token, 3);
    assert_eq!(store.force_release(&id("k2"), seen, by).await.unwrap(), Settled::Changed);
    let seen = store.read(&id("k2")).await.unwrap().unwrap().record.fence;
    assert_eq!(store.force_release(&id("k2"), seen, by).await.unwrap(), Settled::Done);
    assert_eq!(held(store, "k2", &hold(3)).await.fence().token, 5);
}

#[tokio::test]
async fn an_operators_word_and_its_audit_entry_stand_together_or_not_at_all() {
    let world = World::new().await;
    let entry = NewAuditEntry {
        node: "here".to_owned(),
        kind: AuditKind::IdempotencyResolved,
        version: None,
        digest: None,
        who: "ann".to_owned(),
        detail: "k1: silent".to_owned(),
    };
    let settle = |fence, by| {
        let (store, entry) = (Arc::clone(&world.store), entry.clone());
        async move {
            let note = move |seen: &Shown| NewAuditEntry {
                detail: format!("k1: {}", if seen.record.is_leased(seen.now) { "held" } else { "silent" }),
                ..entry.clone()
            };
            store.settle_audited(&id("k1"), fence, owner(by), Some(&Verdict::NotApplied), note).await
        }
    };
    let attempt = held(&*world.store, "k1", &hold(1)).await;
    world.shift.advance(LEASE);
    let before = world.store.read(&id("k1")).await.unwrap().unwrap().record;

    // Without a trail to write to, nothing is done.
    settle(attempt.fence(), 8).await.unwrap_err();
    assert_eq!(world.store.read(&id("k1")).await.unwrap().unwrap().record, before);

    let trail = SqliteRules::new(world.pool.clone()).await.unwrap();
    // What does nothing notes nothing, and a repeated command notes nothing again.
    let other = Fence { token: 9, ..attempt.fence() };
    assert_eq!(settle(other, 9).await.unwrap(), Settled::Changed);
    assert_eq!(settle(attempt.fence(), 9).await.unwrap(), Settled::Done);
    assert_eq!(settle(attempt.fence(), 9).await.unwrap(), Settled::Done);
    assert_eq!(settle(attempt.fence(), 10).await.unwrap(), Settled::Changed);
    let entries: Vec<_> =
        trail.audit_log(10, None).await.unwrap().into_iter().map(|entry| entry.entry).collect();
    assert_eq!(entries, [entry]);
    assert_eq!(held(&*world.store, "k1", &hold(2)).await.how(), How::Released);
}
