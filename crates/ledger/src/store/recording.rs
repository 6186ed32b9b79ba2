//! Recording: the statements, for either database. Claims of segments stay apart, and so do the two
//! statements of every batch.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{Entry, EntryId, Item, ItemId, OrderId, SegmentKey, TransferId};
use jiff::Timestamp;

use super::{
    HAS_ONE_WRITER, Store, Transaction, batches, begin, bind_rows, claims, id_list, id_value,
    items, list, sql::recording as sql, step_reads,
};
use crate::{
    ChangedItem, Claim, LedgerError, PendingReturn, Recorded, Recording, Transfer,
    columns::{
        LiveColumns, ReacquiredColumns, ReturnColumns, TermsColumns, TransferColumns, checkpoint,
        index_and_units, segment_key,
    },
    convert::{column, parsed, signed},
    events::NewEvent,
    recording,
    statements::{Expected, Move, NewOrders, ReacquiredOrder, Statements},
    terms::{Terms, UsageQuery},
};

#[async_trait]
impl Recording for Store {
    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as(sql::CHECKPOINTS);
        let rows = rows.fetch_all(step_reads(self)).await?;
        rows.into_iter().map(checkpoint).collect()
    }

    async fn checkpoints_of(
        &self,
        items: &[&ItemId],
    ) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as(sql::CHECKPOINTS_OF)
            .bind(list(column(items, |item| item.as_str()))?)
            .fetch_all(step_reads(self))
            .await?;
        rows.into_iter().map(checkpoint).collect()
    }

    async fn unrecorded_segments(&self) -> Result<Vec<SegmentKey>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(sql::UNRECORDED);
        let rows = rows.fetch_all(step_reads(self)).await?.into_iter();
        rows.map(|(item, segment)| segment_key(&item, segment))
            .collect()
    }

    async fn changed_items(&self, from: Option<u64>) -> Result<Vec<ChangedItem>, LedgerError> {
        let query = match from {
            Some(from) => sqlx::query_as::<_, LiveColumns>(sql::CHANGED).bind(signed(from)),
            None => sqlx::query_as(sql::LIVE),
        };
        let rows = query.fetch_all(step_reads(self)).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    async fn items_at_work(&self) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar::<_, String>(sql::AT_WORK);
        let ids = ids.fetch_all(step_reads(self)).await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn has_open_work(&self, item: &ItemId) -> Result<bool, LedgerError> {
        let found = sqlx::query_scalar::<_, bool>(sql::HAS_OPEN_WORK).bind(item.as_str());
        Ok(found.fetch_one(step_reads(self)).await?)
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        claims::claim(self, wanted, at_most).await
    }

    fn has_one_writer(&self) -> bool {
        HAS_ONE_WRITER
    }

    async fn rehearse(&self, item: &Item, entries: Vec<Entry>) -> Result<Recorded, LedgerError> {
        let mut transaction = begin(self).await?;
        items::insert(&mut transaction, item).await?;
        let key = SegmentKey {
            item: item.id.clone(),
            segment: 0,
        };
        let mut rows = claims::lock_rows(&mut transaction, &[key]).await?;
        recording::rehearse(transaction, item, rows.pop(), entries).await
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn insert(
        &mut self,
        orders: &NewOrders<'_>,
        expected: Expected,
    ) -> Result<HashSet<OrderId>, LedgerError> {
        batches::insert(self, orders, expected).await
    }

    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError> {
        sqlx::query(sql::REJECT)
            .bind(id_list(column(orders, OrderId::as_uuid))?)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn limits_of(
        &mut self,
        items: &BTreeMap<&ItemId, bool>,
    ) -> Result<Vec<Terms>, LedgerError> {
        let rows = sqlx::query_as::<_, TermsColumns>(sql::LIMITS_OF)
            .bind(list(column(items.keys(), |item| item.as_str()))?)
            .bind(list(column(items.values(), |alone| *alone))?);
        let rows = rows.fetch_all(&mut **self).await?;
        rows.into_iter().map(Terms::try_from).collect()
    }

    async fn mark_spillover(&mut self, items: &[&ItemId]) -> Result<(), LedgerError> {
        sqlx::query(sql::MARK_SPILLOVER)
            .bind(list(column(items, |item| item.as_str()))?)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn usage_of(
        &mut self,
        queries: &[UsageQuery<'_>],
    ) -> Result<Vec<(usize, u64)>, LedgerError> {
        let held = sqlx::query_as::<_, (i64, i64)>(sql::USAGE_OF);
        let held = bind_rows!(held, queries, |query| (
            query.item.as_str(),
            query.buyer.as_str(),
            id_value(query.range[0].as_uuid()),
            id_value(query.range[1].as_uuid()),
        ));
        let held = held.fetch_all(&mut **self).await?;
        held.into_iter().map(index_and_units).collect()
    }

    async fn lock_orders(
        &mut self,
        ids: &BTreeSet<OrderId>,
    ) -> Result<Vec<ReacquiredOrder>, LedgerError> {
        let rows = sqlx::query_as::<_, ReacquiredColumns>(sql::LOCK_ORDERS)
            .bind(id_list(column(ids, OrderId::as_uuid))?)
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(ReacquiredOrder::try_from).collect()
    }

    async fn reacquire(
        &mut self,
        orders: &BTreeMap<OrderId, ReacquiredOrder>,
    ) -> Result<(), LedgerError> {
        let reacquired = sqlx::query(sql::REACQUIRE);
        let reacquired = bind_rows!(reacquired, orders.values(), |order| (
            id_value(order.id.as_uuid()),
            order.state.as_str(),
            i16::from(order.attempt),
            i32::from(order.segment),
            order.expires_ms,
        ));
        reacquired.execute(&mut **self).await?;
        Ok(())
    }

    async fn take_returns(
        &mut self,
        returned: &BTreeMap<OrderId, &SegmentKey>,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        let rows = sqlx::query_as::<_, ReturnColumns>(sql::TAKE_RETURNS);
        let rows = bind_rows!(rows, returned, |back| (
            id_value(back.0.as_uuid()),
            back.1.item.as_str(),
            i32::from(back.1.segment),
        ));
        let rows = rows.fetch_all(&mut **self).await?;
        rows.into_iter().map(PendingReturn::try_from).collect()
    }

    async fn add_returns(
        &mut self,
        returns: &[PendingReturn],
        since: Timestamp,
    ) -> Result<(), LedgerError> {
        let added = sqlx::query(sql::ADD_RETURNS);
        let added = bind_rows!(added, returns, |back| (
            id_value(back.id.as_uuid()),
            back.segment.item.as_str(),
            i32::from(back.segment.segment),
            back.buyer.as_str(),
            i64::from(back.quantity.get()),
        ));
        let added = added.bind(since.as_millisecond());
        added.execute(&mut **self).await?;
        Ok(())
    }

    async fn lock_transfers(
        &mut self,
        ids: &BTreeSet<TransferId>,
    ) -> Result<Vec<Transfer>, LedgerError> {
        let rows = sqlx::query_as::<_, TransferColumns>(sql::LOCK_TRANSFERS)
            .bind(id_list(column(ids, TransferId::as_uuid))?)
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(Transfer::try_from).collect()
    }

    async fn move_transfers(
        &mut self,
        transfers: &BTreeMap<TransferId, Transfer>,
    ) -> Result<(), LedgerError> {
        let moved = sqlx::query(sql::MOVE_TRANSFERS);
        let moved = bind_rows!(moved, transfers.values(), |transfer| (
            id_value(transfer.id.as_uuid()),
            transfer.state.as_str(),
            signed(transfer.moved),
        ));
        moved.execute(&mut **self).await?;
        Ok(())
    }

    async fn compare_and_set(
        &mut self,
        moves: &[Move],
        events: &[NewEvent],
    ) -> Result<Vec<usize>, LedgerError> {
        batches::compare_and_set(self, moves, events).await
    }
}
