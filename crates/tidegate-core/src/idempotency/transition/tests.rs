use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::idempotency::fingerprint::Request;
use crate::idempotency::record::State;
use crate::rule::model::OnUnknown;

const T0: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(30);
const MAX_EXECUTION: Duration = Duration::from_mins(5);
const RETENTION: Duration = Duration::from_hours(24);
const ME: Owner = Owner([1; 16]);
const OTHER: Owner = Owner([2; 16]);
const OPERATOR: Owner = Owner([9; 16]);

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(T0 + secs)
}

fn print(parts: &[FingerprintPart], body: &str) -> Fingerprint {
    let attributes = serde_json::Map::new();
    let request =
        Request { method: "POST", path: "/pay", query: None, body: body.as_bytes(), attributes: &attributes };
    Fingerprint::of(parts, &request).unwrap()
}

fn body(text: &str) -> Fingerprint {
    print(&[FingerprintPart::Body], text)
}

fn policy(commit: CommitMode, on_unknown: OnUnknown) -> Policy {
    Policy { commit, on_unknown, retention: RETENTION, window: None }
}

fn ask(owner: Owner) -> ClaimAsk {
    ClaimAsk {
        owner,
        fingerprint: body("1"),
        also: Fingerprint::default(),
        policy: policy(CommitMode::AfterResponse, OnUnknown::Hold),
        lease: LEASE,
        max_execution: MAX_EXECUTION,
        first: FirstTry { version: 7, flags: "new-checkout=on".into() },
    }
}

fn response(status: u16) -> Arc<StoredResponse> {
    Arc::new(StoredResponse::new::<&str, &[u8]>(status, [], Some("done".into())).unwrap())
}

fn claimed(ask: &ClaimAsk, now: Timestamp) -> Record {
    claim(None, ask, now).unwrap().record().clone()
}

fn now(ended: Ended) -> Record {
    match ended {
        Ended::Now(record) => *record,
        other => panic!("{other:?}"),
    }
}

/// The last column of the table.
fn name(outcome: &Result<Grant, Answer>) -> &'static str {
    match outcome {
        Ok(grant) => match grant.how() {
            How::New => "held: new",
            How::Expired => "held: expired",
            How::Released => "held: released",
            How::Repeated => "held: repeated",
            How::TakenOver => "held: taken over",
        },
        Err(Answer::Mismatch { .. }) => "mismatch",
        Err(Answer::Replay { .. }) => "replay",
        Err(Answer::InProgress { .. }) => "in progress",
        Err(Answer::OutcomeUnknown { .. }) => "outcome unknown",
        Err(Answer::NotComputed { .. }) => "not computed",
    }
}

/// The table in this module's documentation: six conditions and an answer in each row.
fn documented() -> Vec<Vec<&'static str>> {
    include_str!("../transition.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! |"))
        .filter(|line| !line.starts_with('-') && !line.starts_with(" state"))
        .map(|line| line.trim_end_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// Every combination of the table's conditions, with the policies that make its sixth column.
fn combinations() -> Vec<([&'static str; 6], Policy)> {
    let policies = [
        (CommitMode::AfterResponse, OnUnknown::Hold, "hold"),
        (CommitMode::AfterResponse, OnUnknown::Retry, "allowed"),
        (CommitMode::WithEffects, OnUnknown::Hold, "allowed"),
        (CommitMode::WithEffects, OnUnknown::Retry, "allowed"),
        (CommitMode::OneTransaction, OnUnknown::Hold, "allowed"),
        (CommitMode::OneTransaction, OnUnknown::Retry, "allowed"),
    ];
    let mut all = vec![Vec::new()];
    for column in [
        &["nothing", "PROCESSING", "SUCCEEDED", "FAILED", "RELEASED"][..],
        &["within", "past"],
        &["alive", "over"],
        &["own", "other"],
        &["same", "other", "unknown"],
    ] {
        all = all
            .into_iter()
            .flat_map(|facts: Vec<&str>| column.iter().map(move |fact| [&facts[..], &[*fact]].concat()))
            .collect();
    }
    let with_policies = all.iter().flat_map(|facts| {
        policies.iter().map(|(commit, on_unknown, takeover)| {
            ([facts[0], facts[1], facts[2], facts[3], facts[4], *takeover], policy(*commit, *on_unknown))
        })
    });
    with_policies.collect()
}

fn found(facts: [&str; 6], policy: Policy, now: Timestamp) -> Option<Record> {
    let [state, retention, lease, owner, fingerprint, _] = facts;
    Some(Record {
        stage: match State::parse(state)? {
            State::Processing => Stage::Processing,
            State::Succeeded => Stage::Finished(response(200)),
            State::Failed => Stage::Finished(response(404)),
            State::Released => Stage::Released,
        },
        fence: Fence { token: 5, owner: if owner == "own" { ME } else { OTHER } },
        fingerprint: match fingerprint {
            "same" => body("1"),
            "other" => body("2"),
            _ => print(&[FingerprintPart::Body, FingerprintPart::Path], "1"),
        },
        policy,
        first: FirstTry { version: 3, flags: "".into() },
        attempts: 2,
        first_claimed_at: at(1),
        claimed_at: at(50),
        execution_until: at(500),
        lease_until: if lease == "alive" { at(101) } else { now },
        changed_at: if retention == "past" { now.before(RETENTION) } else { at(50) },
    })
}

#[test]
fn the_documented_table_is_what_every_combination_does() {
    let table = documented();
    let mut used = BTreeSet::new();
    let now = at(100);
    for (facts, policy) in combinations() {
        let fits = |row: &Vec<&str>| row.iter().zip(facts).all(|(cell, fact)| *cell == "*" || *cell == fact);
        let row = table.iter().position(fits).expect("every combination has a row");
        used.insert(row);
        let found = found(facts, policy, now);
        let outcome = claim(found.as_ref(), &ask(ME), now);
        assert_eq!(name(&outcome), table[row][6], "{facts:?}");
        if let Ok(grant) = outcome {
            check_grant(&grant, found.as_ref(), now);
        }
    }
    assert_eq!(combinations().len(), 5 * 2 * 2 * 2 * 3 * 6);
    assert_eq!((table.len(), used.len()), (14, 14), "each row is reached");
}

fn check_grant(grant: &Grant, found: Option<&Record>, now: Timestamp) {
    let record = grant.record();
    assert_eq!(record.stage, Stage::Processing);
    assert_eq!(record.fence.owner, ME);
    let token = match (grant.how(), found) {
        (How::Repeated, Some(found)) => found.fence.token,
        (_, Some(found)) => found.fence.token + 1,
        (_, None) => 1,
    };
    assert_eq!(record.fence.token, token);
    assert_eq!(record.lease_until, now + LEASE);
    // What the first try saw and was judged by stays with the intent.
    let (version, judge, attempts, first_claimed_at) = match (grant.how(), found) {
        (How::TakenOver, Some(found)) => (3, found.policy, 3, at(1)),
        (How::Repeated, Some(found)) => (3, found.policy, 2, at(1)),
        (How::Released, Some(found)) if found.fingerprint == body("1") => (3, ask(ME).policy, 3, at(1)),
        _ => (7, ask(ME).policy, 1, now),
    };
    assert_eq!(
        (record.first.version, record.policy, record.attempts, record.first_claimed_at),
        (version, judge, attempts, first_claimed_at)
    );
    if grant.how() != How::Repeated {
        assert_eq!((record.claimed_at, record.execution_until), (now, now + MAX_EXECUTION));
    }
}

#[test]
fn answers_say_when_to_come_back_and_what_differs() {
    let record = claimed(&ask(OTHER), at(0));
    assert_eq!(
        claim(Some(&record), &ask(ME), at(10)),
        Err(Answer::InProgress { retry_after: Duration::from_secs(20) })
    );
    assert_eq!(
        claim(Some(&record), &ask(ME), at(30)),
        Err(Answer::OutcomeUnknown { retry_after: RETENTION.saturating_sub(LEASE) })
    );
    let other = ClaimAsk { fingerprint: body("2"), ..ask(ME) };
    let mismatch = Err(Answer::Mismatch { fields: vec![FingerprintPart::Body] });
    assert_eq!(claim(Some(&record), &other, at(10)), mismatch);
    assert_eq!(claim(Some(&record), &other, at(30)), mismatch);
    let finished = now(complete(Some(&record), record.fence, &response(201), at(5)));
    assert_eq!(
        claim(Some(&finished), &ask(ME), at(10)),
        Err(Answer::Replay { response: response(201), first: record.first.clone() })
    );
    assert_eq!(claim(Some(&finished), &other, at(10)), mismatch);
}

#[test]
fn a_record_judges_by_the_fields_it_was_claimed_under() {
    let old = ClaimAsk { fingerprint: print(&[FingerprintPart::Path], "1"), ..ask(OTHER) };
    let record = claimed(&old, at(0));
    let fields = vec![FingerprintPart::Path];
    let mut again = ClaimAsk { fingerprint: body("2"), ..ask(ME) };
    assert_eq!(claim(Some(&record), &again, at(1)), Err(Answer::NotComputed { fields: fields.clone() }));
    again.also = print(&fields, "2");
    assert_eq!(name(&claim(Some(&record), &again, at(1))), "in progress");
}

#[test]
fn i2_a_superseded_attempt_changes_nothing() {
    let fenced = |owner| ClaimAsk { policy: policy(CommitMode::WithEffects, OnUnknown::Hold), ..ask(owner) };
    let first = claimed(&fenced(ME), at(0));
    let second = claim(Some(&first), &fenced(OTHER), at(30)).unwrap().record().clone();
    let done = now(complete(Some(&second), second.fence, &response(200), at(31)));
    for late in [&second, &done] {
        let (found, fence) = (Some(late), first.fence);
        assert_eq!(renew(found, fence, LEASE, at(32)), Renewal::Superseded);
        assert_eq!(complete(found, fence, &response(500), at(32)), Ended::Superseded);
        assert_eq!(release(found, fence, at(32)), Ended::Superseded);
        assert_eq!(abandon(found, ME, at(32)), Ended::Superseded);
    }
}

#[test]
fn i21_a_row_made_again_is_not_the_old_attempts() {
    let old = claimed(&ask(ME), at(0));
    let released = now(release(Some(&old), old.fence, at(1)));
    let again = claim(Some(&released), &ask(OTHER), at(2)).unwrap().record().clone();
    assert_eq!(again.fence, Fence { token: 2, owner: OTHER });
    // After a purge the tokens start again, and only the owner tells.
    let remade = claimed(&ask(OTHER), at(2));
    assert_eq!(remade.fence.token, old.fence.token);
    for found in [Some(&again), Some(&remade), Some(&released), None] {
        assert_eq!(complete(found, old.fence, &response(200), at(3)), Ended::Superseded);
        assert_eq!(renew(found, old.fence, LEASE, at(3)), Renewal::Superseded);
    }
    assert_eq!(release(Some(&released), old.fence, at(3)), Ended::Before);
}

#[test]
fn i3_a_repeated_claim_recognises_itself() {
    let record = claimed(&ask(ME), at(0));
    let again = claim(Some(&record), &ask(ME), at(10)).unwrap();
    assert_eq!((again.how(), again.record().fence), (How::Repeated, record.fence));
    assert_eq!(again.record().lease_until, at(40));
    // Also when it changed its mind about the body, and when its lease is over.
    let other = ClaimAsk { fingerprint: body("2"), ..ask(ME) };
    let again = claim(Some(&record), &other, at(100)).unwrap();
    assert_eq!((again.how(), again.record().lease_until), (How::Repeated, at(130)));
    assert_eq!(again.record().fingerprint, body("1"));
    // But never beyond the execution's end.
    let again = claim(Some(&record), &ask(ME), at(290)).unwrap();
    assert_eq!(again.record().lease_until, at(300));
}

#[test]
fn endings_recognise_themselves() {
    let record = claimed(&ask(ME), at(0));
    let done = now(complete(Some(&record), record.fence, &response(200), at(5)));
    assert_eq!((done.stage.state(), done.changed_at, done.lease_until), (State::Succeeded, at(5), at(5)));
    assert_eq!(done.expires_at(), at(5) + RETENTION);
    assert_eq!(complete(Some(&done), done.fence, &response(500), at(6)), Ended::Before);
    assert_eq!(release(Some(&done), done.fence, at(6)), Ended::Superseded);
    let failed = now(complete(Some(&record), record.fence, &response(404), at(5)));
    assert_eq!(failed.stage.state(), State::Failed);
    let released = now(release(Some(&record), record.fence, at(5)));
    assert_eq!((released.stage.state(), released.fence), (State::Released, record.fence));
    assert_eq!(complete(Some(&released), record.fence, &response(200), at(6)), Ended::Superseded);
    assert_eq!(now(abandon(Some(&record), ME, at(5))), released);
    assert_eq!(abandon(Some(&released), ME, at(6)), Ended::Before);
    assert_eq!(abandon(Some(&record), OTHER, at(5)), Ended::Superseded);
    assert_eq!(abandon(None, ME, at(5)), Ended::Superseded);
    // A completion after the lease is tried, and the row decides.
    assert_eq!(now(complete(Some(&record), record.fence, &response(200), at(99))).changed_at, at(99));
}

#[test]
fn renewal_reaches_no_further_than_the_execution_may() {
    let record = claimed(&ask(ME), at(0));
    let until = |now| match renew(Some(&record), record.fence, LEASE, now) {
        Renewal::Renewed(record) => Some(record.lease_until),
        Renewal::Exhausted => None,
        Renewal::Superseded => panic!("superseded"),
    };
    assert_eq!(until(at(10)), Some(at(40)));
    assert_eq!(until(at(31)), Some(at(61)));
    assert_eq!(until(at(280)), Some(at(300)));
    assert_eq!(until(at(299)), Some(at(300)));
    assert_eq!(until(at(300)), None);
    // A shorter lease than before takes nothing away.
    match renew(Some(&record), record.fence, Duration::from_secs(1), at(10)) {
        Renewal::Renewed(renewed) => assert_eq!(*renewed, record),
        other => panic!("{other:?}"),
    }
    // `max_execution` = lease: there is nothing to renew, and the claim itself is as long as that.
    let short = claimed(&ClaimAsk { max_execution: LEASE, ..ask(ME) }, at(0));
    assert_eq!(short.lease_until, at(30));
    let capped = claimed(&ClaimAsk { max_execution: Duration::from_secs(10), ..ask(ME) }, at(0));
    assert_eq!(capped.lease_until, at(10));
}

#[test]
fn a_window_ends_a_finished_record_and_never_a_running_one() {
    let window = Duration::from_secs(10);
    let derived = |owner| {
        let hold = policy(CommitMode::AfterResponse, OnUnknown::Hold);
        ClaimAsk { policy: Policy { window: Some(window), ..hold }, ..ask(owner) }
    };
    let record = claimed(&derived(OTHER), at(0));
    assert_eq!(name(&claim(Some(&record), &derived(ME), at(10))), "in progress");
    assert_eq!(name(&claim(Some(&record), &derived(ME), at(31))), "outcome unknown");
    let done = now(complete(Some(&record), record.fence, &response(200), at(5)));
    assert_eq!(name(&claim(Some(&done), &derived(ME), at(9))), "replay");
    let next = claim(Some(&done), &derived(ME), at(10)).unwrap();
    assert_eq!((next.how(), next.record().first_claimed_at), (How::Expired, at(10)));
    // Retention shorter than the window does not cut it.
    let long = Record { policy: Policy { retention: Duration::from_secs(1), ..done.policy }, ..done };
    assert_eq!(name(&claim(Some(&long), &derived(ME), at(9))), "replay");

    let released = now(release(Some(&record), record.fence, at(5)));
    let inside = claim(Some(&released), &derived(ME), at(9)).unwrap();
    assert_eq!((inside.record().first_claimed_at, inside.record().attempts), (at(0), 2));
    let outside = claim(Some(&released), &derived(ME), at(10)).unwrap();
    assert_eq!((outside.record().first_claimed_at, outside.record().attempts), (at(10), 1));
}

#[test]
fn step_keys_are_the_same_in_every_attempt_at_an_intent() {
    let id = RecordId::from_stored("charge", "/acme", "k1");
    let held = |grant: Grant| grant.stored(id.clone()).0;
    let record = claimed(&ask(OTHER), at(0));
    let first = held(claim(None, &ask(OTHER), at(0)).unwrap());
    let released = now(release(Some(&record), record.fence, at(5)));
    let second = held(claim(Some(&released), &ask(ME), at(9)).unwrap());
    assert_eq!(first.key_for("hold"), second.key_for("hold"));
    assert_eq!((second.attempt(), second.how(), second.lease()), (2, How::Released, LEASE));
    assert_eq!((second.first(), second.commit()), (&ask(OTHER).first, CommitMode::AfterResponse));
    assert_eq!(second.id(), &id);
    let fenced = ClaimAsk { policy: policy(CommitMode::WithEffects, OnUnknown::Hold), ..ask(ME) };
    assert_eq!(held(claim(None, &fenced, at(0)).unwrap()).commit(), CommitMode::WithEffects);
    let later = held(claim(Some(&released), &ask(ME), at(9) + RETENTION).unwrap());
    assert_ne!(first.key_for("hold"), later.key_for("hold"));
}

#[test]
fn operators_settle_what_they_saw() {
    let record = claimed(&ask(ME), at(0));
    let happened = Verdict::Happened(response(200));
    let (found, seen) = (Some(&record), record.fence);
    assert_eq!(
        resolve(found, seen, OPERATOR, &happened, at(10)),
        Resolved::Leased { left: Duration::from_secs(20) }
    );
    let Resolved::Now(settled) = resolve(found, seen, OPERATOR, &happened, at(30)) else { panic!() };
    assert_eq!(settled.stage.state(), State::Succeeded);
    assert_eq!(settled.fence, Fence { token: 2, owner: OPERATOR });
    assert_eq!(resolve(Some(&settled), seen, OPERATOR, &happened, at(31)), Resolved::Before);
    assert_eq!(resolve(Some(&settled), seen, OTHER, &happened, at(31)), Resolved::Changed);
    assert_eq!(resolve(Some(&settled), settled.fence, OTHER, &happened, at(31)), Resolved::Changed);
    assert_eq!(resolve(None, seen, OPERATOR, &happened, at(31)), Resolved::Changed);
    // The silent attempt wakes up and must not take it for its own completion.
    assert_eq!(complete(Some(&settled), seen, &response(200), at(32)), Ended::Superseded);
    assert_eq!(name(&claim(Some(&settled), &ask(OTHER), at(33))), "replay");

    let Resolved::Now(freed) = resolve(found, seen, OPERATOR, &Verdict::NotApplied, at(30)) else { panic!() };
    assert_eq!(freed.stage, Stage::Released);
    let next = claim(Some(&freed), &ask(OTHER), at(31)).unwrap();
    assert_eq!((next.how(), next.record().fence.token), (How::Released, 3));

    let Resolved::Now(forced) = force_release(found, seen, OPERATOR, at(10)) else { panic!() };
    assert_eq!((forced.stage.state(), forced.fence.token), (State::Released, 2));
    assert_eq!(release(Some(&forced), seen, at(11)), Ended::Superseded);
    assert_eq!(force_release(Some(&forced), seen, OPERATOR, at(11)), Resolved::Before);
}

#[test]
fn nothing_overflows() {
    let forever = ClaimAsk { lease: Duration::MAX, max_execution: Duration::MAX, ..ask(ME) };
    let mut record = claimed(&forever, Timestamp::MAX);
    record.policy = Policy { retention: Duration::MAX, window: Some(Duration::MAX), ..record.policy };
    record.fence.token = u64::MAX;
    record.attempts = u32::MAX;
    let fence = record.fence;
    let _ = renew(Some(&record), fence, Duration::MAX, Timestamp::MAX);
    let released = now(release(Some(&record), fence, Timestamp::MAX));
    let again = claim(Some(&released), &ask(OTHER), Timestamp::EPOCH).unwrap();
    assert_eq!(again.record().fence, Fence { token: u64::MAX, owner: OTHER });
    let _ = force_release(Some(&record), fence, OPERATOR, Timestamp::EPOCH);
}

/// One step of a random history: who acts, how, and how much later.
#[derive(Clone, Debug)]
enum Step {
    Claim,
    Complete,
    Release,
    Renew,
}

proptest! {
    /// Whatever the order: a token never falls, one holder at most can finish under one token, and
    /// a finished record stays as it is until it expires.
    #[test]
    fn histories_keep_the_promises(
        steps in proptest::collection::vec(
            (0..4u8, prop_oneof![
                Just(Step::Claim), Just(Step::Complete), Just(Step::Release), Just(Step::Renew)
            ], 0..40u64),
            1..60),
        fenced: bool,
    ) {
        let commit = if fenced { CommitMode::WithEffects } else { CommitMode::AfterResponse };
        let mut record: Option<Record> = None;
        let mut fences = [None::<Fence>; 4];
        let mut executions = 0u32;
        let mut clock = 0;
        for (who, step, later) in steps {
            clock += later;
            let time = at(clock);
            let slot = usize::from(who);
            let before = record.clone();
            let next = match (step, fences[slot]) {
                (Step::Claim, _) => {
                    // Each claim is a new attempt, as in a real gate.
                    let owner = Owner([who + 10 * u8::try_from(executions % 20).unwrap(); 16]);
                    let claim_ask = ClaimAsk { policy: policy(commit, OnUnknown::Hold), ..ask(owner) };
                    claim(record.as_ref(), &claim_ask, time).ok().map(|grant| {
                        executions += 1;
                        fences[slot] = Some(grant.record().fence);
                        grant.record().clone()
                    })
                }
                (_, None) => None,
                (Step::Complete, Some(fence)) => match complete(record.as_ref(), fence, &response(200), time) {
                    Ended::Now(record) => Some(*record),
                    _ => None,
                },
                (Step::Release, Some(fence)) => match release(record.as_ref(), fence, time) {
                    Ended::Now(record) => Some(*record),
                    _ => None,
                },
                (Step::Renew, Some(fence)) => match renew(record.as_ref(), fence, LEASE, time) {
                    Renewal::Renewed(record) => Some(*record),
                    _ => None,
                },
            };
            if let (Some(before), Some(next)) = (&before, &next) {
                prop_assert!(next.fence.token >= before.fence.token);
                if matches!(before.stage, Stage::Finished(_)) {
                    prop_assert!(before.has_expired(time), "a finished record changed: {before:?} to {next:?}");
                }
                if before.is_leased(time) && before.fence != next.fence {
                    prop_assert!(false, "a live lease was taken: {before:?} to {next:?}");
                }
                if !fenced && next.fence.token > before.fence.token {
                    prop_assert!(before.stage != Stage::Processing, "held outcomes are not taken over");
                }
                prop_assert!(next.lease_until <= next.execution_until);
            }
            if next.is_some() {
                record = next;
            }
        }
    }
}
