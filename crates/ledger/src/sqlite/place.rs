//! The place of a snapshot among the events, on SQLite. There is one writer at a time, so the
//! numbers of events are the order of their commits.

use domain::ItemId;
use sqlx::SqliteConnection;

use super::sql::since::PLACE;
use crate::{
    LedgerError,
    convert::{signed, unsigned},
    since::Place,
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
