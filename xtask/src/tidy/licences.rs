//! Every package that is built is under a licence of the list in `deny.toml`.

use serde_json::Value;

use super::{Finding, SourceFile, line_of, packages};

pub(super) fn check(deny: &SourceFile, metadata: &Value) -> Vec<Finding> {
    let allowed = allowed(&deny.text);
    let line = line_of(&deny.text, |line| line.trim() == "[licenses]");
    let mut findings = Vec::new();
    for package in packages(metadata) {
        let name = package["name"].as_str().unwrap_or_default();
        let version = package["version"].as_str().unwrap_or_default();
        let Some(licence) = package["license"].as_str() else {
            let message = format!("{name} {version} names no licence: use another package");
            findings.push(Finding::new(&deny.path, line, message));
            continue;
        };
        if !satisfied(licence, &allowed) {
            let message = format!(
                "{name} {version} is under `{licence}`, which the list does not allow: use another package, or allow it here"
            );
            findings.push(Finding::new(&deny.path, line, message));
        }
    }
    findings
}

/// The quoted names in `allow = […]` under `[licenses]`.
fn allowed(deny: &str) -> Vec<&str> {
    let Some((_, section)) = deny.split_once("[licenses]") else { return Vec::new() };
    let Some((_, list)) = section.split_once("allow = [") else { return Vec::new() };
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).collect()
}

/// Whether an SPDX expression can be satisfied. `/` is how old manifests write OR.
fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    any(&mut rest, allowed) == Some(true) && rest.is_empty()
}

/// `term OR term …`, where AND binds tighter; `None` when it is no expression.
fn any(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut holds = all(rest, allowed)?;
    while let Some(after) = rest.strip_prefix(&["OR"]) {
        *rest = after;
        holds |= all(rest, allowed)?;
    }
    Some(holds)
}

fn all(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut holds = one(rest, allowed)?;
    while let Some(after) = rest.strip_prefix(&["AND"]) {
        *rest = after;
        holds &= one(rest, allowed)?;
    }
    Some(holds)
}

fn one(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let (&name, after) = rest.split_first()?;
    *rest = after;
    if name == "(" {
        let holds = any(rest, allowed)?;
        *rest = rest.strip_prefix(&[")"])?;
        return Some(holds);
    }
    if let Some(["WITH", exception, after @ ..]) = Some(*rest) {
        *rest = after;
        return Some(allowed.contains(&format!("{name} WITH {exception}").as_str()));
    }
    Some(allowed.contains(&name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tidy::tests::file;

    const DENY: &str = "# list\n[licenses]\nallow = [\n  \"MIT\", \"Apache-2.0\",\n  \"Apache-2.0 WITH LLVM-exception\",\n  \"Unicode-3.0\",\n]\nother = [\"GPL-3.0\"]\n";

    #[test]
    fn the_list_is_read() {
        assert_eq!(allowed(DENY), ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"]);
        assert_eq!(allowed("[bans]\n"), [""; 0]);
    }

    #[test]
    fn expressions_are_judged() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0 OR MIT AND Apache-2.0", true),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("", false),
            ("(MIT", false),
            ("MIT MIT", false),
            ("MIT OR", false),
        ] {
            assert_eq!(satisfied(expression, &allowed(DENY)), expected, "{expression}");
        }
    }

    #[test]
    fn a_package_outside_the_list_is_named() {
        let metadata = json!({ "packages": [
            { "name": "good", "version": "1.0.0", "license": "MIT" },
            { "name": "viral", "version": "1.2.3", "license": "GPL-3.0" },
            { "name": "bare", "version": "0.1.0", "license": null },
        ]});
        let found: Vec<String> =
            check(&file("deny.toml", DENY), &metadata).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("deny.toml:2: viral 1.2.3 is under `GPL-3.0`"), "{}", found[0]);
        assert!(found[1].starts_with("deny.toml:2: bare 0.1.0 names no licence"), "{}", found[1]);
    }
}
