//! The rows of the lists, the same in JSON and CSV.

use domain::{BuyerId, Durability, ItemId, ItemState, OrderId, OrderState, Quantity};
use jiff::Timestamp;
use ledger::ListedItem;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::{ListedOrder, RefundDue, UnmatchedPayment};

/// An item in a list. Its counts are those of the ledger, which may lag behind Redis.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemRow {
    /// The item's id.
    #[schema(value_type = String)]
    id: ItemId,
    /// The title that buyers see.
    title: String,
    /// The item's state.
    #[schema(value_type = String, example = "open")]
    state: ItemState,
    /// Units that exist.
    stock: u64,
    /// Units that no recorded order has.
    available: u64,
    /// Units of orders that wait for payment.
    held: u64,
    /// Units of paid orders.
    confirmed: u64,
    /// Units of orders that have ended, on their way back.
    returning: u64,
    /// The price of one unit in the currency's smallest unit.
    price_cents: u64,
    /// ISO 4217.
    currency: String,
    /// Units that one buyer may hold; null means no limit.
    #[schema(value_type = Option<u32>)]
    limit_per_buyer: Option<Quantity>,
    /// The first moment at which it sells.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Timestamp>,
    /// The first moment at which it does not sell any more.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    hold_seconds: u32,
    /// When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    #[schema(value_type = String)]
    durability: Durability,
    /// Number of segments.
    segment_count: u16,
    /// Rises with every change of the item. `If-Match` takes it.
    version: u64,
}

impl ItemRow {
    pub(super) const COLUMNS: &[&str] = &[
        "id",
        "title",
        "state",
        "stock",
        "available",
        "held",
        "confirmed",
        "returning",
        "price_cents",
        "currency",
        "limit_per_buyer",
        "opens_at",
        "closes_at",
        "hold_seconds",
        "durability",
        "segment_count",
        "version",
    ];
}

impl From<ListedItem> for ItemRow {
    fn from(listed: ListedItem) -> Self {
        let item = listed.item;
        Self {
            id: item.id,
            title: item.title,
            state: item.state,
            stock: item.stock,
            available: listed.available,
            held: listed.held,
            confirmed: listed.confirmed,
            returning: listed.returning,
            price_cents: item.price_cents,
            currency: item.currency,
            limit_per_buyer: item.limit_per_buyer,
            opens_at: item.window.opens_at,
            closes_at: item.window.closes_at,
            hold_seconds: item.hold_seconds,
            durability: item.durability,
            segment_count: item.segments,
            version: item.version,
        }
    }
}

/// An order in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OrderRow {
    /// The order's id.
    #[schema(value_type = String, example = "9ee2ddee-53dc-8690-8a2b-6181b5fbc615")]
    id: OrderId,
    /// The item that was ordered.
    #[schema(value_type = String, example = "maotai")]
    item: ItemId,
    /// The buyer. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    buyer: Option<BuyerId>,
    /// The order's state.
    #[schema(value_type = String, example = "held")]
    state: OrderState,
    /// Number of units.
    #[schema(value_type = u32, example = 1)]
    quantity: Quantity,
    /// Quantity times the price of a unit, in the currency's smallest unit.
    amount: u64,
    /// ISO 4217.
    #[schema(example = "USD")]
    currency: String,
    /// The provider's id of the payment, if there was one.
    payment: Option<String>,
    /// When its units were taken. Null after a late payment took units again: the ledger knows only
    /// the deadline of the latest hold.
    #[schema(value_type = Option<String>, format = DateTime)]
    created_at: Option<Timestamp>,
    /// When the hold expires or has expired.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// Rises with every transition.
    version: u64,
}

impl OrderRow {
    pub(super) const COLUMNS: &[&str] = &[
        "id",
        "item",
        "buyer",
        "state",
        "quantity",
        "amount",
        "currency",
        "payment",
        "created_at",
        "expires_at",
        "version",
    ];
    pub(super) const BUYER_COLUMNS: &[&str] = &[
        "id",
        "item",
        "state",
        "quantity",
        "amount",
        "currency",
        "payment",
        "created_at",
        "expires_at",
        "version",
    ];

    /// The row for the order's buyer.
    pub(super) fn for_buyer(listed: ListedOrder) -> Self {
        Self {
            buyer: None,
            ..Self::from(listed)
        }
    }
}

impl From<ListedOrder> for OrderRow {
    fn from(listed: ListedOrder) -> Self {
        let order = listed.order;
        Self {
            id: order.id,
            item: order.item,
            buyer: Some(order.buyer),
            state: order.state,
            quantity: order.quantity,
            amount: listed.amount,
            currency: listed.currency,
            payment: order.payment.map(|payment| payment.to_string()),
            created_at: listed.created_at,
            expires_at: order.expires_at,
            version: order.version,
        }
    }
}

/// Why money must be returned.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefundReason {
    /// The payment came after the hold had expired, and no units were left.
    RefundDue,
    /// No order could take the payment.
    UnmatchedPayment,
}

/// Money that must be returned.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefundRow {
    /// Names the row: the order's id, or `journal-` and the number of the journal entry.
    #[schema(example = "journal-17")]
    id: String,
    /// Why it must be returned.
    reason: RefundReason,
    /// The order that was paid.
    #[schema(value_type = String)]
    order: OrderId,
    /// The item of the order.
    #[schema(value_type = String)]
    item: ItemId,
    /// The buyer; null for an unmatched payment.
    #[schema(value_type = Option<String>)]
    buyer: Option<BuyerId>,
    /// The order's state. For an unmatched payment: when it was reported.
    #[schema(value_type = String)]
    state: OrderState,
    /// Number of units; null for an unmatched payment.
    #[schema(value_type = Option<u32>)]
    quantity: Option<Quantity>,
    /// The provider's id of the payment.
    payment: Option<String>,
    /// The amount in the currency's smallest unit; null if the report had none.
    amount: Option<u64>,
    /// ISO 4217.
    currency: String,
    /// When an unmatched payment was reported first; null for an order.
    #[schema(value_type = Option<String>, format = DateTime)]
    reported_at: Option<Timestamp>,
}

impl RefundRow {
    pub(super) const COLUMNS: &[&str] = &[
        "id",
        "reason",
        "order",
        "item",
        "buyer",
        "state",
        "quantity",
        "payment",
        "amount",
        "currency",
        "reported_at",
    ];

    fn of_order(listed: ListedOrder) -> Self {
        let order = listed.order;
        Self {
            id: order.id.to_string(),
            reason: RefundReason::RefundDue,
            order: order.id,
            item: order.item,
            buyer: Some(order.buyer),
            state: order.state,
            quantity: Some(order.quantity),
            payment: order.payment.map(|payment| payment.to_string()),
            amount: Some(listed.amount),
            currency: listed.currency,
            reported_at: None,
        }
    }

    fn of_payment(unmatched: UnmatchedPayment) -> Self {
        Self {
            id: format!("journal-{}", unmatched.entry),
            reason: RefundReason::UnmatchedPayment,
            order: unmatched.order,
            item: unmatched.item,
            buyer: None,
            state: unmatched.state,
            quantity: None,
            payment: Some(unmatched.payment),
            amount: unmatched.amount,
            currency: unmatched.currency,
            reported_at: Some(unmatched.reported_at),
        }
    }
}

impl From<RefundDue> for RefundRow {
    fn from(due: RefundDue) -> Self {
        match due {
            RefundDue::Order(listed) => Self::of_order(listed),
            RefundDue::Payment(unmatched) => Self::of_payment(unmatched),
        }
    }
}
