//! Events, on PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::PgPool;

use super::{PostgresLedger, Transaction, bind_events, insert_events, webhooks::milliseconds};
use crate::{
    Event, EventCursor, EventLog, Events, LedgerError,
    columns::{self, EventColumns},
    contract::SINK_UNUSED_AFTER,
    convert::{signed, unsigned},
    events::{EventRows, NewEvent, Statements},
};

#[async_trait]
impl Statements for Transaction {
    async fn add_events(&mut self, events: &[NewEvent]) -> Result<(), LedgerError> {
        let events = EventRows::of(events);
        bind_events!(sqlx::query(insert_events!()), events)
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl EventLog for PostgresLedger {
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
        let oldest_open = sqlx::query_scalar::<_, i64>(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
        );
        Ok(EventCursor {
            xid: unsigned("xid", oldest_open.fetch_one(&self.reads).await?)?,
            seq: 0,
        })
    }

    async fn remove_events(&self, before: Timestamp, at_most: usize) -> Result<usize, LedgerError> {
        remove(&self.pool, before, at_most).await
    }
}

/// A transaction below `pg_snapshot_xmin` of the statement's snapshot has ended, and the snapshot
/// has its rows. No transaction can get such a number any more.
async fn read(
    pool: &PgPool,
    after: EventCursor,
    at_most: usize,
) -> Result<Vec<Event>, LedgerError> {
    let rows = sqlx::query_as::<_, EventColumns>(
        "SELECT xid::text::bigint AS xid, seq, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, kind, orders, data::text AS data \
         FROM events WHERE (xid, seq) > ($1::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot()) \
         ORDER BY xid, seq LIMIT $3",
    );
    rows.bind(after.xid.to_string())
        .bind(signed(after.seq))
        .bind(signed(at_most as u64))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Event::try_from)
        .collect()
}

/// Whether the cursor was never issued, and up to where events were removed.
async fn check(pool: &PgPool, cursor: EventCursor) -> Result<(bool, EventCursor), LedgerError> {
    let checked = sqlx::query_as::<_, (bool, i64, i64)>(
        "SELECT $1::text::xid8 > pg_snapshot_xmax(pg_current_snapshot()) OR $2 > (SELECT last_value FROM events_seq_seq), \
                xid::text::bigint, seq \
         FROM events_removed",
    );
    let (is_unknown, xid, seq) = checked
        .bind(cursor.xid.to_string())
        .bind(signed(cursor.seq))
        .fetch_one(pool)
        .await?;
    Ok((is_unknown, columns::cursor(xid, seq)?))
}

async fn remove(pool: &PgPool, before: Timestamp, at_most: usize) -> Result<usize, LedgerError> {
    let removed = sqlx::query(
        "WITH old AS (SELECT xid, seq FROM events WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) \
                      AND NOT EXISTS (SELECT FROM webhooks WHERE disabled_at IS NULL AND (webhooks.xid, webhooks.seq) < (events.xid, events.seq)) \
                      AND NOT EXISTS (SELECT FROM sinks WHERE served_at > now() - $3 * interval '1 millisecond' AND (sinks.xid, sinks.seq) < (events.xid, events.seq)) \
                      ORDER BY xid, seq LIMIT $2), \
              gone AS (DELETE FROM events USING old WHERE events.xid = old.xid AND events.seq = old.seq \
                       AND events.at < to_timestamp($1::double precision / 1000) RETURNING events.xid, events.seq), \
              newest AS (SELECT xid, seq FROM gone ORDER BY xid DESC, seq DESC LIMIT 1), \
              noted AS (UPDATE events_removed SET xid = newest.xid, seq = newest.seq FROM newest \
                        WHERE (events_removed.xid, events_removed.seq) < (newest.xid, newest.seq)) \
         SELECT xid FROM gone",
    );
    let removed = removed
        .bind(before.as_millisecond())
        .bind(signed(at_most as u64))
        .bind(milliseconds(SINK_UNUSED_AFTER))
        .fetch_all(pool)
        .await?;
    Ok(removed.len())
}
