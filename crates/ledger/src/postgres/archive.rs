//! The end of an item, on PostgreSQL.

use async_trait::async_trait;
use domain::{BuyerId, CartId, Item, ItemId};
use jiff::Timestamp;

use super::{PostgresLedger, Transaction, connections, segment_columns};
use crate::{
    Archival, Archives, Changed, Erased, FinalAudit, LedgerError, SegmentRow,
    archive::{self, Statements},
    columns::{FinalAuditColumns, SegmentColumns},
    convert::{parsed, signed, unsigned},
    erasure,
    error::check_fence,
};

/// The parameters are the buyer, and the range of the ids of the buyer's carts. Both statements
/// find the orders by `orders_of_buyer` and look each order's item up, however many items there
/// are. The limit keeps PostgreSQL from joining a cart with the lines of all.
const ORDERS_OF: &str = "SELECT count(*) FILTER (WHERE state = 'held') + (SELECT count(*) FROM carts WHERE id >= $2 AND id <= $3 AND buyer = $1 AND state = 'placing'), \
            count(*) FILTER (WHERE (SELECT archived_at FROM items WHERE items.id = orders.item) IS NULL) \
            + (SELECT count(*) FROM carts WHERE id >= $2 AND id <= $3 AND buyer = $1 AND state = 'failed' AND due_at IS NOT NULL AND ( \
                   SELECT items.id FROM cart_lines JOIN items ON items.id = cart_lines.item WHERE cart = carts.id AND archived_at IS NULL LIMIT 1) IS NOT NULL) \
     FROM orders WHERE buyer = $1";

const REPLACE_BUYER: &str = "UPDATE orders SET buyer = $2 WHERE buyer = $1 AND (SELECT archived_at FROM items WHERE items.id = orders.item) IS NOT NULL \
     RETURNING item";

#[async_trait]
impl Archives for PostgresLedger {
    async fn request_archive(
        &self,
        id: &ItemId,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        archive::request(connections::begin(&self.pool).await?, id, expected, actor).await
    }

    async fn archive(&self, archival: &Archival) -> Result<bool, LedgerError> {
        archive::archive(connections::begin(&self.pool).await?, archival).await
    }

    async fn note_keys_removed(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "UPDATE items SET keys_removed_at = coalesce(keys_removed_at, to_timestamp($3::double precision / 1000)) \
             WHERE id = $1 AND fence = $2 AND archived_at IS NOT NULL",
        );
        let noted = noted
            .bind(id.as_str())
            .bind(signed(token))
            .bind(Timestamp::now().as_millisecond())
            .execute(&mut *connections::lend(&self.pool).await?)
            .await?;
        if noted.rows_affected() == 1 {
            return Ok(());
        }
        let fence = sqlx::query_scalar::<_, i64>("SELECT fence FROM items WHERE id = $1");
        let fence = fence.bind(id.as_str()).fetch_one(&self.pool).await?;
        check_fence(token, unsigned("fence", fence)?)
    }

    async fn final_audit(&self, id: &ItemId) -> Result<Option<FinalAudit>, LedgerError> {
        let row = sqlx::query_as::<_, FinalAuditColumns>(
            "SELECT (extract(epoch FROM at) * 1000)::bigint AS at_ms, actor, token, report::text, \
             (SELECT (extract(epoch FROM dropped_at) * 1000)::bigint FROM items WHERE items.id = final_audits.item) AS dropped_ms \
             FROM final_audits WHERE item = $1",
        );
        row.bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?
            .map(FinalAudit::try_from)
            .transpose()
    }

    async fn erase_buyer(&self, buyer: &BuyerId, actor: &str) -> Result<Erased, LedgerError> {
        // A buyer can have very many orders, so it has the limits of audits.
        erasure::erase(connections::begin(&self.audits).await?, buyer, actor).await
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_rows_of(&mut self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
            "SELECT ",
            segment_columns!(),
            " FROM segments WHERE item = $1 ORDER BY 2 FOR UPDATE"
        ));
        rows.bind(item.as_str())
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn has_open_transfers(&mut self, item: &ItemId) -> Result<bool, LedgerError> {
        let open = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM transfers WHERE item = $1 AND state <> 'done')",
        );
        Ok(open.bind(item.as_str()).fetch_one(&mut **self).await?)
    }

    async fn write_request(&mut self, item: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query("UPDATE items SET archive_by = $2 WHERE id = $1 AND archive_by IS NULL")
            .bind(item.as_str())
            .bind(actor)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn write_archive(
        &mut self,
        archived: &Item,
        audit: &FinalAudit,
    ) -> Result<(), LedgerError> {
        let (id, at) = (archived.id.as_str(), audit.at.as_millisecond());
        sqlx::query("UPDATE items SET archived_at = to_timestamp($2::double precision / 1000), epoch = $3, version = $4 WHERE id = $1")
            .bind(id)
            .bind(at)
            .bind(signed(archived.epoch))
            .bind(signed(archived.version))
            .execute(&mut **self)
            .await?;
        sqlx::query("UPDATE segments SET archived = true, version = version + 1 WHERE item = $1")
            .bind(id)
            .execute(&mut **self)
            .await?;
        sqlx::query(
            "INSERT INTO final_audits (item, at, actor, token, report) VALUES ($1, to_timestamp($2::double precision / 1000), $3, $4, $5::jsonb)",
        )
        .bind(id)
        .bind(at)
        .bind(&audit.actor)
        .bind(signed(audit.token))
        .bind(audit.report.to_string())
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

#[async_trait]
impl erasure::Statements for Transaction {
    async fn orders_of(&mut self, buyer: &BuyerId) -> Result<(u64, u64), LedgerError> {
        let counts = sqlx::query_as::<_, (i64, i64)>(ORDERS_OF);
        let [first, last] = CartId::range_of(buyer);
        let (held, kept) = counts
            .bind(buyer.as_str())
            .bind(first.as_uuid())
            .bind(last.as_uuid())
            .fetch_one(&mut **self)
            .await?;
        Ok((unsigned("orders", held)?, unsigned("orders", kept)?))
    }

    async fn forget_erasure_key(&mut self) -> Result<(), LedgerError> {
        sqlx::query("DELETE FROM erasure_keys")
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn replace_buyer(
        &mut self,
        buyer: &BuyerId,
        name: &str,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let items = sqlx::query_scalar::<_, String>(REPLACE_BUYER);
        let items = items
            .bind(buyer.as_str())
            .bind(name)
            .fetch_all(&mut **self)
            .await?;
        let carts = sqlx::query(
            "UPDATE carts SET buyer = $2 WHERE id >= $3 AND id <= $4 AND buyer = $1 AND ((state = 'failed' AND due_at IS NULL) OR NOT EXISTS ( \
                 SELECT FROM cart_lines JOIN items ON items.id = cart_lines.item WHERE cart = carts.id AND archived_at IS NULL))",
        );
        let [first, last] = CartId::range_of(buyer);
        carts
            .bind(buyer.as_str())
            .bind(name)
            .bind(first.as_uuid())
            .bind(last.as_uuid())
            .execute(&mut **self)
            .await?;
        items
            .iter()
            .map(|item| parsed("orders.item", item))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ORDERS_OF, REPLACE_BUYER};
    use crate::{
        Ledger, PoolSettings,
        postgres::{
            PostgresLedger,
            plans::{SALE, plan},
        },
    };

    /// Neither the number of orders nor that of items is what an erasure costs.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_erasure_finds_orders_and_their_items_by_indexes() {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(2))
            .await
            .unwrap();
        ledger.migrate().await.unwrap();
        for sql in SALE.into_iter().chain(["ANALYZE"]) {
            sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
        }
        let range =
            "'00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
        for (statement, values) in [
            (ORDERS_OF, format!("'buyer-7', {range}")),
            (REPLACE_BUYER, "'buyer-7', 'erased'".to_owned()),
        ] {
            let plan = plan(&ledger.audits, statement, &values).await;
            for part in ["orders_of_buyer", "Index Scan using items_pkey on items"] {
                assert!(plan.contains(part), "{statement}:\n{plan}");
            }
            for part in ["Seq Scan", "Hash", "Semi Join", "orders_pkey"] {
                assert!(!plan.contains(part), "{statement}:\n{plan}");
            }
        }
    }
}
