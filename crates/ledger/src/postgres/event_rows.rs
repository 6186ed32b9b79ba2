//! Adding and removing events, on PostgreSQL: one statement each.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    PostgresLedger, Transaction, bind_events, sql::event_rows as sql, webhooks::milliseconds,
};
use crate::{
    LedgerError,
    contract::SINK_UNUSED_AFTER,
    convert::signed,
    events::{EventRows, NewEvent, Statements},
};

#[async_trait]
impl Statements for Transaction {
    async fn add_events(&mut self, events: &[NewEvent]) -> Result<(), LedgerError> {
        let events = EventRows::of(events);
        bind_events!(sqlx::query(sql::ADD), events)
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

/// Removes the oldest events, and returns how many they were.
pub(super) async fn remove(
    store: &PostgresLedger,
    before: Timestamp,
    at_most: usize,
) -> Result<usize, LedgerError> {
    let removed = sqlx::query(sql::REMOVE)
        .bind(before.as_millisecond())
        .bind(signed(at_most as u64))
        .bind(milliseconds(SINK_UNUSED_AFTER))
        .fetch_all(&store.pool)
        .await?;
    Ok(removed.len())
}
