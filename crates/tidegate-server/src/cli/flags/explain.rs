//! `tidegate flags explain`.

use std::io::{self, BufWriter, Write as _};

use serde_json::{Value, json};
use tidegate_core::rollout::{EvaluateError, Evaluation, Explanation};

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
                if args.json {
                    writeln!(out, "{}", line(&args.ask.flag, subject, &ask.version, &[], Err(&error)))?;
                }
                Ok(())
            }
        },
    })?;
    out.flush()?;
    Ok(ended.unwrap_or(if fine { Exit::Fine } else { Exit::Refused }))
}

/// As the admin API has it.
fn to_json(subject: Option<&str>, explanation: &Explanation<'_>, version: &str) -> Value {
    let rules = explanation.rules.iter().map(
        |trace| json!({ "rule": trace.rule, "priority": trace.priority, "outcome": trace.outcome.to_string() }),
    );
    line(explanation.flag, subject, version, &rules.collect::<Vec<_>>(), explanation.result.as_ref())
}

fn line(
    flag: &str,
    subject: Option<&str>,
    version: &str,
    rules: &[Value],
    result: Result<&Evaluation<'_>, &EvaluateError>,
) -> Value {
    let (result, error) = match result {
        Ok(result) => {
            let result = json!({
                "variant": result.variant,
                "value": result.value,
                "reason": result.reason.name(),
                "rule": result.rule,
                "bucket": result.bucket,
                "split_bucket": result.split_bucket,
            });
            (result, Value::Null)
        }
        Err(error) => (Value::Null, json!({ "code": error.code(), "message": error.to_string() })),
    };
    json!({ "flag": flag, "subject": subject, "version": version, "result": result, "error": error, "rules": rules })
}
