//! Which stores a command is about: those of the gateway that would start here.

use std::path::PathBuf;

use crate::config::{self, Config, Environment, Flags, Refused};

/// Where the gateway keeps what it keeps, as its flags, variables and file say it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Stores {
    /// The gateway's configuration [default: tidegate.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The gateway's database [default: the configuration's]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// The gateway's Redis [default: the configuration's]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// A file that holds the URL of Redis
    #[arg(long, value_name = "FILE", conflicts_with = "redis")]
    redis_url_file: Option<String>,
    /// The gateway's rules [default: the configuration's]
    #[arg(long, value_name = "FILE|DIR")]
    rules: Option<String>,
}

impl Stores {
    /// The configuration, read as the gateway reads it.
    pub(super) fn load(&self) -> Result<Config, Refused> {
        let environment = Environment::current();
        let flags = Flags {
            config: self.config.clone(),
            store: self.store.clone(),
            redis: self.redis.clone(),
            redis_url_file: self.redis_url_file.clone(),
            rules: self.rules.clone(),
            ..Flags::default()
        };
        match config::load(&flags, &environment) {
            Ok(config) => Ok(config),
            // Upstream and rules may be the gateway's flags, which are not known here.
            Err(refused) => {
                let rules = self.rules.clone().or_else(|| Some("rules.yaml".to_owned()));
                let upstream = vec!["http://127.0.0.1:80".to_owned()];
                config::load(&Flags { upstream, rules, ..flags }, &environment).map_err(|_| refused)
            }
        }
    }
}
