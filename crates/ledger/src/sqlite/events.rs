//! Events, on SQLite.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{SqliteLedger, Transaction, json};
use crate::{
    Event, EventCursor, EventLog, Events, LedgerError,
    columns::{self, EventColumns},
    contract::SINK_UNUSED_AFTER,
    convert::{column, signed, unsigned},
    events::{EventRows, NewEvent, Statements},
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
        // SQLite binds an empty list of bytes as NULL.
        let added = sqlx::query(
            "INSERT INTO events (at, item, kind, data, orders) \
             SELECT ?2, value ->> 0, value ->> 1, value ->> 2, coalesce(substr(?3, value ->> 3, value ->> 4), x'') FROM json_each(?1)",
        );
        added
            .bind(json(&rows)?)
            .bind(Timestamp::now().as_millisecond())
            .bind(orders)
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl EventLog for SqliteLedger {
    async fn events(&self, after: EventCursor, at_most: usize) -> Result<Events, LedgerError> {
        let events = self.read_events(after, at_most).await?;
        // Afterwards: what was removed while we read would be missing in what we have read.
        let (is_unknown, removed) = self.check_cursor(after).await?;
        Ok(if is_unknown || after.xid != 0 {
            Events::Unknown
        } else if after < removed {
            Events::Removed(removed)
        } else {
            Events::Page(events)
        })
    }

    async fn end_of_events(&self) -> Result<EventCursor, LedgerError> {
        let newest = sqlx::query_scalar::<_, i64>(
            "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)",
        );
        Ok(EventCursor {
            xid: 0,
            seq: unsigned("seq", newest.fetch_one(&self.reads).await?)?,
        })
    }

    async fn remove_events(&self, before: Timestamp, at_most: usize) -> Result<usize, LedgerError> {
        let mut transaction = self.write().await?;
        let removed = remove(&mut transaction, before, at_most).await;
        crate::transaction::end(transaction, removed).await
    }
}

impl SqliteLedger {
    async fn read_events(
        &self,
        after: EventCursor,
        at_most: usize,
    ) -> Result<Vec<Event>, LedgerError> {
        let rows = sqlx::query_as::<_, EventColumns>(
            "SELECT 0 AS xid, seq, at AS at_ms, item, kind, orders, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
        );
        rows.bind(signed(after.seq))
            .bind(signed(at_most as u64))
            .fetch_all(&self.readers)
            .await?
            .into_iter()
            .map(Event::try_from)
            .collect()
    }

    /// Whether the cursor was never issued, and up to where events were removed.
    async fn check_cursor(&self, cursor: EventCursor) -> Result<(bool, EventCursor), LedgerError> {
        let checked = sqlx::query_as::<_, (bool, i64)>(
            "SELECT ?1 > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), seq FROM events_removed",
        );
        let (is_unknown, seq) = checked
            .bind(signed(cursor.seq))
            .fetch_one(&self.readers)
            .await?;
        Ok((is_unknown, columns::cursor(0, seq)?))
    }
}

async fn remove(
    transaction: &mut Transaction,
    before: Timestamp,
    at_most: usize,
) -> Result<usize, LedgerError> {
    let unused_for = i64::try_from(SINK_UNUSED_AFTER.as_millis()).unwrap_or(i64::MAX);
    let unused_since = Timestamp::now().as_millisecond() - unused_for;
    let removed = sqlx::query_scalar::<_, i64>(
        "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT ?) AND at < ? \
           AND NOT EXISTS (SELECT 1 FROM webhooks WHERE disabled_at IS NULL AND webhooks.seq < events.seq) \
           AND NOT EXISTS (SELECT 1 FROM sinks WHERE served_at > ? AND sinks.seq < events.seq) RETURNING seq",
    );
    let removed = removed
        .bind(signed(at_most as u64))
        .bind(before.as_millisecond())
        .bind(unused_since)
        .fetch_all(&mut **transaction)
        .await?;
    if let Some(newest) = removed.iter().max() {
        sqlx::query("UPDATE events_removed SET seq = max(seq, ?)")
            .bind(newest)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(removed.len())
}
