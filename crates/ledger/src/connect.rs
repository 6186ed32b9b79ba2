//! Opening a ledger.

use std::{str::FromStr, sync::Arc};

use sqlx::sqlite::SqliteConnectOptions;

use crate::{Ledger, LedgerError, postgres::PostgresLedger, sqlite::SqliteLedger};

/// Opens the ledger that `url` names: `postgres://...` or `sqlite://path` (created if missing).
/// `connections` is the pool's size.
pub async fn connect(url: &str, connections: u32) -> Result<Arc<dyn Ledger>, LedgerError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Ok(Arc::new(PostgresLedger::connect(url, connections).await?))
    } else if url.starts_with("sqlite:") {
        Ok(Arc::new(SqliteLedger::connect(url, connections).await?))
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
