//! Arrows between crates only go down.

use serde_json::Value;

use super::{Finding, SourceFile, line_of, packages};

/// How high each crate stands. A crate may use those that stand lower.
const FLOORS: &[(&str, u8)] = &[
    ("tidegate-core", 0),
    ("tidegate-store", 10),
    ("tidegate-macros", 20),
    ("tidegate", 21),
    ("tidegate-lab", 30),
    ("tidegate-server", 40),
];
/// For tests only, of any crate; uses none of ours.
const TESTKIT: &str = "tidegate-testkit";
/// Used by none and uses none of ours.
const APART: &str = "xtask";

pub(super) fn check(metadata: &Value, manifests: &[SourceFile]) -> Vec<Finding> {
    let own: Vec<&Value> = packages(metadata).filter(|package| package["source"].is_null()).collect();
    let names: Vec<&str> = own.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in own {
        let Some(name) = package["name"].as_str() else { continue };
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let Some(manifest) = manifests.iter().find(|own| manifest.ends_with(&own.path)) else { continue };
        if floor(name).is_none() && name != TESTKIT && name != APART {
            let message = format!("{name} stands on no floor: give it one in xtask/src/tidy/floors.rs");
            findings.push(Finding::new(&manifest.path, 1, message));
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(on) = dependency["name"].as_str().filter(|on| names.contains(on)) else { continue };
            if let Err(why) = allowed(name, on, dependency["kind"].as_str() == Some("dev")) {
                let line = line_of(&manifest.text, |line| depends_on(line, on));
                findings.push(Finding::new(&manifest.path, line, why));
            }
        }
    }
    findings
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

fn allowed(from: &str, on: &str, dev: bool) -> Result<(), String> {
    if on == TESTKIT {
        return if dev {
            Ok(())
        } else {
            Err(format!("{from} uses {on} outside of tests: move it to [dev-dependencies]"))
        };
    }
    match (floor(from), floor(on)) {
        (Some(upper), Some(lower)) if lower < upper => Ok(()),
        _ => Err(format!(
            "{from} must not use {on}, which does not stand below it: move what is needed down, or pass it in"
        )),
    }
}

fn depends_on(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tidy::tests::file;

    #[track_caller]
    fn check_one(from: &str, on: &str, kind: Option<&str>, expected: Option<&str>) {
        let path = format!("crates/{from}/Cargo.toml");
        let metadata = json!({ "packages": [
            { "name": from, "source": null, "manifest_path": format!("/repo/{path}"),
              "dependencies": [{ "name": on, "kind": kind }, { "name": "serde", "kind": null }] },
            { "name": on, "source": null, "manifest_path": "/repo/other/Cargo.toml", "dependencies": [] },
            { "name": "serde", "source": "registry", "manifest_path": "/serde", "dependencies": [] },
        ]});
        let manifest = file(&path, &format!("[dependencies]\n{on}-more = 1\n{on}.workspace = true\n"));
        let found = check(&metadata, &[manifest]);
        let Some(expected) = expected else { return assert_eq!(found, []) };
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].file.as_str(), found[0].line), (path.as_str(), 3));
        assert!(found[0].message.contains(expected), "{}", found[0]);
    }

    #[test]
    fn arrows_go_down() {
        for (from, on) in [
            ("tidegate-store", "tidegate-core"),
            ("tidegate", "tidegate-macros"),
            ("tidegate-lab", "tidegate-core"),
            ("tidegate-server", "tidegate-lab"),
        ] {
            check_one(from, on, None, None);
            check_one(on, from, None, Some("does not stand below"));
            check_one(on, from, Some("dev"), Some("does not stand below"));
            check_one(on, from, Some("build"), Some("does not stand below"));
        }
    }

    #[test]
    fn the_testkit_is_for_tests() {
        check_one("tidegate-server", "tidegate-testkit", Some("dev"), None);
        check_one("tidegate-server", "tidegate-testkit", None, Some("outside of tests"));
        check_one("tidegate-testkit", "tidegate-core", None, Some("does not stand below"));
        check_one("xtask", "tidegate-core", None, Some("does not stand below"));
    }

    #[test]
    fn a_new_crate_needs_a_floor() {
        let metadata = json!({ "packages": [
            { "name": "tidegate-new", "source": null, "manifest_path": "/r/crates/new/Cargo.toml", "dependencies": [] },
        ]});
        let found = check(&metadata, &[file("crates/new/Cargo.toml", "")]);
        assert!(found[0].message.contains("stands on no floor"), "{found:?}");
    }
}
