//! What the API takes and answers.
//!
//! `make clients` writes this file from `docs/openapi.json`. Fields that a later service adds are
//! ignored.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{IdempotencyKey, ProblemCode};

/// How payments of a cart are checked, if not against its amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmountCheck {
    /// A payment of any amount pays the cart, and its amount is what was paid once it is.
    Unchecked,
}

/// Where a cart is in its life. All of its lines are in the same state, except while it is
/// `Placing` or `Failed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CartState {
    /// Its lines are taking their units.
    Placing,
    /// All units are reserved until it expires.
    Held,
    /// It is paid, and its units are sold.
    Confirmed,
    /// It was cancelled before it was paid.
    Cancelled,
    /// It was not paid in time.
    Expired,
    /// It was paid after it had expired. The money must be returned.
    RefundDue,
    /// The money was returned.
    Refunded,
    /// A line was refused, or placing it took too long. No line has units.
    Failed,
}

impl CartState {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Placing => "placing",
            Self::Held => "held",
            Self::Confirmed => "confirmed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::RefundDue => "refund_due",
            Self::Refunded => "refunded",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for CartState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// When an order is acknowledged, and therefore what can lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the ledger has committed it (201).
    Recorded,
    /// When the Redis script has run (202). A crash of Redis can lose it.
    Accepted,
    /// When the configured number of Redis replicas have confirmed it (202).
    Replicated,
}

/// Whether an item sells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// It sells, within its times.
    Open,
    /// It does not sell for now.
    Paused,
    /// Its sale has ended.
    Closed,
    /// Its sale has ended for good, and it cannot be changed any more.
    Archived,
}

/// Where an order is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderState {
    /// Its units are reserved until it expires.
    Held,
    /// It is paid, and its units are sold.
    Confirmed,
    /// It was cancelled before it was paid.
    Cancelled,
    /// It was not paid in time.
    Expired,
    /// It was paid after it had expired, and no units were left. The money must be returned.
    RefundDue,
    /// The money was returned.
    Refunded,
    /// The ledger could not cover it, for example after Redis had lost orders. It never had units.
    Rejected,
}

impl OrderState {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Confirmed => "confirmed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::RefundDue => "refund_due",
            Self::Refunded => "refunded",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for OrderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why money must be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundReason {
    /// The payment came after the hold had expired, and no units were left.
    RefundDue,
    /// No order could take the payment.
    UnmatchedPayment,
    /// The money was returned, and the refund has failed.
    RefundFailed,
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The order's id.
    pub id: Uuid,
    /// The item that was ordered.
    pub item: String,
    /// Number of units that the order asks for.
    pub quantity: u32,
    /// The order's state.
    pub state: OrderState,
    /// What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
    /// `None`: the response does not say.
    pub amount: Option<u64>,
    /// When the hold expires.
    pub expires_at: Timestamp,
}

/// An order in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedOrder {
    /// The order's id.
    pub id: Uuid,
    /// The item that was ordered.
    pub item: String,
    /// The order's state.
    pub state: OrderState,
    /// Number of units.
    pub quantity: u32,
    /// What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
    pub amount: u64,
    /// ISO 4217.
    pub currency: String,
    /// The provider's id of the payment, if there was one.
    pub payment: Option<String>,
    /// When its units were taken first. `None`: an earlier release has recorded it, and a late
    /// payment took units again.
    pub created_at: Option<Timestamp>,
    /// When the hold expires or has expired.
    pub expires_at: Timestamp,
    /// Rises with every transition.
    pub version: u64,
    /// The cart that it is a line of, which alone changes it; `None` if there is none.
    pub cart: Option<Uuid>,
    /// The buyer. Only for admins.
    #[serde(default)]
    pub buyer: Option<String>,
}

/// An order of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuyerOrder {
    /// The buyer: what `sub` is in a buyer's token.
    pub buyer: String,
    /// Number of units that the order asks for.
    pub quantity: u32,
    /// Identifies the order among the buyer's orders, as `Idempotency-Key` does: 1 to 255 visible
    /// ASCII characters.
    pub key: IdempotencyKey,
    /// The total of the shop, which may be less than quantity times price. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
}

/// How long a hold shall be, and in which checkout session the buyer pays: one of them, or both. A
/// number is that of seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HoldChange {
    /// The length of the whole hold in seconds, counted from `created_at` of the order. At most the
    /// item's `max_hold_seconds`. Required without `session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u32>,
    /// The provider's id of the checkout session in which the order is paid from now on: 1 to 255
    /// visible ASCII characters. The end of this one cancels the order, and that of no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
}

/// A cart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cart {
    /// The cart's id.
    pub id: Uuid,
    /// The cart's state.
    pub state: CartState,
    /// Its orders, as they were listed.
    pub lines: Vec<CartLine>,
    /// What it costs, in the currency's smallest unit: the price of all lines, or the shop's total.
    pub amount: u64,
    /// ISO 4217.
    pub currency: String,
    /// When the holds expire; while it is `placing`, when placing it fails.
    pub expires_at: Timestamp,
    /// `unchecked`: a payment of any amount pays the cart, and `amount` is what was paid once it
    /// is. Absent: only a payment of `amount` pays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_check: Option<AmountCheck>,
}

/// A line of a cart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CartLine {
    /// The item.
    pub item: String,
    /// Id of the line's order, which the cart alone changes.
    pub order: Uuid,
    /// Number of units.
    pub quantity: u32,
}

/// A new item. `id` and `stock` are required; all other fields have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NewItem {
    /// The item's id: 1 to 64 of `A-Z a-z 0-9 . _ -`, and neither `.` nor `..`.
    pub id: String,
    /// Units that exist.
    pub stock: u64,
    /// The first moment at which it does not sell any more. Default: no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Timestamp>,
    /// ISO 4217, three capital letters. Default: `USD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// When an order is acknowledged: `recorded` (default), `accepted` or `replicated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Seconds for which an order holds its units. Default: 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u32>,
    /// Units that one buyer may hold. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_per_buyer: Option<u32>,
    /// Seconds up to which a buyer can extend the hold of an order. Default: `hold_seconds`, so
    /// that no buyer can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold_seconds: Option<u32>,
    /// Units that one order may ask for. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_order: Option<u32>,
    /// The first moment at which it sells. Default: no start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Timestamp>,
    /// The price of one unit in the currency's smallest unit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<u64>,
    /// Number of segments. Default: one for each Redis master, fewer for a small stock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u16>,
    /// The title that buyers see, 200 characters at most. Default: the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Units that are added later, each at its time. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<Wave>,
}

/// Changes of an item. Fields that are absent stay as they are; null removes a limit or a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ItemPatch {
    /// The first moment at which it does not sell any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closes_at: Option<Option<Timestamp>>,
    /// Units that one buyer may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_per_buyer: Option<Option<u32>>,
    /// The first moment at which it sells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opens_at: Option<Option<Timestamp>>,
    /// The price of one unit in the currency's smallest unit, for orders to come. It cannot be
    /// null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) price: Option<u64>,
    /// The waves that are to come; null or an empty list: none. Waves that were added stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waves: Option<Vec<Wave>>,
}

/// An item and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Item {
    /// The item's id.
    pub id: String,
    /// The title that buyers see.
    pub title: String,
    /// The item's state.
    pub state: ItemState,
    /// Units that exist.
    pub stock: u64,
    /// Units that can be sold.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Whether no unit is available.
    pub sold_out: bool,
    /// The price of one unit in the currency's smallest unit, for orders to come.
    pub price: u64,
    /// ISO 4217.
    pub currency: String,
    /// Units that one buyer may hold; `None` means no limit.
    pub limit_per_buyer: Option<u32>,
    /// The first moment at which it sells.
    pub opens_at: Option<Timestamp>,
    /// The first moment at which it does not sell any more.
    pub closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    pub hold_seconds: u32,
    /// Seconds up to which the hold of an order can be extended.
    pub max_hold_seconds: u32,
    /// Units that one order may ask for; `None` means no limit.
    pub max_per_order: Option<u32>,
    /// The next units that will be added; `None`: none.
    pub next_wave: Option<Wave>,
    /// When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    pub durability: Durability,
    /// The item's segments. Only for admins.
    #[serde(default)]
    pub segments: Option<Vec<Segment>>,
    /// All waves, earliest first, those that were added included. Only for admins.
    #[serde(default)]
    pub waves: Option<Vec<ItemWave>>,
    /// Units of open withdrawals, which `stock` still counts. Only for admins.
    #[serde(default)]
    pub withdrawing: Option<u64>,
    /// The version for conditional changes, from the header `ETag`. Only admins see it.
    #[serde(skip)]
    pub version: Option<u64>,
}

/// Several items.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Items {
    /// The items, in the order of the request.
    pub data: Vec<Item>,
    /// Names that no item has.
    pub unknown: Vec<String>,
    /// Items whose units could not be read now. The others are shown all the same.
    pub unavailable: Vec<String>,
}

/// An item in a list. Its counts are those of the ledger, which may lag behind Redis.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedItem {
    /// The item's id.
    pub id: String,
    /// The title that buyers see.
    pub title: String,
    /// The item's state.
    pub state: ItemState,
    /// Units that exist.
    pub stock: u64,
    /// Units that no recorded order has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// The price of one unit in the currency's smallest unit, for orders to come.
    pub price: u64,
    /// ISO 4217.
    pub currency: String,
    /// Units that one buyer may hold; `None` means no limit.
    pub limit_per_buyer: Option<u32>,
    /// The first moment at which it sells.
    pub opens_at: Option<Timestamp>,
    /// The first moment at which it does not sell any more.
    pub closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    pub hold_seconds: u32,
    /// When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    pub durability: Durability,
    /// Number of segments.
    pub segment_count: u16,
    /// Rises with every change of the item. `If-Match` takes it.
    pub version: u64,
}

/// Units that are added at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wave {
    /// When they are added. It identifies the wave among those of the item.
    pub at: Timestamp,
    /// Number of units.
    pub units: u64,
}

/// A wave of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ItemWave {
    /// When its units are added.
    pub at: Timestamp,
    /// Number of units.
    pub units: u64,
    /// Whether they were added.
    pub added: bool,
}

/// A segment and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Segment {
    /// Number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Units that can be sold.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Outbox entries that are not trimmed, including the anchor.
    pub outbox: u64,
}

/// The comparison of an item's stock counters in Redis with the ledger. Every number is required: a
/// missing one must not read as no drift.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The item.
    pub item: String,
    /// Units that exist.
    pub stock: u64,
    /// Free units in Redis.
    pub available: u64,
    /// Units of orders that wait for payment, by the ledger.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Units on their way from one segment to another, into the stock, or out of it.
    pub in_transit: u64,
    /// Units that were taken in Redis and are on their way to the ledger.
    pub in_flight: u64,
    /// Units that the invariant does not explain, summed over the segments without sign. Must be 0.
    pub drift: u64,
    /// Units by which the orders differ from the counters of their rows, summed over the segments
    /// without sign; drift includes them. Must be 0. By the full audit that `orders_checked` tells
    /// of.
    pub miscounted: u64,
    /// Units promised beyond the stock. Must be 0. By the counters of the segments, and by the
    /// orders as of the full audit that `orders_checked` tells of.
    pub oversold: u64,
    /// Orders that the ledger refused to cover. Their buyers received `sold_out`.
    pub rejected_orders: u64,
    /// `true` if drift and oversold are 0.
    pub ok: bool,
    /// What is known of the orders themselves: when a full audit has read all of them, and what it
    /// found. Releases that lack it compared them in every audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders_checked: Option<OrdersChecked>,
    /// The segments.
    pub segments: Vec<SegmentAudit>,
    /// When the item was archived: this is its final audit. Later refunds are not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    /// When the last order of the archived item was dropped: the ledger has this audit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_at: Option<Timestamp>,
}

/// The conservation invariant of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentAudit {
    /// Number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Free units in Redis; `None` if the segment does not exist there.
    pub available: Option<u64>,
    /// Free units at the checkpoint.
    pub available_at_checkpoint: u64,
    /// Units of orders that wait for payment, at the checkpoint.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Units that were taken after the checkpoint.
    pub in_flight: u64,
    /// The last outbox entry that the ledger has recorded.
    pub checkpoint: Option<String>,
    /// The last outbox entry.
    pub last: Option<String>,
    /// Units in Redis beyond those of the invariant; negative if Redis has fewer. Must be 0.
    pub drift: i64,
    /// The anomaly in words, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

/// What the last full audits have found when they compared all orders of the item with the
/// counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersChecked {
    /// When the last good one began: all orders agreed with the counters. `None`: there was none
    /// yet.
    pub at: Option<Timestamp>,
    /// `true` if the counters are those that all orders add up to, and no later audit has found a
    /// fault: nothing has changed since that audit, or whatever has was compared, too. `false`:
    /// units were ordered, paid for or returned since.
    pub current: bool,
    /// The fault that the last full audit has found, until a later one finds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<OrdersFault>,
}

/// What a full audit has found wrong with the orders of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersFault {
    /// When it was found.
    pub at: Timestamp,
    /// Units by which the orders differed from the counters.
    pub miscounted: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
}

/// Money that must be returned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RefundDue {
    /// Names the row: the order's id, or `journal-` and the number of the journal entry.
    pub id: String,
    /// Why it must be returned.
    pub reason: RefundReason,
    /// The order that was paid.
    pub order: Uuid,
    /// The item of the order.
    pub item: String,
    /// The buyer; `None` for an unmatched payment and a failed refund.
    pub buyer: Option<String>,
    /// The order's state. For an unmatched payment and a failed refund: when that was reported.
    pub state: OrderState,
    /// Number of units; `None` for an unmatched payment and a failed refund.
    pub quantity: Option<u32>,
    /// The provider's id of the payment.
    pub payment: Option<String>,
    /// The amount that is due, in the currency's smallest unit; `None` if the report had none. Of a
    /// line of a cart that is `refund_due`: its share of the cart's `amount`.
    pub amount: Option<u64>,
    /// ISO 4217.
    pub currency: String,
    /// When an unmatched payment or a failed refund was reported first; `None` for an order.
    pub reported_at: Option<Timestamp>,
    /// An idempotency key for the provider's refund, always the same for this row: with it, a
    /// repeat of the refund returns the money once. A refund that has failed has another one than
    /// before.
    pub idempotency_key: String,
    /// The cart that the order is a line of, or that was paid; `None` if there is none.
    pub cart: Option<Uuid>,
}

/// An entry of an item's journal: who has done what to the item or its orders.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct JournalEntry {
    /// The entry's number, which only rises.
    pub id: u64,
    /// When the change was made.
    pub at: Timestamp,
    /// Who made the change: the name of an admin, or `reconciler`, `payment`, `cli:ACCOUNT`, ...
    pub actor: String,
    /// The action, for example `create`, `cancel` or `repair`.
    pub action: String,
    /// The fencing token under which the change was made, if there was one.
    pub token: Option<u64>,
    /// The values before the change.
    pub before: Value,
    /// The values after the change.
    pub after: Value,
}

/// An entry of the service journal: what an admin has done that belongs to no item.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServiceJournalEntry {
    /// The entry's number, which only rises.
    pub id: u64,
    /// When it was done.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// The action, for example `create_webhook`.
    pub action: String,
    /// What it was done to: the id of a webhook.
    pub subject: Option<String>,
    /// The values before.
    pub before: Value,
    /// The values after.
    pub after: Value,
}

/// The envelope of an event. The fields are those of CloudEvents 1.0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Identifies the event: a repeat has the same. It is also the cursor behind the event.
    pub id: String,
    /// `stockade.` and the kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// The item; `test` in a test of a webhook.
    #[serde(default)]
    pub subject: Option<String>,
    /// When it happened.
    pub time: Timestamp,
    /// `orders`, the ids of the orders that it happened to, and properties of the kind.
    #[serde(default)]
    pub data: Value,
}

/// The body of a response that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    #[serde(skip)]
    pub status: u16,
    /// For programs. The meaning of a code never changes.
    pub code: ProblemCode,
    /// For people.
    #[serde(default)]
    pub detail: String,
    /// The field of the request that was refused.
    #[serde(default)]
    pub field: Option<String>,
    /// With a refused order or cart: whether its key is decided for good. If it is false, nothing
    /// was written: a repeat with the same key is decided anew, and an earlier request whose
    /// outcome is unknown may still take units. Absent: it is decided.
    #[serde(rename = "final", default)]
    pub is_final: Option<bool>,
    /// The item of a cart that was refused, or that does not exist.
    #[serde(default)]
    pub item: Option<String>,
    /// With `not_open`: start of the sale, or `None`.
    #[serde(default)]
    pub opens_at: Option<Timestamp>,
    /// With `not_open`: the item's state. With `order_not_...`: the order's.
    #[serde(default)]
    pub state: Option<String>,
    /// Seconds that the service asks to wait before a repeat.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}
