//! Queries of items, segments and sums, on PostgreSQL.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemTag};

use super::{PostgresLedger, item_columns, items, segment_columns, totals};
use crate::{
    ItemTotals, JournalEntry, LedgerError, Reading, SegmentRow,
    columns::{ItemColumns, SegmentColumns},
};

#[async_trait]
impl Reading for PostgresLedger {
    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        let row = sqlx::query_as::<_, ItemColumns>(concat!(
            "SELECT ",
            item_columns!(),
            " FROM items WHERE id = $1"
        ));
        row.bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?
            .map(Item::try_from)
            .transpose()
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        let rows = sqlx::query_as::<_, ItemColumns>(concat!(
            "SELECT ",
            item_columns!(),
            " FROM items WHERE tag = $1 ORDER BY id"
        ));
        rows.bind(i64::from(tag.0))
            .fetch_all(&self.pool)
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
        items::journal(&self.pool, item, at_most).await
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
            "SELECT ",
            segment_columns!(),
            " FROM segments WHERE item = $1 ORDER BY 2"
        ));
        rows.bind(item.as_str())
            .fetch_all(&self.pool)
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        totals::totals(&self.pool, item).await
    }

    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError> {
        totals::unaccounted(&self.pool, item).await
    }
}
