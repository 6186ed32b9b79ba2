//! Sums of an item, on PostgreSQL.

use std::time::Instant;

use domain::{ItemId, OrderId};
use sqlx::{PgConnection, PgPool};

use super::{item_columns, place, segment_columns, since};
use crate::{
    ItemRows, ItemTotals, LedgerError, Pace, Sums, WalkProgress,
    columns::{ItemColumns, SegmentColumns},
    convert::id_range,
    pieces::Pieces,
    totals::{PieceSums, Read, ReadRows, as_pieces, orders_of},
};

/// `out` implies not `done`. The second condition lets the planner use the index of open transfers.
macro_rules! in_transit {
    () => {
        "SELECT coalesce(sum(moved), 0)::bigint FROM transfers WHERE item = $1 AND state <> 'done' AND state = 'out'"
    };
}

/// Each part reads a small index.
pub(super) const COUNTS: &str = concat!(
    "SELECT (",
    in_transit!(),
    "), \
     (SELECT count(*) FROM orders WHERE state = 'rejected' AND id BETWEEN $2 AND $3 AND item = $1), \
     (SELECT count(*) FROM orders WHERE state = 'refund_due' AND id BETWEEN $2 AND $3 AND item = $1)",
);

pub(super) async fn item_rows(pool: &PgPool, id: &ItemId) -> Result<Option<ItemRows>, LedgerError> {
    let mut snapshot = pool
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
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
    pool: &PgPool,
    id: &ItemId,
    pace: &dyn Pace,
) -> Result<Option<ItemTotals>, LedgerError> {
    let mut snapshot = pool
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let Some((item, segments)) = rows(&mut snapshot, id).await? else {
        return Ok(None);
    };
    let place = place::place(&mut snapshot, id).await?;
    let returning = returning(&mut snapshot, id).await?;
    let in_transit = sqlx::query_scalar::<_, i64>(in_transit!());
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
    pool: &PgPool,
    id: &ItemId,
    since: &Sums,
) -> Result<Option<ItemTotals>, LedgerError> {
    let mut snapshot = pool
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
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
async fn counts(snapshot: &mut PgConnection, id: &ItemId) -> Result<(i64, i64, i64), LedgerError> {
    let [first, last] = id_range(id.tag()).map(|id| id.as_uuid());
    let counts = sqlx::query_as::<_, (i64, i64, i64)>(COUNTS);
    let counts = counts.bind(id.as_str()).bind(first).bind(last);
    Ok(counts.fetch_one(snapshot).await?)
}

/// By segment: units of pending returns.
async fn returning(
    snapshot: &mut PgConnection,
    id: &ItemId,
) -> Result<Vec<(i64, i64)>, LedgerError> {
    let returning = sqlx::query_as::<_, (i64, i64)>(
        "SELECT segment::bigint, sum(quantity)::bigint FROM returns WHERE item = $1 GROUP BY segment",
    );
    Ok(returning.bind(id.as_str()).fetch_all(snapshot).await?)
}

async fn rows(
    snapshot: &mut PgConnection,
    id: &ItemId,
) -> Result<Option<(ItemColumns, Vec<SegmentColumns>)>, LedgerError> {
    let item = sqlx::query_as::<_, ItemColumns>(concat!(
        "SELECT ",
        item_columns!(),
        " FROM items WHERE id = $1"
    ));
    let item = item
        .bind(id.as_str())
        .fetch_optional(&mut *snapshot)
        .await?;
    let Some(item) = item else {
        return Ok(None);
    };
    let segments = sqlx::query_as::<_, SegmentColumns>(concat!(
        "SELECT ",
        segment_columns!(),
        " FROM segments WHERE item = $1 ORDER BY 2"
    ));
    let segments = segments.bind(id.as_str()).fetch_all(snapshot).await?;
    Ok(Some((item, segments)))
}

/// Reads the orders piece by piece.
async fn orders(
    snapshot: &mut PgConnection,
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
    snapshot: &mut PgConnection,
    id: &ItemId,
    range: [OrderId; 2],
) -> Result<PieceSums, LedgerError> {
    let sums = sqlx::query_as::<_, (i64, String, i64, i64)>(
        "SELECT segment::bigint, state, count(*), sum(quantity)::bigint FROM orders \
         WHERE id BETWEEN $2 AND $3 AND item = $1 GROUP BY segment, state",
    );
    let [first, last] = range.map(|id| id.as_uuid());
    let sums = sums.bind(id.as_str()).bind(first).bind(last);
    Ok(sums.fetch_all(snapshot).await?)
}

/// A single statement reads a single snapshot.
pub(super) async fn unaccounted(pool: &PgPool, id: &ItemId) -> Result<i64, LedgerError> {
    let unaccounted = sqlx::query_scalar::<_, i64>(
        "SELECT coalesce((SELECT stock FROM items WHERE id = $1), 0) \
         - (SELECT coalesce(sum(allocated), 0)::bigint FROM segments WHERE item = $1) \
         - (SELECT coalesce(sum(moved), 0)::bigint FROM transfers WHERE item = $1 AND state <> 'done' AND state = 'out')",
    );
    Ok(unaccounted.bind(id.as_str()).fetch_one(pool).await?)
}

#[cfg(test)]
mod tests {
    use super::COUNTS;
    use crate::{
        Ledger, PoolSettings,
        postgres::{
            PostgresLedger,
            listing::tests::{SALE, plan},
        },
    };

    /// However many orders there are, and whatever the statistics say of them.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_audit_without_a_walk_reads_small_indexes() {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(2))
            .await
            .unwrap();
        ledger.migrate().await.unwrap();
        let values = "'vase-1', '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
        for sql in ["SELECT 1"].into_iter().chain(SALE).chain(["ANALYZE"]) {
            sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
            let plan = plan(&ledger.reads, COUNTS, values).await;
            for index in ["orders_rejected", "orders_refund_due"] {
                assert!(plan.contains(index), "{sql}:\n{plan}");
            }
            for other in ["orders_pkey", "Seq Scan on orders"] {
                assert!(!plan.contains(other), "{sql}:\n{plan}");
            }
        }
    }
}
