//! `tidegate rules`.

mod check;
mod diff;

use std::io;

use clap::Subcommand;
use tidegate_core::rule::{Diagnostic, Refused, schema};

use super::Exit;
use super::output::{print, say};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check rule files and report every fault
    ///
    /// Each FILE is a rule set of its own; a directory's *.yaml, *.yml and *.json are one rule set
    /// together, and - is standard input. Exits 1 when any of them is refused.
    Check(check::Args),
    /// Print the JSON Schema of rule documents
    Schema,
    /// Say what changes, and for whom, when B takes the place of A
    Diff(diff::Args),
}

pub(super) fn run(command: &Command) -> io::Result<Exit> {
    match command {
        Command::Check(args) => check::run(args),
        Command::Schema => {
            print(format_args!("{:#}", schema::json_schema()))?;
            Ok(Exit::Fine)
        }
        Command::Diff(args) => diff::run(args),
    }
}

/// Writes findings as messages, with an empty line behind each.
pub(super) fn say_findings<'d>(findings: impl IntoIterator<Item = &'d Diagnostic>) {
    for found in findings {
        say(format_args!("{found}\n"));
    }
}

/// Writes what is wrong with rules that a command cannot do without.
pub(super) fn say_refused(refused: &Refused) {
    say_findings(refused.faults.iter().chain(&refused.warnings));
}
