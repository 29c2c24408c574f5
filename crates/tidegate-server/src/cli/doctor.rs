//! `tidegate doctor`: what each configured store answers, and what is missing.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tidegate::env::Env;
use tidegate_store::redis::{Role, ServerInfo};
use tidegate_store::sql::sqlite::{self, OpenError};

use super::Exit;
use super::output::{print, say};
use super::stores::Stores;
use crate::config::{Config, RedisSetting, StoreSetting};
use crate::serve;

/// What is tried with: a person waits, and a slow answer says more than none.
const PATIENCE: Duration = Duration::from_secs(5);
/// The oldest release that the scripts were tried on.
const TRIED: (u32, u32) = (7, 0);

/// Which stores.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    stores: Stores,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

/// One store.
#[derive(Debug)]
struct Found {
    store: String,
    /// Product and version, role, and how it is set up.
    about: Vec<(&'static str, Value)>,
    /// What is missing, and what to do about it.
    warnings: Vec<String>,
    /// Why it cannot be used.
    fault: Option<String>,
}

pub(super) fn run(args: &Args) -> io::Result<Exit> {
    let config = match args.stores.load() {
        Ok(config) => config,
        Err(refused) => {
            say(refused);
            return Ok(Exit::Refused);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(look(&config));
    if args.json {
        let stores: Vec<Value> = found.iter().map(Found::json).collect();
        print(serde_json::json!({ "stores": stores }))?;
    } else {
        for store in &found {
            store.print()?;
        }
    }
    let unreachable = found.iter().any(|store| store.fault.is_some());
    Ok(if unreachable { Exit::Unreachable } else { Exit::Fine })
}

async fn look(config: &Config) -> Vec<Found> {
    let mut found = Vec::new();
    match &config.store {
        StoreSetting::Memory => {
            let mut memory = Found::new("memory:");
            memory.warnings.push("a restart forgets rules and records; write store: sqlite:PATH".to_owned());
            found.push(memory);
        }
        StoreSetting::Sqlite(path) => found.push(sqlite(path).await),
    }
    if let Some(setting) = &config.redis {
        found.extend(redis(setting, config.timeouts.redis).await);
    }
    found
}

async fn sqlite(path: &Path) -> Found {
    let mut found = Found::new(format!("sqlite:{}", path.display()));
    let pool = match sqlite::open_existing(path).await {
        Ok(pool) => pool,
        Err(OpenError::Missing { .. }) => {
            found.warnings.push("not there yet: the gateway makes it when it starts".to_owned());
            return found;
        }
        Err(error) => {
            found.fault = Some(error.to_string());
            return found;
        }
    };
    let env = Env::system();
    let started = env.now();
    let version = sqlx::query_scalar::<_, String>("SELECT sqlite_version()").fetch_one(&pool).await;
    let took = env.now().since(started);
    let journal = sqlx::query_scalar::<_, String>("PRAGMA journal_mode").fetch_one(&pool).await;
    match (version, journal) {
        (Ok(version), Ok(journal)) => {
            found.about.push(("version", format!("SQLite {version}").into()));
            found.about.push(("journal", journal.into()));
            found.about.push(("latency_ms", millis(took)));
        }
        (Err(error), _) | (_, Err(error)) => found.fault = Some(error.to_string()),
    }
    found
}

/// Each master, or the one server.
async fn redis(setting: &RedisSetting, timeout: Duration) -> Vec<Found> {
    let client = match serve::redis(setting, PATIENCE) {
        Ok(client) => client,
        Err(error) => return vec![Found { fault: Some(error.to_string()), ..Found::new("redis") }],
    };
    let name = client.config().to_string();
    // The first connects; the second is what a decision costs at least.
    let answered = match client.ping().await {
        Ok(_) => client.ping().await,
        Err(fault) => Err(fault),
    };
    let (latency, servers) = match (answered, client.info().await) {
        (Ok(latency), Ok(servers)) => (latency, servers),
        (Err(fault), _) | (_, Err(fault)) => {
            return vec![Found { fault: Some(fault.to_string()), ..Found::new(name) }];
        }
    };
    let one = servers.len() == 1;
    let each = servers.iter().map(|server| {
        let name = if one { name.clone() } else { format!("{name} at {}", server.address) };
        examined(name, server, latency, timeout)
    });
    each.collect()
}

fn examined(name: String, server: &ServerInfo, latency: Duration, timeout: Duration) -> Found {
    let mut found = Found::new(name);
    let role = match server.role {
        Role::Master => "master",
        Role::Replica => "replica",
        _ => "neither master nor replica",
    };
    found.about.push(("version", format!("{} {}", server.product, server.version).into()));
    found.about.push(("role", role.into()));
    found.about.push(("eviction", server.maxmemory_policy.clone().into()));
    found.about.push(("latency_ms", millis(latency)));
    if server.product != "redis" || release(&server.version).is_none_or(|release| release < TRIED) {
        let (product, version) = (&server.product, &server.version);
        found.warnings.push(format!("{product} {version} was not tried; Redis 7.0 was"));
    }
    if server.maxmemory_policy != "noeviction" {
        let policy = &server.maxmemory_policy;
        found.warnings.push(format!(
            "maxmemory-policy is {policy}: a counter that is used up may be evicted, and its limit admitted \
             again; set it to noeviction"
        ));
    }
    if server.role != Role::Master {
        found.warnings.push("it takes no writes: name the master, or use redis+sentinel://".to_owned());
    }
    if latency > timeout / 2 {
        let (took, timeout) = (latency.as_secs_f64() * 1e3, timeout.as_millis());
        found.warnings.push(format!(
            "it took {took:.1} ms to answer, and timeouts.redis is {timeout} ms: raise it, or calls will find it closed"
        ));
    }
    found
}

/// Major and minor number.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn millis(span: Duration) -> Value {
    // Whole microseconds are as fine as it was measured.
    ((span.as_secs_f64() * 1e6).round() / 1e3).into()
}

impl Found {
    fn new(store: impl Into<String>) -> Self {
        Self { store: store.into(), about: Vec::new(), warnings: Vec::new(), fault: None }
    }

    fn json(&self) -> Value {
        let about: serde_json::Map<String, Value> =
            self.about.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        serde_json::json!({
            "store": self.store,
            "answers": self.fault.is_none() && !self.about.is_empty(),
            "about": about,
            "warnings": self.warnings,
            "fault": self.fault,
        })
    }

    fn print(&self) -> io::Result<()> {
        let about: Vec<String> = self
            .about
            .iter()
            .map(|(name, value)| match (*name, value) {
                ("version" | "role", Value::String(text)) => text.clone(),
                ("latency_ms", value) => format!("answers in {value} ms"),
                (name, Value::String(text)) => format!("{name} {text}"),
                (name, value) => format!("{name} {value}"),
            })
            .collect();
        match &self.fault {
            Some(fault) => print(format_args!("{}: does not answer: {fault}", self.store))?,
            None if about.is_empty() => print(&self.store)?,
            None => print(format_args!("{}: {}", self.store, about.join(", ")))?,
        }
        self.warnings.iter().try_for_each(|warning| print(format_args!("  warning: {warning}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        for (version, tried) in
            [("7.0.15", true), ("10.1", true), ("6.2.14", false), ("7", false), ("x.y", false)]
        {
            assert_eq!(release(version).is_some_and(|release| release >= TRIED), tried, "{version}");
        }
    }
}
