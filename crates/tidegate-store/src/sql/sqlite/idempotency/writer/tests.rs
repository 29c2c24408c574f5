use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::SqlitePool;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::sql::sqlite::open;

/// A database with a foreign key that is only checked at COMMIT.
async fn world() -> (TempDir, SqlitePool, Writer) {
    let folder = tempfile::tempdir().unwrap();
    let pool = open(&folder.path().join("test.db")).await.unwrap();
    sqlx::raw_sql(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY);
         CREATE TABLE marks (name TEXT NOT NULL, parent INTEGER
            REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let writer = Writer::start(pool.connect_options(), ClockShift::default()).unwrap();
    (folder, pool, writer)
}

async fn marks(pool: &SqlitePool) -> Vec<String> {
    sqlx::query_scalar("SELECT name FROM marks ORDER BY rowid").fetch_all(pool).await.unwrap()
}

/// Writes a mark, and does on top of it what a test needs.
#[derive(Clone)]
struct Mark {
    name: &'static str,
    then: Then,
}

#[derive(Clone)]
enum Then {
    Nothing,
    /// Says that it has begun, and waits.
    Wait {
        begun: Arc<Notify>,
        go: Arc<Notify>,
    },
    /// Lets COMMIT fail, so many times.
    BreakCommit(Arc<AtomicU32>),
    /// Loses the transaction, once.
    BreakStatement(Arc<AtomicU32>),
    /// Finds a row that it cannot read.
    Damaged,
    /// Counts what others see.
    Look(SqlitePool),
}

impl Command for Mark {
    type Out = usize;

    async fn run(&self, conn: &mut SqliteConnection, _: &ClockShift) -> Result<usize, Fault> {
        let still = |left: &AtomicU32| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        };
        let parent = match &self.then {
            Then::BreakCommit(left) if still(left) => Some(404),
            _ => None,
        };
        sqlx::query("INSERT INTO marks VALUES (?1, ?2)")
            .bind(self.name)
            .bind(parent)
            .execute(&mut *conn)
            .await?;
        match &self.then {
            Then::Wait { begun, go } => {
                begun.notify_one();
                go.notified().await;
            }
            Then::BreakStatement(left) if still(left) => {
                sqlx::query("INSERT INTO nowhere VALUES (1)").execute(conn).await?;
            }
            Then::Damaged => {
                return Err(Fault::Damaged(StoreError::Corrupt { store: STORE, what: "this one".into() }));
            }
            Then::Look(pool) => return Ok(marks(pool).await.len()),
            _ => {}
        }
        Ok(0)
    }
}

/// Queues `marks` behind a command that holds the writer until all of them wait.
async fn together(writer: &Writer, marks: Vec<Mark>) -> Vec<Result<usize, StoreError>> {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = Mark { name: "first", then: Then::Wait { begun: Arc::clone(&begun), go: Arc::clone(&go) } };
    let front = tokio::spawn({
        let writer = writer.clone();
        async move { writer.submit(first, || {}).await }
    });
    begun.notified().await;
    let mut calls = Vec::new();
    for mark in marks {
        let (queued, is_queued) = oneshot::channel();
        let writer = writer.clone();
        calls.push(tokio::spawn(async move { writer.submit(mark, || queued.send(()).unwrap()).await }));
        is_queued.await.unwrap();
    }
    go.notify_one();
    front.await.unwrap().unwrap();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

fn mark(name: &'static str, then: Then) -> Mark {
    Mark { name, then }
}

#[tokio::test]
async fn what_waits_together_commits_together_and_in_order() {
    let (_folder, pool, writer) = world().await;
    let answers = together(
        &writer,
        vec![mark("a", Then::Nothing), mark("b", Then::Nothing), mark("c", Then::Look(pool.clone()))],
    )
    .await;
    // While `c` runs, nobody outside sees more than the front command's own transaction.
    assert!(matches!(answers[..], [Ok(0), Ok(0), Ok(1)]), "{answers:?}");
    assert_eq!(marks(&pool).await, ["first", "a", "b", "c"]);
}

#[tokio::test]
async fn an_unknown_commit_is_settled_by_running_again() {
    let (_folder, pool, writer) = world().await;
    let once = Then::BreakCommit(Arc::new(AtomicU32::new(1)));
    let answers = together(&writer, vec![mark("a", Then::Nothing), mark("b", once)]).await;
    assert!(matches!(answers[..], [Ok(0), Ok(0)]), "{answers:?}");
    let mut all = marks(&pool).await;
    all.sort();
    assert_eq!(all, ["a", "b", "first"]);

    let always = Then::BreakCommit(Arc::new(AtomicU32::new(u32::MAX)));
    let error = writer.submit(mark("c", always), || {}).await.unwrap_err();
    assert!(matches!(error, StoreError::CommitUnknown { .. }), "{error}");
    writer.submit(mark("d", Then::Nothing), || {}).await.unwrap();
    assert_eq!(marks(&pool).await.len(), 4);
}

#[tokio::test]
async fn a_lost_transaction_is_everybodys_error_and_a_damaged_row_its_readers() {
    let (_folder, pool, writer) = world().await;
    let lost = Then::BreakStatement(Arc::new(AtomicU32::new(1)));
    let answers =
        together(&writer, vec![mark("a", Then::Nothing), mark("b", lost), mark("c", Then::Nothing)]).await;
    for answer in &answers {
        assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    }
    assert_eq!(marks(&pool).await, ["first"]);
    let answers = together(&writer, vec![mark("a", Then::Damaged), mark("b", Then::Nothing)]).await;
    assert!(matches!(answers[..], [Err(StoreError::Corrupt { .. }), Ok(0)]), "{answers:?}");
    assert_eq!(marks(&pool).await.len(), 4);
}

#[tokio::test]
async fn a_command_whose_caller_left_does_not_start() {
    let (_folder, pool, writer) = world().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = mark("first", Then::Wait { begun: Arc::clone(&begun), go: Arc::clone(&go) });
    let front = tokio::spawn({
        let writer = writer.clone();
        async move { writer.submit(first, || {}).await }
    });
    begun.notified().await;
    let (queued, is_queued) = oneshot::channel();
    let left = tokio::spawn({
        let writer = writer.clone();
        async move { writer.submit(mark("left", Then::Nothing), || queued.send(()).unwrap()).await }
    });
    is_queued.await.unwrap();
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    go.notify_one();
    front.await.unwrap().unwrap();
    writer.submit(mark("last", Then::Nothing), || {}).await.unwrap();
    assert_eq!(marks(&pool).await, ["first", "last"]);
}

#[tokio::test]
async fn what_is_posted_is_carried_out_when_the_queue_is_full_and_after_a_failure() {
    let (_folder, pool, writer) = world().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = mark("first", Then::Wait { begun: Arc::clone(&begun), go: Arc::clone(&go) });
    let front = tokio::spawn({
        let writer = writer.clone();
        async move { writer.submit(first, || {}).await }
    });
    begun.notified().await;
    let crowd: Vec<_> = (0..QUEUE + 10)
        .map(|_| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.submit(mark("crowd", Then::Nothing), || {}).await })
        })
        .collect();
    while writer.queue.capacity() > 0 {
        tokio::task::yield_now().await;
    }
    writer.post(mark("posted", Then::BreakStatement(Arc::new(AtomicU32::new(1)))));
    for call in crowd {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    go.notify_one();
    front.await.unwrap().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while !marks(&pool).await.contains(&"posted".to_owned()) {
        assert!(Instant::now() < deadline, "{:?}", marks(&pool).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nothing is left open: the writer ends with its last handle, and the rest was never begun.
    writer.submit(mark("last", Then::Nothing), || {}).await.unwrap();
    assert_eq!(marks(&pool).await, ["first", "posted", "last"]);
}

#[tokio::test]
async fn what_is_posted_and_never_works_does_not_stop_the_writer() {
    let (_folder, pool, writer) = world().await;
    writer.post(mark("never", Then::BreakStatement(Arc::new(AtomicU32::new(u32::MAX)))));
    let mut refused = 0;
    while writer.submit(mark("other", Then::Nothing), || {}).await.is_err() {
        refused += 1;
        assert!(refused <= POSTED_TRIES);
    }
    assert_eq!(marks(&pool).await, ["other"]);
}
