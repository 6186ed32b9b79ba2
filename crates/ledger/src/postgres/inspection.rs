//! What the server says of itself.

use sqlx::PgPool;

use crate::{
    LedgerError,
    inspection::{DatabaseConnections, DatabaseReplica, DatabaseReport},
    migrations,
};

pub(super) async fn missing_migrations(pool: &PgPool) -> Result<Vec<i64>, LedgerError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await?;
    let applied: Vec<i64> = match exists {
        true => {
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
                .fetch_all(pool)
                .await?
        }
        false => Vec::new(),
    };
    Ok(migrations::missing(&migrations::postgres(), &applied))
}

type Row = (String, bool, bool, i32, i64, i64, String);

pub(super) async fn report(pool: &PgPool) -> Result<DatabaseReport, LedgerError> {
    let (version, fsync, full_pages, most, used, now_ms, commit): Row = sqlx::query_as(
        "SELECT current_setting('server_version'), current_setting('fsync') = 'on', \
         current_setting('full_page_writes') = 'on', \
         current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int, \
         (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
         (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_setting('synchronous_commit')",
    )
    .fetch_one(pool)
    .await?;
    let settings = [("fsync", fsync), ("full_page_writes", full_pages)];
    Ok(DatabaseReport {
        version: format!("PostgreSQL {version}"),
        unsafe_settings: settings
            .iter()
            .filter(|(_, on)| !on)
            .map(|(name, _)| *name)
            .collect(),
        connections: Some(DatabaseConnections {
            most: u32::try_from(most).unwrap_or(0),
            used: u32::try_from(used).unwrap_or(u32::MAX),
        }),
        commit_waits_for: format!("synchronous_commit {commit}"),
        replicas: replicas(pool).await?,
        now_ms: Some(now_ms),
    })
}

/// A user without the right to read statistics sees names alone.
async fn replicas(pool: &PgPool) -> Result<Vec<DatabaseReplica>, LedgerError> {
    let rows: Vec<(String, Option<String>, Option<i64>)> = sqlx::query_as(
        "SELECT coalesce(nullif(application_name, ''), usename, '?')::text, state || ', ' || sync_state, \
         CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END \
         FROM pg_stat_replication ORDER BY 1",
    )
    .fetch_all(pool)
    .await?;
    let replica = |(name, state, behind): (_, _, Option<i64>)| DatabaseReplica {
        name,
        state,
        behind_bytes: behind.map(|bytes| u64::try_from(bytes).unwrap_or(0)),
    };
    Ok(rows.into_iter().map(replica).collect())
}
