//! What has changed since a snapshot, on PostgreSQL.

use domain::{ItemId, OrderId};
use sqlx::PgConnection;

use crate::{
    LedgerError, Sums,
    convert::{column, signed, unsigned},
    events::order_ids,
    since::{
        Changed, ChangedColumns, ChangedUnits, LOOKUP_ORDERS, Place, SEEN_MAX, Told, changed_units,
        kinds,
    },
};

/// The place of the snapshot among the events. `None`: there are too many behind the oldest open
/// transaction.
pub(super) async fn place(
    snapshot: &mut PgConnection,
    id: &ItemId,
) -> Result<Option<Place>, LedgerError> {
    let place = sqlx::query_as::<_, (i64, Vec<i64>)>(
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, \
                ARRAY(SELECT seq FROM events WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) \
                      AND item = $1 AND kind = ANY($2) LIMIT $3)",
    );
    let (oldest_open, seen) = place
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

/// The units of the orders that have changed. `None`: they cannot be told, or are too many.
pub(super) async fn changes(
    snapshot: &mut PgConnection,
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
async fn told(snapshot: &mut PgConnection, id: &ItemId, since: &Sums) -> Result<Told, LedgerError> {
    let told = sqlx::query_as::<_, (i64, i64, bool, bool)>(
        "SELECT count(*), coalesce(sum(octet_length(orders)) FILTER (WHERE item = $2 AND kind = ANY($3) AND seq <> ALL($5)), 0)::bigint / 16, \
                (SELECT removed.xid >= $1::text::xid8 FROM events_removed AS removed), \
                $1::text::xid8 > pg_snapshot_xmax(pg_current_snapshot()) \
         FROM (SELECT item, kind, orders, seq FROM events WHERE xid >= $1::text::xid8 ORDER BY xid, seq LIMIT $4) AS told",
    );
    let (events, orders, was_removed, is_unknown) = told
        .bind(since.place().position.to_string())
        .bind(id.as_str())
        .bind(kinds())
        .bind(since.events_max() + 1)
        .bind(seen(since))
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
    snapshot: &mut PgConnection,
    id: &ItemId,
    since: &'s Sums,
) -> Result<Option<Changed<'s>>, LedgerError> {
    let events = sqlx::query_as::<_, (String, Vec<u8>)>(
        "SELECT kind, orders FROM events WHERE xid >= $1::text::xid8 AND item = $2 AND kind = ANY($3) AND seq <> ALL($4) ORDER BY xid, seq",
    );
    let events = events
        .bind(since.place().position.to_string())
        .bind(id.as_str())
        .bind(kinds())
        .bind(seen(since))
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

/// The numbers of events behind the place that the snapshot had.
fn seen(since: &Sums) -> Vec<i64> {
    column(&since.place().seen, |number| signed(*number))
}

async fn look_up(
    snapshot: &mut PgConnection,
    id: &ItemId,
    orders: &[(OrderId, &'static str)],
) -> Result<Vec<ChangedColumns>, LedgerError> {
    let units = sqlx::query_as::<_, ChangedColumns>(
        "SELECT before, segment::bigint, state, attempt > 0, sum(quantity)::bigint \
         FROM UNNEST($1::uuid[], $2::text[]) AS changed (order_id, before) \
         LEFT JOIN orders ON orders.id = order_id AND orders.item = $3 GROUP BY 1, 2, 3, 4",
    );
    let units = units
        .bind(column(orders, |(order, _)| order.as_uuid()))
        .bind(column(orders, |(_, before)| *before))
        .bind(id.as_str());
    Ok(units.fetch_all(snapshot).await?)
}
