//! Reading items, their segments and their sums.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemTag};

use crate::{JournalEntry, LedgerError, SegmentRow};

/// Queries that change nothing: items, segments, journal and sums.
#[async_trait]
pub trait Reading: Send + Sync + 'static {
    /// The item with this id, if it exists.
    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError>;

    /// The items whose orders carry this tag (nearly always one or none).
    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError>;

    /// The latest `at_most` entries of an item's journal, newest first.
    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError>;

    /// The rows of all segments of an item, by number. Empty if the item does not exist.
    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError>;

    /// The rows of an item and the sums of its orders, from one snapshot. `None`: no such item.
    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError>;

    /// Stock minus allocated minus in transit: units of the item that are neither in its rows nor
    /// in an open transfer, in one snapshot. Must be 0. Cheap, because it reads no orders.
    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError>;
}

/// An item's rows and the sums of its orders, from one snapshot.
#[derive(Debug, Clone)]
pub struct ItemTotals {
    /// The item.
    pub item: Item,
    /// Its segments, by number.
    pub segments: Vec<SegmentRow>,
    /// For each segment, its counters computed from orders and returns.
    pub by_orders: Vec<ByOrders>,
    /// Units that have left a segment, or are new, and have not arrived anywhere.
    pub in_transit: u64,
    /// Number of orders by state word, for the report.
    pub orders_by_state: Vec<(String, u64)>,
}

/// A segment's counters as the sums of its orders and pending returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByOrders {
    /// Units of held orders.
    pub held: u64,
    /// Units of confirmed orders.
    pub confirmed: u64,
    /// Units of pending returns.
    pub returning: u64,
}
