//! Between our types and what SQL can hold.

use domain::{Durability, Item, ItemId, ItemState, ItemTag, OrderId, Quantity};
use jiff::Timestamp;

use crate::LedgerError;

/// SQL has no unsigned numbers. Ours are far below 2^63; one that is not would be refused by a constraint.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a column that a constraint keeps at zero or above.
pub(crate) fn unsigned<T: TryFrom<i64>>(column: &'static str, number: i64) -> Result<T, LedgerError> {
    T::try_from(number).map_err(|_| unreadable(column, number))
}

pub(crate) fn parsed<T: std::str::FromStr>(column: &'static str, text: &str) -> Result<T, LedgerError> {
    text.parse().map_err(|_| unreadable(column, text))
}

pub(crate) fn timestamp(column: &'static str, ms: i64) -> Result<Timestamp, LedgerError> {
    Timestamp::from_millisecond(ms).map_err(|_| unreadable(column, ms))
}

pub(crate) fn unreadable(column: &'static str, found: impl ToString) -> LedgerError {
    LedgerError::Unreadable { column, found: found.to_string() }
}

/// An item's row, in types that both databases have.
#[derive(sqlx::FromRow)]
pub(crate) struct ItemColumns {
    pub id: String,
    pub title: String,
    pub stock: i64,
    pub price_cents: i64,
    pub currency: String,
    pub limit_per_buyer: Option<i64>,
    pub segments: i64,
    pub opens_ms: Option<i64>,
    pub closes_ms: Option<i64>,
    pub hold_seconds: i64,
    pub durability: String,
    pub state: String,
    pub epoch: i64,
    pub version: i64,
}

impl TryFrom<ItemColumns> for Item {
    type Error = LedgerError;

    fn try_from(row: ItemColumns) -> Result<Self, LedgerError> {
        let time = |column, ms: Option<i64>| ms.map(|ms| timestamp(column, ms)).transpose();
        let limit = row.limit_per_buyer.map(|limit| quantity("limit_per_buyer", limit)).transpose()?;
        Ok(Self {
            id: parsed::<ItemId>("items.id", &row.id)?,
            title: row.title,
            stock: unsigned("stock", row.stock)?,
            price_cents: unsigned("price_cents", row.price_cents)?,
            currency: row.currency,
            limit_per_buyer: limit,
            segments: unsigned("segments", row.segments)?,
            window: domain::Window { opens_at: time("opens_at", row.opens_ms)?, closes_at: time("closes_at", row.closes_ms)? },
            hold_seconds: unsigned("hold_seconds", row.hold_seconds)?,
            durability: parsed::<Durability>("durability", &row.durability)?,
            state: parsed::<ItemState>("items.state", &row.state)?,
            epoch: unsigned("epoch", row.epoch)?,
            version: unsigned("version", row.version)?,
        })
    }
}

pub(crate) fn quantity(column: &'static str, number: i64) -> Result<Quantity, LedgerError> {
    Quantity::new(unsigned(column, number)?).map_err(|_| unreadable(column, number))
}

/// Whether the two were created by the same request: what can change since does not count.
pub(crate) fn same_item(one: &Item, other: &Item) -> bool {
    let created = |item: &Item| Item { state: ItemState::Open, epoch: 0, version: 0, ..item.clone() };
    created(one) == created(other)
}

/// The lowest and the highest order id with this tag: an item's orders are one range of the primary key. Another item may share the tag.
pub(crate) fn id_range(tag: ItemTag) -> [OrderId; 2] {
    [0x00, 0xff].map(|filling| {
        let mut bytes = [filling; 16];
        bytes[..4].copy_from_slice(&tag.0.to_be_bytes());
        OrderId::from_bytes(bytes)
    })
}

/// A segment's row, in types that both databases have.
#[derive(sqlx::FromRow)]
pub(crate) struct SegmentColumns {
    pub item: String,
    pub segment: i64,
    pub allocated: i64,
    pub available: i64,
    pub held: i64,
    pub confirmed: i64,
    pub checkpoint: Option<String>,
    pub anchor: Option<i64>,
    pub version: i64,
    pub fence: i64,
}

impl TryFrom<SegmentColumns> for crate::SegmentRow {
    type Error = LedgerError;

    fn try_from(row: SegmentColumns) -> Result<Self, LedgerError> {
        Ok(Self {
            key: domain::SegmentKey { item: parsed("segments.item", &row.item)?, segment: unsigned("segment", row.segment)? },
            allocated: unsigned("allocated", row.allocated)?,
            available: unsigned("available", row.available)?,
            held: unsigned("held", row.held)?,
            confirmed: unsigned("confirmed", row.confirmed)?,
            checkpoint: row.checkpoint.map(|text| parsed("checkpoint", &text)).transpose()?,
            anchor: row.anchor,
            version: unsigned("version", row.version)?,
            fence: unsigned("fence", row.fence)?,
        })
    }
}

pub(crate) fn checkpoint(row: (String, i64, Option<String>)) -> Result<(domain::SegmentKey, Option<domain::EntryId>), LedgerError> {
    let (item, segment, checkpoint) = row;
    let key = domain::SegmentKey { item: parsed("segments.item", &item)?, segment: unsigned("segment", segment)? };
    Ok((key, checkpoint.map(|text| parsed("checkpoint", &text)).transpose()?))
}

pub(crate) fn item_state(row: (String, String, i64)) -> Result<(ItemId, ItemState, u64), LedgerError> {
    let (id, state, epoch) = row;
    Ok((parsed("items.id", &id)?, parsed("items.state", &state)?, unsigned("epoch", epoch)?))
}

/// An order's row, in types that both databases have, without its id.
#[derive(sqlx::FromRow)]
pub(crate) struct OrderColumns {
    pub item: String,
    pub segment: i64,
    pub buyer: String,
    pub quantity: i64,
    pub state: String,
    pub expires_ms: i64,
    pub version: i64,
}

impl OrderColumns {
    pub(crate) fn into_order(self, id: domain::OrderId) -> Result<domain::Order, LedgerError> {
        Ok(domain::Order {
            id,
            item: parsed("orders.item", &self.item)?,
            segment: unsigned("orders.segment", self.segment)?,
            buyer: parsed("buyer", &self.buyer)?,
            quantity: quantity("quantity", self.quantity)?,
            state: parsed("orders.state", &self.state)?,
            expires_at: timestamp("expires_at", self.expires_ms)?,
            version: unsigned("orders.version", self.version)?,
        })
    }
}

/// Units of held orders by segment, for every segment of an item.
pub(crate) fn held_by_segment(segments: usize, rows: &[(i64, i64)]) -> Vec<u64> {
    let mut held = vec![0; segments];
    for (segment, units) in rows {
        if let Some(held) = usize::try_from(*segment).ok().and_then(|segment| held.get_mut(segment)) {
            *held = u64::try_from(*units).unwrap_or(0);
        }
    }
    held
}
