//! What the library says of itself, and the schema of the file.

use sqlx::SqlitePool;

use crate::{LedgerError, inspection::DatabaseReport, migrations};

pub(super) async fn missing_migrations(pool: &SqlitePool) -> Result<Vec<i64>, LedgerError> {
    let tables: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'",
    )
    .fetch_one(pool)
    .await?;
    let applied: Vec<i64> = match tables {
        0 => Vec::new(),
        _ => {
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
                .fetch_all(pool)
                .await?
        }
    };
    Ok(migrations::missing(&migrations::sqlite(), &applied))
}

/// Every connection of this process sets what makes a commit durable.
pub(super) async fn report(pool: &SqlitePool) -> Result<DatabaseReport, LedgerError> {
    let version: String = sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(pool)
        .await?;
    Ok(DatabaseReport {
        version: format!("SQLite {version}"),
        unsafe_settings: Vec::new(),
        connections: None,
        commit_waits_for: "synchronous FULL".into(),
        replicas: Vec::new(),
        now_ms: None,
    })
}
