//! `tidegate rules diff`.

use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};
use tidegate_core::rule::diff::{Change, Severity, StateEffect, What, diff};
use tidegate_core::rule::{Digest, RuleSet};

use crate::cli::output::{count, print, say};
use crate::cli::{Exit, input};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The rules as they are: a file, a directory, or - for standard input
    #[arg(value_name = "A")]
    old: PathBuf,
    /// The rules as they will be
    #[arg(value_name = "B")]
    new: PathBuf,
    #[command(flatten)]
    deployment: input::For,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> io::Result<Exit> {
    if input::reads_stdin_twice([&args.old, &args.new]) {
        say("standard input can be read only once: name - for one of the two");
        return Ok(Exit::Usage);
    }
    let deployment = match args.deployment.deployment() {
        Ok(deployment) => deployment,
        Err(refused) => {
            say(&refused);
            return Ok(Exit::Refused);
        }
    };
    let load = |path| {
        let loaded = input::rules(path, deployment);
        loaded.map(|loaded| loaded.rules).inspect_err(super::say_refused).ok()
    };
    // Both are read before either is given up, so that one run shows every fault.
    let (Some(old), Some(new)) = (load(&args.old), load(&args.new)) else { return Ok(Exit::Refused) };
    let changes = diff(&old, &new);
    if args.json {
        let changes: Vec<Value> = changes.iter().map(to_json).collect();
        let [old, new] = [&old, &new].map(|rules: &RuleSet| Digest::of(rules).to_string());
        print(format_args!("{:#}", json!({ "old": old, "new": new, "changes": changes })))?;
        return Ok(Exit::Fine);
    }
    for change in &changes {
        let mark = if change.severity == Severity::Warning { "warning: " } else { "" };
        print(format_args!("{mark}{change}"))?;
    }
    if changes.is_empty() {
        print("no change")?;
    } else {
        let warnings = changes.iter().filter(|change| change.severity == Severity::Warning).count();
        let warned = if warnings == 0 {
            String::new()
        } else {
            format!("; {} to look at, by which state or protection is lost", count(warnings, "warning"))
        };
        say(format_args!("{}{warned}", count(changes.len(), "change")));
    }
    Ok(Exit::Fine)
}

fn to_json(change: &Change) -> Value {
    let (what, field, old, new) = match &change.what {
        What::Added => ("added", None, None, None),
        What::Removed => ("removed", None, None, None),
        What::Changed { field, old, new } => ("changed", Some(field), Some(old), Some(new)),
        _ => ("other", None, None, None),
    };
    let state = match &change.effect {
        StateEffect::None => "none",
        StateEffect::Keeps => "kept",
        StateEffect::Fresh { .. } => "fresh",
        StateEffect::WindowFresh => "window_fresh",
        StateEffect::Inherited => "inherited",
        StateEffect::Forgets { .. } => "forgotten",
        StateEffect::Dropped => "dropped",
        _ => "other",
    };
    json!({
        "section": change.section.noun(),
        "id": change.id,
        "what": what,
        "field": field,
        "old": old,
        "new": new,
        "detail": change.detail,
        "state": state,
        "warning": change.severity == Severity::Warning,
        "text": change.to_string(),
    })
}
