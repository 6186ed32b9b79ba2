//! Opening a ledger.

use std::{str::FromStr, sync::Arc, time::Duration};

use sqlx::sqlite::SqliteConnectOptions;

use crate::{Ledger, LedgerError, postgres::PostgresLedger, sqlite::SqliteLedger};

/// The connections of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Largest number of connections.
    pub connections: u32,
    /// How long a step of an order waits for a connection before it fails. Default: three seconds on
    /// PostgreSQL, and on SQLite as long as for the write of another process.
    pub acquire_timeout: Option<Duration>,
}

impl PoolSettings {
    /// At most this many connections, and the default time-out.
    pub fn new(connections: u32) -> Self {
        Self {
            connections,
            acquire_timeout: None,
        }
    }

    /// At most this many connections, and a time-out that only a fault reaches.
    #[cfg(test)]
    pub(crate) fn patient(connections: u32) -> Self {
        Self {
            acquire_timeout: Some(testbed::timeout()),
            ..Self::new(connections)
        }
    }
}

/// Opens the ledger that `url` names: `postgres://...` or `sqlite://path` (created if missing).
/// `connections` is the pool's size.
pub async fn connect(url: &str, connections: u32) -> Result<Arc<dyn Ledger>, LedgerError> {
    connect_with(url, PoolSettings::new(connections)).await
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
pub async fn connect_existing(url: &str, connections: u32) -> Result<Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("sqlite:") && !url.contains(":memory:") {
        let options = SqliteConnectOptions::from_str(url)?;
        let file = options.get_filename();
        if !file.exists() {
            return Err(LedgerError::NoFile(file.display().to_string()));
        }
    }
    connect(url, connections).await
}

/// Opens a second connection pool to the same ledger, for a role that has its own runtime: the
/// runtime that opened a PostgreSQL connection also drives it. SQLite has one writer at a time, and
/// the existing ledger owns the queue for it; therefore this returns the existing ledger.
pub async fn connect_again(
    ledger: &Arc<dyn Ledger>,
    url: &str,
    connections: u32,
) -> Result<Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("sqlite:") {
        Ok(Arc::clone(ledger))
    } else {
        connect(url, connections).await
    }
}
