//! Sinks, on SQLite. All processes that open the file are on one machine, so leases go by its
//! clock.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::SqliteLedger;
use crate::{
    EventCursor, KnownSink, LedgerError, Sinks, columns,
    convert::{signed, timestamp},
};

#[async_trait]
impl Sinks for SqliteLedger {
    /// Looks first: the file has one writer at a time, and a publisher that only stands by must not
    /// take its place.
    async fn lease_sink(
        &self,
        name: &str,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Option<EventCursor>, LedgerError> {
        let now = Timestamp::now().as_millisecond();
        if self.sink_is_of_another(name, publisher, now).await? {
            return Ok(None);
        }
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let leased = sqlx::query_scalar::<_, i64>(
            "INSERT INTO sinks (name, seq, publisher, leased_until, served_at) SELECT ?1, seq, ?2, ?3, ?4 FROM events_removed WHERE true \
             ON CONFLICT (name) DO UPDATE \
             SET publisher = excluded.publisher, leased_until = excluded.leased_until, served_at = excluded.served_at \
             WHERE sinks.publisher IS NULL OR sinks.publisher = ?2 OR sinks.leased_until < ?4 \
             RETURNING seq",
        );
        leased
            .bind(name)
            .bind(publisher)
            .bind(now.saturating_add(lease))
            .bind(now)
            .fetch_optional(&self.writer)
            .await?
            .map(|seq| columns::cursor(0, seq))
            .transpose()
    }

    async fn release_sink(&self, name: &str, publisher: Uuid) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE sinks SET publisher = NULL, leased_until = NULL WHERE name = ? AND publisher = ?",
        )
        .bind(name)
        .bind(publisher)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    async fn advance_sink(
        &self,
        name: &str,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError> {
        let advanced = sqlx::query(
            "UPDATE sinks SET seq = ?3 WHERE name = ?1 AND publisher = ?2 AND seq <= ?3",
        )
        .bind(name)
        .bind(publisher)
        .bind(signed(to.seq))
        .execute(&self.writer)
        .await?;
        Ok(advanced.rows_affected() == 1)
    }

    async fn sinks(&self) -> Result<Vec<KnownSink>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, i64)>(
            "SELECT name, seq, served_at FROM sinks ORDER BY name",
        );
        let rows = rows.fetch_all(&self.readers).await?;
        let sink = |(name, seq, served_ms)| {
            Ok(KnownSink {
                name,
                cursor: columns::cursor(0, seq)?,
                served_at: timestamp("sinks.served_at", served_ms)?,
            })
        };
        rows.into_iter().map(sink).collect()
    }
}

impl SqliteLedger {
    async fn sink_is_of_another(
        &self,
        name: &str,
        publisher: Uuid,
        now: i64,
    ) -> Result<bool, LedgerError> {
        let other = sqlx::query_scalar::<_, i64>(
            "SELECT 1 FROM sinks WHERE name = ? AND publisher <> ? AND leased_until >= ?",
        );
        let other = other.bind(name).bind(publisher).bind(now);
        Ok(other.fetch_optional(&self.readers).await?.is_some())
    }
}
