//! `tidegate rules`.

use serde_json::json;

use super::Shell;

const GOOD: &str = "\
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { path: /pay }
limits:
  - id: per-second
    resources: [pay]
    token_bucket: { capacity: 20, refill: 10/s }
";
const BAD: &str = "\
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { path: /pay }
limits:
  - id: per-second
    resources: [pay]
    token_bucket: { capcity: 20, refill: 10/s }
  - id: other
    resources: [bay]
    token_bucket: { capacity: 0, refill: 10/s }
";
const WARNED: &str = "\
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { path: /pay }
limits:
  - id: per-second
    resources: [pay]
    token_bucket: { capacity: 10, refill: 10/s }
";

/// The digest as it is printed.
fn digest(line: &str) -> String {
    let (_, rest) = line.split_once("digest=").unwrap();
    rest[..12].to_owned()
}

#[test]
fn a_good_file_has_its_digest_and_counts() {
    let shell = Shell::new();
    shell.write("good.yaml", GOOD);
    let ran = shell.run("rules check good.yaml").code(0);
    assert_eq!(ran.err, "");
    let expected = format!(
        "good.yaml: fine; digest={}; 1 resource, 1 limit, 0 idempotency rules, 0 breakers, 0 segments, 0 flags\n",
        digest(&ran.out)
    );
    let ran = ran.prints(&expected);
    // The same from standard input, and for JSON that says the same.
    let piped = shell.run_with("rules check -", &[], GOOD).code(0);
    piped.prints(&ran.out.replace("good.yaml", "<stdin>"));
    let document = json!({
        "apiVersion": "tidegate/v1",
        "resources": [{ "id": "pay", "match": { "path": "/pay" } }],
        "limits": [{ "id": "per-second", "resources": ["pay"], "token_bucket": { "capacity": 20, "refill": "10/s" } }],
    });
    shell.write("same.json", document.to_string());
    shell.run("rules check same.json").code(0).prints(&ran.out.replace("good.yaml", "same.json"));
}

#[test]
fn every_fault_is_told_with_its_place_and_a_way_to_mend_it() {
    let shell = Shell::new();
    shell.write("bad.yaml", BAD);
    let ran = shell.run("rules check bad.yaml").code(1).prints("");
    ran.says(&[
        "bad.yaml:8:21: unknown field `capcity` in token_bucket\n  |\n\
         8 |     token_bucket: { capcity: 20, refill: 10/s }\n  |                     ^^^^^^^\nhelp: did you mean `capacity`?",
        "bad.yaml:10:17: ",
        "bad.yaml:11:31: ",
        "bad.yaml: refused: 4 faults\n",
    ]);
}

#[test]
fn each_file_is_a_rule_set_of_its_own_and_a_directory_is_one() {
    let shell = Shell::new();
    shell.write("good.yaml", GOOD);
    shell.write("bad.yaml", BAD);
    // Two files with one id are no fault beside each other.
    shell.write("again.yaml", GOOD);
    let ran = shell.run("rules check good.yaml again.yaml").code(0);
    assert_eq!(ran.out.lines().map(digest).collect::<std::collections::BTreeSet<_>>().len(), 1);
    // One bad file does not hide the others.
    let ran = shell.run("rules check bad.yaml good.yaml nofile.yaml").code(1);
    assert!(ran.out.starts_with("good.yaml: fine; "), "{}", ran.out);
    ran.says(&[
        "bad.yaml: refused: ",
        "nofile.yaml:1:1: cannot be read: No such file",
        "nofile.yaml: refused: 1 fault",
    ]);
    // In a directory they are one document.
    let (resources, limits) = GOOD.split_once("limits:").unwrap();
    shell.write("dir/a.yaml", resources);
    shell.write("dir/b.yml", format!("apiVersion: tidegate/v1\nlimits:{limits}"));
    shell.write("dir/notes.txt", "{");
    let whole = shell.run("rules check dir").code(0).out;
    assert_eq!(digest(&whole), digest(&shell.run("rules check good.yaml").out));
    shell.write(
        "dir/c.json",
        json!({ "apiVersion": "tidegate/v1", "resources": [{ "id": "pay" }] }).to_string(),
    );
    shell.run("rules check dir").code(1).says(&["dir/c.json:1:", "dir/a.yaml:3:9"]);
}

#[test]
fn warnings_stand_apart_and_strict_refuses_them() {
    let shell = Shell::new();
    shell.write("warned.yaml", WARNED);
    let ran = shell.run("rules check warned.yaml").code(0).says(&["warned.yaml:8:19: warning: ", "help: "]);
    assert!(ran.out.ends_with("; 1 warning\n"), "{}", ran.out);
    let ran = shell.run("rules check --strict warned.yaml").code(1).prints("");
    ran.says(&[
        "warned.yaml:8:19: warning: ",
        "warned.yaml: refused: 1 warning, which --strict makes faults\n",
    ]);
}

#[test]
fn the_result_as_json() {
    let shell = Shell::new();
    shell.write("good.yaml", GOOD);
    shell.write("bad.yaml", BAD);
    shell.write("warned.yaml", WARNED);
    let ran = shell.run("rules check --json good.yaml bad.yaml warned.yaml").code(1);
    let result = ran.json();
    assert_eq!(result["ok"], false);
    let [good, bad, warned] = result["files"].as_array().unwrap().as_slice() else { panic!("{result}") };
    assert_eq!((&good["file"], &good["ok"]), (&json!("good.yaml"), &json!(true)));
    assert_eq!(good["digest"].as_str().unwrap().len(), 64);
    let counts =
        json!({ "resources": 1, "limits": 1, "idempotency": 0, "breakers": 0, "segments": 0, "flags": 0 });
    assert_eq!(good["counts"], counts);
    assert_eq!((&bad["ok"], &bad["digest"], &bad["counts"]), (&json!(false), &json!(null), &json!(null)));
    assert_eq!(bad["faults"].as_array().unwrap().len(), 4);
    let fault = &bad["faults"][1];
    let place = json!([fault["file"], fault["line"], fault["column"], fault["length"], fault["severity"]]);
    assert_eq!(place, json!(["bad.yaml", 8, 21, 7, "fault"]));
    assert_eq!((&warned["ok"], &warned["warnings"][0]["severity"]), (&json!(true), &json!("warning")));
}

#[test]
fn a_configuration_says_what_the_rules_will_run_on() {
    let shell = Shell::new();
    let rules = GOOD.replace("limits:", "idempotency:\n  - { id: once, resources: [pay], scope: [], key: { from: header.k, required: true }, commit: with_effects }\nlimits:");
    shell.write("rules.yaml", rules);
    // Neither names an upstream or rules: those may come from flags.
    shell.write("memory.yaml", "store: \"memory:\"\n");
    shell.write("broken.yaml", "stoer: \"memory:\"\n");
    shell.run("rules check rules.yaml --config memory.yaml").code(1).says(&["with_effects"]);
    shell.run("rules check rules.yaml --config broken.yaml").code(1).says(&["broken.yaml:1:1: ", "`store`"]);
    shell.run("rules check rules.yaml --config nofile.yaml").code(1).says(&["nofile.yaml"]);
}

#[test]
fn what_is_no_text_is_refused() {
    let shell = Shell::new();
    shell.write("latin1.yaml", b"x-a: \xe4\n");
    shell.write("empty.yaml", "");
    std::fs::create_dir(shell.path().join("nothing")).unwrap();
    for (line, says) in [
        ("rules check latin1.yaml", "latin1.yaml:1:1: byte 5 is not UTF-8"),
        ("rules check empty.yaml", "empty.yaml:1:1: "),
        ("rules check nothing", "nothing:1:1: holds no rule file"),
        ("rules check /dev/null", "is not a file"),
    ] {
        shell.run(line).code(1).says(&[says, "help: "]);
    }
    shell.run_with("rules check -", &[], b"x-a: \xe4\n").code(1).says(&["<stdin>:1:1: byte 5 is not UTF-8"]);
    let long = vec![b'#'; 5 << 20];
    shell
        .run_with("rules check -", &[], &long)
        .code(1)
        .says(&["<stdin>:1:1: it has more than 4194304 bytes"]);
}

#[test]
fn the_schema_is_one_and_accepts_what_the_parser_accepts() {
    let schema = Shell::new().run("rules schema").code(0).json();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good =
        json!({ "apiVersion": "tidegate/v1", "resources": [{ "id": "pay", "match": { "path": "/pay" } }] });
    assert!(validator.is_valid(&good));
    assert!(!validator.is_valid(&json!({ "apiVersion": "tidegate/v1", "limts": [] })));
}

#[test]
fn a_diff_says_what_changes_and_what_becomes_of_the_state() {
    let shell = Shell::new();
    shell.write("a.yaml", GOOD);
    shell.write("b.yaml", GOOD.replace("capacity: 20", "capacity: 30"));
    shell.write("c.yaml", GOOD.replace("id: per-second", "id: renamed"));
    shell.write("bad.yaml", BAD);
    let raised = "limit per-second: capacity 20 → 30; counters keep what was used\n";
    let ran = shell.run("rules diff a.yaml b.yaml").code(0).prints(raised);
    ran.says(&["1 change\n"]);
    shell.run_with("rules diff - b.yaml", &[], GOOD).code(0).prints(raised);
    shell.run("rules diff a.yaml a.yaml").code(0).prints("no change\n");
    // Order and spelling are no change.
    shell.write(
        "same.yaml",
        GOOD.replace("{ capacity: 20, refill: 10/s }", "{ refill: 10/1s, capacity: 20 } # twenty"),
    );
    shell.run("rules diff a.yaml same.yaml").code(0).prints("no change\n");
    let ran = shell.run("rules diff a.yaml c.yaml").code(0).says(&["2 changes; 1 warning to look at"]);
    assert!(ran.out.contains("warning: limit per-second: removed"), "{}", ran.out);
    // Both sides are read, and a refused one ends it.
    shell
        .run("rules diff bad.yaml nofile.yaml")
        .code(1)
        .prints("")
        .says(&["bad.yaml:8:21: ", "nofile.yaml:1:1: "]);
    let result = shell.run("rules diff a.yaml b.yaml --json").code(0).json();
    let change = &result["changes"][0];
    let found = json!([
        change["section"],
        change["id"],
        change["what"],
        change["field"],
        change["old"],
        change["new"],
        change["state"]
    ]);
    assert_eq!(found, json!(["limit", "per-second", "changed", "capacity", "20", "30", "kept"]));
    assert_ne!(result["old"], result["new"]);
}
