//! `tidegate limits`: an operator's view of single counters that gateways share.

use std::io;
use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use tidegate::fleet::PERMIT_LIFE;
use tidegate::rules::read_sources;
use tidegate_core::Value;
use tidegate_core::limit::key;
use tidegate_core::rule::compile::Plan;
use tidegate_core::rule::model::{Mode, Sharing};
use tidegate_core::rule::{load, render};
use tidegate_store::redis::limits::RedisLimits;
use tidegate_store::rules::{AuditKind, MAX_NOTE, NewAuditEntry, RuleStore as _};
use tidegate_store::shared::{Counter, Purpose, SharedAsk, SharedLimitStore as _, SharedRule};
use tidegate_store::sql::sqlite::{self, SqliteRules};

use super::Exit;
use super::output::{print, say};
use super::stores::Stores;
use crate::config::{Config, StoreSetting};
use crate::serve;

/// A person waits.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print what is left of a counter, and charge nothing
    Show(Which),
    /// Forget what a counter has counted; kept in the audit trail
    Reset(Reset),
}

/// Which counter.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The limit's id
    rule: String,
    /// A value of the limit's key, as NAME=VALUE; again for more. One that is left out is missing
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    key: Vec<(String, String)>,
    #[command(flatten)]
    stores: Stores,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Reset {
    #[command(flatten)]
    which: Which,
    /// Who does it, for the audit trail [default: the user of the operating system]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn run(command: &Command) -> io::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        match command {
            Command::Show(which) => show(which).await,
            Command::Reset(reset) => reset.run().await,
        }
    });
    match ended {
        Ok(exit) => Ok(exit),
        Err(Trouble::Output(error)) => Err(error),
        Err(trouble) => {
            say(&trouble);
            Ok(trouble.exit())
        }
    }
}

/// Why a command came to nothing.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Unreachable(String),
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl Trouble {
    fn exit(&self) -> Exit {
        match self {
            Self::Refused(_) | Self::Output(_) => Exit::Refused,
            Self::Usage(_) => Exit::Usage,
            Self::Unreachable(_) => Exit::Unreachable,
        }
    }
}

/// A counter, and where it is.
struct Found {
    config: Config,
    store: RedisLimits,
    counter: Counter,
}

impl Which {
    fn find(&self) -> Result<Found, Trouble> {
        let config = self.stores.load().map_err(|refused| Trouble::Refused(refused.to_string()))?;
        let Some(setting) = &config.redis else {
            let help = "name it with --redis URL, TIDEGATE_REDIS, or `redis` in tidegate.yaml";
            return Err(Trouble::Refused(format!("no Redis is configured: {help}")));
        };
        let redis = serve::redis(setting, PATIENCE).map_err(|error| Trouble::Refused(error.to_string()))?;
        let counter = self.counter(&config)?;
        Ok(Found { store: RedisLimits::new(redis), counter, config })
    }

    /// The counter that the gateway would ask for these values.
    fn counter(&self, config: &Config) -> Result<Counter, Trouble> {
        let plan = rules(config)?;
        let limits = &plan.rules.limits;
        let Some(at) = limits.iter().position(|limit| limit.id == self.rule) else {
            let known: Vec<&str> = limits.iter().map(|limit| limit.id.as_str()).collect();
            let (rule, known) = (&self.rule, known.join(", "));
            return Err(Trouble::Refused(format!("there is no limit {rule}; there are: {known}")));
        };
        let limit = &limits[at];
        if limit.sharing == Sharing::Local {
            let rule = &self.rule;
            return Err(Trouble::Refused(format!(
                "{rule} is counted inside each gateway (`sharing: local`); ask it by POST /v1/explain"
            )));
        }
        if let Some((name, _)) = self.key.iter().find(|(name, _)| !limit.key.contains(name)) {
            let key = limit.key.join(", ");
            let rule = &self.rule;
            return Err(Trouble::Usage(format!("{name} is not in the key of {rule}, which is [{key}]")));
        }
        let value = |name: &String| self.key.iter().find(|(given, _)| given == name);
        let values = limit.key.iter().map(|name| value(name).map(|(_, value)| value.as_str()));
        let given: Vec<(&str, Value<'_>)> =
            self.key.iter().map(|(name, value)| (name.as_str(), Value::Text(value))).collect();
        let conditions = plan.resources.iter().flat_map(|resource| &resource.limits);
        let overrides = conditions.filter(|limit| limit.rule == at).map(|limit| &limit.overrides).next();
        let variant =
            overrides.and_then(|overrides| overrides.iter().position(|when| when.holds(&given[..])));
        let shared = SharedRule::new(limit, PERMIT_LIFE);
        let counter = shared.counter(variant.map_or(0, |at| at + 1), &key::encode(values), 0);
        counter.ok_or_else(|| Trouble::Usage("the key cannot be encoded".to_owned()))
    }
}

/// The rules that the configuration names.
fn rules(config: &Config) -> Result<Plan, Trouble> {
    let sources = read_sources(&config.rules)
        .map_err(|error| Trouble::Refused(format!("{error}; name the rules with --rules")))?;
    let loaded = load(&sources, &serve::deployment(config));
    let loaded = loaded.map_err(|refused| Trouble::Refused(refused.to_string()))?;
    Plan::new(loaded.rules).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Trouble::Refused(faults.join("\n"))
    })
}

async fn show(which: &Which) -> Result<Exit, Trouble> {
    let Found { store, counter, .. } = which.find()?;
    // A cost of nothing, by a version older than all: the counter's own numbers decide.
    let asks = [SharedAsk { counter: Counter { mode: Mode::Enforce, ..counter }, cost: 0 }];
    let said = store.decide(&asks, "show", Purpose::Peek).await;
    let said = said.map_err(|fault| Trouble::Unreachable(fault.to_string()))?;
    let key = asks[0].counter.key.as_str();
    let Some(decision) = said.verdicts.first().and_then(|verdict| verdict.decision) else {
        return Err(Trouble::Unreachable("Redis did not say".to_owned()));
    };
    if which.json {
        print(json!({
            "rule": which.rule,
            "key": key,
            "limit": decision.limit,
            "remaining": decision.remaining,
            "reset_seconds": decision.reset_after().as_secs_f64(),
        }))?;
    } else {
        let reset = match decision.reset_after() {
            Duration::ZERO => String::new(),
            reset => format!("; whole again in {}", render::duration(rounded(reset))),
        };
        let (limit, remaining) = (decision.limit, decision.remaining);
        print(format_args!("{key}: {remaining} of {limit} left{reset}"))?;
    }
    Ok(Exit::Fine)
}

/// To whole milliseconds, up: nobody reads more.
fn rounded(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

impl Reset {
    async fn run(&self) -> Result<Exit, Trouble> {
        let by = self.by.clone().unwrap_or_else(super::idempotency::user);
        if self.reason.len() > MAX_NOTE || by.len() > MAX_NOTE {
            return Err(Trouble::Usage(format!("--by and --reason take at most {MAX_NOTE} bytes")));
        }
        let Found { config, store, counter } = self.which.find()?;
        let StoreSetting::Sqlite(path) = &config.store else {
            return Err(Trouble::Refused(
                "the audit trail of `store: memory:` is inside the gateway, and nothing is reset without an entry \
                 there; name the gateway's database with --store sqlite:PATH"
                    .to_owned(),
            ));
        };
        let unreachable = |error: &dyn std::fmt::Display| Trouble::Unreachable(error.to_string());
        let pool = sqlite::open_existing(path).await.map_err(|error| {
            if error.is_refusal() { Trouble::Refused(error.to_string()) } else { unreachable(&error) }
        })?;
        let trail = SqliteRules::new(pool).await.map_err(|error| unreachable(&error))?;
        let key = counter.key.as_str().to_owned();
        let reason = if self.reason.is_empty() { "none given" } else { &self.reason };
        // Written first: an entry too many is better than one too few.
        let entry = NewAuditEntry {
            node: serve::host(),
            kind: AuditKind::LimitReset,
            version: None,
            digest: None,
            who: by,
            detail: format!("{}: the counter {key} is reset; reason: {reason}", self.which.rule),
        };
        trail.audit(entry).await.map_err(|error| unreachable(&error))?;
        let was = store.forget(&counter.key).await.map_err(|fault| {
            Trouble::Unreachable(format!("the trail says that {key} is reset, and it may not be: {fault}"))
        })?;
        if self.which.json {
            print(json!({ "rule": self.which.rule, "key": key, "was_there": was }))?;
        } else if was {
            print(format_args!("{key}: reset; the next call finds it fresh"))?;
        } else {
            print(format_args!("{key}: nothing was counted"))?;
        }
        Ok(Exit::Fine)
    }
}
