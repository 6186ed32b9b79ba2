//! The schema: made once by however many, and it refuses what must not be.

use std::sync::Arc;

use ledger::LedgerError;
use tokio::{sync::Barrier, task::JoinSet};

use crate::site::{Site, id, on_both, opened, order, record, segment, taken};

on_both!(a_row_that_must_not_be_is_refused_by_name);

mod empty {
    use super::Site;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn migrating_at_once_from_several_processes_is_safe_on_sqlite() {
        super::migrating_at_once_is_safe(Site::empty_sqlite()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn migrating_at_once_from_several_processes_is_safe_on_postgres() {
        super::migrating_at_once_is_safe(Site::empty_postgres().await).await;
    }
}

/// Opening the file for the first time is part of it.
async fn migrating_at_once_is_safe(site: Site) {
    let barrier = Arc::new(Barrier::new(8));
    let mut processes = JoinSet::new();
    for _ in 0..8 {
        let (url, barrier) = (site.url.clone(), Arc::clone(&barrier));
        processes.spawn(async move {
            barrier.wait().await;
            let ledger = ledger::connect(&url, 2).await.unwrap();
            ledger.migrate().await.unwrap();
            ledger.ping().await.unwrap();
        });
    }
    processes.join_all().await;
    let ledger = site.ledger().await;
    ledger.migrate().await.unwrap();
    site.create(&*ledger, "vase", 1, 1).await;
    site.audit().await;
}

async fn a_row_that_must_not_be_is_refused_by_name(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 10, 1).await;
    record(&*ledger, &segment(&item, 0), vec![opened(&item, 0), taken(id(2, 0), vec![order(&item, 0, 4)])]).await.unwrap();
    let table = [
        ("UPDATE segments SET available = -1, held = 11", "segments_available_not_negative"),
        ("UPDATE segments SET held = -1, available = 11", "segments_held_not_negative"),
        ("UPDATE segments SET confirmed = -1, available = 7", "segments_confirmed_not_negative"),
        ("UPDATE segments SET \"returning\" = -1, available = 7", "segments_returning_not_negative"),
        ("UPDATE segments SET available = available - 1", "segments_units_accounted_for"),
        ("UPDATE segments SET \"returning\" = 1", "segments_units_accounted_for"),
        ("UPDATE segments SET held = held + 1", "segments_units_accounted_for"),
        ("UPDATE segments SET allocated = allocated + 1", "segments_units_accounted_for"),
        ("UPDATE segments SET anchor = NULL", "segments_anchored"),
        ("UPDATE orders SET quantity = 0", "orders_quantity_positive"),
        ("UPDATE orders SET state = 'lost'", "orders_state_known"),
        ("UPDATE orders SET attempt = -1", "orders_attempt_known"),
        ("UPDATE orders SET attempt = 8", "orders_attempt_known"),
        ("UPDATE items SET stock = -1", "items_stock_not_negative"),
        ("UPDATE items SET price_cents = -1", "items_price_not_negative"),
        ("UPDATE items SET limit_per_buyer = 0", "items_limit_positive"),
        ("UPDATE items SET segments = 0", "items_segments_positive"),
        ("UPDATE items SET state = 'ajar'", "items_state_known"),
        ("UPDATE items SET durability = 'hoped'", "items_durability_known"),
    ];
    for (sql, constraint) in table {
        let error = site.sql(sql).await.expect_err(sql);
        assert!(error.to_string().contains(constraint), "{sql}: {error}");
    }
    for column in ["held", "confirmed", "\"returning\""] {
        for (sign, back) in [("+", "-"), ("-", "+")] {
            let sql = format!("UPDATE segments SET available = available {back} 1, {column} = {column} {sign} 1");
            assert_eq!(site.sql(&sql).await.unwrap(), 1, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_url_of_another_scheme_is_a_clear_error_without_its_password() {
    for url in ["mysql://me:secret@host/db", "redis://me:secret@host", "secret", ""] {
        let Err(error) = ledger::connect(url, 1).await else { panic!("{url}") };
        assert!(matches!(error, LedgerError::Url(_)));
        let text = error.to_string();
        assert!(text.contains("DATABASE_URL") && text.contains("postgres://") && text.contains("sqlite://"), "{text}");
        assert!(!text.contains("secret@") && !error.is_retryable(), "{text}");
    }
}
