//! The place of a snapshot among the events, on PostgreSQL. It numbers events before they are
//! committed, so a place is the oldest open transaction, and the events behind it that are seen.

use domain::ItemId;
use sqlx::PgConnection;

use super::sql::since::PLACE;
use crate::{
    LedgerError,
    convert::{signed, unsigned},
    since::{Place, SEEN_MAX, kinds},
};

/// The place of the snapshot among the events. `None`: there are too many behind the oldest open
/// transaction.
pub(super) async fn place(
    snapshot: &mut PgConnection,
    id: &ItemId,
) -> Result<Option<Place>, LedgerError> {
    let (oldest_open, seen) = sqlx::query_as::<_, (i64, Vec<i64>)>(PLACE)
        .bind(id.as_str())
        .bind(kinds())
        .bind(signed(SEEN_MAX as u64) + 1)
        .fetch_one(snapshot)
        .await?;
    if seen.len() > SEEN_MAX {
        return Ok(None);
    }
    let seen = seen.into_iter().map(|number| unsigned("seq", number));
    Ok(Some(Place {
        position: unsigned("xid", oldest_open)?,
        seen: seen.collect::<Result<_, _>>()?,
    }))
}

/// The position as a statement takes it: `xid8` is read from a text.
pub(super) fn position(place: &Place) -> String {
    place.position.to_string()
}
