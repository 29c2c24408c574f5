//! `docs/operate.md` lists every setting that the program knows.

use std::process::Command;

const DOCUMENT: &str = include_str!("../../../../../docs/operate.md");

#[test]
fn every_setting_is_documented() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["gateway", "--rules", "none.yaml", "--upstream", "http://127.0.0.1:9"])
        .env("TIDEGATE_NO_SUCH_THING_AT_ALL", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, known) = said.split_once("known variables: ").unwrap_or_else(|| panic!("{said}"));
    let known: Vec<&str> = known.lines().next().unwrap().split(", ").map(str::trim).collect();
    assert!(known.len() > 25, "{known:?}");
    for variable in known {
        assert!(DOCUMENT.contains(&format!("`{variable}`")), "docs/operate.md does not list {variable}");
        if variable == "TIDEGATE_CONFIG" {
            continue;
        }
        let setting = variable.trim_start_matches("TIDEGATE_").to_lowercase();
        let in_section = |section: &str| {
            setting.strip_prefix(&format!("{section}_")).map(|name| format!("`{section}.{name}`"))
        };
        let key = ["limits", "timeouts", "log", "redis_tls"].into_iter().find_map(in_section);
        let key = key.unwrap_or_else(|| format!("`{setting}"));
        assert!(DOCUMENT.contains(&key), "docs/operate.md does not list {key}");
    }
    let help = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["gateway", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let flags = help.split_whitespace().filter(|word| word.starts_with("--"));
    for flag in flags.filter(|flag| *flag != "--help") {
        assert!(DOCUMENT.contains(&format!("`{flag}")), "docs/operate.md does not list {flag}");
    }
}
