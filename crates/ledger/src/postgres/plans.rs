//! Tests of what PostgreSQL reads for a statement.

use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::{
    PostgresLedger,
    sql::{
        self,
        archive::{BUYER_PAGE, ORDERS_OF, REPLACE_BUYER},
        listing::{
            BUYER_ORDERS, ITEM_ORDERS, ITEMS, JOURNAL, NEXT_CONFIRMED, NEXT_HELD, NEXT_REFUND_DUE,
            NEXT_REJECTED, NEXT_UNDONE, PAYMENTS_DUE, REFUNDS_DUE, SCAN,
        },
        payments::FORGET_UNCLAIMED,
        recording::{CHANGED, TAKE_RETURNS},
        totals::COUNTS,
    },
};
use crate::{Ledger, PoolSettings, plans::may_read_all};

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
    let plan = plan_on(&mut connection, ("", statement), &format!("({values})")).await;
    connection.close().await.unwrap();
    plan
}

/// The plan for all values. `types`: those of the parameters, as far as they do not follow from the
/// statement.
async fn plan_on(
    connection: &mut PgConnection,
    (types, statement): (&str, &str),
    values: &str,
) -> String {
    for sql in [
        "SET plan_cache_mode = force_generic_plan".to_owned(),
        "DEALLOCATE ALL".into(),
        format!("PREPARE page {types} AS {statement}"),
    ] {
        let prepared = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection);
        prepared
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE page {values}");
    let lines = sqlx::query_scalar::<_, String>(AssertSqlSafe(explain));
    let lines = lines.persistent(false).fetch_all(connection).await;
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
            NEXT_REFUND_DUE,
            format!("{NIL}, {NIL}, 'vase'"),
            "Index Scan using orders_refund_due",
        ),
        (
            NEXT_REJECTED,
            format!("{NIL}, {NIL}, 'vase'"),
            "Index Scan using orders_rejected",
        ),
        (
            NEXT_UNDONE,
            format!("{NIL}, {NIL}, 'vase', 'refunded'"),
            "Index Scan using orders_undone",
        ),
        (
            NEXT_CONFIRMED,
            format!("{NIL}, {NIL}, 'vase'"),
            "Index Scan using orders_pkey",
        ),
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

/// Holds are the work at hand, and not that of an item without any.
#[tokio::test(flavor = "multi_thread")]
async fn the_holds_of_all_items_are_read_for_an_item_that_has_some() {
    let ledger = open(2).await;
    for sql in ["SELECT 1"].into_iter().chain(SALE).chain(["ANALYZE"]) {
        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
        let plan = plan(&ledger.lists, NEXT_HELD, &format!("{NIL}, {NIL}, 'vase'")).await;
        for part in ["One-Time Filter", "using orders_due", "using segments_"] {
            assert!(plan.contains(part), "{sql}: {part}:\n{plan}");
        }
        assert!(!plan.contains("orders_pkey"), "{sql}:\n{plan}");
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
        (BUYER_PAGE, format!("'buyer-7', {NIL}, 500")),
    ] {
        let plan = plan(&ledger.audits, statement, &values).await;
        for part in ["orders_of_buyer", "Index Scan using items_pkey on items"] {
            assert!(plan.contains(part), "{statement}:\n{plan}");
        }
        for part in ["Seq Scan", "Hash", "Semi Join", "orders_pkey"] {
            assert!(!plan.contains(part), "{statement}:\n{plan}");
        }
    }
    let page = plan(&ledger.pool, REPLACE_BUYER, "'buyer-7', 'erased', '{}'").await;
    assert!(page.contains("orders_pkey"), "{page}");
    assert!(!page.contains("orders_of_buyer"), "{page}");
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

/// Rows of what grows most, beside those of a sale.
const PAST: [&str; 12] = [
    "INSERT INTO journal (at, item, actor, action, before, after) \
     SELECT now(), 'vase-' || n % 100 + 2, 'admin', 'state', '{}', '{}' FROM generate_series(1, 10000) AS n",
    "INSERT INTO journal (at, item, actor, action, before, after) \
     SELECT now(), 'vase-' || n % 50 + 1, 'payment', (array['refund_failed', 'unmatched_payment'])[n % 2 + 1], '{}', jsonb_build_object('payment', 'payment-' || n, 'refund', 'refund-' || n) FROM generate_series(1, 2000) AS n",
    "INSERT INTO segments (item, segment, allocated, available) SELECT id, 0, 0, 0 FROM items",
    "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
     SELECT lpad(to_hex(n * 1000 + 1), 32, '0')::uuid, 'vase-' || n % 50 + 1, 0, 'other-' || n, 1, (array['held', 'confirmed', 'cancelled', 'expired'])[n % 4 + 1], now() FROM generate_series(1, 20000) AS n",
    "INSERT INTO returns (id, item, segment, buyer, quantity, since) \
     SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, 'vase-1', 0, 'buyer-' || n, 1, now() FROM generate_series(1, 1000) AS n",
    "INSERT INTO events (at, item, kind, orders, data) \
     SELECT now(), 'vase-' || n % 50 + 1, 'order.held', decode(lpad(to_hex(n), 32, '0'), 'hex'), '{}' FROM generate_series(1, 20000) AS n",
    "INSERT INTO carts (id, buyer, state, amount, currency, deadline, expires_at, due_at) \
     SELECT lpad(to_hex(n), 32, '0')::uuid, 'buyer-' || n, CASE n % 20 WHEN 0 THEN 'held' ELSE 'cancelled' END, 1, 'EUR', now(), now(), CASE n % 20 WHEN 0 THEN now() END FROM generate_series(1, 5000) AS n",
    "INSERT INTO cart_lines (order_id, cart, place, item, quantity) \
     SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, 0, 'vase-1', 1 FROM generate_series(1, 5000) AS n",
    "INSERT INTO payments (id, order_id) \
     SELECT 'payment-' || n, lpad(to_hex(n * 1000), 32, '0')::uuid FROM generate_series(1, 10000) AS n",
    "INSERT INTO refunds (id, payment, state, amount, created_at) \
     SELECT 'refund-' || n, 'payment-' || n, 'succeeded', 1, now() FROM generate_series(1, 2000) AS n",
    "INSERT INTO unclaimed_returns (payment, since) SELECT 'unclaimed-' || n, now() FROM generate_series(1, 500) AS n",
    "INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, since) \
     SELECT lpad(to_hex(n), 32, '0')::uuid, 'vase-' || n % 50 + 1, 0, 1, 1, 1, 'done', now() FROM generate_series(1, 5000) AS n",
];

/// What is finished costs nothing: whatever the statistics say, a statement begins where a condition
/// of an index says.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reads_a_growing_table_without_a_condition() {
    let ledger = open(1).await;
    let mut connection = ledger.pool.acquire().await.unwrap();
    let full = SALE.into_iter().chain(PAST).collect();
    let steps: [(&str, Vec<&str>); 3] = [
        ("empty", vec![]),
        ("full", full),
        ("analyzed", vec!["ANALYZE"]),
    ];
    for (step, sqls) in steps {
        for sql in sqls {
            let done = sqlx::raw_sql(sql).execute(&mut *connection).await;
            done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        for (name, statement) in sql::ALL.iter().filter(|(_, sql)| has_a_plan(sql)) {
            let types = types_of(name);
            let plan = plan_on(&mut connection, (types, *statement), &nulls(statement)).await;
            for what in unbounded(&plan) {
                assert!(may_read_all(name, what), "{step}: {name}: {what}:\n{plan}");
            }
        }
    }
}

/// Settings and locks of tables have none.
fn has_a_plan(statement: &str) -> bool {
    !["SET ", "LOCK "]
        .iter()
        .any(|word| statement.starts_with(word))
}

/// Types of the first parameters that the driver names, and that do not follow from the statement.
fn types_of(name: &str) -> &'static str {
    match name {
        "items::WRITE_ITEM" => {
            "(unknown, unknown, unknown, bigint, unknown, unknown, unknown, unknown, unknown, bigint)"
        }
        "stock::OPEN_TRANSFERS" => "(text)",
        _ => "",
    }
}

/// As many values as the statement has parameters. A plan for all values is not made for these.
fn nulls(statement: &str) -> String {
    let numbers = statement.split('$').skip(1).map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit());
        rest[..digits.unwrap_or(rest.len())].parse().unwrap_or(0)
    });
    match numbers.max() {
        None | Some(0) => String::new(),
        Some(parameters) => format!("({})", vec!["NULL"; parameters].join(", ")),
    }
}

/// The tables that a plan reads as a whole, and the indexes of which no condition names a part.
fn unbounded(plan: &str) -> Vec<&str> {
    let mut lines = plan.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let mut has_condition = false;
        while let Some(property) = lines.next_if(|line| !is_node(line)) {
            has_condition |= property.trim_start().starts_with("Index Cond:");
        }
        found.extend(scanned(line).filter(|_| !has_condition));
    }
    found
}

/// JSON has an arrow, too: `->>`.
fn is_node(line: &str) -> bool {
    line.trim_start().starts_with("->  ")
}

/// The table or index that a line of a plan scans.
fn scanned(line: &str) -> Option<&str> {
    let (_, scan) = line.split_once("Seq Scan on ").or_else(|| {
        let (_, scan) = line.split_once("Index ").filter(|(_, scan)| {
            ["Scan", "Only Scan"]
                .iter()
                .any(|word| scan.starts_with(word))
        })?;
        scan.split_once(" using ")
            .or_else(|| scan.split_once(" on "))
    })?;
    scan.split_whitespace().next()
}

#[test]
fn a_scan_without_a_condition_is_found_in_a_plan() {
    let plan = "Limit\n  ->  Nested Loop\n        ->  Index Scan using a_pkey on a\n              Filter: (x = $1)\n        ->  Index Only Scan Backward using b_pkey on b\n              Index Cond: (y = (a.y ->> 'z'::text))\n  SubPlan 1\n    ->  Seq Scan on c\n    ->  Bitmap Heap Scan on d\n          ->  Bitmap Index Scan on d_once\n                Index Cond: (z = 1)";
    assert_eq!(unbounded(plan), ["a_pkey", "c"]);
    assert_eq!(unbounded("Seq Scan on items"), ["items"]);
    assert_eq!(nulls("SELECT $2, $1 FROM x WHERE y = $2"), "(NULL, NULL)");
}
