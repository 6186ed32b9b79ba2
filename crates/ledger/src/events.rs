//! Events: what has happened to orders and items, for readers outside.
//!
//! An event is a row that the transaction of its change writes, so that neither exists without the
//! other. A reader goes from cursor to cursor. It sees an event only when no event before it can
//! appear any more.

mod made;

use std::{fmt, str::FromStr};

use async_trait::async_trait;
use domain::{ItemId, OrderId};
use jiff::Timestamp;
use serde_json::Value;

pub(crate) use self::made::{
    OrderEvents, PAYMENT_REFUNDED, REFUND_FAILED, UNMATCHED_PAYMENT, of_cart, of_cart_extension,
    of_extension, of_item_change, of_journal_entry, of_new_item, of_transitions, of_wave,
};
use crate::{LedgerError, transaction::Transact, words::words};

words! {
    /// What has happened.
    #[non_exhaustive]
    pub enum EventKind {
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
        /// The holds of the cart end later.
        CartExtended => "cart.extended",
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
        PaymentUnmatched => "payment.unmatched",
        /// The money of such a payment was returned.
        PaymentRefunded => "payment.refunded",
        /// A refund of the payment has failed: the money must be returned again.
        PaymentRefundFailed => "payment.refund_failed",
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
    use super::EventCursor;

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
}
