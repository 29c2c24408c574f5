//! `kill -9` of a real process at each step of an execution.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use http::{Request, Response, StatusCode};
use tempfile::TempDir;
use tidegate::{Body, Claim};

use super::world::{LEASE, RULES, Registrar, World, answer, register};

/// Says to the child where to stop, and in which database.
const STOP_AT: &str = "TIDEGATE_TEST_STOP_AT";
const DATABASE: &str = "TIDEGATE_TEST_DATABASE";

/// (where the process is killed, whether the record was claimed then, whether it was complete)
const POINTS: [(&str, bool, bool); 5] = [
    ("before-claim", false, false),
    ("after-claim", true, false),
    ("after-write", true, false),
    ("before-commit", true, false),
    ("after-commit", true, true),
];

#[tokio::test]
async fn i5_a_process_killed_at_any_step_leaves_one_effect_and_every_retry_replays() {
    for (point, claimed, complete) in POINTS {
        let directory = TempDir::new().unwrap();
        let database = directory.path().join("service.db");
        kill_at(point, &database);

        let world = World::at(&database, RULES).await;
        let (registrar, _begun) = Registrar::new(&world);
        assert_eq!(world.rows().await, i64::from(complete), "{point}");
        if claimed && !complete {
            let early = world.send(&registrar, register("k1")).await;
            assert_eq!((early.status, registrar.count()), (409, 0), "{point}");
            world.shift.advance(LEASE);
        }
        let first = world.send(&registrar, register("k1")).await;
        assert_eq!((first.status, first.replayed()), (201, complete), "{point}: {first:?}");
        for _ in 0..3 {
            let again = world.send(&registrar, register("k1")).await;
            assert_eq!((again.status, again.replayed()), (201, true), "{point}: {again:?}");
            assert_eq!(again.body, first.body, "{point}");
        }
        assert_eq!((world.rows().await, registrar.count()), (1, u32::from(!complete)), "{point}");
    }
}

/// Runs this test binary as a process of its own until it has come to `point`, and kills it there.
fn kill_at(point: &str, database: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "library::crash::the_process_that_is_killed", "--nocapture"])
        .env(STOP_AT, point)
        .env(DATABASE, database)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let arrived = lines.any(|line| line.unwrap() == point);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(arrived, "the process ended before it came to {point}");
}

/// Does nothing unless [`kill_at`] runs it.
#[tokio::test]
async fn the_process_that_is_killed() {
    let (Ok(point), Some(database)) = (std::env::var(STOP_AT), std::env::var_os(DATABASE)) else { return };
    let world = World::at(Path::new(&database), RULES).await;
    let db = world.db.clone();
    let handler = {
        let point = point.clone();
        move |request: Request<Body>| {
            let (db, point) = (db.clone(), point.clone());
            async move { execute(&db, &point, request).await }
        }
    };
    stop(&point, "before-claim").await;
    world.send(&handler, register("k1")).await;
    panic!("it went past {point}");
}

async fn execute(db: &sqlx::SqlitePool, point: &str, request: Request<Body>) -> Response<Body> {
    let claim = Claim::of(&request.into_parts().0).unwrap();
    stop(point, "after-claim").await;
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    if point == "before-commit" {
        // SQLite calls it once the record is complete and the commit is about to begin.
        let mut connection = tx.lock_handle().await.unwrap();
        connection.set_commit_hook(|| {
            eprintln!("before-commit");
            loop {
                std::thread::park();
            }
        });
    }
    sqlx::query("INSERT INTO registrations (address) VALUES ('ann@example.com')")
        .execute(&mut *tx)
        .await
        .unwrap();
    stop(point, "after-write").await;
    let made = answer(StatusCode::CREATED, &format!("attempt {}", claim.attempt()));
    let response = claim.commit(tx, made).await.unwrap();
    stop(point, "after-commit").await;
    response
}

async fn stop(point: &str, here: &str) {
    if point == here {
        eprintln!("{here}");
        std::future::pending::<()>().await;
    }
}
