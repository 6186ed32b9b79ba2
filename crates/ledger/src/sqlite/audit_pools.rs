//! The connections for what audits count and note, on SQLite: notes take the place of the only
//! writer.

use sqlx::SqlitePool;

use super::{SqliteLedger, writer::Lent};
use crate::LedgerError;

/// The pool that counts orders.
pub(super) fn counts(store: &SqliteLedger) -> &SqlitePool {
    &store.lists
}

/// A connection for a note.
pub(super) async fn lend(store: &SqliteLedger) -> Result<Lent, LedgerError> {
    store.writer.lend().await
}
