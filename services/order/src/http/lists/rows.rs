//! The rows of the lists, the same in JSON and CSV.

use domain::{
    BuyerId, CartId, Durability, ItemId, ItemState, OrderId, OrderState, PaymentId, Quantity,
};
use jiff::Timestamp;
use ledger::{Act, JournalEntry, ListedItem};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    engine::{Currency, OrderView, RefundDue, RefundKey, UnmatchedPayment},
    http::words::{DurabilityWord, ItemStateWord, OrderStateWord},
};

/// A row and its columns in CSV, which are its fields.
macro_rules! row {
    ($(#[$($about:tt)*])* pub(crate) struct $row:ident {
        $($(#[$($about_field:tt)*])* $field:ident: $type:ty,)*
    }) => {
        $(#[$($about)*])*
        pub(crate) struct $row {
            $($(#[$($about_field)*])* $field: $type,)*
        }

        impl $row {
            pub(super) const COLUMNS: &[&str] = &[$(stringify!($field)),*];
        }
    };
}

row! {
    /// An item in a list. Its counts are those of the ledger, which may lag behind Redis.
    #[derive(Debug, Serialize, ToSchema)]
    pub(crate) struct ItemRow {
        /// The item's id.
        #[schema(value_type = String)]
        id: ItemId,
        /// The title that buyers see.
        title: String,
        /// The item's state.
        #[schema(value_type = ItemStateWord, example = "open")]
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
        /// The price of one unit in the currency's smallest unit, for orders to come.
        price: u64,
        /// ISO 4217.
        currency: String,
        /// Units that one buyer may hold; null means no limit.
        #[schema(value_type = Option<u32>, required = true)]
        limit_per_buyer: Option<Quantity>,
        /// The first moment at which it sells.
        #[schema(value_type = Option<String>, format = DateTime, required = true)]
        opens_at: Option<Timestamp>,
        /// The first moment at which it does not sell any more.
        #[schema(value_type = Option<String>, format = DateTime, required = true)]
        closes_at: Option<Timestamp>,
        /// Seconds for which an order holds its units.
        hold_seconds: u32,
        /// When an order is acknowledged: `recorded`, `accepted` or `replicated`.
        #[schema(value_type = DurabilityWord)]
        durability: Durability,
        /// Number of segments.
        segment_count: u16,
        /// Rises with every change of the item. `If-Match` takes it.
        version: u64,
    }
}

impl From<ListedItem> for ItemRow {
    fn from(listed: ListedItem) -> Self {
        let item = listed.item;
        let price = item.current_price();
        Self {
            id: item.id,
            title: item.title,
            state: item.state,
            stock: item.stock,
            available: listed.available,
            held: listed.held,
            confirmed: listed.confirmed,
            returning: listed.returning,
            price,
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

row! {
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
        #[schema(value_type = OrderStateWord, example = "held")]
        state: OrderState,
        /// Number of units.
        #[schema(value_type = u32, example = 1)]
        quantity: Quantity,
        /// What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
        amount: u64,
        /// ISO 4217.
        #[schema(value_type = String, example = "USD")]
        currency: Currency,
        /// The provider's id of the payment, if there was one.
        #[schema(value_type = Option<String>, required = true)]
        payment: Option<PaymentId>,
        /// When its units were taken first.
        #[schema(value_type = Option<String>, format = DateTime, required = true)]
        created_at: Option<Timestamp>,
        /// When the hold expires or has expired.
        #[schema(value_type = String, format = DateTime)]
        expires_at: Timestamp,
        /// Rises with every transition.
        version: u64,
        /// The cart that it is a line of, which alone changes it; null if there is none.
        #[schema(value_type = Option<String>, required = true)]
        cart: Option<CartId>,
    }
}

impl OrderRow {
    /// The columns of rows for the order's buyer.
    pub(super) fn buyer_columns() -> Vec<&'static str> {
        let columns = Self::COLUMNS.iter().copied();
        columns.filter(|column| *column != "buyer").collect()
    }

    /// The row for the order's buyer.
    pub(super) fn for_buyer(order: OrderView) -> Self {
        Self {
            buyer: None,
            ..Self::from(order)
        }
    }
}

impl From<OrderView> for OrderRow {
    fn from(order: OrderView) -> Self {
        Self {
            amount: order.amount(),
            id: order.id,
            item: order.item,
            buyer: Some(order.buyer),
            state: order.state,
            quantity: order.quantity,
            currency: order.price.currency,
            payment: order.payment,
            created_at: order.created_at,
            expires_at: order.expires_at,
            version: order.version,
            cart: order.cart,
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
    /// The money was returned, and the refund has failed.
    RefundFailed,
}

row! {
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
        /// The buyer; null for an unmatched payment and a failed refund.
        #[schema(value_type = Option<String>, required = true)]
        buyer: Option<BuyerId>,
        /// The order's state. For an unmatched payment and a failed refund: when that was reported.
        #[schema(value_type = OrderStateWord)]
        state: OrderState,
        /// Number of units; null for an unmatched payment and a failed refund.
        #[schema(value_type = Option<u32>, required = true)]
        quantity: Option<Quantity>,
        /// The provider's id of the payment.
        #[schema(required = true)]
        payment: Option<String>,
        /// The amount that is due, in the currency's smallest unit; null if the report had none. Of a line of a
        /// cart that is `refund_due`: its share of the cart's `amount`.
        #[schema(required = true)]
        amount: Option<u64>,
        /// ISO 4217.
        currency: String,
        /// When an unmatched payment or a failed refund was reported first; null for an order.
        #[schema(value_type = Option<String>, format = DateTime, required = true)]
        reported_at: Option<Timestamp>,
        /// An idempotency key for the provider's refund, always the same for this row: with it, a repeat
        /// of the refund returns the money once. A refund that has failed has another one than before.
        #[schema(example = "stockade-refund-1f0c5b0e3a7d4c21a9c4e8b7d6f50312")]
        idempotency_key: String,
        /// The cart that the order is a line of, or that was paid; null if there is none.
        #[schema(value_type = Option<String>, required = true)]
        cart: Option<CartId>,
    }
}

impl RefundRow {
    /// The row that an id names.
    pub(super) fn key(id: &str) -> Option<RefundKey> {
        match id.strip_prefix("journal-") {
            Some(entry) => entry.parse().ok().map(RefundKey::Payment),
            None => id.parse().ok().map(OrderId::first).map(RefundKey::Order),
        }
    }

    fn of_order(order: OrderView) -> Self {
        let payment = order
            .payment
            .as_ref()
            .map_or("", |payment| payment.as_str());
        let idempotency_key = refund_key(order.id, payment, None);
        Self {
            id: order.id.to_string(),
            reason: RefundReason::RefundDue,
            amount: Some(order.amount()),
            order: order.id,
            item: order.item,
            buyer: Some(order.buyer),
            state: order.state,
            quantity: Some(order.quantity),
            payment: order.payment.map(|payment| payment.to_string()),
            currency: order.price.currency.to_string(),
            reported_at: None,
            idempotency_key,
            cart: order.cart,
        }
    }

    fn of_payment(unmatched: UnmatchedPayment) -> Self {
        let failed = unmatched.failed_refund.as_deref();
        let idempotency_key = refund_key(unmatched.order, &unmatched.payment, failed);
        Self {
            id: format!("journal-{}", unmatched.entry),
            reason: match failed {
                Some(_) => RefundReason::RefundFailed,
                None => RefundReason::UnmatchedPayment,
            },
            order: unmatched.order,
            item: unmatched.item,
            buyer: None,
            state: unmatched.state,
            quantity: None,
            payment: Some(unmatched.payment),
            amount: unmatched.amount,
            currency: unmatched.currency,
            reported_at: Some(unmatched.reported_at),
            idempotency_key,
            cart: unmatched.cart,
        }
    }
}

/// A hash of order and payment: the same for every reader of the row, and different in every
/// installation that shares an account with the provider. A refund that has failed is part of it: under
/// the key of that refund the provider would return its old answer, and no money.
fn refund_key(order: OrderId, payment: &str, failed: Option<&str>) -> String {
    let mut named = [order.as_bytes().as_slice(), payment.as_bytes()].concat();
    if let Some(failed) = failed {
        named.push(0);
        named.extend_from_slice(failed.as_bytes());
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, &named);
    let hash: String = hash.as_ref()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("stockade-refund-{hash}")
}

impl From<RefundDue> for RefundRow {
    fn from(due: RefundDue) -> Self {
        match due {
            RefundDue::Order(order) => Self::of_order(order),
            RefundDue::Payment(unmatched) => Self::of_payment(unmatched),
        }
    }
}

/// An entry of an item's journal: who has done what to the item or its orders.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JournalRow {
    /// The entry's number, which only rises.
    id: u64,
    /// When the change was made.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who made the change: the name of an admin, or `reconciler`, `payment`, `cli:ACCOUNT`, ...
    actor: String,
    /// The action, for example `create`, `cancel` or `repair`.
    action: String,
    /// The fencing token under which the change was made, if there was one.
    #[schema(required = true)]
    token: Option<u64>,
    /// The values before the change.
    #[schema(value_type = Object)]
    before: serde_json::Value,
    /// The values after the change.
    #[schema(value_type = Object)]
    after: serde_json::Value,
}

impl From<JournalEntry> for JournalRow {
    fn from(entry: JournalEntry) -> Self {
        let JournalEntry { id, at, entry } = entry;
        Self {
            id,
            at,
            actor: entry.actor,
            action: entry.action,
            token: entry.token,
            before: entry.before,
            after: entry.after,
        }
    }
}

/// An entry of the service journal: what an admin has done that belongs to no item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActRow {
    /// The entry's number, which only rises.
    id: u64,
    /// When it was done.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who did it.
    actor: String,
    /// The action, for example `create_webhook`.
    action: String,
    /// What it was done to: the id of a webhook.
    #[schema(required = true)]
    subject: Option<String>,
    /// The values before.
    #[schema(value_type = Object)]
    before: serde_json::Value,
    /// The values after.
    #[schema(value_type = Object)]
    after: serde_json::Value,
}

impl From<Act> for ActRow {
    fn from(entry: Act) -> Self {
        let Act { id, at, act } = entry;
        Self {
            id,
            at,
            actor: act.actor,
            action: act.action,
            subject: act.subject,
            before: act.before,
            after: act.after,
        }
    }
}
