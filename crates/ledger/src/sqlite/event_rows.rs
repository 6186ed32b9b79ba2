//! Adding and removing events, on SQLite.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{SqliteLedger, Transaction, json, sql::event_rows as sql, webhooks::milliseconds};
use crate::{
    LedgerError,
    contract::SINK_UNUSED_AFTER,
    convert::{column, signed},
    events::{EventRows, NewEvent, Statements},
    transaction::end,
};

#[async_trait]
impl Statements for Transaction {
    async fn add_events(&mut self, events: &[NewEvent]) -> Result<(), LedgerError> {
        let EventRows {
            items,
            kinds,
            data,
            first,
            bytes,
            orders,
        } = EventRows::of(events);
        let rows = column(0..items.len(), |at| {
            (items[at], kinds[at], &data[at], first[at], bytes[at])
        });
        sqlx::query(sql::ADD)
            .bind(json(&rows)?)
            .bind(Timestamp::now().as_millisecond())
            .bind(orders)
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

/// Removes the oldest events, and returns how many they were.
pub(super) async fn remove(
    store: &SqliteLedger,
    before: Timestamp,
    at_most: usize,
) -> Result<usize, LedgerError> {
    let mut transaction = store.write().await?;
    let removed = remove_in(&mut transaction, before, at_most).await;
    end(transaction, removed).await
}

async fn remove_in(
    transaction: &mut Transaction,
    before: Timestamp,
    at_most: usize,
) -> Result<usize, LedgerError> {
    let unused_since = Timestamp::now().as_millisecond() - milliseconds(SINK_UNUSED_AFTER);
    let removed = sqlx::query_scalar::<_, i64>(sql::REMOVE)
        .bind(signed(at_most as u64))
        .bind(before.as_millisecond())
        .bind(unused_since)
        .fetch_all(&mut **transaction)
        .await?;
    if let Some(newest) = removed.iter().max() {
        sqlx::query(sql::NOTE_REMOVED)
            .bind(newest)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(removed.len())
}
