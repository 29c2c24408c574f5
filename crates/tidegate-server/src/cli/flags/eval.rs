//! `tidegate flags eval`.

use std::io::{self, BufWriter, Write as _};

use serde::Serialize;
use serde_json::Value;

use super::{Ask, Next, Target, for_each_subject};
use crate::cli::Exit;

/// What a subject gets. The order of the fields is that of the output.
#[derive(Serialize)]
struct Result<'a> {
    subject: Option<&'a str>,
    value: &'a Value,
    variant: &'a str,
    reason: &'static str,
    rule: Option<&'a str>,
    version: &'a str,
    /// Of the percentage, if one was reached.
    bucket: Option<u16>,
    /// Of the draw between variants, if a split decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    split_bucket: Option<u16>,
}

/// Why a subject gets nothing.
#[derive(Serialize)]
struct Failure<'a> {
    subject: Option<&'a str>,
    /// The line in the list of subjects, when it holds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    error: &'static str,
    message: &'a str,
    version: &'a str,
}

pub(super) fn run(args: &Target) -> io::Result<Exit> {
    let ask = match Ask::new(args) {
        Ok(ask) => ask,
        Err(exit) => return Ok(exit),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut fine = true;
    let ended = for_each_subject(args, |next| match next {
        Next::Idle => out.flush(),
        Next::Bad(line, why) => {
            fine = false;
            let (error, version) = ("SUBJECT_INVALID", &*ask.version);
            write(&mut out, &Failure { subject: None, line: Some(line), error, message: why, version })
        }
        Next::Subject(subject) => match ask.flags.evaluate(&args.flag, subject, &ask.attributes) {
            Ok(result) => write(
                &mut out,
                &Result {
                    subject,
                    value: result.value,
                    variant: result.variant,
                    reason: result.reason.name(),
                    rule: result.rule,
                    version: &ask.version,
                    bucket: result.bucket,
                    split_bucket: result.split_bucket,
                },
            ),
            Err(error) => {
                fine = false;
                let message = error.to_string();
                let (error, version) = (error.code(), &*ask.version);
                write(&mut out, &Failure { subject, line: None, error, message: &message, version })
            }
        },
    })?;
    out.flush()?;
    Ok(ended.unwrap_or(if fine { Exit::Fine } else { Exit::Refused }))
}

fn write(out: &mut impl io::Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
