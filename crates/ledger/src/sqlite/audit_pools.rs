//! The connections for what audits count and note, on SQLite: notes take the place of the only
//! writer.

use sqlx::{Sqlite, SqlitePool, pool::PoolConnection};

use super::SqliteLedger;
use crate::LedgerError;

/// The pool that counts orders.
pub(super) fn counts(store: &SqliteLedger) -> &SqlitePool {
    &store.lists
}

/// The pool for notes.
pub(super) fn notes(store: &SqliteLedger) -> &SqlitePool {
    &store.writer
}

/// A connection for a note.
pub(super) async fn lend(store: &SqliteLedger) -> Result<PoolConnection<Sqlite>, LedgerError> {
    Ok(store.writer.acquire().await?)
}
