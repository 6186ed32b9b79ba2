//! Adding entries to the journals of items, on PostgreSQL: one statement for an entry with its
//! event, and one for many entries.

use jiff::Timestamp;
use sqlx::PgExecutor;

use super::{PostgresLedger, Transaction, bind_events, sql::notes as sql};
use crate::{
    LedgerError, NewJournalEntry,
    convert::{column, signed},
    events::{self, EventRows},
};

/// Returns whether the entry was added.
pub(super) async fn add(
    executor: impl PgExecutor<'_>,
    entry: &NewJournalEntry,
    once: Option<&str>,
) -> Result<bool, LedgerError> {
    let event = events::of_journal_entry(entry);
    let events = EventRows::of(event.as_slice());
    let noted = bind_events!(sqlx::query_scalar::<_, i64>(sql::NOTE), events)
        .bind(entry.item.as_str())
        .bind(&entry.actor)
        .bind(&entry.action)
        .bind(entry.token.map(signed))
        .bind(entry.before.to_string())
        .bind(entry.after.to_string())
        .bind(once)
        .fetch_one(executor)
        .await?;
    Ok(noted == 1)
}

/// [`add`] for an entry that is noted once, with its event.
pub(super) async fn add_once(
    transaction: &mut Transaction,
    entry: &NewJournalEntry,
    once: &str,
) -> Result<bool, LedgerError> {
    add(&mut **transaction, entry, Some(once)).await
}

/// [`add_once`] outside of a transaction.
pub(super) async fn add_only_once(
    store: &PostgresLedger,
    entry: &NewJournalEntry,
    once: &str,
) -> Result<bool, LedgerError> {
    add(&store.pool, entry, Some(once)).await
}

pub(super) async fn add_all(
    transaction: &mut Transaction,
    entries: &[NewJournalEntry],
) -> Result<(), LedgerError> {
    sqlx::query(sql::NOTE_ALL)
        .bind(Timestamp::now().as_millisecond())
        .bind(column(entries, |entry| entry.item.as_str()))
        .bind(column(entries, |entry| entry.actor.as_str()))
        .bind(column(entries, |entry| entry.action.as_str()))
        .bind(column(entries, |entry| entry.token.map(signed)))
        .bind(column(entries, |entry| entry.before.to_string()))
        .bind(column(entries, |entry| entry.after.to_string()))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
