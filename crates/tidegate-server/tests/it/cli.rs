//! The command line, by its real binary: exit codes, results on standard output, messages on standard
//! error.

mod flags;
mod gateway;
mod idempotency;
mod limits;
mod quickstart;
mod rules;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a command ended, and what it wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A directory of its own, in which commands run.
pub(crate) struct Shell(tempfile::TempDir);

impl Shell {
    pub(crate) fn new() -> Self {
        Self(tidegate_testkit::temp_dir())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// The program, to be started here with `line`, whose words are separated by blanks.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(line.split_whitespace()).current_dir(self.path());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_"))
        {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_with(line, &[], "")
    }

    /// The same with further arguments as they stand, and with something on standard input.
    pub(crate) fn run_with(&self, line: &str, more: &[&str], input: impl AsRef<[u8]>) -> Ran {
        let mut command = self.command(line);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.as_ref().to_vec();
        // Written beside the reading, so that neither waits for the other; who does not read its input
        // may end before it is written.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// That it ended so.
    #[track_caller]
    pub(crate) fn code(self, expected: i32) -> Self {
        assert_eq!(self.code, expected, "{}\n{}", self.out, self.err);
        self
    }

    /// That its messages contain each of these.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in\n{}", self.err);
        }
        self
    }

    /// That its result is exactly this.
    #[track_caller]
    pub(crate) fn prints(self, expected: &str) -> Self {
        assert_eq!(self.out, expected, "{}", self.err);
        self
    }

    /// That its result begins with this.
    #[track_caller]
    pub(crate) fn prints_start(self, expected: &str) -> Self {
        assert!(self.out.starts_with(expected), "{}\n{}", self.out, self.err);
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap()
    }

    /// Each line of the result.
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn a_wrong_command_line_exits_2_and_says_what_is_known() {
    let shell = Shell::new();
    for (line, says) in [
        ("", "Usage: tidegate <COMMAND>"),
        ("gatway", "'gateway'"),
        ("gateway --nothing", "--nothing"),
        ("rules", "Usage: tidegate rules <COMMAND>"),
        ("rules check", "<FILE>"),
        ("rules diff a.yaml", "<B>"),
        ("rules check - -", "name - once"),
        ("rules diff - -", "name - for one of the two"),
        ("flags eval --flag f", "--rules <FILE>"),
        ("flags eval --rules - --flag f --subjects -", "standard input can be read only once"),
        ("flags eval --rules r.yaml --flag f --attributes [1]", "--attributes: this is no object"),
        ("flags explain --rules r.yaml --flag f --attributes {", "--attributes: "),
        ("idempotency show --operation o", "--key <KEY>"),
        ("idempotency show --operation o --key k --store memory:", "can only be seen from inside it"),
        ("idempotency show --operation o --key k --store tidegate.db", "write sqlite:PATH"),
        ("idempotency resolve --operation o --key k --as happened", "--status <STATUS>"),
        ("idempotency resolve --operation o --key k --as perhaps", "not-applied"),
        ("idempotency resolve --operation o --key k --as happened --status 500", "never a result"),
        ("idempotency resolve --operation o --key k --as happened --status 429", "never a result"),
        (
            "idempotency resolve --operation o --key k --as happened --status 201 --header nothing",
            "'name: value'",
        ),
        (
            "idempotency resolve --operation o --key k --as happened --status 201 --header date:now",
            "never replayed",
        ),
        (
            "idempotency resolve --operation o --key k --as happened --status 201 --body nofile",
            "cannot be read",
        ),
        ("idempotency resolve --operation o --key k --as not-applied --status 201", "for --as happened"),
    ] {
        let ran = shell.run(line).code(2).says(&[says]);
        assert_eq!(ran.out, "", "{line}");
    }
    assert_eq!(std::fs::read_dir(shell.path()).unwrap().count(), 0, "a refused command writes nothing");
}

#[test]
fn help_and_version_exit_0() {
    let shell = Shell::new();
    let help = shell.run("--help").code(0);
    assert!(help.out.starts_with("Rate limiting, idempotency keys, circuit breaking and "), "{}", help.out);
    for command in ["gateway", "quickstart", "rules", "flags", "idempotency"] {
        assert!(help.out.contains(&format!("  {command} ")), "{}", help.out);
    }
    assert!(shell.run("--version").code(0).out.starts_with("tidegate "));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let shell = Shell::new();
    let rules = shell.write("rules.yaml", flags::RULES);
    let subjects = shell.write("subjects", "u\n".repeat(100_000));
    let line = format!(
        "set -o pipefail; '{}' flags eval --rules '{}' --flag f --subjects '{}' | head -n 1",
        env!("CARGO_BIN_EXE_tidegate"),
        rules.display(),
        subjects.display()
    );
    let output = Command::new("bash").arg("-c").arg(line).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
