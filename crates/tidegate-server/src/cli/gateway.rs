//! `tidegate gateway`.

use tidegate::rules::StartError;
use tidegate_core::rule::Version;
use tidegate_core::rule::version::Digest;

use super::log;
use super::output::{count, say};
use super::signals::Signals;
use crate::cli::Exit;
use crate::config::{self, Config, Environment, Flags};
use crate::serve::{Gateway, ServeError};

/// Flags of the gateway; `tidegate.yaml` and `TIDEGATE_…` variables say the same.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
}

/// Runs until SIGINT or SIGTERM.
pub(super) fn run(args: &Args) -> Exit {
    let config = match config::load(&args.flags, &Environment::current()) {
        Ok(config) => config,
        Err(refused) => {
            say(refused);
            return Exit::Refused;
        }
    };
    log::init(&config);
    until_stopped(|signals| serve(&config, signals))
}

/// Runs what lives until SIGINT or SIGTERM, on a runtime of its own. Both signals are held before it
/// begins, so whoever sees any sign of its life can stop it orderly.
pub(super) fn until_stopped<F: Future<Output = Exit>>(program: impl FnOnce(Signals) -> F) -> Exit {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(format_args!("tidegate: the runtime cannot be started: {error}"));
            return Exit::Refused;
        }
    };
    runtime.block_on(async {
        match Signals::hold() {
            Ok(signals) => program(signals).await,
            Err(error) => {
                say(format_args!("tidegate: SIGINT and SIGTERM cannot be handled: {error}"));
                Exit::Refused
            }
        }
    })
}

async fn serve(config: &Config, mut signals: Signals) -> Exit {
    let gateway = match start(config, &mut signals).await {
        Ok(Some(gateway)) => gateway,
        Ok(None) => return Exit::Fine,
        Err(error) => {
            say(&error);
            return not_started(&error);
        }
    };
    say(in_force(&gateway));
    say(format_args!("listening on http://{}", gateway.addr()));
    say(format_args!("admin on http://{}", gateway.admin()));
    if let Some(health) = gateway.health() {
        say(format_args!("health on http://{health}"));
    }
    signals.received().await;
    say("stopping: letting what has begun come to its end");
    let cut = gateway.shutdown().await;
    if cut.connections + cut.tasks > 0 {
        let (connections, tasks) = (count(cut.connections, "connection"), count(cut.tasks, "execution"));
        say(format_args!("stopped; cut {connections} and {tasks} after the drain time"));
        return Exit::Refused;
    }
    say("stopped");
    Exit::Fine
}

/// A gateway that is ready, or none when it was stopped before: a store or a file may keep it waiting.
pub(super) async fn start(config: &Config, signals: &mut Signals) -> Result<Option<Gateway>, ServeError> {
    tokio::select! {
        started = Gateway::start(config) => started.map(Some),
        () = signals.received() => {
            say("stopped before it was ready");
            Ok(None)
        }
    }
}

/// A store that does not answer is something else than rules or an address that are refused.
pub(super) fn not_started(error: &ServeError) -> Exit {
    match error {
        ServeError::Open(error) if error.is_refusal() => Exit::Refused,
        ServeError::Open(_) | ServeError::Store { .. } | ServeError::Rules(StartError::Store(_)) => {
            Exit::Unreachable
        }
        _ => Exit::Refused,
    }
}

/// The version in force and, when it is not the file's, why. Warnings and refusals are in the log with
/// all that there is to say.
pub(super) fn in_force(gateway: &Gateway) -> String {
    let status = gateway.rules.status();
    let version = Version { number: status.version, digest: Digest::from_bytes(status.digest) };
    let path = status.path.display();
    let why = if let Some(refused) = &status.refusal {
        format!("; {path} is refused, with {}", count(refused.faults, "fault"))
    } else if status.drift.is_some() {
        format!("; {path} differs from it, and was published before: change it to publish it again")
    } else if status.file_stale_since.is_some() {
        format!("; {path} is not there")
    } else {
        format!(", from {path}")
    };
    let warned = match status.warnings.len() {
        0 => String::new(),
        number => format!("; {}, see above", count(number, "warning")),
    };
    format!("rules: version {version} in force{why}{warned}")
}
