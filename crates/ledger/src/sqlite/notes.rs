//! Adding entries to the journals of items, on SQLite: one statement for each entry.

use jiff::Timestamp;
use sqlx::SqliteExecutor;

use super::{SqliteLedger, Transaction, sql::notes as sql};
use crate::{
    LedgerError, NewJournalEntry,
    convert::signed,
    events::{self, Statements as _},
    transaction::end,
};

/// Returns whether the entry was added.
pub(super) async fn add(
    executor: impl SqliteExecutor<'_>,
    entry: &NewJournalEntry,
    once: Option<&str>,
) -> Result<bool, LedgerError> {
    let noted = sqlx::query(sql::NOTE)
        .bind(Timestamp::now().as_millisecond())
        .bind(entry.item.as_str())
        .bind(&entry.actor)
        .bind(&entry.action)
        .bind(entry.token.map(signed))
        .bind(entry.before.to_string())
        .bind(entry.after.to_string())
        .bind(once)
        .execute(executor)
        .await?;
    Ok(noted.rows_affected() == 1)
}

/// [`add`] for an entry that is noted once, with its event.
pub(super) async fn add_once(
    transaction: &mut Transaction,
    entry: &NewJournalEntry,
    once: &str,
) -> Result<bool, LedgerError> {
    let is_new = add(&mut **transaction, entry, Some(once)).await?;
    if let Some(event) = events::of_journal_entry(entry).filter(|_| is_new) {
        transaction.add_events(&[event]).await?;
    }
    Ok(is_new)
}

/// [`add_once`] in a transaction of its own.
pub(super) async fn add_only_once(
    store: &SqliteLedger,
    entry: &NewJournalEntry,
    once: &str,
) -> Result<bool, LedgerError> {
    let mut transaction = store.write().await?;
    let noted = add_once(&mut transaction, entry, once).await;
    end(transaction, noted).await
}

pub(super) async fn add_all(
    transaction: &mut Transaction,
    entries: &[NewJournalEntry],
) -> Result<(), LedgerError> {
    for entry in entries {
        add(&mut **transaction, entry, None).await?;
    }
    Ok(())
}
