//! Repair: making a segment and its row agree again, whatever happened to the segment's history.
//!
//! Before a repair claims the rows, it reads the orders that the ledger has, page by page
//! ([`crate::StockOperations::memories`]): however many they are, the transaction stays short. It
//! holds what the outboxes have.
//!
//! A repair claims the rows and stages the contents of the outboxes in the open transaction.
//! Staging is lenient: it applies every entry that still applies (orders that the ledger does not
//! have, pending returns, transfers) and skips the rest. The caller then sets the segments'
//! counters to those of the staged rows, which writes an entry to each outbox. The commit makes
//! these entries the new checkpoints. A crash before the commit changes nothing in the ledger.

pub(crate) mod memory;
pub(crate) mod open;

use async_trait::async_trait;
use domain::{Entry, EntryId, Item, Memory, OrderId, SegmentKey, TransferId};

use crate::{LedgerError, NewJournalEntry, Recorded, SegmentRow, Transfer};

/// Rows of one item under repair: an open transaction. Dropping it rolls back.
#[async_trait]
pub trait Repair: Send {
    /// The item as it was when the rows were claimed.
    fn item(&self) -> &Item;

    /// The rows as they were when they were claimed.
    fn rows(&self) -> &[SegmentRow];

    /// Applies those entries of one segment that still apply (the whole outbox, in one call or in
    /// parts). Returns the row as it would be, except for its checkpoint, and the result of this
    /// call.
    async fn stage(
        &mut self,
        segment: &SegmentKey,
        entries: &[Entry],
    ) -> Result<(SegmentRow, Recorded), LedgerError>;

    /// What segments must remember of every order of the buyers of `orders`, as
    /// [`crate::StockOperations::memories`] returns it, staged orders included.
    async fn memories_of(&mut self, orders: &[OrderId]) -> Result<Vec<Memory>, LedgerError>;

    /// The transfers with these ids, and those that are not done, staged ones included. A segment
    /// must remember each transfer that was made, and none that was not.
    async fn transfers(&mut self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError>;

    /// Commits the repaired segments with these checkpoints and the item's new epoch, each row by a
    /// compare-and-set on its version. Every staged segment must be among `repaired`.
    ///
    /// # Errors
    ///
    /// `LedgerError::Fenced` if a higher token has claimed the item. `LedgerError::Superseded` if
    /// the item's epoch has changed since the claim: the segments were then configured with
    /// outdated settings.
    async fn commit(
        self: Box<Self>,
        repaired: &[Repaired],
        epoch: u64,
        journal: &[NewJournalEntry],
    ) -> Result<(), LedgerError>;

    /// Releases the rows without a change. After it returns, the next claim gets them.
    async fn release(self: Box<Self>);
}

/// A segment whose counter the repair has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Item and number of the segment.
    pub segment: SegmentKey,
    /// The outbox entry that set the counter.
    pub checkpoint: EntryId,
    /// The fingerprint of that entry.
    pub anchor: i64,
}
