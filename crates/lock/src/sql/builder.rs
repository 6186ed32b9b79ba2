//! Every setting of a lock in a database, with its default, and what is refused.

use std::time::Duration;

use sqlx::Pool;

use super::{
    database::Database,
    dialect::Dialect,
    row::{Inner, SqlLock},
    table::Table,
};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::{
    means::{Means, Sessions},
    waiter::SessionLock,
};
use crate::{
    error::{InvalidArgument, expect},
    lease::{LEASE_MAX, Lease, check_lock_delay, check_retry},
};

/// How a lock in a database shall be.
#[derive(Debug, Clone)]
pub struct SqlLockBuilder<DB: sqlx::Database> {
    source: Source<DB>,
    table: String,
    lease: Duration,
    lock_delay: Duration,
    min_validity: Option<Duration>,
    timeout: Option<Duration>,
    retry: Duration,
}

#[derive(Debug, Clone)]
enum Source<DB: sqlx::Database> {
    Pool(Pool<DB>),
    Url(String),
}

impl<DB: Dialect> SqlLockBuilder<DB> {
    /// A lock in the database of a pool. It takes a connection for each statement, and keeps none.
    pub fn new(pool: Pool<DB>) -> Self {
        Self::from(Source::Pool(pool))
    }

    /// A lock in a database that it connects to by itself, with a few connections: `postgres://`, `mysql://` or `sqlite://`.
    pub fn connect(url: impl Into<String>) -> Self {
        Self::from(Source::Url(url.into()))
    }

    fn from(source: Source<DB>) -> Self {
        Self {
            source,
            table: "locks".into(),
            lease: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            min_validity: None,
            timeout: None,
            retry: Duration::from_millis(100),
        }
    }

    /// The table, `TABLE` or `SCHEMA.TABLE`. Default: `locks`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long a lock is ours without being extended. Default: 10 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How much longer others are kept out after a lease that was not given back, for requests of its holder that are still on their way
    /// to some store. A release frees at once. Default: none.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// How much of a lease must be left when the lock has been acquired. Default: a tenth of the lease.
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = Some(validity);
        self
    }

    /// How long an answer of the database is waited for. Default: a tenth of the lease, at least 50 ms and at most 2 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often, at the least, a lock that is held is asked for again. Default: every 100 ms, with jitter.
    pub fn retry(mut self, pause: Duration) -> Self {
        self.retry = pause;
        self
    }

    /// The lock that is a row with an expiry. It connects when it is first asked.
    ///
    /// # Errors
    ///
    /// For settings that make no sense.
    pub fn build(self) -> Result<SqlLock<DB>, InvalidArgument> {
        let (lease, retry) = (self.checked_lease()?, self.retry);
        check_lock_delay(self.lock_delay)?;
        let ttl = lease.length + self.lock_delay;
        let table = Table::new(&self.table)?;
        let database = self.database()?;
        Ok(SqlLock::new(Inner {
            database,
            table,
            lease,
            ttl,
            retry,
        }))
    }

    fn checked_lease(&self) -> Result<Lease, InvalidArgument> {
        let Self { retry, .. } = *self;
        check_retry(retry)?;
        Lease::new(self.lease, self.min_validity)
    }

    fn database(self) -> Result<Database<DB>, InvalidArgument> {
        let answer = self
            .timeout
            .unwrap_or((self.lease / 10).clamp(Duration::from_millis(50), Duration::from_secs(2)));
        expect(
            answer > Duration::ZERO && answer <= LEASE_MAX,
            "timeout",
            answer,
            "expected more than nothing and at most 24 hours",
        )?;
        match self.source {
            Source::Pool(pool) => Ok(Database::new(pool, answer)),
            Source::Url(url) => Database::lazy(&url, answer),
        }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl<DB: Sessions> SqlLockBuilder<DB> {
    /// The advisory lock of a session: `pg_advisory_lock`, `GET_LOCK`. Each lock that is held has a connection of its own, beside the
    /// pool, and so has everybody who waits for one.
    ///
    /// # Errors
    ///
    /// For settings that make no sense.
    pub fn build_advisory(self) -> Result<SessionLock<DB>, InvalidArgument> {
        self.build_session(Means::advisory)
    }

    /// A row of the second table, locked by `SELECT ... FOR UPDATE` in a transaction that is open as long as the lock is held. Each lock
    /// has a connection of its own, beside the pool, and so has everybody who waits for one.
    ///
    /// # Errors
    ///
    /// For settings that make no sense.
    pub fn build_for_update(self) -> Result<SessionLock<DB>, InvalidArgument> {
        self.build_session(Means::for_update)
    }

    fn build_session(
        self,
        means: fn(&Table<DB>) -> Means,
    ) -> Result<SessionLock<DB>, InvalidArgument> {
        let (lease, retry) = (self.checked_lease()?, self.retry);
        if !self.lock_delay.is_zero() {
            return Err(InvalidArgument::Unsupported {
                backend: "session",
                what: "lock-delay",
            });
        }
        let table = Table::new(&self.table)?;
        let means = means(&table);
        let database = self.database()?;
        Ok(SessionLock::new(super::waiter::Inner {
            database,
            table,
            means,
            lease,
            retry,
        }))
    }
}
