//! Where a service's rules come from.

use std::path::PathBuf;

use tidegate_core::rule::RuleSet;
use tidegate_core::rule::version::canonical;

/// Where rules come from: [`file`], [`text`] or [`rule_set`].
#[derive(Clone, Debug)]
pub struct RuleSource(pub(crate) Kind);

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    File(PathBuf),
    Fixed { name: String, text: String },
}

/// A rule file, or a directory whose `*.yaml`, `*.yml` and `*.json` are one document. It is watched: a
/// change is in force within a second, and a bad edit changes nothing.
pub fn file(path: impl Into<PathBuf>) -> RuleSource {
    RuleSource(Kind::File(path.into()))
}

/// A rule document in YAML or JSON, as with `include_str!`. `name` is what faults are reported under.
/// It stays in force for as long as the service runs.
pub fn text(name: impl Into<String>, text: impl Into<String>) -> RuleSource {
    RuleSource(Kind::Fixed { name: name.into(), text: text.into() })
}

/// Rules written in code. They go through the same checks as a file: their canonical form is loaded, and
/// faults point into it.
pub fn rule_set(rules: &RuleSet) -> RuleSource {
    text("rule set", canonical(rules))
}
