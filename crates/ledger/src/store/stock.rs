//! Transfers: their statements, for either database.

use async_trait::async_trait;
use domain::{Item, ItemId, Memory, OrderId, SegmentKey, TransferId, Wave};

use super::{
    Store, Transaction, begin, bind_rows, id_list, id_value, items, lend, notes, repair,
    sql::{journal, stock as sql},
    step_reads,
};
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
impl StockOperations for Store {
    async fn create_item_by(
        &self,
        item: &Item,
        actor: Option<&str>,
    ) -> Result<Created, LedgerError> {
        items::create(begin(self).await?, item, actor).await
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        item::change_item(begin(self).await?, id, change, expected, actor).await
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
        stock::change_stock(begin(self).await?, id, change, requested, expected, actor).await
    }

    async fn add_wave(
        &self,
        item: &Item,
        wave: &Wave,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        wave::add(begin(self).await?, item, wave, actor).await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        items::claim(&mut *lend(self).await?, id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        stock::plan(begin(self).await?, id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        let rows = sqlx::query_as::<_, TransferColumns>(sql::OPEN_TRANSFERS);
        rows.bind(item.map(ItemId::as_str))
            .fetch_all(step_reads(self))
            .await?
            .into_iter()
            .map(Transfer::try_from)
            .collect()
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        let rows = sqlx::query_as::<_, TransferColumns>(sql::TRANSFERS);
        rows.bind(id_list(column(ids, |id| id.as_uuid()))?)
            .fetch_all(step_reads(self))
            .await?
            .into_iter()
            .map(Transfer::try_from)
            .collect()
    }

    async fn finish_withdrawal(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        stock::finish_withdrawal(begin(self).await?, transfer, token, actor).await
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
        repair::claim(self, segments, token).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        let added = notes::add(&mut *lend(self).await?, entry, None).await;
        added.map(drop)
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        notes::add_only_once(self, entry, once).await
    }

    async fn is_noted(&self, item: &ItemId, once: &str) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(journal::IS_NOTED);
        let noted = noted.bind(item.as_str()).bind(once);
        Ok(noted.fetch_one(step_reads(self)).await?)
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn add_transfers(
        &mut self,
        transfers: &[Transfer],
        token: Option<u64>,
        requested: Option<u64>,
    ) -> Result<usize, LedgerError> {
        let added = sqlx::query(sql::ADD_TRANSFERS);
        let added = bind_rows!(added, transfers, |transfer| (
            id_value(transfer.id.as_uuid()),
            transfer.item.as_str(),
            transfer.from.map(i32::from),
            transfer.to.map(i32::from),
            signed(transfer.quantity),
            signed(transfer.moved),
            transfer.state.as_str(),
            transfer.since.as_millisecond(),
        ));
        let added = added.bind(token.map(signed)).bind(requested.map(signed));
        let added = added.execute(&mut **self).await?;
        Ok(usize::try_from(added.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn belong_to_other_change(
        &mut self,
        transfers: &[Transfer],
        requested: u64,
    ) -> Result<bool, LedgerError> {
        let another = sqlx::query_scalar::<_, bool>(sql::BELONG_TO_OTHER_CHANGE);
        let another = bind_rows!(another, transfers, |transfer| (
            id_value(transfer.id.as_uuid()),
            transfer.from.is_none()
        ));
        let another = another.bind(signed(requested));
        Ok(another.fetch_one(&mut **self).await?)
    }

    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError> {
        let moved = sqlx::query_scalar::<_, i64>(sql::FINISH)
            .bind(transfer.id.as_uuid())
            .bind(transfer.item.as_str());
        moved
            .fetch_optional(&mut **self)
            .await?
            .map(|moved| unsigned("moved", moved))
            .transpose()
    }
}
