//! `tidegate lab`.

mod bar;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::Command;

use serde::Serialize;
use tidegate_lab::child::{ChildTask, carry_out};
use tidegate_lab::params::Spec;
use tidegate_lab::{Experiment, LabError, Params, ParamsError, Report, Run, select};

use crate::cli::Exit;
use crate::cli::output::{count, print, say};
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
pub(super) fn run(args: &Args) -> io::Result<Exit> {
    let planned = match plan(args) {
        Ok(planned) => planned,
        Err(why) => {
            say(format_args!("tidegate lab: {why}"));
            return Ok(Exit::Usage);
        }
    };
    if args.list {
        planned.iter().try_for_each(|(experiment, _)| print(list(experiment)))?;
        return Ok(Exit::Fine);
    }
    let mut reports = Vec::new();
    for (experiment, params) in planned {
        let report = match run_one(experiment, &params) {
            Ok(report) => report,
            Err(error) => {
                say(format_args!("tidegate lab: {}: {error}", experiment.id));
                return Ok(Exit::Refused);
            }
        };
        // A table is shown as soon as it is there.
        if !args.json {
            print(&report)?;
        }
        reports.push(report);
    }
    if args.json {
        let all = Reports { experiments: &reports, holds: reports.iter().all(Report::holds) };
        print(serde_json::to_string_pretty(&all)?)?;
    } else {
        print(summary(&reports))?;
    }
    Ok(outcome(&reports))
}

/// Carries out a child's task.
pub(super) fn run_child(args: &ChildArgs) -> Exit {
    let Some(task) = ChildTask::from_args(&args.task) else {
        say(format_args!("tidegate {CHILD}: this command is for `tidegate lab` alone"));
        return Exit::Usage;
    };
    match carry_out(&task) {
        Ok(()) => Exit::Fine,
        Err(error) => {
            say(format_args!("tidegate {CHILD}: {error}"));
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
        [] => format!("every expectation held ({})", count(reports.len(), "experiment")),
        failed => format!("FAILED: {}", failed.join(", ")),
    }
}

fn list(experiment: &Experiment) -> String {
    let spec = |spec: &Spec| format!("\n  --set {}={}  {}", spec.name(), spec.default(), spec.about());
    let specs: String = experiment.params.iter().map(spec).collect();
    format!("{}\n  {}{specs}", experiment.id, experiment.about)
}

#[cfg(test)]
mod tests;
