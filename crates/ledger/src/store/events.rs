//! Reading events: the statements, for either database.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{Pool, Store, event_rows, sql::events as sql};
use crate::{
    Event, EventCursor, EventLog, Events, LedgerError,
    columns::{self, EventColumns},
    convert::signed,
};

#[async_trait]
impl EventLog for Store {
    async fn events(&self, after: EventCursor, at_most: usize) -> Result<Events, LedgerError> {
        let events = read(&self.reads, after, at_most).await?;
        // Afterwards: what was removed while we read would be missing in what we have read.
        let (is_unknown, removed) = check(&self.reads, after).await?;
        Ok(if is_unknown {
            Events::Unknown
        } else if after < removed {
            Events::Removed(removed)
        } else {
            Events::Page(events)
        })
    }

    async fn end_of_events(&self) -> Result<EventCursor, LedgerError> {
        let end = sqlx::query_as::<_, (i64, i64)>(sql::END_CURSOR);
        let (xid, seq) = end.fetch_one(&self.reads).await?;
        columns::cursor(xid, seq)
    }

    async fn remove_events(&self, before: Timestamp, at_most: usize) -> Result<usize, LedgerError> {
        event_rows::remove(self, before, at_most).await
    }
}

/// The transaction of the cursor is the last value: SQLite has no parameter for it, and ignores
/// the values behind its last one.
async fn read(pool: &Pool, after: EventCursor, at_most: usize) -> Result<Vec<Event>, LedgerError> {
    sqlx::query_as::<_, EventColumns>(sql::READ)
        .bind(signed(after.seq))
        .bind(signed(at_most as u64))
        .bind(after.xid.to_string())
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Event::try_from)
        .collect()
}

/// Whether the cursor was never issued, and up to where events were removed.
async fn check(pool: &Pool, cursor: EventCursor) -> Result<(bool, EventCursor), LedgerError> {
    let (is_unknown, xid, seq) = sqlx::query_as::<_, (bool, i64, i64)>(sql::CHECK_CURSOR)
        .bind(signed(cursor.seq))
        .bind(cursor.xid.to_string())
        .fetch_one(pool)
        .await?;
    Ok((is_unknown, columns::cursor(xid, seq)?))
}
