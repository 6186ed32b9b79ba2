//! Claiming segments and recording them, on PostgreSQL.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use domain::{Entry, EntryId, Item, ItemId, OrderId, SegmentKey, TransferId};
use jiff::Timestamp;
use sqlx::{PgPool, error::DatabaseError};
use uuid::Uuid;

use super::{
    PostgresLedger, Transaction, bind_events, connections, insert_events, item_columns, items,
    segment_columns, transfer_columns,
};
use crate::{
    ChangedItem, Claim, LedgerError, PendingReturn, Recorded, Recording, SegmentReplay, SegmentRow,
    Transfer,
    columns::{
        ClaimedColumns, LiveColumns, ReacquiredColumns, ReturnColumns, SegmentColumns,
        TermsColumns, TransferColumns, checkpoint, claimed, index_and_units, segment_key,
    },
    convert::{column, parsed, signed, unsigned},
    events::{EventRows, NewEvent},
    recording,
    statements::{Expected, Move, NewOrders, ReacquiredOrder, Shapes, Statements},
    terms::{Terms, UsageQuery},
    transaction::Transact,
};

/// The columns of an item in the list that workers keep.
macro_rules! live_items {
    () => {
        concat!(
            "SELECT ",
            item_columns!(),
            ", (extract(epoch FROM closed_at) * 1000)::bigint AS closed_ms, archive_by, keys_removed_at IS NULL AS is_live, \
             (SELECT item_changes.version FROM item_changes WHERE item_changes.item = items.id) AS change FROM items WHERE "
        )
    };
}

/// The items whose last change has this version or a higher one.
const CHANGED: &str = concat!(
    live_items!(),
    "id IN (SELECT item_changes.item FROM item_changes WHERE item_changes.version >= $1)"
);

/// Items that have keys in Redis.
const LIVE: &str = concat!(live_items!(), "keys_removed_at IS NULL");

/// Whether an item has open work.
macro_rules! has_open_work {
    ($id:literal) => {
        concat!(
            "(EXISTS (SELECT FROM segments WHERE segments.item = ",
            $id,
            " AND segments.held + segments.\"returning\" > 0) \
             OR EXISTS (SELECT FROM transfers WHERE transfers.item = ",
            $id,
            " AND transfers.state <> 'done'))"
        )
    };
}

const AT_WORK: &str = concat!(
    "SELECT id FROM items WHERE keys_removed_at IS NULL AND (state <> 'closed' OR ",
    has_open_work!("items.id"),
    ")"
);

const HAS_OPEN_WORK: &str = concat!("SELECT ", has_open_work!("$1"));

const CHECKPOINTS: &str =
    "SELECT item, segment::bigint, checkpoint FROM segments WHERE NOT archived";

const CHECKPOINTS_OF: &str = "SELECT item, segment::bigint, checkpoint FROM segments \
     WHERE item = ANY($1) AND NOT archived";

const UNRECORDED: &str =
    "SELECT item, segment::bigint FROM segments WHERE checkpoint IS NULL AND NOT archived";

#[async_trait]
impl Recording for PostgresLedger {
    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as(CHECKPOINTS).fetch_all(&self.pool).await?;
        rows.into_iter().map(checkpoint).collect()
    }

    async fn checkpoints_of(
        &self,
        items: &[&ItemId],
    ) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as(CHECKPOINTS_OF)
            .bind(column(items, |item| item.as_str()))
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(checkpoint).collect()
    }

    async fn unrecorded_segments(&self) -> Result<Vec<SegmentKey>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(UNRECORDED);
        let rows = rows.fetch_all(&self.pool).await?.into_iter();
        rows.map(|(item, segment)| segment_key(&item, segment))
            .collect()
    }

    async fn changed_items(&self, from: Option<u64>) -> Result<Vec<ChangedItem>, LedgerError> {
        let query = match from {
            Some(from) => sqlx::query_as::<_, LiveColumns>(CHANGED).bind(signed(from)),
            None => sqlx::query_as(LIVE),
        };
        let rows = query.fetch_all(&self.pool).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    async fn items_at_work(&self) -> Result<Vec<ItemId>, LedgerError> {
        let ids: Vec<String> = sqlx::query_scalar(AT_WORK).fetch_all(&self.pool).await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn has_open_work(&self, item: &ItemId) -> Result<bool, LedgerError> {
        let found = sqlx::query_scalar(HAS_OPEN_WORK).bind(item.as_str());
        Ok(found.fetch_one(&self.pool).await?)
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        claim(&self.pool, wanted, at_most).await
    }

    async fn rehearse(&self, item: &Item, entries: Vec<Entry>) -> Result<Recorded, LedgerError> {
        let mut transaction = connections::begin(&self.pool).await?;
        items::insert(&mut transaction, item).await?;
        let key = SegmentKey {
            item: item.id.clone(),
            segment: 0,
        };
        let mut rows = lock_rows(&mut transaction, &[key]).await?;
        recording::rehearse(transaction, item, rows.pop(), entries).await
    }
}

struct PostgresClaim {
    pool: PgPool,
    transaction: Transaction,
    rows: Vec<SegmentRow>,
    shapes: Shapes,
}

/// The key of a segment's turn. Its high bits are a hash of the segment's name with our prefix, so
/// that it differs from other advisory locks of the database.
macro_rules! turn {
    ($item:literal, $segment:literal) => {
        concat!(
            "hashtextextended('stockade segment ' || ",
            $item,
            " || ':' || ",
            $segment,
            ", 0)"
        )
    };
}
pub(super) use turn;

/// Recorders share the segments instead of queueing for them. A recorder or a repair holds the
/// segment's turn, an advisory lock, and other recorders skip the segment. The row's lock cannot
/// serve for this: a transition also holds it for a moment, and a recorder that skipped the segment
/// because of a transition would not come back for it. For the rows, a recorder waits, in the
/// common lock order (`$3`).
const CLAIM: &str = concat!(
    "WITH wanted AS MATERIALIZED ( \
        SELECT of_item, number, rank \
        FROM UNNEST($1::text[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS wanted (of_item, number, rank, place) \
        JOIN segments ON item = of_item AND segment = number ORDER BY place), \
     mine AS MATERIALIZED (SELECT * FROM wanted WHERE pg_try_advisory_xact_lock(",
    turn!("of_item", "number"),
    ") LIMIT $4) SELECT ",
    segment_columns!(),
    ", (SELECT items.segments::bigint FROM items WHERE items.id = of_item) AS width, (SELECT items.hold_seconds FROM items WHERE items.id = of_item) AS hold_seconds FROM mine JOIN segments ON item = of_item AND segment = number WHERE NOT archived ORDER BY rank FOR UPDATE OF segments",
);

pub(super) async fn claim(
    pool: &PgPool,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<Box<dyn Claim>>, LedgerError> {
    Ok(open(pool, wanted, at_most)
        .await?
        .map(|claim| Box::new(claim) as Box<dyn Claim>))
}

async fn open(
    pool: &PgPool,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<PostgresClaim>, LedgerError> {
    let mut transaction = connections::begin(pool).await?;
    let found = sqlx::query_as::<_, ClaimedColumns>(CLAIM)
        .bind(column(wanted, |key| key.item.as_str()))
        .bind(column(wanted, |key| i32::from(key.segment)))
        .bind(ranks(wanted))
        .bind(signed(at_most as u64))
        .fetch_all(&mut *transaction)
        .await?;
    let (mut rows, shapes) = claimed(found)?;
    if rows.is_empty() {
        transaction.roll_back().await;
        return Ok(None);
    }
    let places: HashMap<_, _> = wanted
        .iter()
        .enumerate()
        .map(|(place, key)| (key, place))
        .collect();
    rows.sort_by_key(|row| places.get(&row.key).copied());
    Ok(Some(PostgresClaim {
        pool: pool.clone(),
        transaction,
        rows,
        shapes,
    }))
}

/// The rank of each key among all of them.
fn ranks(keys: &[SegmentKey]) -> Vec<i64> {
    let sorted: BTreeSet<_> = keys.iter().collect();
    let ranks: HashMap<_, _> = sorted.into_iter().zip(0..).collect();
    keys.iter()
        .filter_map(|key| ranks.get(key).copied())
        .collect()
}

/// Locks rows in the given order, waiting for transactions that have them.
pub(super) async fn lock_rows(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
        "SELECT ",
        segment_columns!(),
        " FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place) \
           JOIN segments ON item = of_item AND segment = number ORDER BY place FOR UPDATE OF segments",
    ));
    let rows = rows
        .bind(column(sorted, |key| key.item.as_str()))
        .bind(column(sorted, |key| i32::from(key.segment)));
    rows.fetch_all(&mut **transaction)
        .await?
        .into_iter()
        .map(SegmentRow::try_from)
        .collect()
}

#[async_trait]
impl Claim for PostgresClaim {
    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn record(
        self: Box<Self>,
        replays: Vec<SegmentReplay>,
    ) -> Result<Vec<Recorded>, LedgerError> {
        let Self {
            pool,
            transaction,
            shapes,
            ..
        } = *self;
        match recording::record(transaction, &replays, &shapes, Expected::New).await {
            Err(LedgerError::Known) => record_again(&pool, replays).await,
            recorded => recorded,
        }
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

/// Handles a batch with orders that are recorded already, because they stand in two outboxes or
/// because the batch is a repeat. It claims the segments again and replays the entries over the
/// rows as they are now. A payment may have changed the counters in the meantime; the entries still
/// follow from the row.
async fn record_again(
    pool: &PgPool,
    replays: Vec<SegmentReplay>,
) -> Result<Vec<Recorded>, LedgerError> {
    let segments = column(&replays, |replay| replay.row.key.clone());
    let first = segments.first().cloned().ok_or(sqlx::Error::RowNotFound)?;
    let Some(PostgresClaim {
        transaction,
        rows,
        shapes,
        ..
    }) = open(pool, &segments, segments.len()).await?
    else {
        return Err(LedgerError::Superseded(first));
    };
    match on_top_of(rows, replays) {
        Ok(replays) => recording::record(transaction, &replays, &shapes, Expected::Any).await,
        Err(superseded) => {
            transaction.roll_back().await;
            Err(superseded)
        }
    }
}

/// The same entries over these newer rows, if they still follow from each row.
fn on_top_of(
    rows: Vec<SegmentRow>,
    replays: Vec<SegmentReplay>,
) -> Result<Vec<SegmentReplay>, LedgerError> {
    let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
    let on_top = |SegmentReplay {
                      row: before,
                      entries,
                  }: SegmentReplay| {
        let is_same = |row: &SegmentRow| {
            (row.checkpoint, row.anchor, row.fence)
                == (before.checkpoint, before.anchor, before.fence)
        };
        let row = rows.remove(&before.key).filter(is_same);
        row.map(|row| SegmentReplay { row, entries })
            .ok_or(LedgerError::Superseded(before.key))
    };
    replays.into_iter().map(on_top).collect()
}

/// Fails on a duplicate, together with the transaction. Duplicates are rare, and this takes two
/// thirds of the time of an insert that tolerates them; a savepoint would be another round trip.
const INSERT: &str = "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at, created_at, price) \
    SELECT id, item, segment, buyer, quantity, 'held', to_timestamp(expires_ms::double precision / 1000), to_timestamp(created_ms::double precision / 1000), price \
    FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]) \
        AS new (id, item, segment, buyer, quantity, expires_ms, created_ms, price)";

/// Returns the ids only if some of them existed already.
const INSERT_MISSING: &str = "WITH inserted AS ( \
        INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at, created_at, price) \
        SELECT id, item, segment, buyer, quantity, 'held', to_timestamp(expires_ms::double precision / 1000), to_timestamp(created_ms::double precision / 1000), price \
        FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]) \
            AS new (id, item, segment, buyer, quantity, expires_ms, created_ms, price) \
        ON CONFLICT (id) DO NOTHING RETURNING id) \
    SELECT count(*), CASE WHEN count(*) < $9 THEN coalesce(array_agg(id), '{}') END FROM inserted";

async fn insert_new(
    transaction: &mut Transaction,
    orders: &NewOrders<'_>,
    ids: &[Uuid],
) -> Result<(), LedgerError> {
    let inserted = sqlx::query(INSERT)
        .bind(ids)
        .bind(&orders.items)
        .bind(&orders.segments)
        .bind(&orders.buyers)
        .bind(&orders.quantities)
        .bind(&orders.expires_ms)
        .bind(&orders.created_ms)
        .bind(&orders.prices)
        .execute(&mut **transaction)
        .await;
    match inserted {
        Err(error)
            if error
                .as_database_error()
                .is_some_and(DatabaseError::is_unique_violation) =>
        {
            Err(LedgerError::Known)
        }
        inserted => Ok(inserted.map(drop)?),
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn insert(
        &mut self,
        orders: &NewOrders<'_>,
        expected: Expected,
    ) -> Result<HashSet<OrderId>, LedgerError> {
        let ids: Vec<Uuid> = orders.ids.iter().map(OrderId::as_uuid).collect();
        if expected == Expected::New {
            return insert_new(self, orders, &ids)
                .await
                .map(|()| HashSet::new());
        }
        let (_, inserted) = sqlx::query_as::<_, (i64, Option<Vec<Uuid>>)>(INSERT_MISSING)
            .bind(&ids)
            .bind(&orders.items)
            .bind(&orders.segments)
            .bind(&orders.buyers)
            .bind(&orders.quantities)
            .bind(&orders.expires_ms)
            .bind(&orders.created_ms)
            .bind(&orders.prices)
            .bind(signed(ids.len() as u64))
            .fetch_one(&mut **self)
            .await?;
        let Some(inserted) = inserted else {
            return Ok(HashSet::new());
        };
        let inserted: HashSet<_> = inserted.into_iter().map(OrderId::from).collect();
        Ok(orders
            .ids
            .iter()
            .copied()
            .filter(|id| !inserted.contains(id))
            .collect())
    }

    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError> {
        let ids: Vec<Uuid> = orders.iter().map(OrderId::as_uuid).collect();
        sqlx::query("UPDATE orders SET state = 'rejected' WHERE id = ANY($1)")
            .bind(ids)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn limits_of(
        &mut self,
        items: &BTreeMap<&ItemId, bool>,
    ) -> Result<Vec<Terms>, LedgerError> {
        let rows = sqlx::query_as::<_, TermsColumns>(
            "SELECT id, limit_per_buyer, limit_before, lowered_ms, is_without_spillover FROM limits_of($1::text[], $2::boolean[])",
        );
        let rows = rows
            .bind(column(items.keys(), |item| item.as_str()))
            .bind(column(items.values(), |alone| *alone));
        rows.fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(Terms::try_from)
            .collect()
    }

    async fn mark_spillover(&mut self, items: &[&ItemId]) -> Result<(), LedgerError> {
        let deleted = sqlx::query("DELETE FROM items_without_spillover WHERE item = ANY($1)");
        deleted
            .bind(column(items, |item| item.as_str()))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn usage_of(
        &mut self,
        queries: &[UsageQuery<'_>],
    ) -> Result<Vec<(usize, u64)>, LedgerError> {
        let held = sqlx::query_as::<_, (i64, i64)>(
            "SELECT place - 1, sum(quantity)::bigint \
             FROM UNNEST($1::text[], $2::text[], $3::uuid[], $4::uuid[]) WITH ORDINALITY AS asked (of_item, of_buyer, first, last, place) \
             JOIN orders ON id BETWEEN first AND last AND item = of_item AND buyer = of_buyer AND state IN ('held', 'confirmed') \
             GROUP BY place",
        )
        .bind(column(queries, |query| query.item.as_str()))
        .bind(column(queries, |query| query.buyer.as_str()))
        .bind(column(queries, |query| query.range[0].as_uuid()))
        .bind(column(queries, |query| query.range[1].as_uuid()))
        .fetch_all(&mut **self)
        .await?;
        held.into_iter().map(index_and_units).collect()
    }

    async fn lock_orders(
        &mut self,
        ids: &BTreeSet<OrderId>,
    ) -> Result<Vec<ReacquiredOrder>, LedgerError> {
        let rows = sqlx::query_as::<_, ReacquiredColumns>(
            "SELECT id, state, attempt::bigint, segment::bigint, quantity, (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms \
             FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE",
        );
        let rows = rows
            .bind(column(ids, OrderId::as_uuid))
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(ReacquiredOrder::try_from).collect()
    }

    async fn reacquire(
        &mut self,
        orders: &BTreeMap<OrderId, ReacquiredOrder>,
    ) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE orders AS o SET state = new.state, attempt = new.attempt, segment = new.segment, \
                    expires_at = to_timestamp(new.expires_ms::double precision / 1000), version = o.version + 1 \
             FROM UNNEST($1::uuid[], $2::text[], $3::smallint[], $4::integer[], $5::bigint[]) AS new (id, state, attempt, segment, expires_ms) \
             WHERE o.id = new.id",
        )
        .bind(column(orders.values(), |order| order.id.as_uuid()))
        .bind(column(orders.values(), |order| order.state.as_str()))
        .bind(column(orders.values(), |order| i16::from(order.attempt)))
        .bind(column(orders.values(), |order| i32::from(order.segment)))
        .bind(column(orders.values(), |order| order.expires_ms))
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn take_returns(
        &mut self,
        returned: &BTreeMap<OrderId, &SegmentKey>,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        let rows = sqlx::query_as::<_, ReturnColumns>(
            "DELETE FROM returns AS r USING UNNEST($1::uuid[], $2::text[], $3::integer[]) AS back (id, item, segment) \
             WHERE r.id = back.id AND r.item = back.item AND r.segment = back.segment \
             RETURNING r.id, r.item, r.segment::bigint, r.buyer, r.quantity",
        )
        .bind(column(returned.keys(), OrderId::as_uuid))
        .bind(column(returned.values(), |key| key.item.to_string()))
        .bind(column(returned.values(), |key| i32::from(key.segment)));
        rows.fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(PendingReturn::try_from)
            .collect()
    }

    async fn add_returns(
        &mut self,
        returns: &[PendingReturn],
        since: Timestamp,
    ) -> Result<(), LedgerError> {
        sqlx::query(
            "INSERT INTO returns (id, item, segment, buyer, quantity, since) \
             SELECT id, item, segment, buyer, quantity, to_timestamp($6::double precision / 1000) \
             FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[]) AS new (id, item, segment, buyer, quantity)",
        )
        .bind(column(returns, |back| back.id.as_uuid()))
        .bind(column(returns, |back| back.segment.item.to_string()))
        .bind(column(returns, |back| i32::from(back.segment.segment)))
        .bind(column(returns, |back| back.buyer.to_string()))
        .bind(column(returns, |back| i64::from(back.quantity.get())))
        .bind(since.as_millisecond())
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn lock_transfers(
        &mut self,
        ids: &BTreeSet<TransferId>,
    ) -> Result<Vec<Transfer>, LedgerError> {
        let rows = sqlx::query_as::<_, TransferColumns>(concat!(
            "SELECT ",
            transfer_columns!(),
            " FROM transfers WHERE id = ANY($1) ORDER BY id FOR UPDATE",
        ));
        let rows = rows
            .bind(column(ids, TransferId::as_uuid))
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(Transfer::try_from).collect()
    }

    async fn move_transfers(
        &mut self,
        transfers: &BTreeMap<TransferId, Transfer>,
    ) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE transfers AS t SET state = new.state, moved = new.moved \
             FROM UNNEST($1::uuid[], $2::text[], $3::bigint[]) AS new (id, state, moved) WHERE t.id = new.id",
        )
        .bind(column(transfers.values(), |transfer| transfer.id.as_uuid()))
        .bind(column(transfers.values(), |transfer| transfer.state.as_str()))
        .bind(column(transfers.values(), |transfer| signed(transfer.moved)))
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// The events come first, so that a transaction without any has the same statement.
    async fn compare_and_set(
        &mut self,
        moves: &[Move],
        events: &[NewEvent],
    ) -> Result<Vec<usize>, LedgerError> {
        let events = EventRows::of(events);
        let moved = sqlx::query_scalar::<_, i64>(concat!(
            "WITH happened AS (",
            insert_events!(),
            ") UPDATE segments AS s SET allocated = new.allocated, available = new.available, held = new.held, confirmed = new.confirmed, \
                    \"returning\" = new.back, checkpoint = new.checkpoint, anchor = new.anchor, fence = new.fence, version = s.version + 1 \
             FROM UNNEST($8::text[], $9::integer[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], \
                         $16::bigint[], $17::text[], $18::bigint[], $19::bigint[]) \
                 WITH ORDINALITY AS new (item, segment, version, old_checkpoint, allocated, available, held, confirmed, back, checkpoint, \
                                         anchor, fence, place) \
             WHERE s.item = new.item AND s.segment = new.segment \
               AND s.version = new.version AND s.checkpoint IS NOT DISTINCT FROM new.old_checkpoint \
             RETURNING new.place - 1",
        ));
        let moved = bind_events!(moved, events)
            .bind(column(moves, |row| row.before.key.item.to_string()))
            .bind(column(moves, |row| i32::from(row.before.key.segment)))
            .bind(column(moves, |row| signed(row.before.version)))
            .bind(column(moves, |row| {
                row.before.checkpoint.map(|id| id.to_string())
            }))
            .bind(column(moves, |row| signed(row.after.allocated)))
            .bind(column(moves, |row| signed(row.after.available)))
            .bind(column(moves, |row| signed(row.after.held)))
            .bind(column(moves, |row| signed(row.after.confirmed)))
            .bind(column(moves, |row| signed(row.after.returning)))
            .bind(column(moves, |row| {
                row.after.checkpoint.map(|id| id.to_string())
            }))
            .bind(column(moves, |row| row.after.anchor))
            .bind(column(moves, |row| signed(row.after.fence)))
            .fetch_all(&mut **self)
            .await?;
        moved
            .into_iter()
            .map(|place| unsigned("place", place))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use domain::EntryId;

    use super::on_top_of;
    use crate::{LedgerError, SegmentReplay, SegmentRow};

    fn row(segment: &str, checkpoint: u64, version: u64, available: u64) -> SegmentRow {
        SegmentRow {
            key: segment.parse().unwrap(),
            allocated: 9,
            available,
            held: 9 - available,
            confirmed: 0,
            returning: 0,
            checkpoint: Some(EntryId {
                ms: checkpoint,
                seq: 0,
            }),
            anchor: Some(7),
            version,
            fence: 0,
        }
    }

    #[test]
    fn entries_go_on_top_of_a_row_that_a_payment_has_changed_and_of_none_that_was_recorded() {
        let replays = || {
            vec![SegmentReplay {
                row: row("vase:0", 1, 3, 5),
                entries: Vec::new(),
            }]
        };
        let paid = row("vase:0", 1, 4, 6);
        let on_top = on_top_of(vec![paid.clone()], replays()).unwrap();
        assert_eq!(
            (on_top.len(), on_top[0].row.version, on_top[0].row.available),
            (1, 4, 6)
        );
        for other in [
            row("vase:0", 2, 4, 4),
            SegmentRow {
                anchor: Some(8),
                ..paid.clone()
            },
            SegmentRow { fence: 1, ..paid },
            row("vase:1", 1, 3, 5),
        ] {
            let superseded = on_top_of(vec![other], replays());
            assert!(
                matches!(&superseded, Err(LedgerError::Superseded(key)) if key.segment == 0),
                "{:?}",
                superseded.is_ok()
            );
        }
    }
}
