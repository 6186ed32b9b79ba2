//! Transfers, on PostgreSQL.

use async_trait::async_trait;
use domain::{Item, ItemId, Memory, OrderId, SegmentKey, TransferId, Wave};
use sqlx::PgPool;

use super::{PostgresLedger, Transaction, connections, items, notes, repair, transfer_columns};
use crate::{
    Changed, Created, ItemChange, LedgerError, NewJournalEntry, Page, Reading, Repair, StockChange,
    StockOperations, Transfer, TransferPlan,
    changes::{
        item,
        stock::{self, Statements},
        wave,
    },
    columns::TransferColumns,
    convert::{column, signed, unsigned},
};

#[async_trait]
impl StockOperations for PostgresLedger {
    async fn create_item_by(
        &self,
        item: &Item,
        actor: Option<&str>,
    ) -> Result<Created, LedgerError> {
        items::create(connections::begin(&self.pool).await?, item, actor).await
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        item::change_item(
            connections::begin(&self.pool).await?,
            id,
            change,
            expected,
            actor,
        )
        .await
    }

    async fn change_stock_by(
        &self,
        id: &ItemId,
        change: &StockChange,
        requested: u64,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        if self.item(id).await?.is_none() {
            return Ok(Changed::NoItem);
        }
        stock::change_stock(
            connections::begin(&self.pool).await?,
            id,
            change,
            requested,
            expected,
            actor,
        )
        .await
    }

    async fn add_wave(
        &self,
        item: &Item,
        wave: &Wave,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        wave::add(connections::begin(&self.pool).await?, item, wave, actor).await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        items::claim(&self.pool, id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        stock::plan(connections::begin(&self.pool).await?, id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        open_transfers(&self.pool, item).await
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        transfers(&self.pool, ids).await
    }

    async fn finish_withdrawal(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        stock::finish_withdrawal(
            connections::begin(&self.pool).await?,
            transfer,
            token,
            actor,
        )
        .await
    }

    async fn memories(
        &self,
        item: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Memory, OrderId>, LedgerError> {
        repair::memories(&self.lists, item, after, at_most).await
    }

    async fn transfers_of(
        &self,
        item: &ItemId,
        after: Option<TransferId>,
        at_most: usize,
    ) -> Result<Page<Transfer, TransferId>, LedgerError> {
        repair::transfers_of(&self.lists, item, after, at_most).await
    }

    async fn claim_for_repair(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Repair>, LedgerError> {
        repair::claim(&self.pool, segments, token).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        notes::add(&self.pool, entry, None).await.map(drop)
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        notes::add_only_once(self, entry, once).await
    }

    async fn is_noted(&self, item: &ItemId, once: &str) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT 1 FROM journal WHERE item = $1 AND once = $2)",
        );
        let noted = noted.bind(item.as_str()).bind(once);
        Ok(noted.fetch_one(&self.pool).await?)
    }
}

pub(super) async fn open_transfers(
    pool: &PgPool,
    item: Option<&ItemId>,
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE state <> 'done' AND ($1 IS NULL OR item = $1) ORDER BY since, id",
    ));
    rows.bind(item.map(ItemId::as_str))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Transfer::try_from)
        .collect()
}

pub(super) async fn transfers(
    pool: &PgPool,
    ids: &[TransferId],
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE id = ANY($1) ORDER BY id"
    ));
    rows.bind(column(ids, TransferId::as_uuid))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Transfer::try_from)
        .collect()
}

#[async_trait]
impl Statements for Transaction {
    async fn add_transfers(
        &mut self,
        transfers: &[Transfer],
        token: Option<u64>,
        requested: Option<u64>,
    ) -> Result<usize, LedgerError> {
        let added = sqlx::query(
            "INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, token, since, requested) \
             SELECT id, item, from_segment, to_segment, quantity, moved, state, $8, to_timestamp(since_ms::double precision / 1000), $10 \
             FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $9::bigint[]) \
                 AS new (id, item, from_segment, to_segment, quantity, moved, state, since_ms) \
             ORDER BY id ON CONFLICT (id) DO NOTHING",
        )
        .bind(column(transfers, |transfer| transfer.id.as_uuid()))
        .bind(column(transfers, |transfer| transfer.item.to_string()))
        .bind(column(transfers, |transfer| transfer.from.map(i32::from)))
        .bind(column(transfers, |transfer| transfer.to.map(i32::from)))
        .bind(column(transfers, |transfer| signed(transfer.quantity)))
        .bind(column(transfers, |transfer| signed(transfer.moved)))
        .bind(column(transfers, |transfer| transfer.state.as_str()))
        .bind(token.map(signed))
        .bind(column(transfers, |transfer| transfer.since.as_millisecond()))
        .bind(requested.map(signed))
        .execute(&mut **self)
        .await?;
        Ok(usize::try_from(added.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn belong_to_other_change(
        &mut self,
        transfers: &[Transfer],
        requested: u64,
    ) -> Result<bool, LedgerError> {
        let another = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM transfers JOIN UNNEST($1::uuid[], $2::boolean[]) AS this (id, is_new) USING (id) \
                            WHERE requested <> $3 OR (from_segment IS NULL) <> is_new)",
        );
        let another = another
            .bind(column(transfers, |transfer| transfer.id.as_uuid()))
            .bind(column(transfers, |transfer| transfer.from.is_none()))
            .bind(signed(requested));
        Ok(another.fetch_one(&mut **self).await?)
    }

    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError> {
        let moved = sqlx::query_scalar::<_, i64>(
            "UPDATE transfers SET state = 'done' WHERE id = $1 AND item = $2 AND to_segment IS NULL AND state = 'out' RETURNING moved",
        );
        let moved = moved
            .bind(transfer.id.as_uuid())
            .bind(transfer.item.as_str());
        moved
            .fetch_optional(&mut **self)
            .await?
            .map(|moved| unsigned("moved", moved))
            .transpose()
    }
}
