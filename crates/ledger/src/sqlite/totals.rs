//! Sums of an item, on SQLite.

use domain::ItemId;
use sqlx::SqlitePool;

use super::{item_columns, segment_columns};
use crate::{
    ItemTotals, LedgerError,
    columns::{ItemColumns, SegmentColumns},
    convert::id_range,
    totals::Read,
};

pub(super) async fn totals(
    pool: &SqlitePool,
    id: &ItemId,
) -> Result<Option<ItemTotals>, LedgerError> {
    // A read transaction is a snapshot from its first read on.
    let mut snapshot = pool.begin().await?;
    let item = sqlx::query_as::<_, ItemColumns>(concat!(
        "SELECT ",
        item_columns!(),
        " FROM items WHERE id = ?1"
    ));
    let Some(item) = item
        .bind(id.as_str())
        .fetch_optional(&mut *snapshot)
        .await?
    else {
        return Ok(None);
    };
    let segments = sqlx::query_as::<_, SegmentColumns>(concat!(
        "SELECT ",
        segment_columns!(),
        " FROM segments WHERE item = ?1 ORDER BY segment"
    ));
    let segments = segments.bind(id.as_str()).fetch_all(&mut *snapshot).await?;
    let orders = sqlx::query_as::<_, (i64, String, i64, i64)>(
        "SELECT segment, state, count(*), sum(quantity) FROM orders \
         WHERE id BETWEEN ?2 AND ?3 AND item = ?1 GROUP BY segment, state",
    );
    let [first, last] = id_range(id.tag()).map(|id| id.as_uuid());
    let orders = orders
        .bind(id.as_str())
        .bind(first)
        .bind(last)
        .fetch_all(&mut *snapshot)
        .await?;
    let returning = sqlx::query_as::<_, (i64, i64)>(
        "SELECT segment, sum(quantity) FROM returns WHERE item = ?1 GROUP BY segment",
    );
    let returning = returning
        .bind(id.as_str())
        .fetch_all(&mut *snapshot)
        .await?;
    // `out` implies not `done`. The second condition lets the planner use the index of open
    // transfers.
    let in_transit = sqlx::query_scalar::<_, i64>(
        "SELECT coalesce(sum(moved), 0) FROM transfers WHERE item = ?1 AND state <> 'done' AND state = 'out'",
    );
    let in_transit = in_transit
        .bind(id.as_str())
        .fetch_one(&mut *snapshot)
        .await?;
    Read {
        item,
        segments,
        orders,
        returning,
        in_transit,
    }
    .try_into()
    .map(Some)
}

/// A single statement reads a single snapshot.
pub(super) async fn unaccounted(pool: &SqlitePool, id: &ItemId) -> Result<i64, LedgerError> {
    let unaccounted = sqlx::query_scalar::<_, i64>(
        "SELECT coalesce((SELECT stock FROM items WHERE id = ?1), 0) \
         - (SELECT coalesce(sum(allocated), 0) FROM segments WHERE item = ?1) \
         - (SELECT coalesce(sum(moved), 0) FROM transfers WHERE item = ?1 AND state <> 'done' AND state = 'out')",
    );
    Ok(unaccounted.bind(id.as_str()).fetch_one(pool).await?)
}
