//! An item on sale, its buyers, and its state in Redis and in the ledger.

mod audit;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

use domain::{
    BuyerId, Item, Order, OrderId, OrderState, PaymentId, Quantity, SegmentKey, TransferId,
};
use futures::future::join_all;
use ledger::{
    Changed, ItemChange, JournalEntry, Ledger, SegmentRow, StockChange, StockPart, Transition,
};
use redis::{Cmd, FromRedisValue};
use stock::{
    Acknowledge, Inspection, InspectionEntries, Outcome, Release, Reservation, Stock, StockError,
};

use crate::{buyer, env::connect, eventually, eventually_some, items, timeout};

const JOURNAL_ENTRIES_MAX: usize = 1000;

/// An item on sale.
pub struct Sale {
    /// The item as it was created.
    pub item: Item,
    /// Its ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Its stock.
    pub stock: Arc<Stock>,
    /// Present URL of its keys, for commands without the stock. A failover changes it.
    pub redis_url: Mutex<String>,
    /// Segments whose Redis state the test has broken permanently. The audit skips them.
    pub diverged: Mutex<Vec<u16>>,
}

impl Sale {
    pub(crate) fn new(
        item: Item,
        ledger: Arc<dyn Ledger>,
        stock: Arc<Stock>,
        redis_url: String,
    ) -> Self {
        Self {
            item,
            ledger,
            stock,
            redis_url: Mutex::new(redis_url),
            diverged: Mutex::default(),
        }
    }

    /// Key of a segment.
    pub fn segment(&self, segment: u16) -> SegmentKey {
        items::segment(&self.item, segment)
    }

    /// Keys of all segments.
    pub fn segments(&self) -> Vec<SegmentKey> {
        (0..self.item.segments)
            .map(|number| self.segment(number))
            .collect()
    }

    /// Redis key of a segment.
    pub fn key(&self, kind: &str, segment: u16) -> String {
        format!("{kind}:{{{}:{segment}}}", self.item.id)
    }

    /// All Redis keys of a segment.
    pub fn keys(&self, segment: u16) -> Vec<String> {
        ["stock", "decisions", "buyers", "outbox", "spillovers"]
            .map(|kind| self.key(kind, segment))
            .into()
    }

    /// Redis key of the outbox of a segment.
    pub fn outbox(&self, segment: u16) -> String {
        self.key("outbox", segment)
    }

    /// Number of the buyer's home segment.
    pub fn home(&self, buyer: &BuyerId) -> u16 {
        items::home(&self.item, buyer)
    }

    /// The n-th buyer whose home is this segment.
    pub fn buyer_at(&self, home: u16, n: usize) -> BuyerId {
        items::buyer_at(&self.item, home, n)
    }

    /// The id of the order that this buyer places under this idempotency key.
    pub fn order_id(&self, buyer: &BuyerId, key: &str) -> OrderId {
        items::order_id(&self.item, buyer, key)
    }

    /// An order that is acknowledged once Redis has accepted it.
    pub fn reservation(&self, buyer: &BuyerId, key: &str, units: u32) -> Reservation {
        self.reservation_for(buyer, key, units, Acknowledge::Accepted)
    }

    /// An order with this acknowledgement.
    pub fn reservation_for(
        &self,
        buyer: &BuyerId,
        key: &str,
        units: u32,
        acknowledge: Acknowledge,
    ) -> Reservation {
        Reservation {
            order: self.order_id(buyer, key),
            buyer: buyer.clone(),
            quantity: Quantity::new(units).unwrap(),
            acknowledge,
            within: timeout(),
        }
    }

    /// Places an order.
    pub async fn try_order(&self, reservation: Reservation) -> Result<Outcome, StockError> {
        self.stock.item(&self.item).order(reservation).await
    }

    /// Places an order, which must not fail.
    pub async fn order(&self, buyer: &BuyerId, key: &str, units: u32) -> Outcome {
        self.try_order(self.reservation(buyer, key, units))
            .await
            .unwrap()
    }

    /// Places an order and waits for a server that fails over: repeats the order, as clients do.
    pub async fn order_patiently(&self, buyer: &BuyerId, key: &str, units: u32) -> Outcome {
        eventually_some("an answer to the order", async || {
            available(self.try_order(self.reservation(buyer, key, units)).await)
        })
        .await
    }

    /// Places an order that must be held, and waits until the ledger has it. Waits for a server
    /// that fails over.
    pub async fn hold(&self, buyer: &BuyerId, key: &str, units: u32) -> OrderId {
        let outcome = self.order_patiently(buyer, key, units).await;
        assert!(is_held(&outcome), "{buyer}: {outcome:?}");
        let id = self.order_id(buyer, key);
        eventually("recording the order", async || {
            self.state(id).await.is_some()
        })
        .await;
        id
    }

    /// [`Sale::hold`] for one unit of each of these buyers.
    pub async fn hold_many(&self, buyers: Range<usize>) -> Vec<OrderId> {
        join_all(buyers.map(|n| async move { self.hold(&buyer(n), "key", 1).await })).await
    }

    /// Orders of one unit for each of these buyers, placed concurrently through the stock `from`.
    pub async fn rush(
        &self,
        from: &Stock,
        buyers: Range<usize>,
        acknowledge: Acknowledge,
    ) -> Vec<(OrderId, Outcome)> {
        let item = from.item(&self.item);
        let orders = buyers.map(|n| {
            let reservation = self.reservation_for(&buyer(n), "key", 1, acknowledge);
            let item = Arc::clone(&item);
            async move { (reservation.order, item.order(reservation).await.unwrap()) }
        });
        join_all(orders).await
    }

    /// Records the entries of the outboxes, as a recorder does in one sweep.
    pub async fn record_once(&self) {
        let (stock, ledger) = (&self.stock, &*self.ledger);
        let recorded = recorder::record_once(stock, ledger, &self.segments()).await;
        recorded.unwrap();
    }

    /// Releases the units of an order.
    pub async fn release(&self, order: &Order) -> Result<u64, StockError> {
        let released = Release::from(order);
        self.stock.item(&self.item).release(&[released]).await
    }

    /// The order, which the ledger must have.
    pub async fn recorded(&self, id: OrderId) -> Order {
        let order = self.ledger.order(id).await.unwrap();
        order.expect("the ledger must have the order")
    }

    /// State of the order, if the ledger has it.
    pub async fn state(&self, id: OrderId) -> Option<OrderState> {
        let order = self.ledger.order(id).await.unwrap();
        order.map(|order| order.state)
    }

    /// Makes a transition in the ledger only, as a process does that dies after it.
    pub async fn step(&self, id: OrderId, to: OrderState) -> Order {
        let order = self.recorded(id).await;
        let payment =
            (to == OrderState::Confirmed).then(|| PaymentId::new(format!("pay-{id}")).unwrap());
        let mut made = self
            .ledger
            .transition(&[Transition { order, to, payment }])
            .await
            .unwrap();
        made.pop()
            .flatten()
            .unwrap_or_else(|| panic!("{id} could not become {to}"))
    }

    /// Changes the item as an admin does: in the ledger, and then at its segments. Returns it.
    /// Waits for a server that fails over.
    pub async fn change(&self, change: &ItemChange) -> Item {
        let id = &self.item.id;
        let changed = self.ledger.change_item(id, change, None, "admin").await;
        let Ok(Changed::Item(item)) = changed else {
            panic!("{changed:?}");
        };
        eventually_some("the change of the segments", async || {
            available(self.stock.configure(&item).await)
        })
        .await;
        item
    }

    /// Adds units to a segment in the ledger alone, where a reconciler finds the transfer. Returns
    /// that, and the item.
    pub async fn top_up(&self, segment: u16, units: u64) -> (TransferId, Item) {
        self.change_stock(StockChange::TopUp, segment, units).await
    }

    /// The same for units that leave the segment.
    pub async fn withdraw(&self, segment: u16, units: u64) -> (TransferId, Item) {
        self.change_stock(StockChange::Withdraw, segment, units)
            .await
    }

    async fn change_stock(
        &self,
        change: fn(Vec<StockPart>) -> StockChange,
        segment: u16,
        units: u64,
    ) -> (TransferId, Item) {
        let transfer = TransferId::random();
        let change = change(vec![StockPart {
            transfer,
            segment,
            units,
        }]);
        let id = &self.item.id;
        let changed = self.ledger.change_stock(id, &change, None, "admin").await;
        let Ok(Changed::Item(item)) = changed else {
            panic!("{changed:?}");
        };
        (transfer, item)
    }

    /// Row of the segment in the ledger.
    pub async fn row(&self, segment: u16) -> SegmentRow {
        self.ledger
            .segments(&self.item.id)
            .await
            .unwrap()
            .swap_remove(segment.into())
    }

    /// State of the segment in Redis, with all its entries. Waits for a server that fails over.
    pub async fn inspect(&self, segment: u16) -> Inspection {
        let key = self.segment(segment);
        eventually_some("an inspection of the segment", async || {
            let inspection = self.stock.inspect(&key, InspectionEntries::All).await;
            available(inspection)
        })
        .await
    }

    /// Available units of each segment in Redis.
    pub async fn available(&self) -> Vec<u64> {
        let segments = self.inspect_all().await;
        segments.iter().map(|segment| segment.available).collect()
    }

    /// Epoch of each segment in Redis.
    pub async fn epochs(&self) -> Vec<u64> {
        let segments = self.inspect_all().await;
        segments.iter().map(|segment| segment.epoch).collect()
    }

    async fn inspect_all(&self) -> Vec<Inspection> {
        let item = self.stock.item(&self.item);
        eventually_some("an inspection of the item", async || {
            available(item.inspect(InspectionEntries::None).await)
        })
        .await
    }

    /// Journal entries of this action, the latest first.
    pub async fn journal(&self, action: &str) -> Vec<JournalEntry> {
        let entries = self
            .ledger
            .journal(&self.item.id, JOURNAL_ENTRIES_MAX)
            .await
            .unwrap();
        entries
            .into_iter()
            .filter(|entry| entry.entry.action == action)
            .collect()
    }

    /// Number of orders in each state.
    pub async fn orders(&self) -> BTreeMap<String, u64> {
        let totals = self.ledger.totals(&self.item.id).await.unwrap().unwrap();
        totals.orders_by_state.into_iter().collect()
    }

    /// Runs a Redis command without the stock.
    pub async fn redis<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let url = self.redis_url.lock().unwrap().clone();
        let mut connection = connect(&url).await;
        command.query_async(&mut connection).await.unwrap()
    }

    /// Adds units to a segment in Redis that the ledger does not have: drift.
    pub async fn bend(&self, segment: u16, units: i64) {
        let mut command = redis::cmd("HINCRBY");
        command
            .arg(self.key("stock", segment))
            .arg("available")
            .arg(units);
        let _: i64 = self.redis(&command).await;
    }
}

/// Replies of a server that does not serve now, or not this key.
const AWAY: [&str; 7] = [
    "ASK",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MOVED",
    "READONLY",
    "TRYAGAIN",
];

/// What a server has answered, unless it could not be reached. Reads, orders and changes may be
/// repeated.
fn available<T>(answer: Result<T, StockError>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) if is_away(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether the server could not be reached. Every other error, such as one of a script, is a fault.
pub(crate) fn is_away(error: &StockError) -> bool {
    let StockError::Redis(error) = error else {
        return false;
    };
    error.code().is_none_or(|code| AWAY.contains(&code))
}

/// Whether the order holds units.
pub fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held { .. })
}
