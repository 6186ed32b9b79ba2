//! Queries of items, segments and sums.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemTag};

use super::{
    Store, items,
    sql::{
        reading::ITEMS_TAGGED,
        totals::{ITEM, SEGMENTS},
    },
    step_reads, totals,
};
use crate::{
    ItemRows, ItemTotals, JournalEntry, LedgerError, Pace, Reading, SegmentRow, Sums,
    columns::{ItemColumns, SegmentColumns},
};

#[async_trait]
impl Reading for Store {
    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        let row = sqlx::query_as::<_, ItemColumns>(ITEM);
        row.bind(id.as_str())
            .fetch_optional(step_reads(self))
            .await?
            .map(Item::try_from)
            .transpose()
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        let rows = sqlx::query_as::<_, ItemColumns>(ITEMS_TAGGED);
        rows.bind(i64::from(tag.0))
            .fetch_all(&self.reads)
            .await?
            .into_iter()
            .map(Item::try_from)
            .collect()
    }

    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError> {
        items::journal(&self.lists, item, at_most).await
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(SEGMENTS);
        rows.bind(item.as_str())
            .fetch_all(step_reads(self))
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn item_rows(&self, item: &ItemId) -> Result<Option<ItemRows>, LedgerError> {
        totals::item_rows(&self.reads, item).await
    }

    async fn walk(
        &self,
        item: &ItemId,
        pace: &dyn Pace,
    ) -> Result<Option<ItemTotals>, LedgerError> {
        totals::walk(&self.audits, item, pace).await
    }

    async fn walk_changes(
        &self,
        item: &ItemId,
        since: &Sums,
    ) -> Result<Option<ItemTotals>, LedgerError> {
        totals::walk_changes(&self.audits, item, since).await
    }

    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError> {
        totals::unaccounted(step_reads(self), item).await
    }
}
