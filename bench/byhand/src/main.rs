//! The statements of the idempotency gate sent by hand, without a gateway: what the database charges.
//!
//! `byhand first FILE SECONDS CONNECTIONS` inserts a record, commits, completes it, commits.
//! `byhand replay FILE SECONDS CONNECTIONS` selects one finished record by its primary key.
//!
//! Each connection has a thread, prepared statements, WAL, `synchronous=FULL` and a busy timeout of five
//! seconds. Printed are pairs of commits (or selects) a second, the longest that one took in milliseconds,
//! and how often a busy timeout ran out.

use std::env::args;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, params};

const SCHEMA: &str = include_str!("../../../crates/tidegate-store/src/sql/sqlite/idempotency.sql");
const INSERT: &str = "INSERT INTO tidegate_idempotency
    (operation, scope, key, state, token, owner, fingerprint, commit_mode, on_unknown, retention_ms, rules_version, flags,
     attempts, first_claimed_at, claimed_at, execution_until, lease_until, changed_at, expires_at)
    VALUES ('pay', 'alice', ?1, 'PROCESSING', 1, '0123456789abcdef0123456789abcdef', ?2, 'after_response', 'hold', 86400000,
     1, '', 1, 1, 1, 300000, 30000, 1, 9000000000000)";
const UPDATE: &str = "UPDATE tidegate_idempotency SET state = 'SUCCEEDED', status = 200, headers = ?2, body = ?3, changed_at = 2
    WHERE operation = 'pay' AND scope = 'alice' AND key = ?1 AND token = 1 AND owner = '0123456789abcdef0123456789abcdef'
    AND state = 'PROCESSING'";
const SELECT: &str = "SELECT state, token, owner, fingerprint, commit_mode, on_unknown, retention_ms, window_ms, rules_version,
    flags, attempts, first_claimed_at, claimed_at, execution_until, lease_until, changed_at, status, headers, body
    FROM tidegate_idempotency WHERE operation = 'pay' AND scope = 'alice' AND key = ?1";
const HEADERS: &[u8] = b"content-type: application/json\r\n";
const BODY: &[u8] = b"{\"account\":\"7\",\"balance\":100,\"currency\":\"EUR\"}\n";

/// What one connection did, the longest that it waited, and how often its busy timeout ran out.
type Outcome = rusqlite::Result<(u64, Duration, u64)>;

fn open(path: &str) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(5))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    Ok(db)
}

/// Repeats `work` until `end`.
fn repeat(end: Instant, mut work: impl FnMut(u64) -> rusqlite::Result<()>) -> Outcome {
    let (mut count, mut longest, mut busy) = (0, Duration::ZERO, 0);
    while Instant::now() < end {
        let begun = Instant::now();
        match work(count + busy) {
            Ok(()) => count += 1,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => busy += 1,
            Err(error) => return Err(error),
        }
        longest = longest.max(begun.elapsed());
    }
    Ok((count, longest, busy))
}

fn first(path: &str, thread: u64, end: Instant) -> Outcome {
    let db = open(path)?;
    let (mut insert, mut update) = (db.prepare(INSERT)?, db.prepare(UPDATE)?);
    repeat(end, |n| {
        let key = format!("{thread}-{n}");
        insert.execute(params![key, [7_u8; 40]])?;
        update.execute(params![key, HEADERS, BODY])?;
        Ok(())
    })
}

fn replay(path: &str, end: Instant) -> Outcome {
    let db = open(path)?;
    let mut select = db.prepare(SELECT)?;
    repeat(end, |_| {
        let body: Vec<u8> = select.query_row(["the-same"], |row| {
            let _: String = row.get(0)?;
            let _: Vec<u8> = row.get(17)?;
            row.get(18)
        })?;
        assert_eq!(body, BODY);
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = args().skip(1).collect();
    let [what, path, seconds, connections] = &given[..] else {
        return Err("usage: byhand first|replay FILE SECONDS CONNECTIONS".into());
    };
    let (span, connections) = (Duration::from_secs_f64(seconds.parse()?), connections.parse::<u64>()?);
    let db = open(path)?;
    db.execute_batch(SCHEMA)?;
    db.execute("DELETE FROM tidegate_idempotency", [])?;
    if what == "replay" {
        db.prepare(INSERT)?.execute(params!["the-same", [7_u8; 40]])?;
        db.prepare(UPDATE)?.execute(params!["the-same", HEADERS, BODY])?;
    }
    let begun = Instant::now();
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let work = |thread| move || if what == "first" { first(path, thread, begun + span) } else { replay(path, begun + span) };
        let threads: Vec<_> = (0..connections).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let (mut count, mut longest, mut busy) = (0, Duration::ZERO, 0);
    for outcome in outcomes {
        let (done, waited, given_up) = outcome?;
        (count, longest, busy) = (count + done, longest.max(waited), busy + given_up);
    }
    println!("{:.0} {:.0} {busy}", count as f64 / begun.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3);
    Ok(())
}
