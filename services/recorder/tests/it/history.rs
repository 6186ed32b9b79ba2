//! A segment whose history diverged or cannot be recorded is quarantined, and recording of the
//! others continues.

use std::sync::Arc;

use domain::{BuyerId, OrderState};
use ledger::SegmentRow;
use recorder::{RecorderSettings, record_once};
use stock::{Acknowledge, InspectionEntries};
use testbed::Redis;
use testkit::{Backend, Database, Sale, TestEnv, eventually, is_held, on_both_databases, tested};

/// An item with two segments, both with recorded orders.
async fn two_segments(env: &Arc<TestEnv>) -> Arc<Sale> {
    let sale = env.sell(2000, 2).await;
    sale.rush(&sale.stock, 0..40, Acknowledge::Accepted).await;
    sale.all_drained().await;
    for segment in 0..2 {
        assert!(sale.row(segment).await.held > 0);
        let trimmed = async || {
            sale.stock
                .inspect(&sale.segment(segment), InspectionEntries::None)
                .await
                .unwrap()
                .outbox
                == 1
        };
        eventually("trimming", trimmed).await;
    }
    sale
}

/// Asserts that the first segment is not recorded although Redis takes orders for it, and that the
/// second one is.
async fn only_the_second_is_recorded(sale: &Sale, before: &SegmentRow) {
    for wave in 0..4 {
        for n in 0..5 {
            let first = sale.buyer_at(0, 100 + wave * 5 + n);
            assert!(is_held(
                &sale
                    .try_order(sale.reservation_for(&first, "key", 1, Acknowledge::Accepted))
                    .await
                    .unwrap()
            ));
            let second = sale.buyer_at(1, 100 + wave * 5 + n);
            // This order waits until it is recorded; an order of the first segment never would be.
            assert!(is_held(
                &sale
                    .try_order(sale.reservation_for(&second, "key", 1, Acknowledge::Recorded))
                    .await
                    .unwrap()
            ));
        }
    }
    sale.drained(1).await;
    assert_eq!(sale.row(0).await, *before);
    assert_eq!(
        sale.state(sale.order_id(&sale.buyer_at(0, 100), "key"))
            .await,
        None
    );
    sale.diverged.lock().unwrap().push(0);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_deleted_outbox_quarantines_its_segment_only(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = two_segments(env).await;
    let before = sale.row(0).await;
    let _: i64 = env.redis(redis::cmd("DEL").arg(sale.outbox(0))).await;
    only_the_second_is_recorded(&sale, &before).await;
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_entry_that_replaces_the_anchor_quarantines_its_segment_only(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = two_segments(env).await;
    let before = sale.row(0).await;
    let anchor = before.checkpoint.unwrap().to_string();
    let replace = redis::pipe()
        .atomic()
        .cmd("DEL")
        .arg(sale.outbox(0))
        .ignore()
        .cmd("XADD")
        .arg(sale.outbox(0))
        .arg(anchor)
        .arg("k")
        .arg("state")
        .arg("e")
        .arg(1)
        .to_owned();
    let _: (String,) = env.redis_pipe(&replace).await;
    only_the_second_is_recorded(&sale, &before).await;
    recorder.stop().await;
}

/// The anchor matches, but the entries after it do not follow.
#[tested(on_both_databases(crate::env::run))]
async fn an_outbox_that_opens_again_quarantines_its_segment_only(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = two_segments(env).await;
    let before = sale.row(0).await;
    let mut again = redis::cmd("XADD");
    again
        .arg(sale.outbox(0))
        .arg("*")
        .arg("k")
        .arg("opened")
        .arg("u")
        .arg(1000)
        .arg("e")
        .arg(1);
    let _: String = env.redis(&again).await;
    only_the_second_is_recorded(&sale, &before).await;
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_unreadable_entry_quarantines_its_segment_only(env: &Arc<TestEnv>) {
    let sale = {
        let recorder = env.recorder(RecorderSettings::default()).await;
        let sale = two_segments(env).await;
        recorder.stop().await;
        sale
    };
    // The entries before it are recorded.
    let good = sale.buyer_at(0, 90);
    assert!(is_held(
        &sale
            .try_order(sale.reservation_for(&good, "key", 1, Acknowledge::Accepted))
            .await
            .unwrap()
    ));
    let poison: String = env
        .redis(
            redis::cmd("XADD")
                .arg(sale.outbox(0))
                .arg("*")
                .arg("k")
                .arg("a later release's"),
        )
        .await;
    let recorder = env.recorder(RecorderSettings::default()).await;
    eventually("recording the entries before it", async || {
        sale.state(sale.order_id(&good, "key")).await.is_some()
    })
    .await;
    let before = sale.row(0).await;
    only_the_second_is_recorded(&sale, &before).await;

    // After the repair, recording resumes by itself.
    let _: i64 = env
        .redis(redis::cmd("XDEL").arg(sale.outbox(0)).arg(poison))
        .await;
    sale.drained(0).await;
    sale.diverged.lock().unwrap().clear();
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_order_that_the_ledger_refuses_quarantines_its_segment_only(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = two_segments(env).await;
    recorder.stop().await;
    let before = sale.row(0).await;
    let outlaw = sale.buyer_at(0, 99);
    for sql in refusing(env.database.backend, &outlaw) {
        env.sql(&sql).await;
    }
    // Both orders are in one transaction.
    for buyer in [&outlaw, &sale.buyer_at(1, 99)] {
        assert!(is_held(
            &sale
                .try_order(sale.reservation_for(buyer, "key", 1, Acknowledge::Accepted))
                .await
                .unwrap()
        ));
    }
    record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    assert_eq!(
        sale.state(sale.order_id(&sale.buyer_at(1, 99), "key"))
            .await,
        Some(OrderState::Held)
    );

    let recorder = env.recorder(RecorderSettings::default()).await;
    only_the_second_is_recorded(&sale, &before).await;
    assert_eq!(sale.state(sale.order_id(&outlaw, "key")).await, None);
    recorder.stop().await;
}

fn refusing(backend: Backend, outlaw: &BuyerId) -> Vec<String> {
    match backend {
        Backend::Postgres => vec![format!(
            "ALTER TABLE orders ADD CONSTRAINT no_outlaws CHECK (buyer <> '{outlaw}')"
        )],
        Backend::Sqlite => vec![format!(
            "CREATE TRIGGER no_outlaws BEFORE INSERT ON orders WHEN new.buyer = '{outlaw}' BEGIN SELECT RAISE(ABORT, 'no outlaws'); END"
        )],
    }
}

/// Redis is empty: no segment of the item may be recorded, or opened as if it had never sold a
/// unit. A new item sells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_quarantines_recorded_segments_and_a_new_item_sells() {
    let server = Redis::start().await.unwrap();
    let env = Arc::new(TestEnv::at(Database::empty_sqlite(), server.url()).await);
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = two_segments(&env).await;
    let before = [sale.row(0).await, sale.row(1).await];
    let _: String = env.redis(&redis::cmd("FLUSHALL")).await;

    let other = env.sell(50, 2).await;
    let orders = other.rush(&other.stock, 0..50, Acknowledge::Recorded).await;
    for (order, outcome) in orders {
        assert!(is_held(&outcome));
        assert_eq!(other.state(order).await, Some(OrderState::Held));
    }
    assert_eq!([sale.row(0).await, sale.row(1).await], before);
    for segment in sale.segments() {
        assert!(
            sale.stock
                .inspect(&segment, InspectionEntries::None)
                .await
                .is_err(),
            "the segment was not opened again"
        );
    }
    recorder.stop().await;
    other.assert_recorded().await;
}
