//! Tests of what PostgreSQL reads for a statement.

use sqlx::{AssertSqlSafe, PgPool};

use super::{
    PostgresLedger,
    sql::{
        archive::{ORDERS_OF, REPLACE_BUYER},
        listing::{BUYER_ORDERS, ITEM_ORDERS, ITEMS, JOURNAL, PAYMENTS_DUE, REFUNDS_DUE, SCAN},
        payments::FORGET_UNCLAIMED,
        recording::{CHANGED, TAKE_RETURNS},
        totals::COUNTS,
    },
};
use crate::{Ledger, PoolSettings};

const NIL: &str = "'00000000-0000-0000-0000-000000000000'";

/// Orders of one item, and items whose tags are spread over all tags.
pub(super) const SALE: [&str; 3] = [
    "INSERT INTO items (id, tag, title, stock, price, currency, segments, hold_seconds, durability, state, epoch, as_created) \
     SELECT 'vase-' || n, n * 400000::bigint, 'vase', 0, 0, 'EUR', 1, 60, 'recorded', 'open', 1, '{}' FROM generate_series(1, 10000) AS n",
    "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
     SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, 'vase-1', 0, 'buyer-' || n, 1, 'held', now() FROM generate_series(1, 20000) AS n",
    "INSERT INTO journal (at, item, actor, action, before, after) \
     SELECT now(), 'vase-1', 'admin', 'state', '{}', '{}' FROM generate_series(1, 10000)",
];

/// A ledger with its tables, and so many connections for steps, in a database of its own.
pub(super) async fn open(connections: u32) -> PostgresLedger {
    let url = testkit::postgres_database().await;
    let pool = PoolSettings::patient(connections);
    let ledger = PostgresLedger::connect(&url, pool).await.unwrap();
    ledger.migrate().await.unwrap();
    ledger
}

pub(super) async fn plan(pool: &PgPool, statement: &str, values: &str) -> String {
    let mut connection = pool.acquire().await.unwrap();
    for sql in [
        "SET plan_cache_mode = force_generic_plan".to_owned(),
        "DEALLOCATE ALL".into(),
        format!("PREPARE page AS {statement}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *connection)
            .await
            .unwrap();
    }
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE page ({values})");
    let lines = sqlx::query_scalar::<_, String>(AssertSqlSafe(explain));
    let lines = lines.persistent(false).fetch_all(&mut *connection).await;
    connection.close().await.unwrap();
    lines.unwrap().join("\n")
}

/// A page must cost the same in a sale of any size, whatever the statistics say.
#[tokio::test(flavor = "multi_thread")]
async fn each_page_reads_its_part_of_an_index() {
    let ledger = open(2).await;
    let table = [
        (ITEMS, "'', 100".to_owned(), "Index Scan using items_pkey"),
        (
            ITEM_ORDERS,
            format!("{NIL}, {NIL}, 'vase', NULL, 100"),
            "Index Scan using orders_pkey",
        ),
        (SCAN, format!("{NIL}, {NIL}, 100"), "using orders_pkey"),
        (
            BUYER_ORDERS,
            format!("'ann', {NIL}, 100"),
            "Index Scan using orders_of_buyer",
        ),
        (
            REFUNDS_DUE,
            format!("{NIL}, 100"),
            "Index Scan using orders_refund_due",
        ),
        (
            PAYMENTS_DUE,
            "0, 100".into(),
            "Index Scan using journal_payments_due",
        ),
        (
            PAYMENTS_DUE,
            "0, 100".into(),
            "Index Scan using journal_once",
        ),
        (
            JOURNAL,
            "'vase', 100, 100".into(),
            // By `journal_of_item`, or by the primary key if nearly all entries are the item's.
            "Index Scan Backward using journal_",
        ),
    ];
    for step in ["empty", "full", "analyzed"] {
        match step {
            "full" => {
                for sql in SALE {
                    sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
                }
            }
            "analyzed" => {
                sqlx::raw_sql("ANALYZE")
                    .execute(&ledger.pool)
                    .await
                    .unwrap();
            }
            _ => {}
        }
        for (statement, values, index) in &table {
            let plan = plan(&ledger.lists, statement, values).await;
            assert!(plan.contains(index), "{step}: {statement}:\n{plan}");
            assert!(!plan.contains("Bitmap"), "{step}: {statement}:\n{plan}");
            // Where rows are sorted, they are those that were found.
            let sorted = plan.find("Sort").unwrap_or(plan.len());
            let bounded = plan[sorted..].contains("Limit") || sorted == plan.len();
            assert!(bounded, "{step}: {statement}:\n{plan}");
        }
    }
}

/// Orders of one buyer, as of a test before a sale, and then of many.
const FEW_BUYERS: &str = "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
     SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, 'vase-1', 0, 'tester', 1, 'held', now() FROM generate_series(1, 100) AS n";
const MANY_BUYERS: &str = "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
     SELECT lpad(to_hex(n * 1000 + 1), 32, '0')::uuid, 'vase-1', 0, 'buyer-' || n, 1, 'held', now() FROM generate_series(1, 20000) AS n";

/// Such statistics say that nearly every order is the buyer's, so that the primary key would
/// do.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_of_one_buyer_do_not_make_a_page_read_the_orders_of_all() {
    let ledger = open(2).await;
    for sql in [
        "ALTER TABLE orders SET (autovacuum_enabled = off)",
        FEW_BUYERS,
        "ANALYZE orders",
        MANY_BUYERS,
    ] {
        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
    }
    let values = format!("'buyer-7', {NIL}, 100");
    let naive = BUYER_ORDERS
        .replace("buyer ~>=~ $1 AND buyer ~<=~ $1", "buyer = $1")
        .replace("buyer USING ~<~, ", "");
    let naive = plan(&ledger.lists, &naive, &values).await;
    assert!(naive.contains("orders_pkey"), "{naive}");
    let plan = plan(&ledger.lists, BUYER_ORDERS, &values).await;
    assert!(plan.contains("Index Scan using orders_of_buyer"), "{plan}");
    assert!(!plan.contains("orders_pkey"), "{plan}");
    // The index begins at the cursor: it is a condition of the index, not a filter behind it.
    let condition = "Index Cond: ((buyer ~>=~ $1) AND (buyer ~<=~ $1) AND (id > $2))";
    assert!(plan.contains(condition), "{plan}");
}

/// However many orders there are, and whatever the statistics say of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_without_a_walk_reads_small_indexes() {
    let ledger = open(2).await;
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

/// Neither the number of orders nor that of items is what an erasure costs.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_finds_orders_and_their_items_by_indexes() {
    let ledger = open(2).await;
    for sql in SALE.into_iter().chain(["ANALYZE"]) {
        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
    }
    let range = "'00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
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

/// A batch takes its returns by their keys. That of the item finds all of its returns, each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_return_is_found_by_its_order_whatever_the_statistics_say() {
    let ledger = open(2).await;
    let returns = "INSERT INTO returns (id, item, segment, buyer, quantity, since) \
        SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, 'vase-1', 0, 'buyer-' || n, 1, now() FROM generate_series(1, 1000) AS n";
    let emptied = "DELETE FROM returns";
    for sql in [
        "SELECT 1", "ANALYZE", returns, "ANALYZE", emptied, "ANALYZE",
    ] {
        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
        let plan = plan(&ledger.pool, TAKE_RETURNS, "'{}', '{}', '{}'").await;
        assert!(
            plan.contains("Index Scan using returns_pkey"),
            "{sql}:\n{plan}"
        );
        assert!(!plan.contains("returns_of_item"), "{sql}:\n{plan}");
    }
}

/// Workers ask several times a second for the items that have changed, and a sweep forgets a hundred
/// unclaimed payments at a time. Neither may read all others.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_subquery_names_is_found_by_its_key() {
    let ledger = open(2).await;
    for sql in ["SELECT 1"].into_iter().chain(SALE).chain(["ANALYZE"]) {
        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
        for (statement, key) in [(CHANGED, "items_pkey"), (FORGET_UNCLAIMED, "payments_pkey")] {
            let plan = plan(&ledger.pool, statement, "1").await;
            let by_key = plan.find(key).unwrap_or_else(|| panic!("{sql}:\n{plan}"));
            assert!(
                plan[by_key..].contains("Index Cond: (id = ANY"),
                "{sql}:\n{plan}"
            );
            assert!(!plan.contains("Seq Scan"), "{sql}:\n{plan}");
        }
    }
}
