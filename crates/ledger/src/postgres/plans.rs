//! Tests of what PostgreSQL reads for a statement.

use super::sql::totals::COUNTS;
use crate::{
    Ledger, PoolSettings,
    postgres::{
        PostgresLedger,
        listing::tests::{SALE, plan},
    },
};

/// However many orders there are, and whatever the statistics say of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_without_a_walk_reads_small_indexes() {
    let url = testkit::postgres_database().await;
    let ledger = PostgresLedger::connect(&url, PoolSettings::patient(2))
        .await
        .unwrap();
    ledger.migrate().await.unwrap();
    let values =
        "'vase-1', '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
    for sql in ["SELECT 1"].into_iter().chain(SALE).chain(["ANALYZE"]) {
        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
        let plan = plan(&ledger.reads, COUNTS, values).await;
        for index in ["orders_rejected", "orders_refund_due"] {
            assert!(plan.contains(index), "{sql}:\n{plan}");
        }
        for other in ["orders_pkey", "Seq Scan on orders"] {
            assert!(!plan.contains(other), "{sql}:\n{plan}");
        }
    }
}
