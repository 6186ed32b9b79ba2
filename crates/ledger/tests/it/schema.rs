//! The schema: concurrent migrations create it once, and its constraints refuse invalid rows.

use std::sync::Arc;

use domain::{Item, ItemState, OrderState, PaymentId, TransferId, Window};
use jiff::Timestamp;
use ledger::{
    Created, ItemScope, LedgerError, NewWebhook, RefundReport, RefundState, TransferPlan,
};
use testkit::{Backend, on_both_databases, tested};
use tokio::{sync::Barrier, task::JoinSet};

use crate::env::{
    TestEnv, becomes, counters, happen, id, item, opened, order, order_id, record, row, segment,
    take, taken,
};

mod empty {
    use super::TestEnv;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_migrations_from_several_processes_are_safe_on_sqlite() {
        super::concurrent_migrations_are_safe(TestEnv::empty(testkit::Backend::Sqlite).await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_migrations_from_several_processes_are_safe_on_postgres() {
        super::concurrent_migrations_are_safe(TestEnv::empty(testkit::Backend::Postgres).await)
            .await;
    }
}

mod old {
    use super::TestEnv;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_of_the_first_release_survive_on_sqlite() {
        super::rows_of_the_first_release_survive(TestEnv::empty(testkit::Backend::Sqlite).await)
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_of_the_first_release_survive_on_postgres() {
        super::rows_of_the_first_release_survive(TestEnv::empty(testkit::Backend::Postgres).await)
            .await;
    }
}

/// Rows of a sale during which the second release takes over.
const SALE: [&str; 4] = [
    "INSERT INTO items (id, tag, title, stock, price_cents, currency, limit_per_buyer, segments, opens_at, closes_at, hold_seconds, durability, \
                        state, epoch, version) \
     VALUES ('vase', 1, 'Vase, 花瓶', 10, 1999, 'EUR', 2, 2, NULL, AT_1, 600, 'recorded', 'paused', 3, 3)",
    "INSERT INTO segments (item, segment, allocated, available, held, checkpoint, anchor, version) \
     VALUES ('vase', 0, 5, 3, 2, '7-1', -9, 4), ('vase', 1, 5, 5, 0, NULL, NULL, 1)",
    "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) VALUES (ID_1, 'vase', 0, 'ann', 2, 'held', AT_1)",
    "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) VALUES (ID_2, 'vase', 0, 'bob', 1, 'rejected', AT_1)",
];

/// Translates the statement to the dialect of the database.
fn in_words_of(backend: Backend, sql: &str, vase: &Item) -> String {
    let hex = |n| order_id(vase, n).as_uuid().simple().to_string();
    let (at, one, two) = match backend {
        Backend::Sqlite => (
            "1900000000001".into(),
            format!("x'{}'", hex(1)),
            format!("x'{}'", hex(2)),
        ),
        Backend::Postgres => (
            "to_timestamp(1900000000.001)".to_owned(),
            format!("'{}'", hex(1)),
            format!("'{}'", hex(2)),
        ),
    };
    sql.replace("AT_1", &at)
        .replace("ID_1", &one)
        .replace("ID_2", &two)
}

async fn rows_of_the_first_release_survive(env: TestEnv) {
    let ledger = env.ledger().await;
    env.migrate_to(20261121000003).await;
    let closes_at = Timestamp::from_millisecond(1_900_000_000_001).ok();
    let vase = Item {
        window: Window {
            opens_at: None,
            closes_at,
        },
        state: ItemState::Paused,
        epoch: 3,
        version: 3,
        // What a request that named none created then.
        max_hold_seconds: 3600,
        ..item("vase", 10, 2)
    };
    for sql in SALE {
        env.sql(&in_words_of(env.backend, sql, &vase)).await;
    }
    env.sql(&format!("UPDATE items SET tag = {}", vase.id.tag().0))
        .await;
    ledger.migrate().await.unwrap();

    assert_eq!(
        ledger.items_tagged(vase.id.tag()).await.unwrap(),
        std::slice::from_ref(&vase)
    );
    // A request that named no `max_hold_seconds` had the default of then, and now has that of now.
    for max_hold_seconds in [3600, vase.hold_seconds] {
        let repeat = Item {
            state: ItemState::Open,
            epoch: 1,
            max_hold_seconds,
            ..vase.clone()
        };
        let created = env.try_create_by(&ledger, &repeat).await;
        assert_eq!(created, Created::Same(vase.clone()), "{max_hold_seconds}");
    }
    assert_eq!(
        env.try_create_by(
            &ledger,
            &Item {
                stock: 11,
                ..vase.clone()
            }
        )
        .await,
        Created::Different
    );
    let [first, second] = [0, 1].map(|number| segment(&vase, number));
    assert_eq!(
        (
            counters(&ledger, &first).await,
            counters(&ledger, &second).await
        ),
        ([3, 2, 0, 0], [5, 0, 0, 0])
    );
    let kept = row(&ledger, &first).await;
    assert_eq!(
        (kept.checkpoint, kept.anchor, kept.version),
        (Some(id(7, 1)), Some(-9), 4)
    );
    let due = ledger
        .due(
            ItemScope::ALL,
            Timestamp::from_second(1_900_000_001).unwrap(),
            9,
        )
        .await
        .unwrap();
    assert_eq!(
        due.iter()
            .map(|order| (order.id, order.buyer.as_str(), order.attempt))
            .collect::<Vec<_>>(),
        [(order_id(&vase, 1), "ann", 0)]
    );
    assert_eq!(
        ledger.recorded_among(&[order_id(&vase, 2)]).await.unwrap(),
        [(order_id(&vase, 2), domain::OrderState::Rejected)]
    );

    assert_eq!(
        env.sql("UPDATE items_without_spillover SET item = item")
            .await,
        0,
        "the first release did not record which orders were off-home"
    );

    // The sale continues with values that the new constraints allow and the old ones refused.
    becomes(&ledger, order_id(&vase, 1), OrderState::Expired).await;
    happen(&ledger, &first, [take([order(&vase, 3, 3)])]).await;
    assert!(
        env.try_sql("UPDATE segments SET held = held + 1")
            .await
            .is_err()
    );
    assert!(
        env.try_sql("DELETE FROM items")
            .await
            .unwrap_err()
            .to_string()
            .to_lowercase()
            .contains("foreign key")
    );
    env.audit().await;
}

/// Includes opening the file for the first time.
async fn concurrent_migrations_are_safe(env: TestEnv) {
    let barrier = Arc::new(Barrier::new(8));
    let mut processes = JoinSet::new();
    for _ in 0..8 {
        let (url, barrier) = (env.url().to_owned(), Arc::clone(&barrier));
        processes.spawn(async move {
            barrier.wait().await;
            let ledger = ledger::connect(&url, 2).await.unwrap();
            ledger.migrate().await.unwrap();
            ledger.ping().await.unwrap();
        });
    }
    processes.join_all().await;
    let ledger = env.ledger().await;
    ledger.migrate().await.unwrap();
    env.create_by(&ledger, &item("vase", 1, 1)).await;
    env.audit().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_invalid_row_is_refused_by_a_named_constraint(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    record(
        env,
        &segment(&item, 0),
        vec![opened(&item, 0), taken(id(2, 0), vec![order(&item, 0, 4)])],
    )
    .await;
    let webhook = NewWebhook {
        id: uuid::Uuid::new_v4(),
        url: "https://shop.example".into(),
        kinds: Vec::new(),
        secret: "whsec_".into(),
    };
    env.add_webhook(&webhook, 100).await.unwrap();
    let lease = std::time::Duration::from_secs(60);
    let leased = env.lease_sink("redis", uuid::Uuid::new_v4(), lease).await;
    assert!(leased.unwrap().is_some());
    env.claim_item(&item.id, 1).await.unwrap();
    let plan = TransferPlan {
        id: TransferId::random(),
        from: 0,
        to: 1,
        units: 5,
    };
    env.plan_transfers(&item.id, 1, &[plan]).await.unwrap();
    happen(env, &segment(&item, 0), [take([order(&item, 1, 1)])]).await;
    becomes(env, order_id(&item, 1), OrderState::Expired).await;
    let refund = RefundReport {
        id: "re_1".into(),
        payment: PaymentId::new("pi_1").unwrap(),
        payer: Some(order_id(&item, 1).as_uuid()),
        state: RefundState::Failed,
        amount: 5,
        currency: None,
        created_at: None,
        at: None,
    };
    env.note_refund(&refund).await.unwrap();
    let table = [
        (
            "UPDATE refunds SET state = 'gone', failed_at = NULL",
            "refunds_state_is_known",
        ),
        (
            "UPDATE refunds SET amount = -1",
            "refunds_amount_is_not_negative",
        ),
        (
            "UPDATE refunds SET state = 'succeeded'",
            "refunds_failed_at_is_of_a_failure",
        ),
        (
            "UPDATE segments SET available = -1, held = 10",
            "segments_available_not_negative",
        ),
        (
            "UPDATE segments SET held = -1, available = 10",
            "segments_held_not_negative",
        ),
        (
            "UPDATE segments SET confirmed = -1, available = 6",
            "segments_confirmed_not_negative",
        ),
        (
            "UPDATE segments SET \"returning\" = -1, available = 7",
            "segments_returning_not_negative",
        ),
        (
            "UPDATE segments SET available = available - 1",
            "segments_units_accounted_for",
        ),
        (
            "UPDATE segments SET \"returning\" = 2",
            "segments_units_accounted_for",
        ),
        (
            "UPDATE segments SET held = held + 1",
            "segments_units_accounted_for",
        ),
        (
            "UPDATE segments SET allocated = allocated + 1",
            "segments_units_accounted_for",
        ),
        ("UPDATE segments SET anchor = NULL", "segments_anchored"),
        ("UPDATE orders SET quantity = 0", "orders_quantity_positive"),
        ("UPDATE orders SET state = 'lost'", "orders_state_known"),
        ("UPDATE orders SET attempt = -1", "orders_attempt_known"),
        ("UPDATE orders SET attempt = 8", "orders_attempt_known"),
        (
            "UPDATE returns SET quantity = 0",
            "returns_quantity_positive",
        ),
        (
            "UPDATE transfers SET quantity = 0",
            "transfers_quantity_positive",
        ),
        (
            "UPDATE transfers SET moved = 6, state = 'out'",
            "transfers_moved_within_quantity",
        ),
        (
            "UPDATE transfers SET moved = 1",
            "transfers_planned_moved_nothing",
        ),
        (
            "UPDATE transfers SET from_segment = NULL, to_segment = NULL, state = 'out'",
            "transfers_have_an_end",
        ),
        (
            "UPDATE transfers SET to_segment = from_segment",
            "transfers_between_two",
        ),
        (
            "UPDATE transfers SET from_segment = NULL",
            "transfers_new_units_are_out",
        ),
        (
            "UPDATE transfers SET requested = 0",
            "transfers_requested_positive",
        ),
        (
            "UPDATE transfers SET state = 'lost'",
            "transfers_state_known",
        ),
        ("UPDATE items SET stock = -1", "items_stock_not_negative"),
        ("UPDATE items SET price = -1", "items_price_not_negative"),
        (
            "UPDATE items SET new_price = -1",
            "items_new_price_not_negative",
        ),
        (
            "UPDATE items SET limit_per_buyer = 0",
            "items_limit_positive",
        ),
        ("UPDATE items SET segments = 0", "items_segments_positive"),
        ("UPDATE items SET state = 'ajar'", "items_state_known"),
        (
            "UPDATE webhooks SET failures = -1, failing_since = created_at",
            "webhooks_failures_not_negative",
        ),
        (
            "UPDATE webhooks SET failures = 1",
            "webhooks_failing_since_the_first",
        ),
        (
            "UPDATE webhooks SET publisher = id",
            "webhooks_leased_by_one",
        ),
        ("UPDATE sinks SET publisher = NULL", "sinks_leased_by_one"),
        (
            "UPDATE items SET durability = 'hoped'",
            "items_durability_known",
        ),
    ];
    for (sql, constraint) in table {
        let error = env.try_sql(sql).await.expect_err(sql);
        assert!(error.to_string().contains(constraint), "{sql}: {error}");
    }
    let (byte, second) = match env.backend {
        Backend::Sqlite => (
            "x'00'",
            "INSERT INTO events_removed (is_only, seq) VALUES (0, 1)",
        ),
        Backend::Postgres => (
            "'\\x00'",
            "INSERT INTO events_removed (is_only, xid, seq) VALUES (false, '0', 1)",
        ),
    };
    let part = format!("UPDATE events SET orders = {byte}");
    for (sql, constraint) in [
        (&*part, "events_orders_are_ids"),
        (second, "events_removed_one_row"),
    ] {
        let error = env.try_sql(sql).await.expect_err(sql);
        assert!(error.to_string().contains(constraint), "{sql}: {error}");
    }
    for column in ["held", "confirmed", "\"returning\""] {
        for (sign, back) in [("+", "-"), ("-", "+")] {
            let sql = format!(
                "UPDATE segments SET available = available {back} 1, {column} = {column} {sign} 1"
            );
            assert_eq!(env.sql(&sql).await, 1, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_url_of_another_scheme_is_a_clear_error_without_its_password() {
    for url in [
        "mysql://me:secret@host/db",
        "redis://me:secret@host",
        "secret",
        "",
    ] {
        let Err(error) = ledger::connect(url, 1).await else {
            panic!("{url}")
        };
        assert!(matches!(error, LedgerError::Url(_)));
        let text = error.to_string();
        assert!(
            text.contains("DATABASE_URL")
                && text.contains("postgres://")
                && text.contains("sqlite://"),
            "{text}"
        );
        assert!(!text.contains("secret@") && !error.is_retryable(), "{text}");
    }
}

#[tokio::test]
async fn a_sqlite_file_that_is_missing_is_created_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("typing-error").join("ledger.db");
    let url = format!("sqlite://{}", file.display());
    let Err(error) = ledger::connect_existing(&url, 1).await else {
        panic!("there is no such file")
    };
    assert!(matches!(error, LedgerError::NoFile(_)));
    assert!(error.to_string().contains(&*file.to_string_lossy()));
    assert!(!error.is_retryable() && !file.parent().unwrap().exists());
    ledger::connect(&url, 1).await.unwrap();
    ledger::connect_existing(&url, 1).await.unwrap();
}
