//! The connections for what audits count and note, on PostgreSQL: those of their walks, so that
//! orders and recorders keep theirs.

use sqlx::{PgPool, Postgres, pool::PoolConnection};

use super::{PostgresLedger, connections};
use crate::LedgerError;

/// The pool that counts orders.
pub(super) fn counts(store: &PostgresLedger) -> &PgPool {
    &store.audits
}

/// A connection for a note whose failure may prove that nothing was sent.
pub(super) async fn lend(store: &PostgresLedger) -> Result<PoolConnection<Postgres>, LedgerError> {
    connections::lend(&store.audits).await
}
