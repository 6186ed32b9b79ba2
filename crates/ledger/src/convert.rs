//! Conversions between our types and SQL's.

use domain::{Item, ItemTag, OrderId, Quantity, Wave};
use jiff::Timestamp;

use crate::LedgerError;

/// SQL has no unsigned integers. Our numbers are far below 2^63; a constraint refuses larger ones.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Collects one column of many rows.
pub(crate) fn column<R, T>(rows: impl IntoIterator<Item = R>, value: impl Fn(R) -> T) -> Vec<T> {
    rows.into_iter().map(value).collect()
}

/// An item's limit, as its column stores it.
pub(crate) fn limit(item: &Item) -> Option<i64> {
    item.limit_per_buyer.map(|limit| i64::from(limit.get()))
}

/// An optional time, in milliseconds since 1970.
pub(crate) fn milliseconds(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_millisecond)
}

/// Reads a column that a constraint keeps at zero or above.
pub(crate) fn unsigned<T: TryFrom<i64>>(
    column: &'static str,
    number: i64,
) -> Result<T, LedgerError> {
    T::try_from(number).map_err(|_| unreadable(column, number))
}

pub(crate) fn parsed<T: std::str::FromStr>(
    column: &'static str,
    text: &str,
) -> Result<T, LedgerError> {
    text.parse().map_err(|_| unreadable(column, text))
}

pub(crate) fn timestamp(column: &'static str, ms: i64) -> Result<Timestamp, LedgerError> {
    Timestamp::from_millisecond(ms).map_err(|_| unreadable(column, ms))
}

pub(crate) fn unreadable(column: &'static str, found: impl ToString) -> LedgerError {
    LedgerError::Unreadable {
        column,
        found: found.to_string(),
    }
}

pub(crate) fn quantity(column: &'static str, number: i64) -> Result<Quantity, LedgerError> {
    Quantity::new(unsigned(column, number)?).map_err(|_| unreadable(column, number))
}

pub(crate) fn json(column: &'static str, text: &str) -> Result<serde_json::Value, LedgerError> {
    serde_json::from_str(text).map_err(|_| unreadable(column, text))
}

/// Whether the request for this item repeats the one that created the item in the ledger. An item
/// of an earlier version lacks the properties that have come since, or whose default was another
/// one then: what is not stored tells nothing apart.
pub(crate) fn is_repeat(created: &serde_json::Value, item: &Item) -> bool {
    let requested = as_created(item);
    created.as_object().is_some_and(|created| {
        let mut stored = created.iter();
        stored.all(|(property, value)| requested.get(property) == Some(value))
    })
}

/// The properties that an item was created with, except its state. They identify a repeat of the
/// request that created it, whatever has changed since. The value is stored with the item; renaming
/// a field here therefore makes every stored item look different.
pub(crate) fn as_created(item: &Item) -> serde_json::Value {
    serde_json::json!({
        "title": item.title,
        "stock": item.stock,
        "price": item.price,
        "currency": item.currency,
        "limit_per_buyer": item.limit_per_buyer.map(Quantity::get),
        "segments": item.segments,
        "opens_ms": item.window.opens_at.map(Timestamp::as_millisecond),
        "closes_ms": item.window.closes_at.map(Timestamp::as_millisecond),
        "hold_seconds": item.hold_seconds,
        "max_hold_seconds": item.max_hold_seconds,
        "max_per_order": item.max_per_order.map(Quantity::get),
        "waves": item.waves.iter().map(|wave| (wave.at.as_millisecond(), wave.units)).collect::<Vec<_>>(),
        "durability": item.durability,
    })
}

/// A wave in the column `items.waves`.
#[derive(serde::Serialize, serde::Deserialize)]
struct StoredWave {
    at_ms: i64,
    units: u64,
    added: bool,
}

pub(crate) fn waves(column: &str) -> Result<Vec<Wave>, LedgerError> {
    let stored: Vec<StoredWave> =
        serde_json::from_str(column).map_err(|_| unreadable("items.waves", column))?;
    let wave = |stored: StoredWave| {
        Ok(Wave {
            at: timestamp("items.waves", stored.at_ms)?,
            units: stored.units,
            is_added: stored.added,
        })
    };
    stored.into_iter().map(wave).collect()
}

/// The waves as the column stores them.
pub(crate) fn waves_column(waves: &[Wave]) -> String {
    let stored = waves.iter().map(|wave| StoredWave {
        at_ms: wave.at.as_millisecond(),
        units: wave.units,
        added: wave.is_added,
    });
    serde_json::json!(stored.collect::<Vec<_>>()).to_string()
}

/// The lowest and the highest order id with this tag: an item's orders are one range of the primary
/// key. Another item may share the tag.
pub(crate) fn id_range(tag: ItemTag) -> [OrderId; 2] {
    id_block(tag, 0, u16::MAX)
}

/// The same of the orders whose 16 bits behind the tag are in this range.
pub(crate) fn id_block(tag: ItemTag, first: u16, last: u16) -> [OrderId; 2] {
    [(first, 0x00), (last, 0xff)].map(|(block, filling)| {
        let mut bytes = [filling; 16];
        bytes[..4].copy_from_slice(&tag.0.to_be_bytes());
        bytes[4..6].copy_from_slice(&block.to_be_bytes());
        OrderId::from_bytes(bytes)
    })
}
