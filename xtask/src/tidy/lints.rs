//! Every package obeys the workspace's lints, and they ask for docs. That a public item lacks docs is for
//! rustc to find, with warnings denied in `.ci/run`; that rustc is asked to is checked here.

use super::{Finding, SourceFile, line_of};

pub(super) fn check(root: &SourceFile, ci: &SourceFile, manifests: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests {
        if section(&manifest.text, "[lints]")
            .is_none_or(|lines| !lines.contains(&"workspace=true".to_owned()))
        {
            let line = line_of(&manifest.text, |line| line.trim() == "[lints]");
            let message = "the workspace's lints are off: write `[lints]` and `workspace = true`";
            findings.push(Finding::new(&manifest.path, line, message));
        }
    }
    let rust = section(&root.text, "[workspace.lints.rust]").unwrap_or_default();
    for lint in ["missing_docs", "unsafe_code"] {
        let on = ["warn", "deny", "forbid"].map(|level| format!("{lint}=\"{level}\""));
        if !rust.iter().any(|line| on.contains(line)) {
            let line = line_of(&root.text, |line| line.trim() == "[workspace.lints.rust]");
            let message = format!("`{lint}` is off: write `{lint} = \"warn\"` under [workspace.lints.rust]");
            findings.push(Finding::new(&root.path, line, message));
        }
    }
    let denies = |line: &str| line.contains("cargo clippy") && line.contains("--all-targets");
    if !ci.text.lines().any(|line| denies(line) && line.contains("-D warnings")) {
        let message = "warnings are not denied: run `cargo clippy --workspace --all-targets -- -D warnings`";
        findings.push(Finding::new(&ci.path, line_of(&ci.text, denies), message));
    }
    findings
}

/// The lines of a TOML section, without spaces and comments.
fn section(text: &str, header: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.find(|line| line.trim() == header)?;
    let body = lines.take_while(|line| !line.trim_start().starts_with('['));
    Some(body.map(|line| line.replace(' ', "")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::file;

    const ROOT: &str =
        "[workspace.lints.rust]\nmissing_docs = \"warn\" # all\nunsafe_code = \"deny\"\n[profile]\n";
    const CI: &str = "cargo clippy --workspace --all-targets -- -D warnings\n";
    const MEMBER: &str = "[package]\n[lints]\nworkspace = true\n";

    #[track_caller]
    fn check_all(root: &str, ci: &str, member: &str, expected: &[&str]) {
        let found = check(&file("Cargo.toml", root), &file(".ci/run", ci), &[file("a/Cargo.toml", member)]);
        let found: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn lints_are_on() {
        check_all(ROOT, CI, MEMBER, &[]);
        check_all(ROOT, CI, "[package]\n", &["a/Cargo.toml:1: the workspace's lints are off"]);
        check_all(ROOT, CI, "[package]\n[lints]\n[x]\nworkspace = true", &["a/Cargo.toml:2: "]);
        let quiet = ROOT.replace("missing_docs = \"warn\"", "missing_docs = \"allow\"");
        check_all(&quiet, CI, MEMBER, &["Cargo.toml:1: `missing_docs` is off"]);
        check_all(
            "",
            CI,
            MEMBER,
            &["Cargo.toml:1: `missing_docs` is off", "Cargo.toml:1: `unsafe_code` is off"],
        );
        check_all(
            ROOT,
            "set -e\ncargo clippy --all-targets",
            MEMBER,
            &[".ci/run:2: warnings are not denied"],
        );
    }
}
