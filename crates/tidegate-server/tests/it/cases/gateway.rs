//! A `tidegate gateway` process, its rule file, its database and its origin.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;
use tidegate_testkit::program::{Program, Stream};
use tidegate_testkit::{Connection, Origin, Response, request, try_request, wait_for};

use crate::support::runtime;

/// A gateway at work. When the value is dropped, it is asked to end; it must then end with status 0 and
/// must not have panicked on the way.
pub(super) struct Gateway {
    pub(super) addr: SocketAddr,
    pub(super) origin: Arc<Origin>,
    dir: Arc<TempDir>,
    setup: Setup,
    program: Option<Program>,
}

/// How a gateway is started, beside its rules.
#[derive(Clone, Default)]
pub(super) struct Setup {
    /// Further flags.
    pub(super) flags: Vec<String>,
    /// `TIDEGATE_…` variables.
    pub(super) variables: Vec<(&'static str, String)>,
    /// In place of the origin's URL.
    pub(super) upstreams: Vec<String>,
}

impl Setup {
    pub(super) fn flags(flags: &[&str]) -> Self {
        Self { flags: flags.iter().map(|&flag| flag.to_owned()).collect(), ..Self::default() }
    }
}

impl Gateway {
    /// With these sections as its rules, and records in SQLite.
    pub(super) fn start(rules: &str) -> Self {
        Self::with(rules, Setup::default())
    }

    pub(super) fn with(rules: &str, setup: Setup) -> Self {
        let dir = Arc::new(tidegate_testkit::temp_dir());
        write_rules(&dir, rules);
        Self::launch(dir, Arc::new(Origin::start()), setup)
    }

    fn launch(dir: Arc<TempDir>, origin: Arc<Origin>, setup: Setup) -> Self {
        let program = Program::start(&mut command(&dir, &origin, &setup));
        let addr = program.wait_line("where it listens", |line| {
            line.strip_prefix("listening on http://")?.trim().parse().ok()
        });
        Self { addr, origin, dir, setup, program: Some(program) }
    }

    /// A second process on the same database and rule file, in front of the same origin.
    pub(super) fn sibling(&self) -> Self {
        Self::launch(Arc::clone(&self.dir), Arc::clone(&self.origin), self.setup.clone())
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        if let Some(mut program) = self.program.take() {
            program.kill();
            no_panic(&program);
        }
    }

    /// `kill -9`, and a new process on the same database.
    pub(super) fn crash_and_restart(mut self) -> Self {
        self.kill();
        self.sibling()
    }

    /// Ends it in order, and starts it again.
    pub(super) fn restart(mut self) -> Self {
        self.stop();
        self.sibling()
    }

    /// Asks it to end and waits until it has: with status 0, and without a panic.
    pub(super) fn stop(&mut self) {
        if let Some(mut program) = self.program.take() {
            program.terminate();
            let status = program.wait_exit();
            let printed = program.printed(Stream::Err);
            assert!(status.success(), "{status}\n{printed}");
            no_panic(&program);
        }
    }

    pub(super) fn terminate(&self) {
        self.program().terminate();
    }

    pub(super) fn program(&self) -> &Program {
        self.program.as_ref().unwrap()
    }

    /// Resident memory in bytes.
    pub(super) fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program().pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    // ---- requests --------------------------------------------------------------------------------

    pub(super) fn get(&self, target: &str) -> Response {
        request(self.addr, "GET", target, &[], b"")
    }

    pub(super) fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        request(self.addr, method, target, headers, body)
    }

    /// A POST with an idempotency key.
    pub(super) fn post(&self, target: &str, key: &str, body: &str) -> Response {
        request(self.addr, "POST", target, &[("Idempotency-Key", key)], body.as_bytes())
    }

    /// The same from another thread.
    pub(super) fn post_later(&self, target: &str, key: &str, body: &str) -> JoinHandle<Response> {
        let (addr, target, key, body) = (self.addr, target.to_owned(), key.to_owned(), body.to_owned());
        std::thread::spawn(move || {
            request(addr, "POST", &target, &[("Idempotency-Key", &key)], body.as_bytes())
        })
    }

    /// Repeats a POST until `done`.
    pub(super) fn post_until(&self, target: &str, key: &str, done: impl Fn(&Response) -> bool) -> Response {
        wait_for(&format!("the answer to {key}"), || {
            Some(self.post(target, key, "{}")).filter(|response| done(response))
        })
    }

    /// Sends a POST and does not wait for its answer.
    pub(super) fn begin(&self, target: &str, key: &str, body: &str) -> Connection {
        let mut connection = Connection::open(self.addr).unwrap();
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\n");
        connection.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).unwrap();
        connection
    }

    // ---- rules -----------------------------------------------------------------------------------

    /// Writes the rule file as an editor does.
    pub(super) fn edit(&self, rules: &str) {
        write_rules(&self.dir, rules);
    }

    /// The number of the version that answers now.
    pub(super) fn version(&self) -> u64 {
        let response = try_request(self.addr, "GET", "/version", &[], b"").unwrap();
        number_of(&response)
    }

    /// Waits until a version from `number` on answers.
    pub(super) fn wait_version(&self, number: u64) {
        wait_for(&format!("version {number}"), || Some(self.version()).filter(|now| *now >= number));
    }

    // ---- files -----------------------------------------------------------------------------------

    pub(super) fn dir(&self) -> &TempDir {
        &self.dir
    }

    pub(super) fn rules_path(&self) -> PathBuf {
        self.dir.path().join("rules.yaml")
    }

    /// A connection of another program to its database.
    pub(super) fn database(&self) -> Database {
        Database::open(self.dir.path().join("tidegate.db"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A test that has failed says more than what its gateway does about it.
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

fn no_panic(program: &Program) {
    // The last lines may arrive after the end.
    wait_for("all that it says", || program.ended_streams().then_some(()));
    let printed = program.printed(Stream::Err);
    assert!(!printed.contains("panicked"), "{printed}");
}

/// The exit status of a gateway that does not start, and what it says on standard error.
pub(super) fn refused_start(dir: &TempDir, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = plain_command(dir);
    command.args(["gateway", "--upstream", "http://127.0.0.1:9", "--admin", "127.0.0.1:0"]).args(flags);
    if !flags.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let mut program = Program::start(&mut command);
    let status = program.wait_exit();
    no_panic(&program);
    assert_eq!(program.printed(Stream::Out), "");
    (status.code(), program.printed(Stream::Err))
}

/// The command that a gateway is.
fn command(dir: &TempDir, origin: &Origin, setup: &Setup) -> Command {
    let mut command = plain_command(dir);
    command.args(["gateway", "--rules", "rules.yaml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    if setup.upstreams.is_empty() {
        command.args(["--upstream", &origin.url()]);
    }
    for upstream in &setup.upstreams {
        command.args(["--upstream", upstream]);
    }
    command.args(&setup.flags).envs(setup.variables.iter().map(|(name, value)| (name, value)));
    command
}

/// The program, in a directory of its own and without the settings of whoever runs the tests.
pub(super) fn plain_command(dir: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(dir.path()).env("RUST_BACKTRACE", "0");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command
}

pub(super) fn write_rules(dir: &TempDir, rules: &str) {
    write_whole(dir, &format!("apiVersion: tidegate/v1\n{rules}"));
}

/// Renames a new file over the old one, so that no look at it finds half.
pub(super) fn write_whole(dir: &TempDir, text: &str) {
    fs::write(dir.path().join("rules.new"), text).unwrap();
    fs::rename(dir.path().join("rules.new"), dir.path().join("rules.yaml")).unwrap();
}

/// The number in `Tidegate-Version`.
pub(super) fn number_of(response: &Response) -> u64 {
    let version = response.header("tidegate-version").unwrap();
    version.split(';').next().unwrap().parse().unwrap()
}

/// The last part of a problem's `type`.
pub(super) fn problem(response: &Response) -> String {
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{response:?}");
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(body["status"], response.status, "{body}");
    body["type"].as_str().unwrap().rsplit([':', '#']).next().unwrap().to_owned()
}

/// Status and problem in one, for tables.
pub(super) fn outcome(response: &Response) -> (u16, String) {
    (response.status, problem(response))
}

pub(super) fn is_replay(response: &Response) -> bool {
    response.header("idempotent-replayed") == Some("true")
}

/// The value of `Retry-After` in seconds.
pub(super) fn retry_after(response: &Response) -> u64 {
    let value = response.header("retry-after");
    assert!(value.is_some(), "{response:?}");
    value.unwrap().parse().unwrap()
}

/// The database, as another program sees it.
pub(super) struct Database {
    connection: SqliteConnection,
    runtime: tokio::runtime::Runtime,
}

impl Database {
    fn open(path: PathBuf) -> Self {
        let runtime = runtime();
        let options = SqliteConnectOptions::new().filename(path);
        let connection = runtime.block_on(options.connect()).unwrap();
        Self { connection, runtime }
    }

    /// Runs statements.
    pub(super) fn run(&mut self, sql: &str) {
        let statements = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut self.connection);
        self.runtime.block_on(statements).unwrap();
    }

    /// The one number that a query gives.
    pub(super) fn number(&mut self, sql: &str) -> i64 {
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection);
        self.runtime.block_on(query).unwrap()
    }
}
