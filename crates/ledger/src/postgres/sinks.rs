//! Sinks, on PostgreSQL. Leases go by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{PostgresLedger, connections, webhooks::milliseconds};
use crate::{
    EventCursor, KnownSink, LedgerError, Sinks, columns,
    convert::{signed, timestamp},
};

#[async_trait]
impl Sinks for PostgresLedger {
    async fn lease_sink(
        &self,
        name: &str,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Option<EventCursor>, LedgerError> {
        let leased = sqlx::query_as::<_, (i64, i64)>(
            "INSERT INTO sinks AS known (name, xid, seq, publisher, leased_until, served_at) \
             SELECT $1, xid, seq, $2, now() + $3 * interval '1 millisecond', now() FROM events_removed \
             ON CONFLICT (name) DO UPDATE \
             SET publisher = excluded.publisher, leased_until = excluded.leased_until, served_at = excluded.served_at \
             WHERE known.publisher IS NULL OR known.publisher = $2 OR known.leased_until < now() \
             RETURNING xid::text::bigint, seq",
        );
        leased
            .bind(name)
            .bind(publisher)
            .bind(milliseconds(lease))
            .fetch_optional(&self.pool)
            .await?
            .map(|(xid, seq)| columns::cursor(xid, seq))
            .transpose()
    }

    async fn release_sink(&self, name: &str, publisher: Uuid) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE sinks SET publisher = NULL, leased_until = NULL WHERE name = $1 AND publisher = $2",
        )
        .bind(name)
        .bind(publisher)
        .execute(&mut *connections::lend(&self.pool).await?)
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
            "UPDATE sinks SET xid = $3::text::xid8, seq = $4 \
             WHERE name = $1 AND publisher = $2 AND (xid, seq) <= ($3::text::xid8, $4)",
        )
        .bind(name)
        .bind(publisher)
        .bind(to.xid.to_string())
        .bind(signed(to.seq))
        .execute(&mut *connections::lend(&self.pool).await?)
        .await?;
        Ok(advanced.rows_affected() == 1)
    }

    async fn sinks(&self) -> Result<Vec<KnownSink>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, i64, i64)>(
            "SELECT name, xid::text::bigint, seq, (extract(epoch FROM served_at) * 1000)::bigint FROM sinks ORDER BY name",
        );
        let rows = rows.fetch_all(&self.pool).await?;
        let sink = |(name, xid, seq, served_ms)| {
            Ok(KnownSink {
                name,
                cursor: columns::cursor(xid, seq)?,
                served_at: timestamp("sinks.served_at", served_ms)?,
            })
        };
        rows.into_iter().map(sink).collect()
    }
}
