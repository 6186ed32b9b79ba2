//! Rows of the tables, in types that both databases can decode.

use std::collections::HashMap;

use domain::{
    Cart, CartId, CartLine, CartRefusal, Durability, Item, ItemId, ItemState, Order, OrderId,
    OrderState, SegmentConfig, SegmentKey, Stated, Window,
};
use uuid::Uuid;

use crate::{
    Act, Event, EventCursor, FailedAudit, GoodAudit, JournalEntry, LastAudits, LedgerError,
    ListedItem, NewAct, NewJournalEntry, NewWebhook, Payer, PendingReturn, RefundState, Transfer,
    TransferState, Webhook,
    convert::{json, parsed, quantity, timestamp, unreadable, unsigned, waves},
    drops::DropState,
    events::order_ids,
    refunds::{Dropped, Due, KnownRefund, PaymentRow},
    repair::memory::RememberedOrder,
    statements::{ReacquiredOrder, Shape, Shapes},
    terms::{Limit, NO_LIMIT, OLD_LIMIT_GRACE_MS, Terms},
};

/// Columns of a row: a struct that is decoded field by field from the columns of the same names, in
/// either database. The fields behind `and` are such structs themselves.
///
/// `sqlx`'s derive would do the same, but its macros build both database drivers a second time.
macro_rules! columns {
    (@decode $row:ty, $name:ident, [$($field:ident)*], [$($nested:ident)*]) => {
        impl sqlx::FromRow<'_, $row> for $name {
            fn from_row(row: &$row) -> sqlx::Result<Self> {
                Ok(Self {
                    $($field: sqlx::Row::try_get(row, stringify!($field))?,)*
                    $($nested: sqlx::FromRow::from_row(row)?,)*
                })
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
        } $(and {
            $($nested_vis:vis $nested:ident: $columns:ty),* $(,)?
        })?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $type,)*
            $($($nested_vis $nested: $columns,)*)?
        }

        $crate::columns::columns!(
            @decode sqlx::postgres::PgRow, $name, [$($field)*], [$($($nested)*)?]
        );
        $crate::columns::columns!(
            @decode sqlx::sqlite::SqliteRow, $name, [$($field)*], [$($($nested)*)?]
        );
    };
}

pub(crate) use columns;

/// The columns of `orders` that both databases read as they are stored. The others have a type or a
/// unit of their own in each.
macro_rules! plain_order_columns {
    () => {
        "id, item, buyer, quantity, price, amount, state, payment, version"
    };
}

/// Sets what the shop states of an order, and raises its version unless it has another one. SQLite
/// takes parameters in the form of PostgreSQL, too.
macro_rules! set_stated {
    ($order:expr) => {
        sqlx::query(
            "UPDATE orders SET amount = $3, version = version + 1 WHERE id = $1 AND version = $2",
        )
        .bind($order.id.as_uuid())
        .bind($crate::convert::signed($order.version))
        .bind($order.stated.amount.map($crate::convert::signed))
    };
}

pub(crate) use {plain_order_columns, set_stated};

columns! {
    /// A row of `events`.
    pub(crate) struct EventColumns {
        pub xid: i64,
        pub seq: i64,
        pub at_ms: i64,
        pub item: String,
        pub kind: String,
        pub orders: Vec<u8>,
        pub data: String,
    }
}

impl TryFrom<EventColumns> for Event {
    type Error = LedgerError;

    fn try_from(row: EventColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            cursor: cursor(row.xid, row.seq)?,
            at: timestamp("events.at", row.at_ms)?,
            item: parsed("events.item", &row.item)?,
            kind: row.kind,
            orders: order_ids(&row.orders),
            data: json("events.data", &row.data)?,
        })
    }
}

pub(crate) fn cursor(xid: i64, seq: i64) -> Result<EventCursor, LedgerError> {
    Ok(EventCursor {
        xid: unsigned("xid", xid)?,
        seq: unsigned("seq", seq)?,
    })
}

columns! {
    /// A row of `webhooks`, with the kinds as JSON.
    pub(crate) struct WebhookColumns {
        pub id: Uuid,
        pub url: String,
        pub kinds: String,
        pub secret: String,
        pub created_ms: i64,
        pub xid: i64,
        pub seq: i64,
        pub failures: i64,
        pub failing_ms: Option<i64>,
        pub next_ms: Option<i64>,
        pub last_error: Option<String>,
        pub disabled_ms: Option<i64>,
    }
}

impl TryFrom<WebhookColumns> for Webhook {
    type Error = LedgerError;

    fn try_from(row: WebhookColumns) -> Result<Self, LedgerError> {
        let time = |column, ms: Option<i64>| ms.map(|ms| timestamp(column, ms)).transpose();
        let kinds = serde_json::from_str(&row.kinds);
        Ok(Self {
            webhook: NewWebhook {
                id: row.id,
                url: row.url,
                kinds: kinds.map_err(|_| unreadable("webhooks.kinds", row.kinds))?,
                secret: row.secret,
            },
            created_at: timestamp("webhooks.created_at", row.created_ms)?,
            cursor: cursor(row.xid, row.seq)?,
            failures: unsigned("failures", row.failures)?,
            failing_since: time("failing_since", row.failing_ms)?,
            next_attempt_at: time("next_attempt_at", row.next_ms)?,
            last_error: row.last_error,
            disabled_at: time("disabled_at", row.disabled_ms)?,
        })
    }
}

/// A number, or NULL.
fn optional(column: &'static str, number: Option<i64>) -> Result<Option<u64>, LedgerError> {
    number.map(|number| unsigned(column, number)).transpose()
}

columns! {
    /// A row of `items`.
    pub(crate) struct ItemColumns {
        pub id: String,
        pub title: String,
        pub stock: i64,
        pub price: i64,
        pub new_price: Option<i64>,
        pub currency: String,
        pub limit_per_buyer: Option<i64>,
        pub segments: i64,
        pub opens_ms: Option<i64>,
        pub closes_ms: Option<i64>,
        pub hold_seconds: i64,
        pub max_hold_seconds: Option<i64>,
        pub max_per_order: Option<i64>,
        pub waves: String,
        pub durability: String,
        pub state: String,
        pub epoch: i64,
        pub version: i64,
    }
}

impl TryFrom<ItemColumns> for Item {
    type Error = LedgerError;

    fn try_from(row: ItemColumns) -> Result<Self, LedgerError> {
        let limit = row
            .limit_per_buyer
            .map(|limit| quantity("limit_per_buyer", limit))
            .transpose()?;
        Ok(Self {
            id: parsed::<ItemId>("items.id", &row.id)?,
            title: row.title,
            stock: unsigned("stock", row.stock)?,
            price: unsigned("price", row.price)?,
            new_price: optional("items.new_price", row.new_price)?,
            currency: row.currency,
            limit_per_buyer: limit,
            segments: unsigned("segments", row.segments)?,
            window: window(row.opens_ms, row.closes_ms)?,
            hold_seconds: unsigned("hold_seconds", row.hold_seconds)?,
            max_hold_seconds: unsigned(
                "max_hold_seconds",
                row.max_hold_seconds.unwrap_or(row.hold_seconds),
            )?,
            max_per_order: row
                .max_per_order
                .map(|units| quantity("max_per_order", units))
                .transpose()?,
            waves: waves(&row.waves)?,
            durability: parsed::<Durability>("durability", &row.durability)?,
            state: parsed::<ItemState>("items.state", &row.state)?,
            epoch: unsigned("epoch", row.epoch)?,
            version: unsigned("version", row.version)?,
        })
    }
}

columns! {
    /// A row of `items` with the sums of its segments.
    pub(crate) struct ListedColumns {
        pub available: i64,
        pub held: i64,
        pub confirmed: i64,
        pub returning: i64,
    } and {
        pub item: ItemColumns,
    }
}

impl TryFrom<ListedColumns> for ListedItem {
    type Error = LedgerError;

    fn try_from(row: ListedColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            item: row.item.try_into()?,
            available: unsigned("available", row.available)?,
            held: unsigned("held", row.held)?,
            confirmed: unsigned("confirmed", row.confirmed)?,
            returning: unsigned("returning", row.returning)?,
        })
    }
}

columns! {
    /// The columns of `items` that define the purchase limit.
    pub(crate) struct TermsColumns {
        pub id: String,
        pub limit_per_buyer: Option<i64>,
        pub limit_before: Option<i64>,
        pub lowered_ms: Option<i64>,
        pub is_without_spillover: bool,
    }
}

impl TryFrom<TermsColumns> for Terms {
    type Error = LedgerError;

    fn try_from(row: TermsColumns) -> Result<Self, LedgerError> {
        let units = |column, units: i64| {
            (units != NO_LIMIT)
                .then(|| unsigned(column, units))
                .transpose()
        };
        let before = row.limit_before.zip(row.lowered_ms);
        let before = before.map(|(before, ms)| {
            Ok::<_, LedgerError>((
                units("limit_before", before)?,
                ms.saturating_add(OLD_LIMIT_GRACE_MS),
            ))
        });
        let limit = Limit {
            units: row
                .limit_per_buyer
                .map(|limit| unsigned("limit_per_buyer", limit))
                .transpose()?,
            before: before.transpose()?,
        };
        Ok(Self {
            item: parsed("items.id", &row.id)?,
            limit,
            without_spillover: row.is_without_spillover,
        })
    }
}

/// The index of a query in its list, and the units that it found.
pub(crate) fn index_and_units(row: (i64, i64)) -> Result<(usize, u64), LedgerError> {
    Ok((unsigned("place", row.0)?, unsigned("quantity", row.1)?))
}

columns! {
    /// A row of `items` with its fence, the highest token that has claimed it.
    pub(crate) struct FencedColumns {
        pub fence: i64,
    } and {
        pub item: ItemColumns,
    }
}

impl TryFrom<FencedColumns> for (Item, u64) {
    type Error = LedgerError;

    fn try_from(row: FencedColumns) -> Result<Self, LedgerError> {
        Ok((row.item.try_into()?, unsigned("fence", row.fence)?))
    }
}

columns! {
    /// A row of `segments`.
    pub(crate) struct SegmentColumns {
        pub item: String,
        pub segment: i64,
        pub allocated: i64,
        pub available: i64,
        pub held: i64,
        pub confirmed: i64,
        pub returning: i64,
        pub checkpoint: Option<String>,
        pub anchor: Option<i64>,
        pub version: i64,
        pub fence: i64,
    }
}

columns! {
    /// A claimed row of `segments`, and the properties of its item that recording needs.
    pub(crate) struct ClaimedColumns {
        pub width: i64,
        pub hold_seconds: i64,
    } and {
        pub row: SegmentColumns,
    }
}

/// The claimed rows in order, and those properties of each of their items.
pub(crate) fn claimed(
    claimed: Vec<ClaimedColumns>,
) -> Result<(Vec<crate::SegmentRow>, Shapes), LedgerError> {
    let (mut rows, mut shapes) = (Vec::with_capacity(claimed.len()), Shapes::new());
    for ClaimedColumns {
        row,
        width,
        hold_seconds,
    } in claimed
    {
        let row = crate::SegmentRow::try_from(row)?;
        let shape = Shape {
            segments: unsigned("items.segments", width)?,
            hold_ms: hold_seconds.saturating_mul(1000),
        };
        shapes.insert(row.key.item.clone(), shape);
        rows.push(row);
    }
    Ok((rows, shapes))
}

impl TryFrom<SegmentColumns> for crate::SegmentRow {
    type Error = LedgerError;

    fn try_from(row: SegmentColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            key: segment_key(&row.item, row.segment)?,
            allocated: unsigned("allocated", row.allocated)?,
            available: unsigned("available", row.available)?,
            held: unsigned("held", row.held)?,
            confirmed: unsigned("confirmed", row.confirmed)?,
            returning: unsigned("returning", row.returning)?,
            checkpoint: row
                .checkpoint
                .map(|text| parsed("checkpoint", &text))
                .transpose()?,
            anchor: row.anchor,
            version: unsigned("version", row.version)?,
            fence: unsigned("fence", row.fence)?,
        })
    }
}

/// A segment's key from its columns.
pub(crate) fn segment_key(item: &str, segment: i64) -> Result<SegmentKey, LedgerError> {
    Ok(SegmentKey {
        item: parsed("segments.item", item)?,
        segment: unsigned("segment", segment)?,
    })
}

pub(crate) fn checkpoint(
    row: (String, i64, Option<String>),
) -> Result<(SegmentKey, Option<domain::EntryId>), LedgerError> {
    let (item, segment, checkpoint) = row;
    Ok((
        segment_key(&item, segment)?,
        checkpoint
            .map(|text| parsed("checkpoint", &text))
            .transpose()?,
    ))
}

columns! {
    /// The columns of `items` that its workers need, and its last change.
    pub(crate) struct LiveColumns {
        pub id: String,
        pub state: String,
        pub limit_per_buyer: Option<i64>,
        pub opens_ms: Option<i64>,
        pub closes_ms: Option<i64>,
        pub new_price: Option<i64>,
        pub epoch: i64,
        pub change: i64,
        pub is_live: bool,
        pub closed_ms: Option<i64>,
        pub archive_by: Option<String>,
        pub waves: String,
    }
}

impl TryFrom<LiveColumns> for crate::ChangedItem {
    type Error = LedgerError;

    fn try_from(row: LiveColumns) -> Result<Self, LedgerError> {
        let config = SegmentConfig {
            state: parsed("items.state", &row.state)?,
            limit_per_buyer: row
                .limit_per_buyer
                .map(|limit| quantity("limit_per_buyer", limit))
                .transpose()?,
            window: window(row.opens_ms, row.closes_ms)?,
            price: optional("items.new_price", row.new_price)?,
            epoch: unsigned("epoch", row.epoch)?,
        };
        let item = crate::LiveItem {
            id: parsed("items.id", &row.id)?,
            config,
            closed_at: row
                .closed_ms
                .map(|ms| timestamp("closed_at", ms))
                .transpose()?,
            archive_by: row.archive_by,
            next_wave: waves(&row.waves)?.into_iter().find(|wave| !wave.is_added),
        };
        Ok(Self {
            item,
            version: unsigned("item_changes.version", row.change)?,
            is_live: row.is_live,
        })
    }
}

fn window(opens_ms: Option<i64>, closes_ms: Option<i64>) -> Result<Window, LedgerError> {
    let time = |column, ms: Option<i64>| ms.map(|ms| timestamp(column, ms)).transpose();
    Ok(Window {
        opens_at: time("opens_at", opens_ms)?,
        closes_at: time("closes_at", closes_ms)?,
    })
}

columns! {
    /// A row of `final_audits`.
    pub(crate) struct FinalAuditColumns {
        pub at_ms: i64,
        pub actor: String,
        pub token: i64,
        pub report: String,
        pub dropped_ms: Option<i64>,
    }
}

impl TryFrom<FinalAuditColumns> for crate::FinalAudit {
    type Error = LedgerError;

    fn try_from(row: FinalAuditColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            at: timestamp("final_audits.at", row.at_ms)?,
            actor: row.actor,
            token: unsigned("final_audits.token", row.token)?,
            report: json("report", &row.report)?,
            dropped_at: row
                .dropped_ms
                .map(|ms| timestamp("items.dropped_at", ms))
                .transpose()?,
        })
    }
}

columns! {
    /// A row of `orders`.
    pub(crate) struct OrderColumns {
        pub id: Uuid,
        pub item: String,
        pub segment: i64,
        pub buyer: String,
        pub quantity: i64,
        pub price: Option<i64>,
        pub amount: Option<i64>,
        pub state: String,
        pub created_ms: Option<i64>,
        pub expires_ms: i64,
        pub attempt: i64,
        pub payment: Option<String>,
        pub cart: Option<Uuid>,
        pub version: i64,
    }
}

impl TryFrom<OrderColumns> for Order {
    type Error = LedgerError;

    fn try_from(row: OrderColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            id: row.id.into(),
            item: parsed("orders.item", &row.item)?,
            segment: unsigned("orders.segment", row.segment)?,
            buyer: parsed("buyer", &row.buyer)?,
            quantity: quantity("quantity", row.quantity)?,
            price: optional("orders.price", row.price)?,
            stated: Stated {
                amount: optional("orders.amount", row.amount)?,
            },
            state: parsed("orders.state", &row.state)?,
            created_at: row
                .created_ms
                .map(|ms| timestamp("orders.created_at", ms))
                .transpose()?,
            expires_at: timestamp("expires_at", row.expires_ms)?,
            attempt: unsigned("attempt", row.attempt)?,
            payment: row
                .payment
                .map(|payment| parsed("payment", &payment))
                .transpose()?,
            cart: row.cart.map(CartId::from),
            version: unsigned("orders.version", row.version)?,
        })
    }
}

columns! {
    /// A row of `carts`.
    pub(crate) struct CartColumns {
        pub id: Uuid,
        pub buyer: String,
        pub state: String,
        pub amount: i64,
        pub price: Option<i64>,
        pub is_checked: bool,
        pub currency: String,
        pub deadline_ms: i64,
        pub expires_ms: i64,
        pub payment: Option<String>,
        pub refusal: Option<String>,
        pub refused_item: Option<String>,
        pub version: i64,
    }
}

columns! {
    /// A row of `cart_lines`.
    pub(crate) struct CartLineColumns {
        pub cart: Uuid,
        pub order_id: Uuid,
        pub item: String,
        pub quantity: i64,
    }
}

/// The carts with their lines, each of which is sorted by its place.
pub(crate) fn carts(
    rows: Vec<CartColumns>,
    lines: Vec<CartLineColumns>,
) -> Result<Vec<Cart>, LedgerError> {
    let mut by_cart: HashMap<Uuid, Vec<CartLine>> = HashMap::new();
    for line in lines {
        let of_cart = by_cart.entry(line.cart).or_default();
        of_cart.push(CartLine {
            order: line.order_id.into(),
            item: parsed("cart_lines.item", &line.item)?,
            quantity: quantity("cart_lines.quantity", line.quantity)?,
        });
    }
    rows.into_iter()
        .map(|row| {
            let lines = by_cart.remove(&row.id).unwrap_or_default();
            cart(row, lines)
        })
        .collect()
}

fn cart(row: CartColumns, lines: Vec<CartLine>) -> Result<Cart, LedgerError> {
    let item = row
        .refused_item
        .map(|item| parsed("carts.refused_item", &item))
        .transpose()?;
    let refusal = row
        .refusal
        .map(|reason| {
            let reason = parsed("carts.refusal", &reason)?;
            Ok::<_, LedgerError>(CartRefusal { reason, item })
        })
        .transpose()?;
    Ok(Cart {
        id: row.id.into(),
        buyer: parsed("carts.buyer", &row.buyer)?,
        state: parsed("carts.state", &row.state)?,
        lines,
        amount: unsigned("carts.amount", row.amount)?,
        price: optional("carts.price", row.price)?,
        is_checked: row.is_checked,
        currency: row.currency,
        deadline: timestamp("carts.deadline", row.deadline_ms)?,
        expires_at: timestamp("carts.expires_at", row.expires_ms)?,
        payment: row
            .payment
            .map(|payment| parsed("carts.payment", &payment))
            .transpose()?,
        refusal,
        version: unsigned("carts.version", row.version)?,
    })
}

columns! {
    /// The columns of `orders` that a reacquisition needs.
    pub(crate) struct ReacquiredColumns {
        pub id: Uuid,
        pub state: String,
        pub attempt: i64,
        pub segment: i64,
        pub quantity: i64,
        pub expires_ms: i64,
    }
}

impl TryFrom<ReacquiredColumns> for ReacquiredOrder {
    type Error = LedgerError;

    fn try_from(row: ReacquiredColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            id: row.id.into(),
            state: parsed("orders.state", &row.state)?,
            attempt: unsigned("attempt", row.attempt)?,
            segment: unsigned("orders.segment", row.segment)?,
            quantity: quantity("quantity", row.quantity)?,
            expires_ms: row.expires_ms,
        })
    }
}

columns! {
    /// A row of `returns`.
    pub(crate) struct ReturnColumns {
        pub id: Uuid,
        pub item: String,
        pub segment: i64,
        pub buyer: String,
        pub quantity: i64,
    }
}

impl TryFrom<ReturnColumns> for PendingReturn {
    type Error = LedgerError;

    fn try_from(row: ReturnColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            id: row.id.into(),
            segment: SegmentKey {
                item: parsed("returns.item", &row.item)?,
                segment: unsigned("returns.segment", row.segment)?,
            },
            buyer: parsed("returns.buyer", &row.buyer)?,
            quantity: quantity("returns.quantity", row.quantity)?,
        })
    }
}

columns! {
    /// The columns of `orders` that a segment must remember.
    pub(crate) struct RememberedColumns {
        pub id: Uuid,
        pub segment: i64,
        pub buyer: String,
        pub quantity: i64,
        pub state: String,
        pub expires_ms: i64,
        pub attempt: i64,
    }
}

impl TryFrom<RememberedColumns> for RememberedOrder {
    type Error = LedgerError;

    fn try_from(row: RememberedColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            id: row.id.into(),
            segment: unsigned("orders.segment", row.segment)?,
            buyer: parsed("buyer", &row.buyer)?,
            quantity: quantity("quantity", row.quantity)?,
            state: parsed("orders.state", &row.state)?,
            expires_ms: row.expires_ms,
            attempt: unsigned("attempt", row.attempt)?,
        })
    }
}

columns! {
    /// The columns of `items` that say how far it is dropped.
    pub(crate) struct DropColumns {
        pub archived_ms: Option<i64>,
        pub drop_by: Option<String>,
        pub dropped_orders: i64,
        pub dropped_transfers: i64,
        pub dropped_ms: Option<i64>,
    }
}

impl TryFrom<DropColumns> for DropState {
    type Error = LedgerError;

    fn try_from(row: DropColumns) -> Result<Self, LedgerError> {
        let time = |column, ms: Option<i64>| ms.map(|ms| timestamp(column, ms)).transpose();
        Ok(Self {
            archived_at: time("archived_at", row.archived_ms)?,
            drop_by: row.drop_by,
            dropped_orders: unsigned("dropped_orders", row.dropped_orders)?,
            dropped_transfers: unsigned("dropped_transfers", row.dropped_transfers)?,
            dropped_at: time("dropped_at", row.dropped_ms)?,
        })
    }
}

columns! {
    /// The rows of an item in `good_audits`, `failed_audits` and `order_sums`.
    pub(crate) struct LastAuditsColumns {
        pub good_ms: Option<i64>,
        pub revision: Option<i64>,
        pub compared_ms: Option<i64>,
        pub compared_revision: Option<i64>,
        pub failed_ms: Option<i64>,
        pub miscounted: Option<i64>,
        pub oversold: Option<i64>,
    }
}

impl TryFrom<LastAuditsColumns> for LastAudits {
    type Error = LedgerError;

    fn try_from(row: LastAuditsColumns) -> Result<Self, LedgerError> {
        let good = |column, (at_ms, revision): (i64, i64)| {
            Ok::<_, LedgerError>(GoodAudit {
                at: timestamp(column, at_ms)?,
                revision: revision.cast_unsigned(),
            })
        };
        let (last, compared) = (
            row.good_ms.zip(row.revision),
            row.compared_ms.zip(row.compared_revision),
        );
        let units = |column, units: Option<i64>| unsigned(column, units.unwrap_or(0));
        let failed = row.failed_ms.map(|at_ms| {
            Ok::<_, LedgerError>(FailedAudit {
                at: timestamp("failed_audits.at", at_ms)?,
                miscounted: units("failed_audits.miscounted", row.miscounted)?,
                oversold: units("failed_audits.oversold", row.oversold)?,
            })
        });
        Ok(Self {
            good: last.map(|last| good("good_audits.at", last)).transpose()?,
            failed: failed.transpose()?,
            compared: compared
                .map(|last| good("order_sums.at", last))
                .transpose()?,
        })
    }
}

columns! {
    /// A row of `transfers`.
    pub(crate) struct TransferColumns {
        pub id: Uuid,
        pub item: String,
        pub from_segment: Option<i64>,
        pub to_segment: Option<i64>,
        pub quantity: i64,
        pub moved: i64,
        pub state: String,
        pub since_ms: i64,
    }
}

impl TryFrom<TransferColumns> for Transfer {
    type Error = LedgerError;

    fn try_from(row: TransferColumns) -> Result<Self, LedgerError> {
        let segment = |column, segment: Option<i64>| {
            segment.map(|segment| unsigned(column, segment)).transpose()
        };
        Ok(Self {
            id: row.id.into(),
            item: parsed("transfers.item", &row.item)?,
            from: segment("from_segment", row.from_segment)?,
            to: segment("to_segment", row.to_segment)?,
            quantity: unsigned("quantity", row.quantity)?,
            moved: unsigned("moved", row.moved)?,
            state: TransferState::parse(&row.state)
                .ok_or_else(|| unreadable("transfers.state", row.state))?,
            since: timestamp("transfers.since", row.since_ms)?,
        })
    }
}

columns! {
    /// A row of `journal`.
    pub(crate) struct JournalColumns {
        pub id: i64,
        pub at_ms: i64,
        pub item: String,
        pub actor: String,
        pub action: String,
        pub token: Option<i64>,
        pub before: String,
        pub after: String,
    }
}

impl TryFrom<JournalColumns> for JournalEntry {
    type Error = LedgerError;

    fn try_from(row: JournalColumns) -> Result<Self, LedgerError> {
        let entry = NewJournalEntry {
            item: parsed("journal.item", &row.item)?,
            actor: row.actor,
            action: row.action,
            token: row
                .token
                .map(|token| unsigned("journal.token", token))
                .transpose()?,
            before: json("before", &row.before)?,
            after: json("after", &row.after)?,
        };
        Ok(Self {
            id: unsigned("journal.id", row.id)?,
            at: timestamp("journal.at", row.at_ms)?,
            entry,
        })
    }
}

columns! {
    /// A row of `service_journal`.
    pub(crate) struct ActColumns {
        pub id: i64,
        pub at_ms: i64,
        pub actor: String,
        pub action: String,
        pub subject: Option<String>,
        pub before: String,
        pub after: String,
    }
}

impl TryFrom<ActColumns> for Act {
    type Error = LedgerError;

    fn try_from(row: ActColumns) -> Result<Self, LedgerError> {
        let act = NewAct {
            actor: row.actor,
            action: row.action,
            subject: row.subject,
            before: json("before", &row.before)?,
            after: json("after", &row.after)?,
        };
        Ok(Self {
            id: unsigned("service_journal.id", row.id)?,
            at: timestamp("service_journal.at", row.at_ms)?,
            act,
        })
    }
}

columns! {
    /// A row of `payments`.
    pub(crate) struct PaymentColumns {
        pub order_id: Uuid,
        pub returned_ms: Option<i64>,
        pub due_refund: Option<String>,
        pub due_amount: Option<i64>,
        pub is_settled: bool,
        pub dropped_order: Option<Uuid>,
        pub dropped_item: Option<String>,
    }
}

impl TryFrom<PaymentColumns> for PaymentRow {
    type Error = LedgerError;

    fn try_from(row: PaymentColumns) -> Result<Self, LedgerError> {
        let returned_at = row.returned_ms.map(|ms| timestamp("returned_at", ms));
        let due = row.due_refund.zip(row.due_amount);
        let due = due.map(|(refund, amount)| {
            unsigned("due_amount", amount).map(|amount| Due { refund, amount })
        });
        let dropped = row.dropped_order.zip(row.dropped_item);
        let dropped = dropped.map(|(order, item)| {
            parsed("dropped_item", &item).map(|item| Dropped {
                order: order.into(),
                item,
            })
        });
        Ok(Self {
            payer: Some(row.order_id).filter(|payer| !payer.is_nil()),
            returned_at: returned_at.transpose()?,
            due: due.transpose()?,
            is_settled: row.is_settled,
            dropped: dropped.transpose()?,
        })
    }
}

columns! {
    /// What a payment was reported for: an order, or a cart by its first line.
    pub(crate) struct PayerColumns {
        pub order_id: Uuid,
        pub cart: Option<Uuid>,
        pub is_cart: bool,
        pub item: String,
        pub state: String,
        pub is_paid: bool,
    }
}

impl TryFrom<PayerColumns> for Payer {
    type Error = LedgerError;

    fn try_from(row: PayerColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            order: row.order_id.into(),
            cart: row.cart.map(CartId::from),
            is_cart: row.is_cart,
            item: parsed("item", &row.item)?,
            // A cart that failed, or is being placed, has no state of orders: none of it is for
            // sale to this payment.
            state: row.state.parse().unwrap_or(OrderState::Cancelled),
            is_paid: row.is_paid,
        })
    }
}

columns! {
    /// A row of `refunds`.
    pub(crate) struct KnownRefundColumns {
        pub id: String,
        pub state: String,
        pub amount: i64,
        pub created_ms: i64,
        pub failed_ms: Option<i64>,
        pub is_done: bool,
    }
}

impl TryFrom<KnownRefundColumns> for KnownRefund {
    type Error = LedgerError;

    fn try_from(row: KnownRefundColumns) -> Result<Self, LedgerError> {
        let failed_at = row.failed_ms.map(|ms| timestamp("refunds.failed_at", ms));
        Ok(Self {
            state: RefundState::parse(&row.state)
                .ok_or_else(|| unreadable("refunds.state", &row.state))?,
            id: row.id,
            amount: unsigned("refunds.amount", row.amount)?,
            created_at: timestamp("refunds.created_at", row.created_ms)?,
            failed_at: failed_at.transpose()?,
            is_done: row.is_done,
        })
    }
}

/// Keeps the ids whose recorded order has reached their attempt, with its state.
pub(crate) fn reached_attempts(
    ids: &[OrderId],
    rows: Vec<(Uuid, String, i64)>,
) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
    let mut orders = std::collections::HashMap::with_capacity(rows.len());
    for (id, state, attempt) in rows {
        let state: OrderState = parsed("orders.state", &state)?;
        orders.insert(
            OrderId::from(id),
            (state, unsigned::<u8>("attempt", attempt)?),
        );
    }
    let recorded = |id: &OrderId| {
        orders
            .get(&id.first())
            .filter(|(_, attempt)| *attempt >= id.attempt())
            .map(|(state, _)| (*id, *state))
    };
    Ok(ids.iter().filter_map(recorded).collect())
}
