//! `tidegate rules check`.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_core::rule::compile::Plan;
use tidegate_core::rule::{Deployment, Diagnostic, Digest, RuleSet};

use crate::cli::output::{count, print, say};
use crate::cli::{Exit, input};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Rule files or directories; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Refuse what is only worth a warning, too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    deployment: input::For,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> io::Result<Exit> {
    if input::reads_stdin_twice(&args.files) {
        say("standard input can be read only once: name - once");
        return Ok(Exit::Usage);
    }
    let deployment = match args.deployment.deployment() {
        Ok(deployment) => deployment,
        Err(refused) => {
            say(&refused);
            return Ok(Exit::Refused);
        }
    };
    let mut all = Vec::new();
    let mut fine = true;
    for file in &args.files {
        let checked = Checked::new(file, deployment, args.strict);
        fine &= checked.is_fine();
        checked.say();
        if args.json {
            all.push(checked.to_json());
        } else if checked.is_fine() {
            print(checked.summary())?;
        } else {
            say(checked.summary());
        }
    }
    if args.json {
        print(format_args!("{:#}", json!({ "ok": fine, "files": all })))?;
    }
    Ok(if fine { Exit::Fine } else { Exit::Refused })
}

/// What was found out about one rule set.
struct Checked {
    name: String,
    /// Of rules that have no fault.
    good: Option<(Digest, Counts)>,
    faults: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    strict: bool,
}

impl Checked {
    fn new(file: &Path, deployment: Deployment, strict: bool) -> Self {
        let name = input::name(file);
        let (good, faults, warnings) = match input::rules(file, deployment) {
            Ok(loaded) => {
                let good = (Digest::of(&loaded.rules), Counts::of(&loaded.rules));
                // What a gateway does next. Loading has checked all that it needs.
                match Plan::new(loaded.rules) {
                    Ok(_) => (Some(good), Vec::new(), loaded.warnings),
                    Err(faults) => {
                        let help = "report this document to the makers of Tidegate";
                        let fault = |fault: &_| Diagnostic::without_text(&name, format!("{fault}"), help);
                        (None, faults.iter().map(fault).collect(), loaded.warnings)
                    }
                }
            }
            Err(refused) => (None, refused.faults, refused.warnings),
        };
        Self { name, good, faults, warnings, strict }
    }

    fn is_fine(&self) -> bool {
        self.good.is_some() && (self.warnings.is_empty() || !self.strict)
    }

    /// Every finding, with its snippet.
    fn say(&self) {
        super::say_findings(self.faults.iter().chain(&self.warnings));
    }

    /// In one line.
    fn summary(&self) -> String {
        let warnings = count(self.warnings.len(), "warning");
        match &self.good {
            Some((digest, counts)) if self.is_fine() => {
                let tail = if self.warnings.is_empty() { String::new() } else { format!("; {warnings}") };
                format!("{}: fine; digest={}; {counts}{tail}", self.name, digest.short())
            }
            Some(_) => format!("{}: refused: {warnings}, which --strict makes faults", self.name),
            None => format!("{}: refused: {}", self.name, count(self.faults.len(), "fault")),
        }
    }

    fn to_json(&self) -> Value {
        let findings = |findings: &[Diagnostic]| findings.iter().map(Diagnostic::to_json).collect::<Vec<_>>();
        let digest = self.good.as_ref().map(|(digest, _)| digest.to_string());
        json!({
            "file": self.name,
            "ok": self.is_fine(),
            "digest": digest,
            "counts": self.good.as_ref().map(|(_, counts)| counts.to_json()),
            "faults": findings(&self.faults),
            "warnings": findings(&self.warnings),
        })
    }
}

/// How many of each there are.
struct Counts([(&'static str, &'static str, usize); 6]);

impl Counts {
    fn of(rules: &RuleSet) -> Self {
        Self([
            ("resources", "resource", rules.resources.len()),
            ("limits", "limit", rules.limits.len()),
            ("idempotency", "idempotency rule", rules.idempotency.len()),
            ("breakers", "breaker", rules.breakers.len()),
            ("segments", "segment", rules.segments.len()),
            ("flags", "flag", rules.flags.len()),
        ])
    }

    fn to_json(&self) -> Value {
        self.0
            .iter()
            .map(|(section, _, count)| ((*section).to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(_, noun, number)| count(*number, noun)).collect();
        f.write_str(&parts.join(", "))
    }
}
