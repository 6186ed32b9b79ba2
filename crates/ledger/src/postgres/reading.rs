//! Queries of items, segments and sums, on PostgreSQL.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemTag};

use super::{PostgresLedger, item_columns, items, segment_columns, totals};
use crate::{
    ItemRows, ItemTotals, JournalEntry, LedgerError, Pace, Reading, SegmentRow, Sums,
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
        totals::unaccounted(&self.pool, item).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{ItemId, OrderId, SegmentKey};

    use crate::{
        Ledger, OrderLife, PoolSettings, Reading, Recording,
        postgres::{AUDIT_CONNECTIONS, PostgresLedger},
    };

    const BRIEF: Duration = Duration::from_millis(300);

    #[tokio::test(flavor = "multi_thread")]
    async fn orders_are_found_while_audits_have_all_of_their_connections() {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(1))
            .await
            .unwrap();
        ledger.migrate().await.unwrap();
        let mut busy = Vec::new();
        for _ in 0..AUDIT_CONNECTIONS {
            busy.push(ledger.audits.acquire().await.unwrap());
        }
        let vase: ItemId = "vase".parse().unwrap();
        let brief = std::time::Duration::from_millis(500);
        let sums = tokio::time::timeout(brief, ledger.totals(&vase)).await;
        assert!(sums.is_err(), "they wait for their own");
        let order = ledger.order(OrderId::from_bytes([1; 16])).await;
        assert!(order.unwrap().is_none());
        drop(busy);
        assert!(ledger.totals(&vase).await.unwrap().is_none());
        assert!(ledger.journal(&vase, 1).await.unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flood_of_reads_delays_no_step_and_no_recording() {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(1))
            .await
            .unwrap();
        ledger.migrate().await.unwrap();
        // Every reader waits for a slow one.
        let mut busy = Vec::new();
        for pool in [&ledger.reads, &ledger.lists, &ledger.audits] {
            for _ in 0..pool.options().get_max_connections() {
                busy.push(pool.acquire().await.unwrap());
            }
        }
        let order = OrderId::from_bytes([1; 16]);
        let waits = tokio::time::timeout(BRIEF, ledger.look_up_order(order)).await;
        assert!(waits.is_err(), "reads wait for reads");
        let vase: ItemId = "vase".parse().unwrap();
        let key = SegmentKey {
            item: vase.clone(),
            segment: 0,
        };
        assert!(ledger.order(order).await.unwrap().is_none());
        assert!(ledger.transition(&[]).await.unwrap().is_empty());
        assert!(ledger.claim(&[key], 1).await.unwrap().is_none());
        assert!(ledger.segments(&vase).await.unwrap().is_empty());
        // And the reverse: steps that wait for each other delay no reader.
        drop(busy);
        let step = ledger.pool.acquire().await.unwrap();
        assert!(ledger.look_up_order(order).await.unwrap().is_none());
        assert!(ledger.totals(&vase).await.unwrap().is_none());
        drop(step);
    }
}
