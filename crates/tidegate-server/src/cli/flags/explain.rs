//! `tidegate flags explain`.

use std::io::{self, BufWriter, Write as _};

use serde_json::{Value, json};
use tidegate_core::rollout::Explanation;
use tidegate_core::rollout::explain::Outcome;

use super::{Ask, Next, for_each_subject};
use crate::cli::Exit;
use crate::cli::output::say;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    ask: super::Target,
    /// Print one JSON line per subject
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> io::Result<Exit> {
    let ask = match Ask::new(&args.ask) {
        Ok(ask) => ask,
        Err(exit) => return Ok(exit),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut fine = true;
    let ended = for_each_subject(&args.ask, |next| match next {
        Next::Idle => out.flush(),
        Next::Bad(line, why) => {
            fine = false;
            say(format_args!("line {line} is no subject: {why}"));
            Ok(())
        }
        Next::Subject(subject) => match ask.flags.explain(&args.ask.flag, subject, &ask.attributes) {
            Ok(explanation) => {
                fine &= explanation.result.is_ok();
                if args.json {
                    return writeln!(out, "{}", to_json(subject, &explanation, &ask.version));
                }
                match subject {
                    Some(subject) => writeln!(out, "subject {subject:?}, {}", ask.version)?,
                    None => writeln!(out, "no subject, {}", ask.version)?,
                }
                for line in explanation.to_string().lines() {
                    writeln!(out, "  {line}")?;
                }
                Ok(())
            }
            Err(error) => {
                fine = false;
                if !args.json {
                    return Ok(());
                }
                let (code, message) = (error.code(), error.to_string());
                let line =
                    json!({ "subject": subject, "error": code, "message": message, "version": ask.version });
                writeln!(out, "{line}")
            }
        },
    })?;
    out.flush()?;
    Ok(ended.unwrap_or(if fine { Exit::Fine } else { Exit::Refused }))
}

fn to_json(subject: Option<&str>, explanation: &Explanation<'_>, version: &str) -> Value {
    let rules: Vec<Value> = explanation
        .rules
        .iter()
        .map(|trace| {
            json!({
                "rule": trace.rule,
                "priority": trace.priority,
                "outcome": outcome(&trace.outcome),
                "why": trace.outcome.to_string(),
            })
        })
        .collect();
    let mut line =
        json!({ "flag": explanation.flag, "subject": subject, "version": version, "rules": rules });
    let result = match &explanation.result {
        Ok(result) => json!({
            "value": result.value,
            "variant": result.variant,
            "reason": result.reason.name(),
            "rule": result.rule,
            "bucket": result.bucket,
            "split_bucket": result.split_bucket,
        }),
        Err(error) => json!({ "error": error.code(), "message": error.to_string() }),
    };
    line["result"] = result;
    line
}

fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Decided => "decided",
        Outcome::ConditionFalse(_) => "condition_false",
        Outcome::OutsideShare { .. } => "outside_share",
        Outcome::SubjectMissing => "subject_missing",
        Outcome::NotAsked => "not_asked",
        _ => "other",
    }
}
