//! Events: what has happened to orders and items, for readers outside.
//!
//! An event is a row that the transaction of its change writes, so that neither exists without the
//! other. A reader goes from cursor to cursor. It sees an event only when no event before it can
//! appear any more.

use std::{collections::BTreeMap, fmt, str::FromStr};

use async_trait::async_trait;
use domain::{Cart, CartState, Item, ItemId, ItemState, Order, OrderId, OrderState, Wave};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    LedgerError, NewJournalEntry, convert::parsed, replay::Replayed, transaction::Transact,
};

/// Most orders in one event. A backlog that is recorded at once becomes several events, so that
/// none grows beyond what a webhook's receiver accepts.
pub(crate) const EVENT_ORDERS_MAX: usize = 1000;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $word:literal,)*) => {
        /// What has happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* $kind,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word for this kind in SQL and JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)*
                }
            }
        }
    };
}

kinds! {
    /// The ledger has recorded orders that hold units, for the first time or again.
    OrderHeld => "order.held",
    /// A payment has confirmed the order.
    OrderConfirmed => "order.confirmed",
    /// The orders were cancelled.
    OrderCancelled => "order.cancelled",
    /// The holds have expired.
    OrderExpired => "order.expired",
    /// The order was paid, and no units could be had: the money must be returned.
    OrderRefundDue => "order.refund_due",
    /// The money of the order was returned.
    OrderRefunded => "order.refunded",
    /// The hold of the order ends later.
    OrderExtended => "order.extended",
    /// The ledger could not cover the orders.
    OrderRejected => "order.rejected",
    /// All lines of the cart hold their units.
    CartHeld => "cart.held",
    /// A payment has confirmed the cart.
    CartConfirmed => "cart.confirmed",
    /// The cart was cancelled.
    CartCancelled => "cart.cancelled",
    /// The cart was not paid in time.
    CartExpired => "cart.expired",
    /// The cart was paid too late: the money must be returned.
    CartRefundDue => "cart.refund_due",
    /// The money of the cart was returned.
    CartRefunded => "cart.refunded",
    /// A line was refused, so no line has units.
    CartFailed => "cart.failed",
    /// The item was created.
    ItemCreated => "item.created",
    /// The item sells again.
    ItemOpened => "item.opened",
    /// The item does not sell for now.
    ItemPaused => "item.paused",
    /// The item does not sell any more.
    ItemClosed => "item.closed",
    /// The item has ended for good.
    ItemArchived => "item.archived",
    /// The units of a wave were added to the stock.
    ItemWaveAdded => "item.wave_added",
    /// A payment that no order could take: the money must be returned.
    PaymentStray => "payment.stray",
    /// The money of such a payment was returned.
    PaymentRefunded => "payment.refunded",
}

impl EventKind {
    fn of_order(state: OrderState) -> Self {
        match state {
            OrderState::Held => Self::OrderHeld,
            OrderState::Confirmed => Self::OrderConfirmed,
            OrderState::Cancelled => Self::OrderCancelled,
            OrderState::Expired => Self::OrderExpired,
            OrderState::RefundDue => Self::OrderRefundDue,
            OrderState::Refunded => Self::OrderRefunded,
            OrderState::Rejected => Self::OrderRejected,
        }
    }

    /// `None`: a cart begins `placing` without an event.
    fn of_cart(state: CartState) -> Option<Self> {
        Some(match state {
            CartState::Placing => return None,
            CartState::Held => Self::CartHeld,
            CartState::Confirmed => Self::CartConfirmed,
            CartState::Cancelled => Self::CartCancelled,
            CartState::Expired => Self::CartExpired,
            CartState::RefundDue => Self::CartRefundDue,
            CartState::Refunded => Self::CartRefunded,
            CartState::Failed => Self::CartFailed,
        })
    }

    fn of_item(state: ItemState) -> Self {
        match state {
            ItemState::Open => Self::ItemOpened,
            ItemState::Paused => Self::ItemPaused,
            ItemState::Closed => Self::ItemClosed,
            ItemState::Archived => Self::ItemArchived,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its position. Identifies the event.
    pub cursor: EventCursor,
    /// When it happened.
    pub at: Timestamp,
    /// The item; for an event of a cart, the cart's id.
    pub item: ItemId,
    /// What has happened: a word of [`EventKind`], or of a later release.
    pub kind: String,
    /// The orders that it happened to.
    pub orders: Vec<OrderId>,
    /// Further properties, as a JSON object.
    pub data: Value,
}

/// A position among the events: the number of the transaction (0 on SQLite), and the number of the
/// event. Readers outside treat its text as opaque.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCursor {
    pub(crate) xid: u64,
    pub(crate) seq: u64,
}

impl EventCursor {
    /// Before the first event.
    pub const START: Self = Self { xid: 0, seq: 0 };
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xid, self.seq)
    }
}

/// The text is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a cursor that the ledger has issued")]
pub struct InvalidCursor;

impl FromStr for EventCursor {
    type Err = InvalidCursor;

    /// Accepts exactly what `Display` writes, so that each position has one text.
    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (xid, seq) = text.split_once('-').ok_or(InvalidCursor)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| InvalidCursor);
        let cursor = Self {
            xid: number(xid)?,
            seq: number(seq)?,
        };
        // The columns are signed.
        let fits = i64::try_from(cursor.xid).is_ok() && i64::try_from(cursor.seq).is_ok();
        (fits && cursor.to_string() == text)
            .then_some(cursor)
            .ok_or(InvalidCursor)
    }
}

/// Result of reading events after a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Events {
    /// The next events, in order. Empty: there are none yet.
    Page(Vec<Event>),
    /// Events behind the cursor were removed, because they were too old. Those behind this cursor
    /// are still there.
    Removed(EventCursor),
    /// The ledger has issued no such cursor.
    Unknown,
}

/// An event to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEvent {
    pub kind: EventKind,
    pub item: ItemId,
    pub orders: Vec<OrderId>,
    pub data: Value,
}

/// The statement that writes events. Transactions of every kind use it.
#[async_trait]
pub(crate) trait Statements: Transact {
    /// Inserts the events in this order. Not called with an empty list.
    async fn add_events(&mut self, events: &[NewEvent]) -> Result<(), LedgerError>;
}

/// Orders that a transaction has moved, by item and kind.
#[derive(Debug, Default)]
pub(crate) struct Moved(BTreeMap<ItemId, BTreeMap<&'static str, (EventKind, Vec<OrderId>)>>);

impl Moved {
    /// Adds the orders that a replay held and rejected.
    pub(crate) fn add(&mut self, replayed: &mut Replayed) {
        let held = std::mem::take(&mut replayed.held_orders);
        // A reacquisition that was not covered leaves its order unchanged.
        let rejected = replayed.rejected.iter().filter(|id| id.attempt() == 0);
        let rejected = rejected.copied().collect();
        let item = &replayed.row.key.item;
        self.extend(item, EventKind::OrderHeld, held);
        self.extend(item, EventKind::OrderRejected, rejected);
    }

    fn extend(&mut self, item: &ItemId, kind: EventKind, mut orders: Vec<OrderId>) {
        if orders.is_empty() {
            return;
        }
        let kinds = self.0.entry(item.clone()).or_default();
        let (_, known) = kinds
            .entry(kind.as_str())
            .or_insert_with(|| (kind, Vec::new()));
        if known.is_empty() {
            *known = orders;
        } else {
            known.append(&mut orders);
        }
    }

    /// An event for each item and kind, in parts of [`EVENT_ORDERS_MAX`] orders.
    pub(crate) fn into_events(self) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for (item, kinds) in self.0 {
            for (kind, orders) in kinds.into_values() {
                if orders.len() <= EVENT_ORDERS_MAX {
                    events.push(of_orders(&item, kind, orders));
                    continue;
                }
                let parts = orders.chunks(EVENT_ORDERS_MAX);
                events.extend(parts.map(|part| of_orders(&item, kind, part.to_vec())));
            }
        }
        events
    }
}

fn of_orders(item: &ItemId, kind: EventKind, orders: Vec<OrderId>) -> NewEvent {
    NewEvent {
        kind,
        item: item.clone(),
        orders,
        data: Value::Null,
    }
}

/// The events of transitions that were made, from the orders as they are afterwards. A state that
/// comes with a payment gets an event for each order, with the payment.
pub(crate) fn of_transitions<'a>(made: impl Iterator<Item = &'a Order>) -> Vec<NewEvent> {
    let (mut moved, mut single) = (Moved::default(), Vec::new());
    for order in made {
        let kind = EventKind::of_order(order.state);
        match order.state {
            OrderState::Confirmed | OrderState::RefundDue | OrderState::Refunded => {
                single.push(NewEvent {
                    data: json!({ "payment": order.payment }),
                    ..of_orders(&order.item, kind, vec![order.id])
                });
            }
            _ => moved.extend(&order.item, kind, vec![order.id]),
        }
    }
    single.extend(moved.into_events());
    single
}

/// The event of an extended hold, from the order as it is afterwards.
pub(crate) fn of_extension(order: &Order) -> NewEvent {
    NewEvent {
        data: json!({ "expires_at": order.expires_at }),
        ..of_orders(&order.item, EventKind::OrderExtended, vec![order.id])
    }
}

/// The event of a wave, from the item as it is afterwards.
pub(crate) fn of_wave(item: &Item, wave: &Wave) -> NewEvent {
    NewEvent {
        data: json!({ "at": wave.at, "units": wave.units, "stock": item.stock }),
        ..of_orders(&item.id, EventKind::ItemWaveAdded, Vec::new())
    }
}

/// The event of a transition of a cart, from the cart as it is afterwards. Its subject is the cart.
pub(crate) fn of_cart(cart: &Cart) -> Result<Option<NewEvent>, LedgerError> {
    let Some(kind) = EventKind::of_cart(cart.state) else {
        return Ok(None);
    };
    let mut data = json!({ "cart": cart.id });
    if let Some(payment) = &cart.payment {
        data["payment"] = json!(payment);
    }
    if let Some(refusal) = &cart.refusal {
        data["code"] = json!(refusal.reason);
        data["item"] = json!(refusal.item);
    }
    Ok(Some(NewEvent {
        kind,
        item: parsed("carts.id", &cart.id.to_string())?,
        orders: cart.lines.iter().map(|line| line.order).collect(),
        data,
    }))
}

/// The event of a new item.
pub(crate) fn of_new_item(item: &Item) -> NewEvent {
    NewEvent {
        data: json!({ "state": item.state, "stock": item.stock }),
        ..of_orders(&item.id, EventKind::ItemCreated, Vec::new())
    }
}

/// The event of a change of an item, if it changed the state.
pub(crate) fn of_item_change(before: &Item, after: &Item) -> Option<NewEvent> {
    (before.state != after.state)
        .then(|| of_orders(&after.id, EventKind::of_item(after.state), Vec::new()))
}

/// The journal's words for a payment that no order can take, and for the return of its money.
const UNMATCHED_PAYMENT: &str = "unmatched_payment";
const PAYMENT_REFUNDED: &str = "payment_refunded";

/// The event that a journal entry stands for, if any.
pub(crate) fn of_journal_entry(entry: &NewJournalEntry) -> Option<NewEvent> {
    let kind = match &*entry.action {
        UNMATCHED_PAYMENT => EventKind::PaymentStray,
        PAYMENT_REFUNDED => EventKind::PaymentRefunded,
        _ => return None,
    };
    let order = entry.before["order"].as_str()?.parse().ok()?;
    Some(NewEvent {
        data: entry.after.clone(),
        ..of_orders(&entry.item, kind, vec![order])
    })
}

/// Events by column. The orders of an event are `bytes` bytes of `orders`, from `first` on, counted
/// from 1.
#[derive(Default)]
pub(crate) struct EventRows<'a> {
    pub items: Vec<&'a str>,
    pub kinds: Vec<&'static str>,
    pub data: Vec<String>,
    pub first: Vec<i32>,
    pub bytes: Vec<i32>,
    pub orders: Vec<u8>,
}

impl<'a> EventRows<'a> {
    pub(crate) fn of(events: &'a [NewEvent]) -> Self {
        let mut rows = Self::default();
        let orders: usize = events.iter().map(|event| event.orders.len()).sum();
        rows.orders.reserve_exact(orders * ID_BYTES);
        // A transaction records far fewer than 2^27 orders.
        let place = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
        for event in events {
            rows.items.push(event.item.as_str());
            rows.kinds.push(event.kind.as_str());
            rows.data.push(data_text(event));
            rows.first.push(place(rows.orders.len() + 1));
            rows.bytes.push(place(event.orders.len() * ID_BYTES));
            for order in &event.orders {
                rows.orders.extend_from_slice(order.as_uuid().as_bytes());
            }
        }
        rows
    }
}

const ID_BYTES: usize = 16;

/// The ids of the column `orders`.
pub(crate) fn order_ids(bytes: &[u8]) -> Vec<OrderId> {
    let (ids, _) = bytes.as_chunks::<ID_BYTES>();
    ids.iter().copied().map(OrderId::from_bytes).collect()
}

/// The data of an event as its column stores it.
fn data_text(event: &NewEvent) -> String {
    match &event.data {
        Value::Null => "{}".into(),
        data => data.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use domain::{ItemId, OrderId};

    use super::{EVENT_ORDERS_MAX, EventCursor, EventKind, Moved};

    #[test]
    fn a_cursor_has_one_text() {
        let cursor = EventCursor { xid: 812, seq: 14 };
        assert_eq!("812-14".parse(), Ok(cursor));
        assert_eq!(cursor.to_string(), "812-14");
        let invalid = [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "01-1",
            "1-01",
            "+1-1",
            "1-1-1",
            " 1-1",
            "1-1 ",
            "a-1",
            "9223372036854775808-1",
            "1-18446744073709551616",
        ];
        for text in invalid {
            assert!(text.parse::<EventCursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_backlog_becomes_several_events_that_name_each_order_once() {
        let item = ItemId::new("vase").unwrap();
        let ids = |from: u16, to: u16| -> Vec<OrderId> {
            let bytes = |n: u16| [[0; 14].as_slice(), &n.to_be_bytes()].concat();
            (from..to)
                .map(|n| OrderId::from_bytes(bytes(n).try_into().unwrap()))
                .collect()
        };
        let mut moved = Moved::default();
        moved.extend(&item, EventKind::OrderHeld, ids(0, 700));
        moved.extend(&item, EventKind::OrderHeld, ids(700, 2300));
        moved.extend(&item, EventKind::OrderRejected, Vec::new());
        let events = moved.into_events();
        let sizes: Vec<_> = events.iter().map(|event| event.orders.len()).collect();
        assert_eq!(sizes, [EVENT_ORDERS_MAX, EVENT_ORDERS_MAX, 300]);
        assert_eq!(
            events
                .into_iter()
                .flat_map(|event| event.orders)
                .collect::<Vec<_>>(),
            ids(0, 2300)
        );
    }
}
