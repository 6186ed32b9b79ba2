//! A ledger database in SQLite or PostgreSQL.

mod templates;

use std::sync::Arc;

use ledger::{Ledger, PoolSettings, StatementLimits};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::timeout;

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
    /// It was created with the schema of the ledger.
    has_schema: bool,
    // Removed with the database.
    _folder: Option<TempDir>,
}

impl Database {
    /// A new database with the schema of the ledger: a copy of one that has been migrated.
    pub async fn new(backend: Backend) -> Self {
        let copy = match backend {
            Backend::Sqlite => templates::copy_sqlite().await,
            Backend::Postgres => templates::copy_postgres().await,
        };
        Self {
            has_schema: true,
            ..copy
        }
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
            has_schema: false,
            _folder: Some(folder),
        }
    }

    /// An existing PostgreSQL database.
    pub fn postgres_at(url: String) -> Self {
        Self {
            backend: Backend::Postgres,
            url,
            has_schema: false,
            _folder: None,
        }
    }

    /// Creates the schema of the ledger, unless the database was created with it.
    pub async fn migrate(&self) {
        if !self.has_schema {
            self.ledger().await.migrate().await.unwrap();
        }
    }

    /// A new ledger with its own connections, as another process would have.
    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        self.ledger_of(CONNECTIONS_MAX).await
    }

    /// A new ledger that never opens a second connection, for tests that count statements: a new
    /// connection begins with statements of its own.
    pub async fn ledger_of_one_connection(&self) -> Arc<dyn Ledger> {
        self.ledger_of(1).await
    }

    async fn ledger_of(&self, connections: u32) -> Arc<dyn Ledger> {
        let settings = PoolSettings {
            acquire_timeout: Some(timeout()),
            limits: StatementLimits {
                statement: timeout(),
                long_statement: timeout(),
                lock: timeout(),
            },
            ..PoolSettings::new(connections)
        };
        ledger::connect_with(&self.url, settings).await.unwrap()
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
