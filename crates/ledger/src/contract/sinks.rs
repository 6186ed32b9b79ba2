//! Sinks, brokers that get every event, and the publishers that publish to them.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::{EventCursor, KnownSink, LedgerError};

/// Sinks. One publisher at a time leases a sink and publishes to it. A lease that ended while its
/// publisher was still publishing can only repeat events.
#[async_trait]
pub trait Sinks: Send + Sync + 'static {
    /// Leases the sink, or extends the publisher's lease. A sink that does not exist is created,
    /// before the oldest event that is kept. Returns how far it has got; `None` if another
    /// publisher has it.
    async fn lease_sink(
        &self,
        name: &str,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Option<EventCursor>, LedgerError>;

    /// Ends the publisher's lease.
    async fn release_sink(&self, name: &str, publisher: Uuid) -> Result<(), LedgerError>;

    /// Moves a sink to the cursor, after its broker has acknowledged everything up to it. Returns
    /// whether the publisher still has the sink.
    async fn advance_sink(
        &self,
        name: &str,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError>;

    /// All sinks, by name.
    async fn sinks(&self) -> Result<Vec<KnownSink>, LedgerError>;
}
