//! Recording: claiming segments and replaying their outbox entries into the tables.

use async_trait::async_trait;
use domain::{Entry, EntryId, Item, ItemId, OrderId, SegmentConfig, SegmentKey, Wave};
use jiff::Timestamp;

use crate::LedgerError;

/// What a recorder needs: the checkpoints to start from, and claims of segments.
#[async_trait]
pub trait Recording: Send + Sync + 'static {
    /// Every segment with its checkpoint, except those of archived items.
    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError>;

    /// The checkpoints of the segments of these items.
    async fn checkpoints_of(
        &self,
        items: &[&ItemId],
    ) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError>;

    /// The segments that no recorder has recorded yet, except those of archived items.
    async fn unrecorded_segments(&self) -> Result<Vec<SegmentKey>, LedgerError>;

    /// The items whose last change has this version or a higher one, each as it is now. `None`:
    /// every item that has keys in Redis. [`crate::LiveItems`] keeps the list.
    async fn changed_items(&self, from: Option<u64>) -> Result<Vec<ChangedItem>, LedgerError>;

    /// Items that have keys in Redis and are not closed, or have open work: held orders, units on
    /// their way back, or open transfers. It reads every such item.
    async fn items_at_work(&self) -> Result<Vec<ItemId>, LedgerError>;

    /// Whether orders of the item are held, units are on their way back, or transfers are open.
    async fn has_open_work(&self, item: &ItemId) -> Result<bool, LedgerError>;

    /// Claims up to `at_most` of the `wanted` segments, in this order, and skips those that another
    /// recorder has claimed. The claim lasts until it is recorded, released or dropped. `None`:
    /// `wanted` names no row, or other recorders have claimed all of them.
    ///
    /// SQLite locks the file and not rows. There the call waits a few seconds for another claim to
    /// end, and then fails.
    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError>;

    /// Whether there is one claim at a time, so that recording more segments together is all that
    /// helps.
    fn has_one_writer(&self) -> bool;

    /// Creates the item, which must be new and have one segment, records the entries of its outbox
    /// as a recorder would, and rolls all of it back. Returns what would have been recorded.
    async fn rehearse(&self, item: &Item, entries: Vec<Entry>) -> Result<Recorded, LedgerError>;
}

/// An item of the list that workers keep, and its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedItem {
    /// The item.
    pub item: LiveItem,
    /// Its last change. Changes have rising numbers, in the order in which they can be seen.
    pub version: u64,
    /// Whether it has keys in Redis. If not, no worker has anything to do for it any more.
    pub is_live: bool,
}

/// An item that has keys in Redis, and what decides when it needs work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveItem {
    /// The item.
    pub id: ItemId,
    /// The settings that its segments should have. The state is `archived` until the keys have been
    /// removed.
    pub config: SegmentConfig,
    /// Since when it is closed.
    pub closed_at: Option<Timestamp>,
    /// Who has asked for its archive.
    pub archive_by: Option<String>,
    /// Its first wave that has not been added.
    pub next_wave: Option<Wave>,
}

/// Segment rows that one recorder has locked: an open transaction. Dropping a claim rolls it back
/// some time later; [`Claim::release`] rolls it back before it returns.
#[async_trait]
pub trait Claim: Send {
    /// The locked rows, as they were read.
    fn rows(&self) -> &[SegmentRow];

    /// Applies the replays and commits. Inserts the orders (an id that the ledger already has
    /// changes nothing), those that a row cannot cover as `rejected`, and moves each segment's
    /// counters and checkpoint by a compare-and-set on its checkpoint and version.
    ///
    /// # Errors
    ///
    /// `LedgerError::Superseded` if another recorder has recorded one of the segments meanwhile, or
    /// has claimed it while this one restarted its transaction because of orders that were already
    /// there. Nothing is changed in that case.
    async fn record(
        self: Box<Self>,
        replays: Vec<SegmentReplay>,
    ) -> Result<Vec<Recorded>, LedgerError>;

    /// Releases the rows without a change. After it returns, the next claim gets them.
    async fn release(self: Box<Self>);
}

/// Outbox entries to apply to a claimed segment.
#[derive(Debug, Clone)]
pub struct SegmentReplay {
    /// The row as it was claimed.
    pub row: SegmentRow,
    /// The entries after its checkpoint, in order; at least one.
    pub entries: Vec<Entry>,
}

/// Result of recording one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The segment.
    pub key: SegmentKey,
    /// The checkpoint before. `None`: this was the first.
    pub after: Option<EntryId>,
    /// The new checkpoint: the ledger contains everything up to and including this entry.
    pub checkpoint: EntryId,
    /// Number of orders inserted as `held`.
    pub held: usize,
    /// Orders that the row could not cover.
    pub rejected: Vec<OrderId>,
    /// Number of orders that the ledger already had.
    pub repeated: usize,
    /// Number of orders whose units came back.
    pub returned: usize,
    /// Number of transfers that left or arrived.
    pub transferred: usize,
}

/// A segment replayed up to its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRow {
    /// Item and number of the segment.
    pub key: SegmentKey,
    /// Units that belong to it. `available + held + confirmed + returning = allocated`, always.
    pub allocated: u64,
    /// Units that no order has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back to `available`.
    pub returning: u64,
    /// The last entry applied; `None` until the first.
    pub checkpoint: Option<EntryId>,
    /// The fingerprint of that entry.
    pub anchor: Option<i64>,
    /// Rises with every change.
    pub version: u64,
    /// The highest fencing token that claimed the row.
    pub fence: u64,
}
