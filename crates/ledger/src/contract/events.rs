//! Reading events, and removing old ones.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{EventCursor, Events, LedgerError};

/// The events that the transactions of changes have written.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// The next `at_most` events after the cursor. An event is returned only when no event before
    /// it can appear any more: a transaction that is still open delays those behind it.
    async fn events(&self, after: EventCursor, at_most: usize) -> Result<Events, LedgerError>;

    /// The cursor before the events that are still to come.
    async fn end_of_events(&self) -> Result<EventCursor, LedgerError>;

    /// Removes the oldest events, `at_most` of them, if they are older than `before`, and neither
    /// an enabled webhook nor a sink in use has yet to get them. Returns how many it removed.
    async fn remove_events(&self, before: Timestamp, at_most: usize) -> Result<usize, LedgerError>;
}
