//! What has changed since a snapshot, on SQLite. There is one writer at a time, so the numbers of
//! events are the order of their commits.

use domain::{ItemId, OrderId};
use sqlx::SqliteConnection;

use super::{hex, json};
use crate::{
    LedgerError, Sums,
    convert::{column, signed, unsigned},
    events::order_ids,
    since::{
        Changed, ChangedColumns, ChangedUnits, LOOKUP_ORDERS, Place, Told, changed_units, kinds,
    },
};

/// The place of the snapshot among the events.
pub(super) async fn place(snapshot: &mut SqliteConnection) -> Result<Place, LedgerError> {
    let newest = sqlx::query_scalar::<_, i64>(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)",
    );
    Ok(Place {
        position: unsigned("seq", newest.fetch_one(snapshot).await?)?,
        seen: Vec::new(),
    })
}

/// The units of the orders that have changed. `None`: they cannot be told, or are too many.
pub(super) async fn changes(
    snapshot: &mut SqliteConnection,
    id: &ItemId,
    since: &Sums,
) -> Result<Option<Vec<ChangedUnits>>, LedgerError> {
    if !since.is_told_by(told(snapshot, id, since).await?) {
        return Ok(None);
    }
    let Some(changed) = changed(snapshot, id, since).await? else {
        return Ok(None);
    };
    let mut units = Vec::new();
    for orders in changed.into_rows().chunks(LOOKUP_ORDERS) {
        let Some(read) = changed_units(look_up(snapshot, id, orders).await?)? else {
            return Ok(None);
        };
        units.extend(read);
    }
    Ok(Some(units))
}

/// How much the events behind the place have to tell.
async fn told(
    snapshot: &mut SqliteConnection,
    id: &ItemId,
    since: &Sums,
) -> Result<Told, LedgerError> {
    let told = sqlx::query_as::<_, (i64, i64, bool, bool)>(
        "SELECT count(*), coalesce(sum(CASE WHEN item = ?2 AND kind IN (SELECT value FROM json_each(?3)) THEN bytes ELSE 0 END), 0) / 16, \
                (SELECT seq > ?1 FROM events_removed), \
                ?1 > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) \
         FROM (SELECT item, kind, length(orders) AS bytes FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?4)",
    );
    let (events, orders, was_removed, is_unknown) = told
        .bind(signed(since.place().position))
        .bind(id.as_str())
        .bind(json(&kinds())?)
        .bind(since.events_max() + 1)
        .fetch_one(snapshot)
        .await?;
    Ok(Told {
        events,
        orders,
        was_removed,
        is_unknown,
    })
}

/// The orders that the events name. `None`: an event does not tell what they had before.
async fn changed<'s>(
    snapshot: &mut SqliteConnection,
    id: &ItemId,
    since: &'s Sums,
) -> Result<Option<Changed<'s>>, LedgerError> {
    let events = sqlx::query_as::<_, (String, Vec<u8>)>(
        "SELECT kind, orders FROM events WHERE seq > ?1 AND item = ?2 AND kind IN (SELECT value FROM json_each(?3)) ORDER BY seq",
    );
    let events = events
        .bind(signed(since.place().position))
        .bind(id.as_str())
        .bind(json(&kinds())?)
        .fetch_all(snapshot)
        .await?;
    let mut changed = Changed::since(since);
    for (kind, orders) in events {
        if !changed.add(&kind, order_ids(&orders)) {
            return Ok(None);
        }
    }
    Ok(Some(changed))
}

async fn look_up(
    snapshot: &mut SqliteConnection,
    id: &ItemId,
    orders: &[(OrderId, &'static str)],
) -> Result<Vec<ChangedColumns>, LedgerError> {
    let rows = column(orders, |(order, before)| (hex(order.as_uuid()), *before));
    let units = sqlx::query_as::<_, ChangedColumns>(
        "SELECT changed.value ->> 1, segment, state, attempt > 0, sum(quantity) FROM json_each(?1) AS changed \
         LEFT JOIN orders ON orders.id = unhex(changed.value ->> 0) AND orders.item = ?2 GROUP BY 1, 2, 3, 4",
    );
    let units = units.bind(json(&rows)?).bind(id.as_str());
    Ok(units.fetch_all(snapshot).await?)
}
