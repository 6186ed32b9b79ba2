//! Making a segment and its row agree again, whatever happened to the segment's history.
//!
//! The rows are claimed; what the outboxes hold is staged in the open transaction, leniently: whatever applies is applied (orders that the ledger does
//! not have, pending returns, transfers), whatever does not is passed over. Then the segments are given the counters of the staged rows, and
//! the commit makes the entries that this wrote the new checkpoints. A crash before the commit changes nothing in the ledger.

pub(crate) mod open;

use async_trait::async_trait;
use domain::{Entry, EntryId, Item, Memory, SegmentKey};

use crate::{LedgerError, NewJournalEntry, Recorded, SegmentRow, Transfer};

/// Rows of one item that somebody mends: an open transaction. Dropping it rolls back.
#[async_trait]
pub trait Mending: Send {
    /// The item as it is.
    fn item(&self) -> &Item;

    /// The rows as they were when they were claimed.
    fn rows(&self) -> &[SegmentRow];

    /// Applies what applies of the entries of one segment (all that its outbox holds, at once or in parts) and returns the row as it would be,
    /// but for its checkpoint, and what this call did.
    async fn stage(
        &mut self,
        segment: &SegmentKey,
        entries: &[Entry],
    ) -> Result<(SegmentRow, Recorded), LedgerError>;

    /// Every order of the item with what a segment must remember of it, staged ones included. First an order's latest attempt; behind it, as
    /// entries of their own, earlier attempts whose return is still pending: what their segment and the home remember of them is `taken`, not
    /// that they were given back, or nobody could give them back any more.
    async fn memories(&mut self) -> Result<Vec<Memory>, LedgerError>;

    /// Every transfer of the item, as far as the ledger knows it, staged ones included: a segment must neither forget one that was made, nor remember
    /// one that was not.
    async fn transfers(&mut self) -> Result<Vec<Transfer>, LedgerError>;

    /// Commits, with these checkpoints and the item's new epoch, each row by a compare-and-set on version, and all of it only if the token is
    /// still the authority over the item (else `LedgerError::Fenced`) and the item has still the epoch that it was claimed with, else
    /// `LedgerError::Superseded`: the segments were told what is not true any more. Every segment that was staged must be among `mended`.
    async fn commit(
        self: Box<Self>,
        mended: &[Mended],
        epoch: u64,
        journal: &[NewJournalEntry],
    ) -> Result<(), LedgerError>;

    /// Gives the rows back without a change: when this returns, the next claim gets them.
    async fn release(self: Box<Self>);
}

/// A segment whose counter has been set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// Which.
    pub segment: SegmentKey,
    /// The entry that says so.
    pub checkpoint: EntryId,
    /// Its fingerprint.
    pub anchor: i64,
}
