//! `tidegate flags`.

use serde_json::json;

use super::Shell;

pub(super) const RULES: &str = r#"
apiVersion: tidegate/v1
flags:
  - key: f
    default: "off"
    rules:
      - { id: deny, priority: 100, when: { tenant: { in: [umbrella] } }, serve: "off" }
      - { id: allow, priority: 50, when: { tenant: { equals: acme } }, serve: "on" }
      - { id: ramp, priority: 10, percentage: 50, serve: "on" }
  - key: ab
    variants: { a: 1.50, b: { "c": [1, null] } }
    default: a
    rules: [ { id: half, priority: 1, serve: { split: { a: 50, b: 50 } } } ]
  - key: fixed
    default: "on"
"#;

fn shell() -> (Shell, String) {
    let shell = Shell::new();
    shell.write("rules.yaml", RULES);
    let checked = shell.run("rules check rules.yaml").code(0).out;
    let (_, digest) = checked.split_once("digest=").unwrap();
    let version = format!("digest={}", &digest[..12]);
    (shell, version)
}

/// The bucket by the published formula, from the system's own SHA-256.
fn bucket(flag: &str, subject: &str) -> u32 {
    let shell = format!("printf %s '{flag}:{subject}' | sha256sum");
    let output = std::process::Command::new("sh").arg("-c").arg(shell).output().unwrap();
    let hex = String::from_utf8(output.stdout).unwrap();
    u32::from_str_radix(&hex[..8], 16).unwrap() % 10_000
}

#[test]
fn one_line_for_each_subject_in_their_order() {
    let (shell, version) = shell();
    let subjects = ["u1", "u2", "ünïcode", "", " spaced ", "quo\"te"];
    let text = subjects.map(|subject| format!("{subject}\n")).concat();
    let ran = shell.run_with("flags eval --rules rules.yaml --flag f --subjects -", &[], &text).code(0);
    assert_eq!(ran.err, "");
    let line = |subject: &str| {
        let bucket = bucket("f", subject);
        let (value, variant, reason, rule) = if bucket < 5_000 {
            (true, "on", "SPLIT", json!("ramp"))
        } else {
            (false, "off", "DEFAULT", json!(null))
        };
        let subject = json!(subject);
        format!(
            "{{\"subject\":{subject},\"value\":{value},\"variant\":\"{variant}\",\"reason\":\"{reason}\",\
             \"rule\":{rule},\"version\":\"{version}\",\"bucket\":{bucket}}}\n"
        )
    };
    let expected = subjects.map(line).concat();
    let ran = ran.prints(&expected);
    // The same from a file with the other line ends, and from arguments.
    shell.write("subjects", text.replace('\n', "\r\n"));
    shell.run("flags eval --rules rules.yaml --flag f --subjects subjects").code(0).prints(&ran.out);
    let arguments: Vec<&str> = subjects.iter().flat_map(|subject| ["--subject", subject]).collect();
    shell.run_with("flags eval --rules rules.yaml --flag f", &arguments, "").code(0).prints(&ran.out);
}

#[test]
fn attributes_are_those_of_every_request() {
    let (shell, version) = shell();
    for (attributes, expected) in [
        (r#"{"tenant":"acme"}"#, json!([true, "on", "TARGETING_MATCH", "allow"])),
        (r#"{"tenant":"umbrella"}"#, json!([false, "off", "TARGETING_MATCH", "deny"])),
    ] {
        let line = "flags eval --rules rules.yaml --flag f --attributes";
        let ran = shell.run_with(line, &[attributes], "").code(0);
        let [result] = ran.json_lines().try_into().unwrap();
        let found = json!([result["value"], result["variant"], result["reason"], result["rule"]]);
        assert_eq!(found, expected);
        // Nobody drew, and nobody had to say who is asking.
        assert_eq!((&result["subject"], &result["bucket"]), (&json!(null), &json!(null)));
        assert_eq!(result["version"], version.as_str());
    }
}

#[test]
fn values_keep_their_text_and_splits_their_bucket() {
    let (shell, _) = shell();
    let ran =
        shell.run("flags eval --rules rules.yaml --flag ab --subject s1 --subject s2 --subject s3").code(0);
    for (line, subject) in ran.out.lines().zip(["s1", "s2", "s3"]) {
        let at = bucket(":split:ab", subject);
        let value = if at < 5_000 { "1.50" } else { r#"{"c":[1,null]}"# };
        assert!(
            line.starts_with(&format!(r#"{{"subject":"{subject}","value":{value},"variant":"#)),
            "{line}"
        );
        assert!(line.ends_with(&format!(r#""bucket":null,"split_bucket":{at}}}"#)), "{line}");
    }
    let ran = shell.run("flags eval --rules rules.yaml --flag fixed").code(0);
    assert_eq!(ran.json_lines()[0]["reason"], "STATIC");
}

#[test]
fn a_subject_without_a_result_has_an_error() {
    let (shell, version) = shell();
    // A draw without a subject.
    let ran = shell.run("flags eval --rules rules.yaml --flag f").code(1);
    let [line] = ran.json_lines().try_into().unwrap();
    assert_eq!((&line["subject"], &line["error"]), (&json!(null), &json!("TARGETING_KEY_MISSING")));
    assert_eq!(line["version"], version.as_str());
    // No such flag: each has its error, and the known keys are told once.
    let ran = shell.run("flags eval --rules rules.yaml --flag g --subject a --subject b").code(1);
    assert_eq!(
        ran.json_lines().iter().map(|line| line["error"].clone()).collect::<Vec<_>>(),
        ["FLAG_NOT_FOUND"; 2]
    );
    assert_eq!(ran.err, "rules.yaml has no flag \"g\"; it has f, ab, fixed\n");
    // Lines that are no subject do not end it.
    let long = "x".repeat((64 << 10) + 1);
    let input = [b"u1\n\xff\n", long.as_bytes(), b"\nu2"].concat();
    let ran = shell.run_with("flags eval --rules rules.yaml --flag f --subjects -", &[], input).code(1);
    let lines = ran.json_lines();
    let found: Vec<_> =
        lines.iter().map(|line| json!([line["subject"], line["line"], line["error"]])).collect();
    let bad = |number: u32| json!([null, number, "SUBJECT_INVALID"]);
    assert_eq!(found, [json!(["u1", null, null]), bad(2), bad(3), json!(["u2", null, null])]);
}

#[test]
fn what_cannot_be_read_is_told() {
    let (shell, _) = shell();
    shell.write("bad.yaml", "apiVersion: tidegate/v1\nflags: [ { key: 'a:b', default: on } ]\n");
    for (line, says) in [
        ("flags eval --rules bad.yaml --flag f", "bad.yaml:2:17: "),
        ("flags eval --rules nofile.yaml --flag f", "nofile.yaml:1:1: cannot be read"),
        ("flags eval --rules rules.yaml --flag f --subjects nofile", "nofile: the subjects cannot be read"),
        ("flags explain --rules bad.yaml --flag f", "bad.yaml:2:17: "),
    ] {
        shell.run(line).code(1).prints("").says(&[says]);
    }
    // Subjects that break off after some.
    shell
        .run("flags eval --rules rules.yaml --flag f --subject u1 --subjects .")
        .code(1)
        .says(&["cannot be read"]);
}

#[test]
fn answers_do_not_wait_for_the_last_subject() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let (shell, _) = shell();
    let mut command = shell.command("flags eval --rules rules.yaml --flag f --subjects -");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for subject in ["u1", "u2"] {
        writeln!(stdin, "{subject}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!(r#"{{"subject":"{subject}","#)), "{line}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_explanation_has_every_rule_and_why() {
    let (shell, version) = shell();
    let drawn = |inside: bool| {
        let subjects = (1..).map(|number| format!("u{number}"));
        subjects
            .map(|subject| (bucket("f", &subject), subject))
            .find(|(at, _)| (*at < 5_000) == inside)
            .unwrap()
    };
    let ((_, inside), (at, outside)) = (drawn(true), drawn(false));
    let line = "flags explain --rules rules.yaml --flag f --subject";
    shell.run_with(line, &[&inside], "").code(0).prints(&format!(
        "subject \"{inside}\", {version}\n  \
           deny (priority 100): passed over, tenant in [umbrella] is false: it is absent\n  \
           allow (priority 50): passed over, tenant equals acme is false: it is absent\n  \
           ramp (priority 10): decided\n  \
           f = on (SPLIT)\n"
    ));
    let ran =
        shell.run_with(line, &[&outside, "--attributes", r#"{"tenant":"other"}"#, "--json"], "").code(0);
    let [explained] = ran.json_lines().try_into().unwrap();
    let rules: Vec<_> = explained["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| json!([rule["rule"], rule["outcome"]]))
        .collect();
    assert_eq!(
        rules,
        [
            json!(["deny", "passed over, tenant in [umbrella] is false: it is \"other\""]),
            json!(["allow", "passed over, tenant equals acme is false: it is \"other\""]),
            json!(["ramp", format!("passed over, bucket {at} is not below 5000 (50 %)")]),
        ]
    );
    assert_eq!(
        (&explained["result"]["variant"], &explained["result"]["reason"]),
        (&json!("off"), &json!("DEFAULT"))
    );
    // What comes after the one that decides is not asked.
    let ran = shell.run_with(
        "flags explain --rules rules.yaml --flag f --attributes",
        &[r#"{"tenant":"umbrella"}"#],
        "",
    );
    ran.code(0).prints(&format!(
        "no subject, {version}\n  \
           deny (priority 100): decided\n  \
           allow (priority 50): not asked, an earlier rule decided\n  \
           ramp (priority 10): not asked, an earlier rule decided\n  \
           f = off (TARGETING_MATCH)\n"
    ));
    // Without a result it says so.
    let ran = shell.run("flags explain --rules rules.yaml --flag f").code(1);
    assert!(ran.out.contains("ramp (priority 10): draws by subject, and there is none\n"), "{}", ran.out);
    let ran = shell.run("flags explain --rules rules.yaml --flag f --json").code(1);
    let [explained] = ran.json_lines().try_into().unwrap();
    assert_eq!(
        (&explained["result"], &explained["error"]["code"]),
        (&json!(null), &json!("TARGETING_KEY_MISSING"))
    );
    let ran = shell.run("flags explain --rules rules.yaml --flag g --json").code(1);
    assert_eq!(ran.json_lines()[0]["error"]["code"], "FLAG_NOT_FOUND");
    shell.run("flags explain --rules rules.yaml --flag g").code(1).prints("").says(&["it has f, ab, fixed"]);
}
