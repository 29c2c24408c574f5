//! `tidegate quickstart`: every printed line is run against the statuses printed beside it.

use std::path::Path;
use std::process::Command;

use tidegate_testkit::program::Stream;
use tidegate_testkit::{Program, wait_for};

use super::Shell;

const START: &str = "quickstart --listen 127.0.0.1:0 --admin 127.0.0.1:0";
const RULES_FILE: &str = "quickstart.rules.yaml";

fn start(shell: &Shell, line: &str) -> Program {
    let program = Program::start(&mut shell.command(line));
    program.wait_line("the end of the guide", |line| (line == "Ctrl-C ends all of it.").then_some(()));
    program
}

/// Runs a line as a newcomer does, and gives the statuses that it shows and the whole of its output.
fn shown(line: &str, dir: &Path) -> (String, String) {
    let output = Command::new("bash").arg("-c").arg(line).current_dir(dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{line}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let heads: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("HTTP/1.1 "))
        .filter_map(|rest| rest.get(..3))
        .collect();
    let statuses = if heads.is_empty() { text.trim().to_owned() } else { heads.join(" ") };
    (statuses, text)
}

#[test]
fn each_printed_line_shows_the_status_beside_it() {
    let shell = Shell::new();
    let mut program = start(&shell, START);
    let guide = program.printed(Stream::Out);
    let steps: Vec<(&str, &str)> = guide
        .lines()
        .filter_map(|line| line.rsplit_once(" # "))
        .filter(|(_, statuses)| statuses.chars().all(|c| c.is_ascii_digit() || c == ' '))
        .collect();
    // All parts of the guide, and no line is missed by its spelling.
    assert_eq!(guide.matches("curl ").count(), steps.len(), "{guide}");
    assert_eq!(guide.matches("\n== ").count(), 6, "{guide}");
    let mut texts = Vec::new();
    for (command, expected) in &steps {
        let line = format!("{command} # {expected}");
        let (mut statuses, mut text) = shown(&line, shell.path());
        if command.contains("sed -i") && statuses != *expected {
            // The line waits for two seconds, which a very busy machine may not keep: its request again,
            // until the edit is in force.
            let (_, again) = command.rsplit_once("; ").unwrap();
            (statuses, text) = wait_for("the edit to be in force", || {
                Some(shown(again, shell.path())).filter(|(statuses, _)| statuses == expected)
            });
        }
        assert_eq!(statuses, *expected, "{line}\n{text}");
        texts.push(text);
    }
    let text_of = |part: &str| {
        let at = steps.iter().position(|(command, _)| command.contains(part)).unwrap();
        texts[at].as_str()
    };
    // What the words beside the lines promise.
    assert!(texts[0].contains(r#""payment":1}"#) && texts[1].contains(r#""payment":1}"#));
    assert!(!texts[0].contains("idempotent-replayed") && texts[1].contains("idempotent-replayed: true"));
    assert!(text_of("b-7").contains("retry-after: "));
    assert!(text_of("eve@example.com").contains(r#""flags":"new-checkout=\"on\"""#));
    assert!(text_of("'X-User: dan'").contains(r#""flags":"new-checkout=\"off\"""#));
    let cached = texts.iter().find(|text| text.contains("cache-status: tidegate; hit")).unwrap();
    let age = cached.lines().find_map(|line| line.strip_prefix("age: ")?.trim().parse::<u64>().ok());
    assert!(age.is_some_and(|age| age < 60) && cached.contains(r#""account":"1""#), "{cached}");
    assert!(text_of("/accounts/2").contains(r#"{"status":"busy"}"#));
    assert!(
        text_of("b-11").contains("tidegate-version: 2;") && text_of("b-12").contains("tidegate-version: 2;")
    );
    assert!(text_of("/v1/resources").contains("account-errors"));
    assert!(text_of("/v1/audit").contains("`-1` is outside"));
    assert!(text_of("/metrics").contains("tidegate_limit_decisions_total{"));
    // The bad edit is told with its place, and the file is as it was at the start.
    program.wait_line("the fault", |line| {
        line.contains("quickstart.rules.yaml:22:31: `-1` is outside").then_some(())
    });
    program.signal("INT");
    assert!(program.wait_exit().success());
    drop(program);
    let again = start(&shell, START);
    assert!(again.printed(Stream::Out).contains("(found, as it was written for you before)"));
    again.terminate();
}

#[test]
fn an_edited_rule_file_is_used_and_kept() {
    let shell = Shell::new();
    let original = start(&shell, START);
    assert!(original.printed(Stream::Out).contains("(written for you)"));
    drop(original);
    let edited = shell.read(RULES_FILE).replace("capacity: 5", "capacity: 1");
    shell.write(RULES_FILE, &edited);
    let mut program = start(&shell, START);
    assert!(program.printed(Stream::Out).contains("(found with other rules than the quickstart's"));
    assert_eq!(shell.read(RULES_FILE), edited);
    let addr = program.wait_address("listening on http://");
    let pay = |key| {
        let headers = [("X-User", "ada"), ("Idempotency-Key", key)];
        tidegate_testkit::request(addr, "POST", "/orders/1/pay", &headers, b"").status
    };
    assert_eq!((pay("1"), pay("2")), (201, 429));
    // Nothing but the rule file is left behind.
    program.terminate();
    assert!(program.wait_exit().success());
    let left: Vec<_> =
        std::fs::read_dir(shell.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [RULES_FILE]);
    // A broken one is refused with every fault, and kept as well.
    shell.write(RULES_FILE, "apiVersion: tidegate/v1\nlimts: []\n");
    let ran = shell.run(START).code(1).prints("");
    ran.says(&["quickstart.rules.yaml:2:1: ", "`limits`", "is used as it was found: mend it, or delete it"]);
    assert_eq!(shell.read(RULES_FILE), "apiVersion: tidegate/v1\nlimts: []\n");
}

#[test]
fn the_directory_and_the_addresses_can_be_chosen() {
    let shell = Shell::new();
    std::fs::create_dir(shell.path().join("it's here")).unwrap();
    let mut command = shell.command(START);
    let program = Program::start(command.args(["--dir", "it's here"]));
    let line =
        program.wait_line("a line that edits", |line| line.starts_with("sed -i").then(|| line.to_owned()));
    // The path is one word to the shell.
    let (edit, _) = line.split_once(';').unwrap();
    let output = Command::new("bash").arg("-c").arg(edit).current_dir("/").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(shell.read("it's here/quickstart.rules.yaml").contains("capacity: 50,"));
    drop(program);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let ran = shell.run(&format!("quickstart --admin 127.0.0.1:0 --listen {addr}")).code(1).prints("");
    ran.says(&[&format!("{addr} is in use"), "choose another address with --listen"]);
    shell.run("quickstart --listen nowhere").code(1).prints("").says(&["--listen:1:1: "]);
    shell.run("quickstart --dir nodir").code(1).prints("").says(&["cannot be written or read", "--dir"]);
}
