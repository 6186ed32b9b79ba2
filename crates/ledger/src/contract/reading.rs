//! Reading items, their segments and their sums.

use std::time::Duration;

use async_trait::async_trait;
use domain::{Item, ItemId, ItemTag, OrderState};

use crate::{JournalEntry, LedgerError, SegmentRow, Sums, pieces::PIECE_ORDERS};

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

    /// The rows of an item, from one snapshot. `None`: no such item. Cheap: of the orders it reads
    /// only those that two small indexes have.
    async fn item_rows(&self, item: &ItemId) -> Result<Option<ItemRows>, LedgerError>;

    /// The rows of an item and the sums of its orders, from one snapshot. `None`: no such item.
    ///
    /// The orders are read in pieces, each by a statement that ends soon, with `pace` between them.
    /// The snapshot stays open all the while. Dropping the future ends it.
    async fn walk(&self, item: &ItemId, pace: &dyn Pace)
    -> Result<Option<ItemTotals>, LedgerError>;

    /// [`Reading::walk`] without a pause.
    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        self.walk(item, &WithoutPause).await
    }

    /// What [`Reading::walk`] would read, from sums that agreed with the rows in an earlier snapshot
    /// and from the orders that have changed since. `orders_by_state` has only the orders that were
    /// rejected and those whose refund is due.
    ///
    /// It looks up at most an eighth of the orders of the last walk. `None`: no such item, the events
    /// do not tell what has changed, or there is more to read.
    async fn walk_changes(
        &self,
        item: &ItemId,
        since: &Sums,
    ) -> Result<Option<ItemTotals>, LedgerError>;

    /// Stock minus allocated minus in transit: units of the item that are neither in its rows nor
    /// in an open transfer, in one snapshot. Must be 0. Cheap, because it reads no orders.
    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError>;
}

/// What happens between two pieces of a walk over the orders of an item.
#[async_trait]
pub trait Pace: Send + Sync {
    /// A piece was read. The walk goes on when this returns. On PostgreSQL the server ends a walk
    /// that has paused for ten seconds.
    async fn piece_read(&self, progress: WalkProgress);

    /// About so many orders are read in one piece.
    fn piece_orders(&self) -> u64 {
        PIECE_ORDERS
    }
}

/// Reads one piece after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct WithoutPause;

#[async_trait]
impl Pace for WithoutPause {
    async fn piece_read(&self, _: WalkProgress) {}
}

/// How far a walk is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalkProgress {
    /// Orders that were read.
    pub orders: u64,
    /// The share of the item's orders that was read, from 0 to 1: orders are spread evenly over
    /// their ids. At 1 the walk has ended.
    pub share: f64,
    /// How long the last piece took.
    pub took: Duration,
}

/// The rows of an item, from one snapshot.
#[derive(Debug, Clone)]
pub struct ItemRows {
    /// The item.
    pub item: Item,
    /// Its segments, by number.
    pub segments: Vec<SegmentRow>,
    /// Units that have left a segment, or are new, and have not arrived anywhere.
    pub in_transit: u64,
    /// Number of orders that the ledger refused to cover.
    pub rejected_orders: u64,
    /// Number of paid orders whose money must be returned.
    pub refund_due_orders: u64,
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
    /// The sums, for a later [`Reading::walk_changes`]. `None`: too many events beside a transaction
    /// that is open for long.
    pub sums: Option<Sums>,
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

impl ItemTotals {
    /// Number of orders in this state.
    pub fn orders_in(&self, wanted: OrderState) -> u64 {
        let mut states = self.orders_by_state.iter();
        states
            .find(|(state, _)| state == wanted.as_str())
            .map_or(0, |(_, orders)| *orders)
    }

    /// The rows alone.
    pub fn rows(&self) -> ItemRows {
        ItemRows {
            item: self.item.clone(),
            segments: self.segments.clone(),
            in_transit: self.in_transit,
            rejected_orders: self.orders_in(OrderState::Rejected),
            refund_due_orders: self.orders_in(OrderState::RefundDue),
        }
    }
}
