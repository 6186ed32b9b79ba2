//! Pools that hand out connections to a server that can write, and no others.
//!
//! A new connection resolves the address anew. So a connection that is dropped here is also the way
//! to the right server, as soon as the address names it.

use std::time::Duration;

use sqlx::{
    PgConnection, PgPool, Postgres,
    pool::{PoolConnection, PoolConnectionMetadata},
    postgres::PgPoolOptions,
};
use tokio::time::timeout;
use tracing::{Instrument, Span, debug_span};

use super::{
    Transaction, doubt,
    session::{self, Limits, Plans},
};
use crate::{
    LedgerError,
    error::{NotWritable, answers},
};

/// Connections that were idle for longer are asked before use. A restart of the server kills all
/// pooled connections, and a failover may leave them at a server that is read only now. Asking each
/// time would cost one round trip per statement. A connection that was used more recently may still
/// fail, once.
const ASK_AFTER_IDLE: Duration = Duration::from_secs(1);

/// A server that has vanished never answers. The rest of the time for an acquisition is for a new
/// connection.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn pool(connections: u32, plans: Plans, limits: Limits) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            Box::pin(prepare(connection, plans, limits).instrument(upkeep()))
        })
        .before_acquire(|connection, meta| {
            Box::pin(async move { Ok(is_usable(connection, meta).await) })
        })
}

/// Refuses a server that cannot write. The pool then connects again, after a pause that grows to a
/// fifth of the time for an acquisition.
async fn prepare(
    connection: &mut PgConnection,
    plans: Plans,
    limits: Limits,
) -> Result<(), sqlx::Error> {
    match session::read_only(connection).await? {
        None => session::set_up(connection, plans, limits).await,
        Some(why) => Err(sqlx::Error::Configuration(Box::new(NotWritable(why)))),
    }
}

/// Asks what the ping of `sqlx` would not tell, with as many round trips.
async fn is_usable(connection: &mut PgConnection, meta: PoolConnectionMetadata) -> bool {
    if doubt::applies_to(meta.age) {
        return false;
    }
    if meta.idle_for < ASK_AFTER_IDLE {
        return true;
    }
    let asked = session::read_only(connection).instrument(upkeep());
    let wrong = match timeout(ASK_TIMEOUT, asked).await {
        Ok(Ok(None)) => return true,
        Ok(Ok(Some(_))) => true,
        Ok(Err(error)) => answers::is_of_wrong_server(&error),
        // It costs this connection. A server that stalls is the right one: were all connections in
        // doubt, every process would connect anew to a server that is slow already.
        Err(_) => false,
    };
    if wrong {
        doubt::raise();
    }
    false
}

/// A connection of the pool. If there is none, nothing was sent.
pub(super) async fn lend(pool: &PgPool) -> Result<PoolConnection<Postgres>, LedgerError> {
    pool.acquire().await.map_err(answers::nothing_sent)
}

/// A transaction on a connection of the pool. If it is not begun, nothing else was sent.
pub(super) async fn begin(pool: &PgPool) -> Result<Transaction, LedgerError> {
    pool.begin().await.map_err(answers::nothing_sent)
}

/// Tells the statements of the connections from those of the work, in traces and where statements
/// are counted.
fn upkeep() -> Span {
    debug_span!("connection_upkeep")
}
