//! SQLite: the embedded default. WAL, `synchronous=FULL`, one writer at a time.

mod idempotency;
mod migrate;
mod rules;
mod write;

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

pub use idempotency::{ClockShift, SetupError, SqliteIdempotency, claim_in, complete_in};
pub use migrate::{MigrateError, migrate};
pub use rules::SqliteRules;

/// How long a statement waits for another process's write before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of one pool: one writer and a few readers.
const MAX_CONNECTIONS: u32 = 4;

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be opened or is not a SQLite database.
    #[error(
        "{path}: cannot be opened as a database ({source}); check the path and its permissions, or name another file"
    )]
    Open {
        /// The file.
        path: String,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// A file of another kind.
    #[error("{path}: is not a SQLite database, and is left alone; name another file")]
    NotADatabase {
        /// The file.
        path: String,
    },
    /// A SQLite database with another program's tables.
    #[error(
        "{path}: this database is another program's, and is left alone; name a file of the gateway's own"
    )]
    Taken {
        /// The file.
        path: String,
    },
    /// There is no file.
    #[error("{path}: there is no such database; name the one that the gateway uses")]
    Missing {
        /// The file.
        path: String,
    },
    /// A SQLite database in which Tidegate keeps nothing.
    #[error("{path}: this database holds nothing of Tidegate's; name the one that the gateway uses")]
    Foreign {
        /// The file.
        path: String,
    },
}

impl OpenError {
    /// Whether the database is there and is not ours to use, so that trying again is of no use.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NotADatabase { .. } | Self::Taken { .. } | Self::Foreign { .. })
    }

    fn opening(path: &Path, source: sqlx::Error) -> Self {
        /// <https://www.sqlite.org/rescode.html#notadb>
        const NOT_A_DATABASE: &str = "26";
        let path = path.display().to_string();
        match source.as_database_error().and_then(sqlx::error::DatabaseError::code) {
            Some(code) if code == NOT_A_DATABASE => Self::NotADatabase { path },
            _ => Self::Open { path, source },
        }
    }
}

/// Opens the database file of a gateway or service that has run before, and changes nothing about it.
///
/// # Errors
/// Also when there is no file, or when it holds nothing of ours.
pub async fn open_existing(path: &Path) -> Result<SqlitePool, OpenError> {
    let name = || path.display().to_string();
    if !path.exists() {
        return Err(OpenError::Missing { path: name() });
    }
    let failed = |source| OpenError::opening(path, source);
    let pool = untouched(path).await.map_err(failed)?;
    if migrate::is_ours(&pool).await.map_err(failed)? {
        Ok(pool)
    } else {
        Err(OpenError::Foreign { path: name() })
    }
}

/// Opens the file of a gateway that has it for itself, making it when it does not exist. Another
/// program's database is refused and left as it is, down to its journal mode.
pub async fn open_own(path: &Path) -> Result<SqlitePool, OpenError> {
    // An empty file is a new database.
    if path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0) {
        let failed = |source| OpenError::opening(path, source);
        let pool = untouched(path).await.map_err(failed)?;
        let taken = migrate::is_taken(&pool).await.map_err(failed)?;
        pool.close().await;
        if taken {
            return Err(OpenError::Taken { path: path.display().to_string() });
        }
    }
    open(path).await
}

/// A file that is there, in the journal mode that stands in it.
async fn untouched(path: &Path) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT);
    SqlitePoolOptions::new().max_connections(MAX_CONNECTIONS).connect_with(options).await
}

/// Opens the database file, making it when it does not exist.
pub async fn open(path: &Path) -> Result<SqlitePool, OpenError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT);
    let opened = SqlitePoolOptions::new().max_connections(MAX_CONNECTIONS).connect_with(options).await;
    opened.map_err(|source| OpenError::opening(path, source))
}
