//! `tidegate lab`.

mod bar;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::Command;

use serde::Serialize;
use tidegate_lab::child::{ChildTask, carry_out};
use tidegate_lab::params::Spec;
use tidegate_lab::{Experiment, LabError, Params, ParamsError, Report, Run, select};

use crate::cli::Exit;
use bar::Bar;

/// The hidden command that a child process is started with.
const CHILD: &str = "lab-child";

/// Which experiments, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Experiments, such as `limit.boundary`, or groups, such as `rollout`; all when left out.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Set a parameter in every selected experiment that has it.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// List the experiments with their parameters, and run none.
    #[arg(long, conflicts_with_all = ["json", "set"])]
    list: bool,
}

/// What a child process is to do.
#[derive(Debug, clap::Args)]
pub(super) struct ChildArgs {
    #[arg(num_args = 3)]
    task: Vec<OsString>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Reports<'a> {
    experiments: &'a [Report],
    holds: bool,
}

/// Runs the selected experiments, one after the other. Exit 1 when an expectation fails.
pub(super) fn run(args: &Args) -> Exit {
    let planned = match plan(args) {
        Ok(planned) => planned,
        Err(why) => {
            eprintln!("tidegate lab: {why}");
            return Exit::Usage;
        }
    };
    if args.list {
        return print(&list(planned.iter().map(|(experiment, _)| *experiment)));
    }
    let mut reports = Vec::new();
    for (experiment, params) in planned {
        let report = match run_one(experiment, &params) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("tidegate lab: {}: {error}", experiment.id);
                return Exit::Refused;
            }
        };
        // A table is shown as soon as it is there.
        if !args.json && print(&format!("{report}\n")) != Exit::Fine {
            return Exit::Refused;
        }
        reports.push(report);
    }
    let printed = if args.json { print_json(&reports) } else { print(&summary(&reports)) };
    if printed == Exit::Fine { outcome(&reports) } else { printed }
}

/// Carries out a child's task.
pub(super) fn run_child(args: &ChildArgs) -> Exit {
    let Some(task) = ChildTask::from_args(&args.task) else {
        eprintln!("tidegate {CHILD}: this command is for `tidegate lab` alone");
        return Exit::Usage;
    };
    match carry_out(&task) {
        Ok(()) => Exit::Fine,
        Err(error) => {
            eprintln!("tidegate {CHILD}: {error}");
            Exit::Refused
        }
    }
}

/// The selected experiments with their parameters, or why they make no sense.
fn plan(args: &Args) -> Result<Vec<(&'static Experiment, Params)>, Box<dyn std::error::Error>> {
    let selected = select(&args.ids)?;
    let pairs = Params::pairs(&args.set)?;
    Params::check_names(&pairs, &selected)?;
    // All of them before the first is run.
    let with_params = |experiment| Ok::<_, ParamsError>((experiment, Params::of(experiment, &pairs)?));
    Ok(selected.into_iter().map(with_params).collect::<Result<_, _>>()?)
}

fn run_one(experiment: &Experiment, params: &Params) -> Result<Report, LabError> {
    let mut bar = io::stderr().is_terminal().then(|| Bar::new(experiment.id));
    let mut on_progress = |done, total| {
        if let Some(bar) = &mut bar {
            bar.show(done, total);
        }
    };
    experiment.run(params, &mut Run::new().with_progress(&mut on_progress).with_child(&this_program))
}

/// This program again, in its hidden command.
fn this_program(task: &ChildTask) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).args(task.to_args());
    Ok(command)
}

fn outcome(reports: &[Report]) -> Exit {
    if reports.iter().all(Report::holds) { Exit::Fine } else { Exit::Refused }
}

fn summary(reports: &[Report]) -> String {
    let failed: Vec<&str> = reports.iter().filter(|report| !report.holds()).map(|report| report.id).collect();
    match failed.as_slice() {
        [] => format!("every expectation held ({} experiments)\n", reports.len()),
        failed => format!("FAILED: {}\n", failed.join(", ")),
    }
}

fn list<'a>(experiments: impl Iterator<Item = &'a Experiment>) -> String {
    let mut lines = Vec::new();
    for experiment in experiments {
        lines.push(format!("{}\n  {}\n", experiment.id, experiment.about));
        let spec = |spec: &Spec| format!("  --set {}={}  {}\n", spec.name(), spec.default(), spec.about());
        lines.extend(experiment.params.iter().map(spec));
    }
    lines.concat()
}

fn print_json(reports: &[Report]) -> Exit {
    let all = Reports { experiments: reports, holds: reports.iter().all(Report::holds) };
    match serde_json::to_string_pretty(&all) {
        Ok(json) => print(&format!("{json}\n")),
        Err(error) => {
            eprintln!("tidegate lab: the reports cannot be written as JSON: {error}");
            Exit::Refused
        }
    }
}

/// A reader who has gone is no reason to break.
fn print(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Fine,
        Err(_) => Exit::Refused,
    }
}

#[cfg(test)]
mod tests;
