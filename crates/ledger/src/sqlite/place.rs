//! The place of a snapshot among the events, on SQLite. There is one writer at a time, so the
//! numbers of events are the order of their commits.

use domain::{ItemId, OrderId};
use sqlx::SqliteConnection;

use super::{
    hex, json,
    sql::since::{LOOK_UP, PLACE},
};
use crate::{
    LedgerError,
    convert::{column, signed, unsigned},
    since::{ChangedColumns, Place},
};

/// The place of the snapshot among the events of all items. There always is one.
pub(super) async fn place(
    snapshot: &mut SqliteConnection,
    _: &ItemId,
) -> Result<Option<Place>, LedgerError> {
    let newest = sqlx::query_scalar::<_, i64>(PLACE);
    Ok(Some(Place {
        position: unsigned("seq", newest.fetch_one(snapshot).await?)?,
        seen: Vec::new(),
    }))
}

/// The position as a statement takes it: the number of an event.
pub(super) fn position(place: &Place) -> i64 {
    signed(place.position)
}

/// What the orders have now, by what they had before.
pub(super) async fn look_up(
    snapshot: &mut SqliteConnection,
    id: &ItemId,
    orders: &[(OrderId, &'static str)],
) -> Result<Vec<ChangedColumns>, LedgerError> {
    let rows = column(orders, |(order, before)| (hex(order.as_uuid()), *before));
    let units = sqlx::query_as::<_, ChangedColumns>(LOOK_UP)
        .bind(json(&rows)?)
        .bind(id.as_str());
    Ok(units.fetch_all(snapshot).await?)
}
