//! `tidegate gateway`.

use crate::cli::Exit;
use crate::config::{self, Config, Environment, Flags, LogFormat, LogLevel};
use crate::serve::Gateway;

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
            eprintln!("{refused}");
            return Exit::Refused;
        }
    };
    log(&config);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tidegate: the runtime cannot be started: {error}");
            return Exit::Refused;
        }
    };
    runtime.block_on(serve(&config))
}

/// Sends the log to standard error.
pub(super) fn log(config: &Config) {
    let level = match config.log.level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match config.log.format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}

async fn serve(config: &Config) -> Exit {
    let gateway = match Gateway::start(config).await {
        Ok(gateway) => gateway,
        Err(error) => {
            eprintln!("{error}");
            return Exit::Refused;
        }
    };
    eprintln!("listening on http://{}", gateway.addr());
    stopped().await;
    eprintln!("stopping: letting what has begun come to its end");
    let cut = gateway.shutdown().await;
    if cut.connections + cut.tasks > 0 {
        eprintln!(
            "stopped; cut {} connections and {} executions after the drain time",
            cut.connections, cut.tasks
        );
        return Exit::Refused;
    }
    eprintln!("stopped");
    Exit::Fine
}

/// SIGINT or SIGTERM.
pub(super) async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        // Without the one, the other still stops it.
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
