//! Sinks.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    HAS_ONE_WRITER, Store, leases, lend,
    sql::sinks::{ADVANCE, IS_OF_ANOTHER, LEASE, RELEASE, SINKS},
    step_reads,
    webhooks::milliseconds,
};
use crate::{EventCursor, KnownSink, LedgerError, Sinks, columns, convert::timestamp};

#[async_trait]
impl Sinks for Store {
    /// A publisher that only stands by must not take the place of the only writer, so it looks
    /// first.
    async fn lease_sink(
        &self,
        name: &str,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Option<EventCursor>, LedgerError> {
        if HAS_ONE_WRITER && self.sink_is_of_another(name, publisher).await? {
            return Ok(None);
        }
        sqlx::query_as::<_, (i64, i64)>(LEASE)
            .bind(name)
            .bind(publisher)
            .bind(milliseconds(lease))
            .fetch_optional(&mut *lend(self).await?)
            .await?
            .map(|(xid, seq)| columns::cursor(xid, seq))
            .transpose()
    }

    async fn release_sink(&self, name: &str, publisher: Uuid) -> Result<(), LedgerError> {
        leases::release(self, sqlx::query(RELEASE).bind(name).bind(publisher)).await
    }

    async fn advance_sink(
        &self,
        name: &str,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError> {
        let advance = sqlx::query(ADVANCE).bind(name).bind(publisher);
        leases::advance(self, advance, to).await
    }

    async fn sinks(&self) -> Result<Vec<KnownSink>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, i64, i64)>(SINKS);
        let rows = rows.fetch_all(step_reads(self)).await?;
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

impl Store {
    async fn sink_is_of_another(&self, name: &str, publisher: Uuid) -> Result<bool, LedgerError> {
        let other = sqlx::query_scalar::<_, i64>(IS_OF_ANOTHER);
        let other = other.bind(name).bind(publisher);
        Ok(other.fetch_optional(step_reads(self)).await?.is_some())
    }
}
