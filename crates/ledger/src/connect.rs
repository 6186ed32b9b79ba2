//! Opening a ledger.

use std::{str::FromStr, sync::Arc, time::Duration};

use sqlx::sqlite::SqliteConnectOptions;

use crate::{Ledger, LedgerError, postgres::PostgresLedger, sqlite::SqliteLedger};

/// The connections of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Largest number of connections.
    pub connections: u32,
    /// How long a step of an order waits for a connection before it fails. Default: three seconds
    /// on PostgreSQL, and on SQLite as long as for the write of another process.
    pub acquire_timeout: Option<Duration>,
    /// Limits of statements.
    pub limits: StatementLimits,
}

/// How long statements may take, and wait. A statement that is ended changes nothing, and its
/// connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementLimits {
    /// For steps of orders, recording and look-ups. On PostgreSQL only.
    pub statement: Duration,
    /// For lists, exports, drops and each piece of a full audit. On PostgreSQL
    /// only.
    pub long_statement: Duration,
    /// How long a statement waits for a lock; on SQLite, how long a writer waits for the write of
    /// another process.
    pub lock: Duration,
}

impl Default for StatementLimits {
    fn default() -> Self {
        Self {
            statement: Duration::from_secs(30),
            long_statement: Duration::from_secs(600),
            lock: Duration::from_secs(5),
        }
    }
}

impl PoolSettings {
    /// At most this many connections, and the default time-out.
    pub fn new(connections: u32) -> Self {
        Self {
            connections,
            acquire_timeout: None,
            limits: StatementLimits::default(),
        }
    }

    /// At most this many connections, and a time-out that only a fault reaches.
    #[cfg(test)]
    pub(crate) fn patient(connections: u32) -> Self {
        Self {
            acquire_timeout: Some(testbed::timeout()),
            limits: StatementLimits {
                statement: testbed::timeout(),
                long_statement: testbed::timeout(),
                lock: testbed::timeout(),
            },
            ..Self::new(connections)
        }
    }
}

/// At most this many connections.
impl From<u32> for PoolSettings {
    fn from(connections: u32) -> Self {
        Self::new(connections)
    }
}

/// Opens the ledger that `url` names: `postgres://...` or `sqlite://path` (created if missing).
/// `pool` is the pool's size, or all of its settings.
pub async fn connect(
    url: &str,
    pool: impl Into<PoolSettings>,
) -> Result<Arc<dyn Ledger>, LedgerError> {
    connect_with(url, pool.into()).await
}

/// [`connect`] with these settings of its connections.
pub async fn connect_with(url: &str, pool: PoolSettings) -> Result<Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Ok(Arc::new(PostgresLedger::connect(url, pool).await?))
    } else if url.starts_with("sqlite:") {
        Ok(Arc::new(SqliteLedger::connect(url, pool).await?))
    } else {
        Err(LedgerError::Url(
            url.split(':').next().unwrap_or_default().into(),
        ))
    }
}

/// Opens a ledger that exists. A mistyped path of SQLite is an error here, not a new ledger.
pub async fn connect_existing(
    url: &str,
    pool: impl Into<PoolSettings>,
) -> Result<Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("sqlite:") && !url.contains(":memory:") {
        let options = SqliteConnectOptions::from_str(url)?;
        let file = options.get_filename();
        if !file.exists() {
            return Err(LedgerError::NoFile(file.display().to_string()));
        }
    }
    connect(url, pool).await
}

/// Opens a second connection pool to the same ledger, for a role that has its own runtime: the
/// runtime that opened a PostgreSQL connection also drives it. SQLite has one writer at a time, and
/// the existing ledger owns the queue for it; therefore this returns the existing ledger.
pub async fn connect_again(
    ledger: &Arc<dyn Ledger>,
    url: &str,
    pool: impl Into<PoolSettings>,
) -> Result<Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("sqlite:") {
        Ok(Arc::clone(ledger))
    } else {
        connect(url, pool).await
    }
}
