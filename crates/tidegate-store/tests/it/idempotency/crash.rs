//! A process that is killed at each step, for real.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tidegate_core::idempotency::How;

use super::*;

const FOLDER: &str = "TIDEGATE_TEST_CRASH_FOLDER";
const PLAN: &str = "TIDEGATE_TEST_CRASH_PLAN";

/// Where the child stops and waits to be killed.
const IN_TRANSACTION: [&str; 5] =
    ["before claim", "after claim", "after business write", "before commit", "after commit"];
const ELSEWHERE: [&str; 4] = ["before claim", "after claim", "after sending", "after completion"];

/// Says where it is, and waits for the end.
fn reached(step: &str, stop: &str) {
    if step == stop {
        println!("reached: {step}");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    }
}

/// Not a test of its own: the process that the others kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(folder), Ok(plan)) = (std::env::var(FOLDER), std::env::var(PLAN)) else { return };
    let (mode, stop) = plan.split_once(": ").unwrap();
    let folder = PathBuf::from(folder);
    let (pool, store) = instance(&folder.join("test.db"), &ClockShift::default()).await;
    reached("before claim", stop);
    if mode == "in transaction" {
        let attempt = held(&store, "k1", &fenced(1)).await;
        reached("after claim", stop);
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query("INSERT INTO payments VALUES ('first')").execute(&mut *tx).await.unwrap();
        reached("after business write", stop);
        assert_eq!(complete_in(&mut tx, &attempt, &response("first")).await.unwrap(), Fenced::Done);
        reached("before commit", stop);
        tx.commit().await.unwrap();
        reached("after commit", stop);
    } else {
        let on_unknown = if mode == "retry" { OnUnknown::Retry } else { OnUnknown::Hold };
        let attempt = held(&store, "k1", &ask(1, CommitMode::AfterResponse, on_unknown)).await;
        reached("after claim", stop);
        send(&folder, "first");
        reached("after sending", stop);
        assert_eq!(store.complete(&attempt, &response("first")).await.unwrap(), Fenced::Done);
        reached("after completion", stop);
    }
    panic!("no step is called {stop:?}");
}

/// The effect elsewhere: a line in a file.
fn send(folder: &Path, who: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("sent")).unwrap();
    writeln!(file, "{who}").unwrap();
    file.sync_all().unwrap();
}

fn sent(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("sent")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Runs the child to `stop` and kills it there.
fn kill_at(folder: &Path, mode: &str, stop: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idempotency::crash::child", "--nocapture"])
        .env(FOLDER, folder)
        .env(PLAN, format!("{mode}: {stop}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let there = lines.map_while(Result::ok).any(|line| line.contains(&format!("reached: {stop}")));
    assert!(there, "{mode}: the child ended before {stop}");
    // On Unix this is SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn i5_effects_in_the_transaction_happen_once_whatever_is_killed() {
    for stop in IN_TRANSACTION {
        let folder = tempfile::tempdir().unwrap();
        kill_at(folder.path(), "in transaction", stop);
        let shift = ClockShift::default();
        let (pool, store) = instance(&folder.path().join("test.db"), &shift).await;
        let finished = stop == "after commit";
        assert_eq!(payments(&pool).await, i64::from(finished), "{stop}");
        if !finished && stop != "before claim" {
            assert!(matches!(answer(&store, "k1", &fenced(2)).await, Answer::InProgress { .. }), "{stop}");
        }
        let before = store.read(&id("k1")).await.unwrap();
        shift.advance(LEASE);
        match claim(&store, "k1", &fenced(2)).await {
            Claimed::Held(attempt) => {
                assert!(!finished, "{stop}");
                let (how, token) = if stop == "before claim" { (How::New, 1) } else { (How::TakenOver, 2) };
                assert_eq!((attempt.how(), attempt.fence().token), (how, token), "{stop}");
                assert_eq!(pay(&pool, &attempt, &response("second")).await.unwrap(), Fenced::Done);
            }
            Claimed::Answer(Answer::Replay { .. }) => assert!(finished, "{stop}"),
            Claimed::Answer(other) => panic!("{stop}: {other:?}"),
        }
        for number in 3..6 {
            let Answer::Replay { response: told, .. } = answer(&store, "k1", &fenced(number)).await else {
                panic!("{stop}")
            };
            assert_eq!(*told, *response(if finished { "first" } else { "second" }), "{stop}");
        }
        assert_eq!(payments(&pool).await, 1, "{stop}");
        if finished {
            let after = store.read(&id("k1")).await.unwrap();
            assert_eq!(after.map(|shown| shown.record), before.map(|shown| shown.record));
        }
    }
}

#[tokio::test]
async fn i5_effects_elsewhere_are_held_or_sent_again_with_a_higher_fence() {
    for stop in ELSEWHERE {
        for (mode, on_unknown) in [("hold", OnUnknown::Hold), ("retry", OnUnknown::Retry)] {
            let case = format!("{mode}, {stop}");
            let folder = tempfile::tempdir().unwrap();
            kill_at(folder.path(), mode, stop);
            let shift = ClockShift::default();
            let (_, store) = instance(&folder.path().join("test.db"), &shift).await;
            shift.advance(LEASE);
            let ask = |number| ask(number, CommitMode::AfterResponse, on_unknown);
            match (claim(&store, "k1", &ask(2)).await, stop, mode) {
                (Claimed::Held(attempt), "before claim", _) => assert_eq!(attempt.how(), How::New, "{case}"),
                (Claimed::Held(attempt), "after claim" | "after sending", "retry") => {
                    assert_eq!((attempt.how(), attempt.fence().token), (How::TakenOver, 2), "{case}");
                    send(folder.path(), "second");
                    let done = store.complete(&attempt, &response("second")).await.unwrap();
                    assert_eq!(done, Fenced::Done, "{case}");
                }
                (Claimed::Answer(Answer::OutcomeUnknown { .. }), "after claim" | "after sending", "hold") => {
                    // It stays so for as long as the record counts.
                    shift.advance(RETENTION.mul_f64(0.9));
                    let later = answer(&store, "k1", &ask(3)).await;
                    assert!(matches!(later, Answer::OutcomeUnknown { .. }), "{case}: {later:?}");
                }
                (Claimed::Answer(Answer::Replay { response: told, .. }), "after completion", _) => {
                    assert_eq!(*told, *response("first"), "{case}");
                }
                (other, ..) => panic!("{case}: {other:?}"),
            }
            let expected: &[&str] = match (stop, mode) {
                ("after claim", "retry") => &["second"],
                ("after sending", "retry") => &["first", "second"],
                ("after sending", "hold") | ("after completion", _) => &["first"],
                _ => &[],
            };
            assert_eq!(sent(folder.path()), expected, "{case}");
        }
    }
}
