//! A write transaction on a connection of a pool.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqliteConnection, SqlitePool};

/// An immediate transaction. Dropped without an end, it takes its connection with it.
///
/// SQLite ends a transaction by itself when the disk is full or fails, and sqlx does not hear of it:
/// its own `Transaction` would give the connection back as one that is still inside, on which no later
/// transaction can begin.
pub(super) struct Write {
    conn: PoolConnection<Sqlite>,
    over: bool,
}

impl Write {
    pub(super) async fn begin(pool: &SqlitePool) -> Result<Self, sqlx::Error> {
        // Before the statement is sent: a caller that goes away must not leave an open transaction.
        let mut this = Self { conn: pool.acquire().await?, over: false };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *this.conn).await?;
        Ok(this)
    }

    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    /// For an answer that changes nothing.
    pub(super) async fn rollback(self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(statement).execute(&mut *self.conn).await?;
        self.over = true;
        Ok(())
    }
}

impl Deref for Write {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.conn
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if !self.over {
            self.conn.close_on_drop();
        }
    }
}
