//! The SQL statements of a recording transaction, and the values that they take and return.
//!
//! Each database implements [`Statements`]; checking limits, replaying and recording are built on
//! top of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use domain::{Item, ItemId, OrderId, OrderState, SegmentKey, TakenOrder, TransferId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    LedgerError, PendingReturn, SegmentRow, Transfer,
    events::{self, NewEvent},
    terms::{Terms, UsageQuery},
};

/// Orders to insert, sorted by id. Ids are distinct.
pub(crate) struct NewOrders<'a> {
    pub rows: Vec<NewOrder<'a>>,
}

impl<'a> NewOrders<'a> {
    /// Sorts the rows by id. Two recorders that meet the same orders in different segments then
    /// wait for each other, but never in a cycle. The sorted insert also visits the index from left
    /// to right.
    ///
    /// For an order that occurs twice the first occurrence counts, as in the replay.
    pub(crate) fn sorted(mut rows: Vec<NewOrder<'a>>) -> Self {
        // Stable: repeats stay in the order in which they occurred.
        rows.sort_by_key(|row| row.order.id);
        rows.dedup_by_key(|row| row.order.id);
        Self { rows }
    }

    /// The ids of the orders that are not among these.
    pub(crate) fn not_among(&self, inserted: Vec<Uuid>) -> HashSet<OrderId> {
        let inserted: HashSet<_> = inserted.into_iter().map(OrderId::from).collect();
        let ids = self.rows.iter().map(|row| row.order.id);
        ids.filter(|id| !inserted.contains(id)).collect()
    }
}

/// Binds what a statement inserts of [`NewOrders`], in either database. `bind_rows` and `id_value`
/// are those of the caller.
macro_rules! bind_orders {
    ($query:expr, $orders:expr) => {
        bind_rows!($query, &$orders.rows, |row| (
            id_value(row.order.id.as_uuid()),
            row.key.item.as_str(),
            i32::from(row.key.segment),
            row.order.buyer.as_str(),
            i64::from(row.order.quantity.get()),
            row.expires_ms,
            row.created_ms,
            row.price,
        ))
    };
}

pub(crate) use bind_orders;

pub(crate) struct NewOrder<'a> {
    pub key: &'a SegmentKey,
    pub order: &'a TakenOrder,
    pub created_ms: i64,
    pub expires_ms: i64,
    /// The price of a unit that the buyer was told. `None`: the item's first one.
    pub price: Option<i64>,
}

impl Shape {
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            segments: item.segments,
            hold_ms: i64::from(item.hold_seconds) * 1000,
        }
    }
}

/// Expectation about orders to insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// None of them exists in the ledger.
    New,
    /// Any of them may exist.
    Any,
}

/// The properties of items that recording needs. They never change.
pub(crate) type Shapes = HashMap<ItemId, Shape>;

/// The properties of an item that recording needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Number of its segments.
    pub segments: u16,
    /// How long its orders hold their units, in milliseconds. An order was created that long before
    /// the deadline that its outbox entry names: the order service tells the buyer the same time.
    pub hold_ms: i64,
}

/// A row before and after its replay.
pub(crate) struct Move {
    pub before: SegmentRow,
    pub after: SegmentRow,
}

/// SQL statements of a recording transaction. None is called with an empty list.
#[async_trait]
pub(crate) trait Statements: events::Statements {
    /// Inserts those of the orders that do not exist yet, as `held`, and returns the ids of those
    /// that exist. With [`Expected::New`] it may instead fail with [`LedgerError::Known`] if one
    /// exists; the transaction then fails as well.
    async fn insert(
        &mut self,
        orders: &NewOrders<'_>,
        expected: Expected,
    ) -> Result<HashSet<OrderId>, LedgerError>;

    /// Sets orders that were just inserted to `rejected`.
    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError>;

    /// Locks the purchase limits of `items` until commit: exclusively for `true`, shared for
    /// `false`. Items without a limit are skipped. Returns the terms, read after the lock was
    /// acquired.
    async fn limits_of(
        &mut self,
        items: &BTreeMap<&ItemId, bool>,
    ) -> Result<Vec<Terms>, LedgerError>;

    /// Records that some order of these items may be away from its buyer's home.
    async fn mark_spillover(&mut self, items: &[&ItemId]) -> Result<(), LedgerError>;

    /// Units that these buyers hold or have paid for, by the index of the query. Buyers without
    /// units may be left out.
    async fn usage_of(
        &mut self,
        queries: &[UsageQuery<'_>],
    ) -> Result<Vec<(usize, u64)>, LedgerError>;

    /// Locks the orders by ascending id.
    async fn lock_orders(
        &mut self,
        ids: &BTreeSet<OrderId>,
    ) -> Result<Vec<ReacquiredOrder>, LedgerError>;

    /// Writes state, attempt, segment and deadline of the orders.
    async fn reacquire(
        &mut self,
        orders: &BTreeMap<OrderId, ReacquiredOrder>,
    ) -> Result<(), LedgerError>;

    /// Deletes the pending returns at these segments, and returns them.
    async fn take_returns(
        &mut self,
        returned: &BTreeMap<OrderId, &SegmentKey>,
    ) -> Result<Vec<PendingReturn>, LedgerError>;

    /// Inserts pending returns.
    async fn add_returns(
        &mut self,
        returns: &[PendingReturn],
        since: Timestamp,
    ) -> Result<(), LedgerError>;

    /// Locks the transfers by ascending id.
    async fn lock_transfers(
        &mut self,
        ids: &BTreeSet<TransferId>,
    ) -> Result<Vec<Transfer>, LedgerError>;

    /// Writes the columns `state` and `moved` of the transfers.
    async fn move_transfers(
        &mut self,
        transfers: &BTreeMap<TransferId, Transfer>,
    ) -> Result<(), LedgerError>;

    /// Updates each row that still has the checkpoint and version of `before`. Returns the indexes
    /// in `moves` of the updated rows. Inserts the events, of which there may be none, in the same
    /// round trip.
    async fn compare_and_set(
        &mut self,
        moves: &[Move],
        events: &[NewEvent],
    ) -> Result<Vec<usize>, LedgerError>;
}

/// The columns of an order that decide about a reacquisition, and those that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReacquiredOrder {
    pub id: OrderId,
    pub state: OrderState,
    pub attempt: u8,
    pub segment: u16,
    pub quantity: domain::Quantity,
    pub expires_ms: i64,
}

#[cfg(test)]
mod tests {
    use domain::{BuyerId, OrderId, Quantity, SegmentKey, TakenOrder};

    use super::{NewOrder, NewOrders};

    #[test]
    fn of_an_order_that_occurs_twice_the_first_one_is_inserted() {
        let (first, second): (SegmentKey, SegmentKey) =
            ("vase:0".parse().unwrap(), "vase:1".parse().unwrap());
        let order = |id: u8| TakenOrder {
            id: OrderId::from_bytes([id; 16]),
            buyer: BuyerId::new(format!("buyer-{id}")).unwrap(),
            quantity: Quantity::ONE,
        };
        let orders = [3, 1, 2].map(order);
        let mut rows = Vec::new();
        for (key, expires_ms) in [(&first, 10), (&second, 20)] {
            rows.extend(orders.iter().map(|order| NewOrder {
                key,
                order,
                created_ms: 0,
                price: None,
                expires_ms,
            }));
        }
        let sorted = NewOrders::sorted(rows).rows;
        let inserted: Vec<_> = sorted
            .iter()
            .map(|row| (row.order.buyer.as_str(), row.key.segment, row.expires_ms))
            .collect();
        assert_eq!(
            inserted,
            [("buyer-1", 0, 10), ("buyer-2", 0, 10), ("buyer-3", 0, 10)]
        );
    }
}
