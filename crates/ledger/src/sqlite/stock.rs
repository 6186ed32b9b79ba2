//! Transfers, on SQLite.

use async_trait::async_trait;
use domain::{Item, ItemId, Memory, OrderId, SegmentKey, TransferId, Wave};
use sqlx::SqlitePool;

use super::{SqliteLedger, Transaction, hex, items, json, notes, repair, transfer_columns};
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
impl StockOperations for SqliteLedger {
    async fn create_item_by(
        &self,
        item: &Item,
        actor: Option<&str>,
    ) -> Result<Created, LedgerError> {
        items::create(self.write().await?, item, actor).await
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        item::change_item(self.write().await?, id, change, expected, actor).await
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
        stock::change_stock(self.write().await?, id, change, requested, expected, actor).await
    }

    async fn add_wave(
        &self,
        item: &Item,
        wave: &Wave,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        wave::add(self.write().await?, item, wave, actor).await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        items::claim(&self.writer, id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        stock::plan(self.write().await?, id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        open_transfers(&self.readers, item).await
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        transfers(&self.readers, ids).await
    }

    async fn finish_withdrawal(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        stock::finish_withdrawal(self.write().await?, transfer, token, actor).await
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
        repair::claim(self.write().await?, segments, token).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        notes::add(&self.writer, entry, None).await.map(drop)
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        notes::add_only_once(self, entry, once).await
    }

    async fn is_noted(&self, item: &ItemId, once: &str) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT 1 FROM journal WHERE item = ? AND once = ?)",
        );
        let noted = noted.bind(item.as_str()).bind(once);
        Ok(noted.fetch_one(&self.readers).await?)
    }
}

pub(super) async fn open_transfers(
    pool: &SqlitePool,
    item: Option<&ItemId>,
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE state <> 'done' AND (?1 IS NULL OR item = ?1) ORDER BY since, id",
    ));
    rows.bind(item.map(ItemId::as_str))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Transfer::try_from)
        .collect()
}

pub(super) async fn transfers(
    pool: &SqlitePool,
    ids: &[TransferId],
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?)) ORDER BY id",
    ));
    let ids = column(ids, |id| hex(id.as_uuid()));
    rows.bind(json(&ids)?)
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
        let rows = column(transfers, |transfer| {
            let Transfer {
                id,
                item,
                from,
                to,
                quantity,
                moved,
                state,
                since,
            } = transfer;
            (
                hex(id.as_uuid()),
                item,
                from,
                to,
                quantity,
                moved,
                state.as_str(),
                since.as_millisecond(),
            )
        });
        let added = sqlx::query(
            "INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, since, token, requested) \
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, ?2, ?3 \
             FROM json_each(?1) WHERE true ON CONFLICT (id) DO NOTHING",
        );
        let added = added
            .bind(json(&rows)?)
            .bind(token.map(signed))
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
        let rows = column(transfers, |transfer| {
            (hex(transfer.id.as_uuid()), transfer.from.is_none())
        });
        let another = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT 1 FROM json_each(?1) JOIN transfers ON transfers.id = unhex(value ->> 0) \
                            WHERE requested <> ?2 OR (from_segment IS NULL) <> (value ->> 1))",
        );
        Ok(another
            .bind(json(&rows)?)
            .bind(signed(requested))
            .fetch_one(&mut **self)
            .await?)
    }

    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError> {
        let moved = sqlx::query_scalar::<_, i64>(
            "UPDATE transfers SET state = 'done' WHERE id = ? AND item = ? AND to_segment IS NULL AND state = 'out' RETURNING moved",
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
