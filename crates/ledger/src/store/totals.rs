//! Sums of an item.

use std::time::Instant;

use domain::{ItemId, OrderId};

use super::{
    Connection, Pool, place, since, snapshot,
    sql::totals::{COUNTS, IN_TRANSIT, ITEM, RETURNING, SEGMENTS, SUMS, UNACCOUNTED},
};
use crate::{
    ItemRows, ItemTotals, LedgerError, Pace, Sums, WalkProgress,
    columns::{ItemColumns, SegmentColumns},
    convert::id_range,
    pieces::Pieces,
    totals::{PieceSums, Read, ReadRows, as_pieces, orders_of},
};

pub(super) async fn item_rows(pool: &Pool, id: &ItemId) -> Result<Option<ItemRows>, LedgerError> {
    let mut snapshot = snapshot(pool).await?;
    let Some((item, segments)) = rows(&mut snapshot, id).await? else {
        return Ok(None);
    };
    let (in_transit, rejected_orders, refund_due_orders) = counts(&mut snapshot, id).await?;
    ReadRows {
        item,
        segments,
        in_transit,
        rejected_orders,
        refund_due_orders,
    }
    .try_into()
    .map(Some)
}

pub(super) async fn walk(
    pool: &Pool,
    id: &ItemId,
    pace: &dyn Pace,
) -> Result<Option<ItemTotals>, LedgerError> {
    let mut snapshot = snapshot(pool).await?;
    let Some((item, segments)) = rows(&mut snapshot, id).await? else {
        return Ok(None);
    };
    let place = place::place(&mut snapshot, id).await?;
    let returning = returning(&mut snapshot, id).await?;
    let in_transit = sqlx::query_scalar::<_, i64>(IN_TRANSIT);
    let in_transit = in_transit
        .bind(id.as_str())
        .fetch_one(&mut *snapshot)
        .await?;
    let orders = orders(&mut snapshot, id, pace).await?;
    Read {
        item,
        segments,
        walked: orders_of(&orders),
        orders,
        place,
        returning,
        in_transit,
    }
    .try_into()
    .map(Some)
}

pub(super) async fn walk_changes(
    pool: &Pool,
    id: &ItemId,
    since: &Sums,
) -> Result<Option<ItemTotals>, LedgerError> {
    let mut snapshot = snapshot(pool).await?;
    let Some((item, segments)) = rows(&mut snapshot, id).await? else {
        return Ok(None);
    };
    let changes = since::changes(&mut snapshot, id, since).await?;
    let Some(sums) = changes.and_then(|changes| since.after(&changes)) else {
        return Ok(None);
    };
    let place = place::place(&mut snapshot, id).await?;
    let returning = returning(&mut snapshot, id).await?;
    let (in_transit, rejected, refund_due) = counts(&mut snapshot, id).await?;
    Read {
        item,
        segments,
        walked: since.orders(),
        orders: as_pieces(&sums, [rejected, refund_due]),
        place,
        returning,
        in_transit,
    }
    .try_into()
    .map(Some)
}

/// Units in transit, and the numbers of orders that were rejected and whose refund is due.
async fn counts(snapshot: &mut Connection, id: &ItemId) -> Result<(i64, i64, i64), LedgerError> {
    let [first, last] = id_range(id.tag()).map(|id| id.as_uuid());
    let counts = sqlx::query_as::<_, (i64, i64, i64)>(COUNTS);
    let counts = counts.bind(id.as_str()).bind(first).bind(last);
    Ok(counts.fetch_one(snapshot).await?)
}

/// By segment: units of pending returns.
async fn returning(snapshot: &mut Connection, id: &ItemId) -> Result<Vec<(i64, i64)>, LedgerError> {
    let returning = sqlx::query_as::<_, (i64, i64)>(RETURNING);
    Ok(returning.bind(id.as_str()).fetch_all(snapshot).await?)
}

async fn rows(
    snapshot: &mut Connection,
    id: &ItemId,
) -> Result<Option<(ItemColumns, Vec<SegmentColumns>)>, LedgerError> {
    let item = sqlx::query_as::<_, ItemColumns>(ITEM)
        .bind(id.as_str())
        .fetch_optional(&mut *snapshot)
        .await?;
    let Some(item) = item else {
        return Ok(None);
    };
    let segments = sqlx::query_as::<_, SegmentColumns>(SEGMENTS);
    let segments = segments.bind(id.as_str()).fetch_all(snapshot).await?;
    Ok(Some((item, segments)))
}

/// Reads the orders piece by piece.
async fn orders(
    snapshot: &mut Connection,
    id: &ItemId,
    pace: &dyn Pace,
) -> Result<PieceSums, LedgerError> {
    let mut pieces = Pieces::new(id.tag(), pace.piece_orders());
    let mut sums = PieceSums::new();
    while let Some(range) = pieces.range() {
        let started = Instant::now();
        let piece = sums_of(snapshot, id, range).await?;
        pieces.read(orders_of(&piece));
        sums.extend(piece);
        let progress = WalkProgress {
            orders: pieces.orders(),
            share: pieces.share(),
            took: started.elapsed(),
        };
        pace.piece_read(progress).await;
    }
    Ok(sums)
}

async fn sums_of(
    snapshot: &mut Connection,
    id: &ItemId,
    range: [OrderId; 2],
) -> Result<PieceSums, LedgerError> {
    let sums = sqlx::query_as::<_, (i64, String, i64, i64)>(SUMS);
    let [first, last] = range.map(|id| id.as_uuid());
    let sums = sums.bind(id.as_str()).bind(first).bind(last);
    Ok(sums.fetch_all(snapshot).await?)
}

/// A single statement reads a single snapshot.
pub(super) async fn unaccounted(pool: &Pool, id: &ItemId) -> Result<i64, LedgerError> {
    let unaccounted = sqlx::query_scalar::<_, i64>(UNACCOUNTED);
    Ok(unaccounted.bind(id.as_str()).fetch_one(pool).await?)
}
