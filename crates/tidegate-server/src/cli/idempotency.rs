//! `tidegate idempotency`: an operator's view of single records, and the last word on those whose
//! outcome nobody knows.

mod settle;
mod show;

use std::io;
use std::path::PathBuf;

use clap::Subcommand;
use tidegate_core::idempotency::{Key, RecordId, Scope};
use tidegate_store::rules::RuleStoreError;
use tidegate_store::sql::sqlite::{
    self, MigrateError, OpenError, SetupError, SqliteIdempotency, SqliteRules,
};
use tidegate_store::traits::Shown;
use tidegate_store::{IdempotencyStore as _, StoreError};

pub(super) use settle::user;

use super::Exit;
use super::output::say;
use crate::config::{self, CONFIG_VARIABLE, Environment, Flags, Refused, StoreSetting};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print a record: its state, attempts, times, and the status and headers of its result
    Show(show::Args),
    /// Say what a silent attempt did: retries then replay its result, or execute
    ///
    /// Refused (1) while an attempt holds the record; a conflict (3) when the record has changed or is
    /// settled by now. What was done is kept in the audit trail.
    Resolve(settle::ResolveArgs),
    /// Let the next call with this key execute
    ///
    /// Refused (1) while an attempt holds the record, unless forced; a conflict (3) when the record has
    /// changed or is settled by now. What was done is kept in the audit trail.
    Release(settle::ReleaseArgs),
}

/// Which record, and where.
#[derive(Debug, clap::Args)]
struct Which {
    // No `env` of clap's, to which an empty variable is a value.
    #[arg(
        long,
        value_name = "STORE",
        value_parser = database,
        help = "The gateway's database, sqlite:PATH [env: TIDEGATE_STORE] [default: the configuration's]"
    )]
    store: Option<Database>,
    /// The gateway's configuration, for its `store` [default: tidegate.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The rule's operation, which is its id unless it names another
    #[arg(long)]
    operation: String,
    /// Whose key it is, as stored: a / before each value, as in /acme; empty for `scope: []`
    #[arg(long, default_value = "")]
    scope: String,
    /// The client's key
    #[arg(long)]
    key: String,
}

/// A database file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Database(PathBuf);

/// Names the database where `--store` does not.
const STORE_VARIABLE: &str = "TIDEGATE_STORE";
const IN_MEMORY: &str = "what a gateway keeps in memory can only be seen from inside it; \
    write sqlite:PATH, and run the gateway with it";

fn database(text: &str) -> Result<Database, String> {
    match text.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(Database(path.into())),
        Some(("memory", "")) => Err(IN_MEMORY.to_owned()),
        _ => Err("write sqlite:PATH".to_owned()),
    }
}

pub(super) fn run(command: &Command) -> io::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        match command {
            Command::Show(args) => show::run(args).await,
            Command::Resolve(args) => settle::resolve(args).await,
            Command::Release(args) => settle::release(args).await,
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
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{path}: {source}")]
    Setup { path: String, source: SetupError },
    #[error("{path}: {source}")]
    Trail { path: String, source: RuleStoreError },
    #[error("{path}: {source}")]
    Store { path: String, source: StoreError },
    #[error("{STORE_VARIABLE}: {0}")]
    Variable(String),
    #[error("{0}")]
    Configuration(Refused),
    #[error("the configuration says `store: memory:`: {IN_MEMORY}")]
    InMemory,
    #[error("there is no record with {id}{hint}")]
    Missing { id: RecordId, hint: String },
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl Trouble {
    fn exit(&self) -> Exit {
        match self {
            Self::Variable(_) => Exit::Usage,
            Self::Open(error) if error.is_refusal() => Exit::Refused,
            Self::Missing { .. }
            | Self::Output(_)
            | Self::Configuration(_)
            | Self::InMemory
            | Self::Setup {
                source: SetupError::Shape { .. } | SetupError::Migrate(MigrateError::Newer { .. }),
                ..
            }
            | Self::Trail { source: RuleStoreError::Newer { .. }, .. } => Exit::Refused,
            Self::Open(_) | Self::Setup { .. } | Self::Trail { .. } | Self::Store { .. } => Exit::Unreachable,
        }
    }
}

/// A gateway's database, opened.
struct Store {
    path: String,
    pool: sqlx::SqlitePool,
    records: SqliteIdempotency,
}

impl Store {
    async fn open(which: &Which) -> Result<Self, Trouble> {
        let Database(path) = which.database()?;
        let pool = sqlite::open_existing(&path).await?;
        let path = path.display().to_string();
        let opened = SqliteIdempotency::open(pool.clone()).await;
        let records = opened.map_err(|source| Trouble::Setup { path: path.clone(), source })?;
        Ok(Self { path, pool, records })
    }

    /// Makes sure that there is a trail to write to: a service that keeps records beside its own rows
    /// may have none so far.
    async fn trail(&self) -> Result<(), Trouble> {
        let opened = SqliteRules::new(self.pool.clone()).await;
        opened.map(|_| ()).map_err(|source| Trouble::Trail { path: self.path.clone(), source })
    }

    fn failed(&self, source: StoreError) -> Trouble {
        Trouble::Store { path: self.path.clone(), source }
    }

    /// The record that the arguments name.
    async fn read(&self, which: &Which) -> Result<(RecordId, Shown), Trouble> {
        let id = which.id();
        match self.look(&id).await? {
            Some(shown) => Ok((id, shown)),
            None => Err(Trouble::Missing { hint: self.hint(&id, &which.scope).await?, id }),
        }
    }

    async fn look(&self, id: &RecordId) -> Result<Option<Shown>, Trouble> {
        self.records.read(id).await.map_err(|error| self.failed(error))
    }

    /// Scope and key are what is easily written otherwise than it is stored.
    async fn hint(&self, id: &RecordId, scope: &str) -> Result<String, Trouble> {
        let quoted = Key::parse_header(&[id.key().as_bytes()]).ok();
        if let Some(key) = quoted.filter(|key| key.as_str() != id.key()) {
            let near = RecordId::from_stored(id.operation(), scope, key.as_str());
            if self.look(&near).await?.is_some() {
                return Ok(format!("; there is one with the key {}, without quotes", key.as_str()));
            }
        }
        let encoded = Scope::of([scope]).as_str().to_owned();
        for other in [format!("/{scope}"), encoded.clone(), format!("={encoded}"), format!("={scope}")] {
            let near = RecordId::from_stored(id.operation(), &other, id.key());
            if other != scope && self.look(&near).await?.is_some() {
                return Ok(format!("; there is one with --scope '{other}'"));
            }
        }
        Ok("; the scope has a / before each value, as the Tidegate-Scope header shows it, \
            and the operation is the rule's id unless it names another"
            .to_owned())
    }
}

impl Which {
    /// The flag's, then the variable's, which counts as not set when it is empty, then the configuration
    /// file's, then the default: as a gateway has it.
    fn database(&self) -> Result<Database, Trouble> {
        if let Some(database) = &self.store {
            return Ok(database.clone());
        }
        match std::env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) => database(&value.to_string_lossy()).map_err(Trouble::Variable),
            None => self.configured(),
        }
    }

    fn configured(&self) -> Result<Database, Trouble> {
        // What the gateway is told by flags and variables is of no concern here, but for the file's name.
        let flags = Flags {
            config: self.config.clone(),
            upstream: vec!["http://127.0.0.1:80".to_owned()],
            rules: Some("rules.yaml".to_owned()),
            ..Flags::default()
        };
        let named = std::env::vars_os().filter(|(name, _)| name == CONFIG_VARIABLE);
        let config = config::load(&flags, &Environment::from_pairs(named)).map_err(Trouble::Configuration)?;
        match config.store {
            StoreSetting::Sqlite(path) => Ok(Database(path)),
            StoreSetting::Memory => Err(Trouble::InMemory),
        }
    }

    fn id(&self) -> RecordId {
        RecordId::from_stored(&self.operation, &self.scope, &self.key)
    }
}
