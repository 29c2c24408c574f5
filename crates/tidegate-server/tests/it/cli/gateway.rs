//! What `tidegate gateway` says when it starts, and when it does not.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _};
use tidegate_testkit::program::Stream;
use tidegate_testkit::{Program, request, wait_until};

use super::Shell;
use crate::support::runtime;

const RULES: &str = "\
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { path: /pay }
limits:
  - id: per-second
    resources: [pay]
    token_bucket: { capacity: 10, refill: 10/s }
";
const START: &str =
    "gateway --upstream http://127.0.0.1:9 --rules rules.yaml --listen 127.0.0.1:0 --admin 127.0.0.1:0";

fn start(shell: &Shell) -> Program {
    let program = Program::start(&mut shell.command(START));
    program.wait_address("listening on http://");
    program
}

fn in_force(program: &Program) -> String {
    program.wait_line("the version in force", |line| line.strip_prefix("rules: ").map(str::to_owned))
}

#[test]
fn the_version_in_force_and_its_warnings_are_told() {
    let shell = Shell::new();
    shell.write("rules.yaml", RULES);
    let digest = shell.run("rules check rules.yaml").code(0).out;
    let (_, digest) = digest.split_once("digest=").unwrap();
    let mut program = start(&shell);
    let expected =
        format!("version 1; digest={} in force, from rules.yaml; 1 warning, see above", &digest[..12]);
    assert_eq!(in_force(&program), expected);
    program.wait_line("the warning", |line| line.contains("rules.yaml:8:19: warning: ").then_some(()));
    program.wait_line("a way to mend it", |line| line.starts_with("help: ").then_some(()));
    program.terminate();
    assert!(program.wait_exit().success());
    program.wait_line("its end", |line| (line == "stopped").then_some(()));

    // A file that is bad by now leaves the version in force, and both are told.
    shell.write("rules.yaml", RULES.replace("refill", "refil"));
    let mut program = start(&shell);
    let expected = expected.replace(", from rules.yaml", "; rules.yaml is refused, with 2 faults");
    assert_eq!(in_force(&program), expected);
    program
        .wait_line("the fault", |line| line.contains("rules.yaml:8:35: unknown field `refil`").then_some(()));
    // Nothing stands behind the text of a fault or warning that could be taken for its end.
    for line in program.printed(Stream::Err).lines().filter(|line| line.starts_with("help: ")) {
        assert!(!line.contains('='), "{line}");
    }
    program.kill();

    std::fs::remove_file(shell.path().join("rules.yaml")).unwrap();
    let program = start(&shell);
    assert_eq!(in_force(&program), expected.replace("is refused, with 2 faults", "is not there"));
}

#[test]
fn a_flood_of_warnings_is_counted_and_not_logged() {
    let shell = Shell::new();
    let (head, limit) = RULES.split_once("limits:\n").unwrap();
    let limits: String = (0..1_000).map(|at| limit.replace("per-second", &format!("l{at}"))).collect();
    shell.write("rules.yaml", format!("{head}limits:\n{limits}"));
    let mut program = start(&shell);
    assert!(in_force(&program).ends_with("; 1000 warnings, see above"));
    program.wait_line("what is left out", |line| line.contains("and 800 more warnings; ").then_some(()));
    assert_eq!(program.printed(Stream::Err).matches("warning: ").count(), 200);
    program.terminate();
    assert!(program.wait_exit().success());
}

#[test]
fn a_bad_file_and_no_version_in_force_exits_1_with_every_fault() {
    let shell = Shell::new();
    shell.write("rules.yaml", RULES.replace("refill", "refil").replace("[pay]", "[bay]"));
    let ran = shell.run(START).code(1).prints("");
    let ran = ran.says(&["rules.yaml:7:17: ", "rules.yaml:8:35: unknown field `refil`", "help: "]);
    assert_eq!(ran.err.matches("unknown field `refil`").count(), 1, "told once:\n{}", ran.err);
    std::fs::remove_file(shell.path().join("rules.yaml")).unwrap();
    let ran = shell.run(START).code(1).says(&["rules.yaml: there are no rules"]);
    assert!(!ran.err.contains("in force stays"), "there is none:\n{}", ran.err);
    shell.run("gateway --upstream nowhere").code(1).says(&["--upstream:1:1: ", "no rules are named"]);
}

#[test]
fn an_address_in_use_exits_1_and_so_does_a_database_that_is_not_ours() {
    let shell = Shell::new();
    shell.write("rules.yaml", RULES);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let line = START.replace("--listen 127.0.0.1:0", &format!("--listen {addr}"));
    let ran = shell.run(&line).code(1).prints("");
    ran.says(&[&format!("{addr} is in use by another program"), "--listen"]);
    assert!(!shell.path().join("tidegate.db").exists(), "nothing is made before the address is had");
    shell.write(
        "tidegate.db",
        "no database, but longer than the hundred bytes of a header, as SQLite looks at it before all else.",
    );
    shell.run(START).code(1).prints("").says(&["tidegate.db: is not a SQLite database"]);
    let ran = shell.run(&format!("{START} --store sqlite:no/such/dir.db")).code(4).prints("");
    let ran = ran.says(&["no/such/dir.db: cannot be opened as a database"]);
    assert_eq!(ran.err.matches("no/such/dir.db").count(), 1, "{}", ran.err);
    // Without any of these it runs, and answers.
    let shell = Shell::new();
    shell.write("rules.yaml", RULES);
    let program = start(&shell);
    let addr = program.wait_address("listening on http://");
    assert_eq!(request(addr, "GET", "/pay", &[], b"").status, 502);
}

/// Whoever starts it may change their mind at once: what comes before it is ready ends it as orderly as
/// what comes after.
#[test]
fn a_signal_before_it_is_ready_stops_it_orderly() {
    for signal in ["TERM", "INT"] {
        let shell = Shell::new();
        shell.write("rules.yaml", RULES);
        let runtime = runtime();
        let options = SqliteConnectOptions::new().filename(shell.path().join("tidegate.db"));
        let mut database = runtime.block_on(options.create_if_missing(true).connect()).unwrap();
        runtime.block_on(database.execute("BEGIN EXCLUSIVE")).unwrap();
        let mut program = Program::start(&mut shell.command(START));
        wait_until("the signals to be held", || held(program.pid()));
        program.signal(signal);
        let status = program.wait_exit();
        assert!(status.success(), "{status}");
        program.wait_line("why it ended", |line| (line == "stopped before it was ready").then_some(()));
        assert!(!program.printed(Stream::Out).contains("listening"));
    }
}

/// Whether a process handles both SIGINT (2) and SIGTERM (15) itself.
fn held(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    [2, 15].iter().all(|signal| caught & (1 << (signal - 1)) != 0)
}
