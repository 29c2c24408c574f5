//! The command line. Exit 0 fine, 1 refused or an expectation failed, 2 usage, 3 conflict, 4 unreachable.

mod doctor;
mod flags;
mod gateway;
mod idempotency;
mod input;
mod lab;
mod limits;
mod log;
mod output;
mod quickstart;
mod rules;
mod signals;
mod stores;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// As it should.
    Fine,
    /// Something was refused, or an expectation failed.
    Refused,
    /// The command line makes no sense.
    Usage,
    /// Somebody else was first.
    Conflict,
    /// A server or store does not answer.
    Unreachable,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Fine => Self::SUCCESS,
            Exit::Refused => Self::from(1),
            Exit::Usage => Self::from(2),
            Exit::Conflict => Self::from(3),
            Exit::Unreachable => Self::from(4),
        }
    }
}

/// Rate limiting, idempotency keys, circuit breaking and progressive delivery in front of a service.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the four gates in front of a service.
    Gateway(gateway::Args),
    /// Start a sample payment service behind the four gates, and print requests to try them with.
    Quickstart(quickstart::Args),
    /// Check and compare rule files.
    #[command(subcommand)]
    Rules(rules::Command),
    /// Evaluate feature flags.
    #[command(subcommand)]
    Flags(flags::Command),
    /// Look at idempotency records, and settle those whose outcome nobody knows.
    #[command(subcommand)]
    Idempotency(idempotency::Command),
    /// Look at the counters that gateways share in Redis, and reset one.
    #[command(subcommand)]
    Limits(limits::Command),
    /// Ask each configured store whether it answers, and say what is missing.
    Doctor(doctor::Args),
    /// Run experiments: the naive way beside Tidegate, with the figures that must come out.
    Lab(lab::Args),
    /// A process that an experiment starts in order to kill it.
    #[command(hide = true)]
    LabChild(lab::ChildArgs),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Gateway(args) => gateway::run(&args).into(),
        Command::Quickstart(args) => quickstart::run(&args).into(),
        Command::Rules(command) => output::exit(rules::run(&command)).into(),
        Command::Flags(command) => output::exit(flags::run(&command)).into(),
        Command::Idempotency(command) => output::exit(idempotency::run(&command)).into(),
        Command::Limits(command) => output::exit(limits::run(&command)).into(),
        Command::Doctor(args) => output::exit(doctor::run(&args)).into(),
        Command::Lab(args) => output::exit(lab::run(&args)).into(),
        Command::LabChild(args) => lab::run_child(&args).into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
