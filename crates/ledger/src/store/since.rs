//! What has changed since a snapshot.

use domain::{ItemId, OrderId};

use super::{
    Connection, bind_rows, id_value, list,
    place::position,
    sql::since::{CHANGED, LOOK_UP, TOLD},
};
use crate::{
    LedgerError, Sums,
    convert::{column, signed},
    events::order_ids,
    since::{Changed, ChangedColumns, ChangedUnits, LOOKUP_ORDERS, Told, changed_units, kinds},
};

/// The units of the orders that have changed. `None`: they cannot be told, or are too many.
pub(super) async fn changes(
    snapshot: &mut Connection,
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
async fn told(snapshot: &mut Connection, id: &ItemId, since: &Sums) -> Result<Told, LedgerError> {
    let told = sqlx::query_as::<_, (i64, i64, bool, bool)>(TOLD);
    let (events, orders, was_removed, is_unknown) = told
        .bind(position(since.place()))
        .bind(id.as_str())
        .bind(list(kinds())?)
        .bind(since.events_max() + 1)
        .bind(list(seen(since))?)
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
    snapshot: &mut Connection,
    id: &ItemId,
    since: &'s Sums,
) -> Result<Option<Changed<'s>>, LedgerError> {
    let events = sqlx::query_as::<_, (String, Vec<u8>)>(CHANGED)
        .bind(position(since.place()))
        .bind(id.as_str())
        .bind(list(kinds())?)
        .bind(list(seen(since))?)
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

/// What the orders have now, by what they had before.
async fn look_up(
    snapshot: &mut Connection,
    id: &ItemId,
    orders: &[(OrderId, &'static str)],
) -> Result<Vec<ChangedColumns>, LedgerError> {
    let units = sqlx::query_as::<_, ChangedColumns>(LOOK_UP);
    let units = bind_rows!(units, orders, |order| (
        id_value(order.0.as_uuid()),
        order.1
    ));
    Ok(units.bind(id.as_str()).fetch_all(snapshot).await?)
}

/// The numbers of events behind the place that the snapshot had. SQLite has none, and no parameter
/// for them: it ignores the values behind its last one.
fn seen(since: &Sums) -> Vec<i64> {
    column(&since.place().seen, |number| signed(*number))
}
