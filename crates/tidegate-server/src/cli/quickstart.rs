//! `tidegate quickstart`: a sample service, a gateway in front of it, a rule file to edit, and requests
//! that show each gate at work.

mod guide;
mod service;

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;

use super::gateway::{not_started, start, until_stopped};
use super::log;
use super::output::{print, say};
use super::signals::Signals;
use super::{Exit, output};
use crate::config::{self, Config, Flags};

/// The rule file that is written, and used when it is there.
const RULES_FILE: &str = "quickstart.rules.yaml";
/// What is written into it.
const RULES: &str = include_str!("quickstart/rules.yaml");

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Where the administration listens, loopback only
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9080")]
    admin: String,
    /// Where quickstart.rules.yaml is written, or found
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// Runs until SIGINT or SIGTERM. Nothing but the rule file outlives it.
pub(super) fn run(args: &Args) -> Exit {
    until_stopped(|signals| serve(args, signals))
}

async fn serve(args: &Args, mut signals: Signals) -> Exit {
    let service = match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await {
        Ok(service) => service,
        Err(error) => {
            say(format_args!("the sample service finds no free port on 127.0.0.1: {error}"));
            return Exit::Refused;
        }
    };
    let (rules, found) = match rule_file(&args.dir) {
        Ok(found) => found,
        Err(error) => {
            let path = args.dir.join(RULES_FILE);
            say(format_args!(
                "{}: cannot be written or read: {error}; name a directory of yours with --dir",
                path.display()
            ));
            return Exit::Refused;
        }
    };
    let config = match service.local_addr().map(|upstream| configuration(args, &rules, upstream)) {
        Ok(Ok(config)) => config,
        Ok(Err(refused)) => {
            say(refused);
            return Exit::Refused;
        }
        Err(error) => {
            say(format_args!("the sample service has no address: {error}"));
            return Exit::Refused;
        }
    };
    log::init(&config);
    let gateway = match start(&config, &mut signals).await {
        Ok(Some(gateway)) => gateway,
        Ok(None) => return Exit::Fine,
        Err(error) => {
            say(&error);
            if found == Found::Edited {
                say(format_args!("{} is used as it was found: mend it, or delete it", rules.display()));
            }
            return not_started(&error);
        }
    };
    tokio::spawn(service::serve(service));
    say(format_args!("listening on http://{}", gateway.addr()));
    say(format_args!("admin on http://{}", gateway.admin()));
    let guide = guide::Guide {
        url: format!("http://{}", gateway.addr()),
        admin: format!("http://{}", gateway.admin()),
        rules: &rules,
        found,
    };
    if let Err(error) = print(guide) {
        // Who started it may have closed the output and still send requests.
        tracing::debug!(%error, "the guide was not printed");
    }
    signals.received().await;
    gateway.shutdown().await;
    output::exit(io::stdout().flush().map(|()| Exit::Fine))
}

fn configuration(
    args: &Args,
    rules: &Path,
    upstream: std::net::SocketAddr,
) -> Result<Config, config::Refused> {
    config::from_flags(&Flags {
        upstream: vec![format!("http://{upstream}")],
        rules: Some(rules.to_string_lossy().into_owned()),
        listen: Some(args.listen.clone()),
        admin: Some(args.admin.clone()),
        // Each run starts from nothing, so that the printed requests do what stands beside them.
        store: Some("memory:".to_owned()),
        drain: Some("1s".to_owned()),
        ..Flags::default()
    })
}

/// How the rule file came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It was written now.
    Written,
    /// It was there, as a run before wrote it.
    Same,
    /// It was there with other rules, which are used.
    Edited,
}

/// The rule file's absolute path. One that is there is never written over.
fn rule_file(dir: &Path) -> io::Result<(PathBuf, Found)> {
    let path = std::path::absolute(dir)?.join(RULES_FILE);
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            file.write_all(RULES.as_bytes())?;
            Ok((path, Found::Written))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let same = std::fs::read(&path)? == RULES.as_bytes();
            Ok((path, if same { Found::Same } else { Found::Edited }))
        }
        Err(error) => Err(error),
    }
}
