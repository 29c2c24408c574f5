//! `tidegate flags`.

mod eval;
mod explain;

use std::io;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value};
use tidegate_core::rollout::Flags;
use tidegate_core::rule::Digest;

use super::input::{self, Line, Lines};
use super::output::say;
use super::{Exit, rules};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print what each subject gets, one JSON line per subject
    ///
    /// A line has subject, value, variant, reason, rule, version and bucket; the version of a file is
    /// its digest, as `digest=…`. A subject without a result has error and message instead, and makes
    /// the command exit 1.
    Eval(Target),
    /// Say of each rule why it did or did not decide
    Explain(explain::Args),
}

/// Which flag, for whom.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// Rule file or directory; - is standard input
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The flag's key
    #[arg(long, value_name = "KEY")]
    flag: String,
    /// A file with one subject a line; - is standard input
    #[arg(long, value_name = "FILE")]
    subjects: Option<PathBuf>,
    /// A subject; may be given again. With no subject at all, a request without one is evaluated
    #[arg(long, value_name = "ID")]
    subject: Vec<String>,
    /// What every request says about itself, as a JSON object: {"tenant": "acme"}
    #[arg(long, value_name = "JSON")]
    attributes: Option<String>,
    #[command(flatten)]
    deployment: input::For,
}

pub(super) fn run(command: &Command) -> io::Result<Exit> {
    match command {
        Command::Eval(args) => eval::run(args),
        Command::Explain(args) => explain::run(args),
    }
}

/// What the arguments come to.
struct Ask {
    flags: Flags,
    /// `digest=3f2a9c1b2d4e`: a file has no number.
    version: String,
    attributes: Map<String, Value>,
}

impl Ask {
    /// Reads the rules and the attributes; says what is wrong with them.
    fn new(args: &Target) -> Result<Self, Exit> {
        if input::reads_stdin_twice(args.subjects.iter().chain([&args.rules])) {
            say("standard input can be read only once: name - for the rules or for the subjects");
            return Err(Exit::Usage);
        }
        let attributes = attributes(args.attributes.as_deref()).map_err(|why| {
            say(format_args!("--attributes: {why}; give a JSON object, such as '{{\"tenant\": \"acme\"}}'"));
            Exit::Usage
        })?;
        let deployment = args.deployment.deployment().map_err(|refused| {
            say(&refused);
            Exit::Refused
        })?;
        let loaded = input::rules(&args.rules, deployment).map_err(|refused| {
            rules::say_refused(&refused);
            Exit::Refused
        })?;
        let flags = Flags::compile(&loaded.rules).map_err(|faults| {
            for fault in &faults {
                say(format_args!("{}: {fault}", input::name(&args.rules)));
            }
            Exit::Refused
        })?;
        let version = format!("digest={}", Digest::of(&loaded.rules).short());
        let ask = Self { flags, version, attributes };
        ask.warn_of_unknown_flag(args);
        Ok(ask)
    }

    /// Each subject gets its error; how to mend it is said once.
    fn warn_of_unknown_flag(&self, args: &Target) {
        /// Keys that are listed in the message.
        const MOST: usize = 20;
        if self.flags.index(&args.flag).is_some() {
            return;
        }
        let keys: Vec<&str> = self.flags.keys().take(MOST).collect();
        let more = if self.flags.keys().len() > MOST { ", …" } else { "" };
        let rules = input::name(&args.rules);
        if keys.is_empty() {
            say(format_args!("{rules} has no flags"));
        } else {
            say(format_args!("{rules} has no flag {:?}; it has {}{more}", args.flag, keys.join(", ")));
        }
    }
}

fn attributes(text: Option<&str>) -> Result<Map<String, Value>, String> {
    match text.map(serde_json::from_str) {
        None => Ok(Map::new()),
        Some(Ok(Value::Object(attributes))) => Ok(attributes),
        Some(Ok(_)) => Err("this is no object".to_owned()),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// What comes next.
enum Next<'a> {
    /// A subject, or a request without one.
    Subject(Option<&'a str>),
    /// A line that is no subject: its number, from 1, and why.
    Bad(u64, &'static str),
    /// Whoever writes the subjects may be waiting for the answers so far.
    Idle,
}

/// Calls `each` with every subject that the arguments name, one at a time, however many there are.
/// `Some` is how the command ends when they cannot be read.
fn for_each_subject(
    args: &Target,
    mut each: impl FnMut(Next<'_>) -> io::Result<()>,
) -> io::Result<Option<Exit>> {
    for subject in &args.subject {
        each(Next::Subject(Some(subject)))?;
    }
    let Some(path) = &args.subjects else {
        if args.subject.is_empty() {
            each(Next::Subject(None))?;
        }
        return Ok(None);
    };
    let unreadable = |error: io::Error| {
        let name = input::name(path);
        say(format_args!("{name}: the subjects cannot be read: {error}; name a file with one a line"));
        Ok(Some(Exit::Refused))
    };
    let mut lines = match Lines::open(path) {
        Ok(lines) => lines,
        Err(error) => return unreadable(error),
    };
    for number in 1.. {
        if lines.would_wait() {
            each(Next::Idle)?;
        }
        match lines.next() {
            Ok(None) => break,
            Ok(Some(Line::Text(subject))) => each(Next::Subject(Some(subject)))?,
            Ok(Some(Line::Bad(why))) => each(Next::Bad(number, why))?,
            Err(error) => return unreadable(error),
        }
    }
    Ok(None)
}
