//! The first contact with the server: refuses a connection pooler in transaction mode, and a server
//! that cannot write.
//!
//! Such a pooler gives each transaction to any of its sessions. The ledger needs one of its own:
//! for its settings (isolation, a commit that waits for the disk), for prepared statements, and for
//! the advisory lock of migrations, which would be released in another session than the one that
//! took it. Its settings would also reach the other clients of the pooler. In session mode all of
//! that holds.
//!
//! No statement tells the mode, but the process ids of the sessions do. Without a pooler, or in
//! session mode, a connection keeps its session, and two connections never share one. A busy pooler
//! may hide its mode from some rounds, but a server can never seem to be one.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::session::read_only;
use crate::{LedgerError, error::NotWritable};

const ROUNDS: usize = 3;

/// Waits for a server that is about to start, up to the timeout.
pub(super) async fn check(
    options: &PgConnectOptions,
    timeout: Duration,
) -> Result<(), LedgerError> {
    // A pool repeats the attempts to connect. Its hooks stay unused: they would change the
    // sessions.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(timeout)
        .connect_with(options.clone())
        .await?;
    let mut connection = pool.acquire().await?.detach();
    let checked = check_session(&mut connection, options, timeout / 2);
    let checked = tokio::time::timeout(timeout, checked).await;
    let checked = checked.unwrap_or(Err(LedgerError::NoAnswer(timeout)));
    // Closed in an orderly way, to keep the server's log free of warnings. One that did not answer
    // is dropped: it would not answer this either.
    if !matches!(checked, Err(LedgerError::NoAnswer(_))) {
        let _ = connection.close().await;
    }
    checked
}

async fn check_session(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<(), LedgerError> {
    // A pooler in session mode with one connection left lets the second one wait for it, for ever.
    let compared = tokio::time::timeout(patience, is_in_transaction_mode(connection, options));
    if compared.await.unwrap_or(false) {
        return Err(LedgerError::PoolerMode);
    }
    match read_only(connection).await? {
        Some(why) => Err(NotWritable(why).into()),
        None => Ok(()),
    }
}

async fn is_in_transaction_mode(connection: &mut PgConnection, options: &PgConnectOptions) -> bool {
    // The server may have no connection left for a second one, or may end it.
    let Ok(mut second) = options.connect().await else {
        return false;
    };
    let shared = are_shared(connection, &mut second).await;
    let _ = second.close().await;
    shared.unwrap_or(false)
}

/// Whether the connections have been seen to have no session of their own. A pooler hands out the
/// session that was used last, or all in turn. The former shows between the two connections, the
/// latter in one of them.
async fn are_shared(
    first: &mut PgConnection,
    second: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    for _ in 0..ROUNDS {
        let (before, after) = (session(first).await?, session(first).await?);
        if before != after || after == session(second).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let row = sqlx::raw_sql("SELECT pg_backend_pid()")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}
