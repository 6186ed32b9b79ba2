//! Every setting of a lock in a database, with its default and its validation.

#[cfg(feature = "_session_lock")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI64;

use sqlx::Pool;

use super::{database::Database, dialect::Dialect, row_lock::SqlLock, rows::Rows, table::Table};
#[cfg(feature = "_session_lock")]
use super::{
    method::{LockMethod, SessionDialect},
    session_lock::SessionLock,
    session_server::SessionServer,
};
use crate::{
    error::InvalidArgument,
    options::{LockOptions, lock_options},
};

/// Builds a lock in a database.
#[derive(Debug, Clone)]
pub struct SqlLockBuilder<DB: sqlx::Database> {
    source: Source<DB>,
    table: String,
    options: LockOptions,
}

#[derive(Debug, Clone)]
enum Source<DB: sqlx::Database> {
    Pool(Pool<DB>),
    Url(String),
}

impl<DB: Dialect> SqlLockBuilder<DB> {
    /// A lock in the database of a pool. It takes a connection for each statement and returns it
    /// afterwards.
    pub fn new(pool: Pool<DB>) -> Self {
        Self::from(Source::Pool(pool))
    }

    /// A lock in the database at this URL, with a small pool of its own: `postgres://`, `mysql://`
    /// or `sqlite://`.
    pub fn connect(url: impl Into<String>) -> Self {
        Self::from(Source::Url(url.into()))
    }

    fn from(source: Source<DB>) -> Self {
        Self {
            source,
            table: "locks".into(),
            options: LockOptions::default(),
        }
    }

    /// The table, `TABLE` or `SCHEMA.TABLE`. Default: `locks`.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    lock_options! {
        /// How long a lock is held without an extension. Default: 10 seconds.
        lease;
        /// How much longer the lock stays closed after a lease that ended without a release. It
        /// protects stores from requests of the old holder that are still in flight. A release
        /// frees the lock immediately. Default: none.
        lock_delay;
        /// How much of the lease must be left when the lock is acquired. Default: a tenth of the
        /// lease.
        min_validity;
        /// How long the database may take for each answer. Default: a tenth of the lease, at least
        /// 50 ms and at most 2 seconds.
        timeout;
        /// Longest pause between two attempts while the lock is held. Default: 100 ms, with jitter.
        retry;
    }

    /// The lock that is a row with an expiry. It connects at the first acquisition.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub fn build(self) -> Result<SqlLock<DB>, InvalidArgument> {
        let timing = self.options.timing()?;
        let table = Table::new(&self.table)?;
        let database = self.database()?;
        Ok(SqlLock::new(Rows {
            database,
            table,
            timing,
            floor: AtomicI64::new(0),
        }))
    }

    fn database(self) -> Result<Database<DB>, InvalidArgument> {
        let timeout = self.options.database_timeout()?;
        match self.source {
            Source::Pool(pool) => Ok(Database::new(pool, timeout)),
            Source::Url(url) => Database::lazy(&url, timeout),
        }
    }
}

#[cfg(feature = "_session_lock")]
impl<DB: SessionDialect> SqlLockBuilder<DB> {
    /// The advisory lock of a session: `pg_advisory_lock`, `GET_LOCK`. Each held lock and each
    /// waiter has its own connection outside the pool.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub fn build_advisory(self) -> Result<SessionLock<DB>, InvalidArgument> {
        self.build_session(LockMethod::advisory)
    }

    /// A row of the second table, locked by `SELECT ... FOR UPDATE` in a transaction that is open
    /// while the lock is held. Each held lock and each waiter has its own connection outside the
    /// pool.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub fn build_for_update(self) -> Result<SessionLock<DB>, InvalidArgument> {
        self.build_session(LockMethod::for_update)
    }

    fn build_session(
        self,
        method: fn(&Table<DB>) -> LockMethod,
    ) -> Result<SessionLock<DB>, InvalidArgument> {
        let timing = self.options.timing()?;
        if !timing.lock_delay.is_zero() {
            return Err(InvalidArgument::Unsupported {
                backend: "session",
                what: "lock-delay",
            });
        }
        let table = Table::new(&self.table)?;
        let method = method(&table);
        let database = self.database()?;
        Ok(SessionLock::new(SessionServer {
            database,
            table,
            method,
            timing,
            direct: AtomicBool::new(false),
        }))
    }
}
