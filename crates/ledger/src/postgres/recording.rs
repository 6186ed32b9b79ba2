//! Claiming segments and recording them, on PostgreSQL.

use std::collections::HashSet;

use async_trait::async_trait;
use domain::{OrderId, SegmentKey};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Transaction, segment_columns};
use crate::{
    Claim, LedgerError, Recorded, SegmentReplay, SegmentRow,
    convert::{SegmentColumns, signed, unsigned},
    recording::{self, Move, NewOrders, Statements},
};

struct PostgresClaim {
    transaction: Transaction,
    rows: Vec<SegmentRow>,
}

/// `SKIP LOCKED`: recorders share the segments instead of queueing for them.
pub(super) async fn claim(pool: &PgPool, wanted: &[SegmentKey], at_most: usize) -> Result<Option<Box<dyn Claim>>, LedgerError> {
    let (items, segments): (Vec<_>, Vec<_>) = wanted.iter().map(|key| (key.item.as_str(), i32::from(key.segment))).unzip();
    let mut transaction = pool.begin().await?;
    let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
        "SELECT ",
        segment_columns!(),
        " FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place) \
           JOIN segments ON item = of_item AND segment = number ORDER BY place LIMIT $3 FOR UPDATE OF segments SKIP LOCKED",
    ));
    let rows = rows.bind(items).bind(segments).bind(signed(at_most as u64)).fetch_all(&mut *transaction).await?;
    let rows: Vec<_> = rows.into_iter().map(SegmentRow::try_from).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(PostgresClaim { transaction, rows })))
}

#[async_trait]
impl Claim for PostgresClaim {
    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn record(self: Box<Self>, replays: Vec<SegmentReplay>) -> Result<Vec<Recorded>, LedgerError> {
        recording::record(self.transaction, replays).await
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

/// Below this, the savepoint costs more than it saves.
const WORTH_A_SAVEPOINT: usize = 64;

/// A duplicate fails it. Nearly always there is none, and then this takes two thirds of the time of an insert that is prepared for one.
const INSERT: &str = "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
    SELECT id, item, segment, buyer, quantity, 'held', to_timestamp(expires_ms::double precision / 1000) \
    FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[]) \
        AS new (id, item, segment, buyer, quantity, expires_ms)";

/// The ids come back only if some of them were there already.
const INSERT_THE_NEW: &str = "WITH inserted AS ( \
        INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
        SELECT id, item, segment, buyer, quantity, 'held', to_timestamp(expires_ms::double precision / 1000) \
        FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[]) \
            AS new (id, item, segment, buyer, quantity, expires_ms) \
        ON CONFLICT (id) DO NOTHING RETURNING id) \
    SELECT count(*), CASE WHEN count(*) < $7 THEN coalesce(array_agg(id), '{}') END FROM inserted";

/// Whether all of them were new. If not, none is inserted.
async fn insert_all(transaction: &mut Transaction, orders: &NewOrders, ids: &[Uuid]) -> Result<bool, LedgerError> {
    sqlx::query("SAVEPOINT all_new").execute(&mut **transaction).await?;
    let inserted = sqlx::query(INSERT)
        .bind(ids)
        .bind(&orders.items)
        .bind(&orders.segments)
        .bind(&orders.buyers)
        .bind(&orders.quantities)
        .bind(&orders.expires_ms)
        .execute(&mut **transaction)
        .await;
    match inserted {
        Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => {
            sqlx::query("ROLLBACK TO SAVEPOINT all_new").execute(&mut **transaction).await?;
            Ok(false)
        }
        inserted => Ok(inserted.map(|_| true)?),
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn insert(&mut self, orders: &NewOrders) -> Result<HashSet<OrderId>, LedgerError> {
        let ids: Vec<Uuid> = orders.ids.iter().map(OrderId::as_uuid).collect();
        if ids.len() >= WORTH_A_SAVEPOINT && insert_all(self, orders, &ids).await? {
            return Ok(HashSet::new());
        }
        let (_, inserted) = sqlx::query_as::<_, (i64, Option<Vec<Uuid>>)>(INSERT_THE_NEW)
            .bind(&ids)
            .bind(&orders.items)
            .bind(&orders.segments)
            .bind(&orders.buyers)
            .bind(&orders.quantities)
            .bind(&orders.expires_ms)
            .bind(signed(ids.len() as u64))
            .fetch_one(&mut **self)
            .await?;
        let Some(inserted) = inserted else { return Ok(HashSet::new()) };
        let inserted: HashSet<_> = inserted.into_iter().map(OrderId::from).collect();
        Ok(orders.ids.iter().copied().filter(|id| !inserted.contains(id)).collect())
    }

    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError> {
        let ids: Vec<Uuid> = orders.iter().map(OrderId::as_uuid).collect();
        sqlx::query("UPDATE orders SET state = 'rejected' WHERE id = ANY($1)").bind(ids).execute(&mut **self).await?;
        Ok(())
    }

    async fn compare_and_set(&mut self, moves: &[Move]) -> Result<Vec<usize>, LedgerError> {
        fn column<T>(moves: &[Move], value: impl Fn(&Move) -> T) -> Vec<T> {
            moves.iter().map(value).collect()
        }
        let moved = sqlx::query_scalar::<_, i64>(
            "UPDATE segments AS s SET available = new.available, held = new.held, confirmed = new.confirmed, \
                    checkpoint = new.checkpoint, anchor = new.anchor, version = s.version + 1 \
             FROM UNNEST($1::text[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[]) \
                 WITH ORDINALITY AS new (item, segment, version, old_checkpoint, available, held, confirmed, checkpoint, anchor, place) \
             WHERE s.item = new.item AND s.segment = new.segment \
               AND s.version = new.version AND s.checkpoint IS NOT DISTINCT FROM new.old_checkpoint \
             RETURNING new.place - 1",
        )
        .bind(column(moves, |row| row.before.key.item.to_string()))
        .bind(column(moves, |row| i32::from(row.before.key.segment)))
        .bind(column(moves, |row| signed(row.before.version)))
        .bind(column(moves, |row| row.before.checkpoint.map(|id| id.to_string())))
        .bind(column(moves, |row| signed(row.after.available)))
        .bind(column(moves, |row| signed(row.after.held)))
        .bind(column(moves, |row| signed(row.after.confirmed)))
        .bind(column(moves, |row| row.after.checkpoint.map(|id| id.to_string())))
        .bind(column(moves, |row| row.after.anchor))
        .fetch_all(&mut **self)
        .await?;
        moved.into_iter().map(|place| unsigned("place", place)).collect()
    }

    async fn commit(self) -> Result<(), LedgerError> {
        Ok(Transaction::commit(self).await?)
    }

    async fn roll_back(self) {
        // If the connection is gone, so is the transaction.
        let _ = self.rollback().await;
    }
}
