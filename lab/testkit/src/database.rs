//! A ledger database in SQLite or PostgreSQL.

use std::sync::Arc;

use ledger::Ledger;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::postgres_database;

const CONNECTIONS_MAX: u32 = 4;

/// A kind of database that keeps a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A file.
    Sqlite,
    /// A database on the PostgreSQL server that tests share.
    Postgres,
}

/// A database for one test.
#[derive(Debug)]
pub struct Database {
    /// Kind of the database.
    pub backend: Backend,
    /// URL of the database.
    pub url: String,
    // Removed with the database.
    _folder: Option<TempDir>,
}

impl Database {
    /// A new database with the schema of the ledger.
    pub async fn new(backend: Backend) -> Self {
        let database = Self::empty(backend).await;
        database.migrate().await;
        database
    }

    /// A new database without a schema.
    pub async fn empty(backend: Backend) -> Self {
        match backend {
            Backend::Sqlite => Self::empty_sqlite(),
            Backend::Postgres => Self::postgres_at(postgres_database().await),
        }
    }

    /// A SQLite database without a schema. Neither the file nor its folder exists yet.
    pub fn empty_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/data/ledger.db", folder.path().display());
        Self {
            backend: Backend::Sqlite,
            url,
            _folder: Some(folder),
        }
    }

    /// An existing PostgreSQL database.
    pub fn postgres_at(url: String) -> Self {
        Self {
            backend: Backend::Postgres,
            url,
            _folder: None,
        }
    }

    /// Creates the schema of the ledger.
    pub async fn migrate(&self) {
        self.ledger().await.migrate().await.unwrap();
    }

    /// A new ledger with its own connections, as another process would have.
    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        ledger::connect(&self.url, CONNECTIONS_MAX).await.unwrap()
    }

    /// A new ledger that never opens a second connection, for tests that count statements: a new
    /// connection begins with statements of its own.
    pub async fn ledger_of_one_connection(&self) -> Arc<dyn Ledger> {
        ledger::connect(&self.url, 1).await.unwrap()
    }

    /// Executes statements without the ledger. Returns the number of changed rows.
    pub async fn execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql);
        match self.backend {
            Backend::Sqlite => {
                let mut connection = SqliteConnection::connect(&self.url).await?;
                let done = sqlx::raw_sql(sql).execute(&mut connection).await?;
                connection.close().await?;
                Ok(done.rows_affected())
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await?;
                let done = sqlx::raw_sql(sql).execute(&mut connection).await?;
                connection.close().await?;
                Ok(done.rows_affected())
            }
        }
    }
}
