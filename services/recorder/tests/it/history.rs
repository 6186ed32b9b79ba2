//! A segment whose history is not what was recorded, or cannot be recorded, is left as it is, and all others go on.

use std::sync::Arc;

use domain::{BuyerId, OrderState};
use ledger::SegmentRow;
use recorder::{RecorderSettings, record_once};
use stock::{Acknowledge, InspectionEntries};
use testbed::Redis;

use crate::shop::{Kind, Sale, Shop, eventually, is_held, on_both, rush};

on_both!(
    a_lost_outbox_stops_its_segment_and_no_other,
    another_entry_in_the_place_of_the_anchor_stops_its_segment_and_no_other,
    an_outbox_that_opens_again_stops_its_segment_and_no_other,
    an_entry_that_cannot_be_read_stops_its_segment_and_no_other,
    an_order_that_the_ledger_refuses_stops_its_segment_and_no_other,
);

/// An item with two segments, both with recorded orders.
async fn two_segments(shop: &Arc<Shop>) -> Arc<Sale> {
    let sale = shop.sell(2000, 2).await;
    rush(&sale, &sale.stock, 0..40, Acknowledge::Accepted).await;
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

/// The first segment is as it was although its Redis takes orders; the second goes on.
async fn only_the_second_goes_on(sale: &Sale, before: &SegmentRow) {
    for wave in 0..4 {
        for n in 0..5 {
            let first = sale.buyer_at(0, 100 + wave * 5 + n);
            assert!(is_held(
                &sale
                    .order(sale.ask(&first, 1, Acknowledge::Accepted))
                    .await
                    .unwrap()
            ));
            let second = sale.buyer_at(1, 100 + wave * 5 + n);
            // It waits until it is recorded, which the first one never is.
            assert!(is_held(
                &sale
                    .order(sale.ask(&second, 1, Acknowledge::Recorded))
                    .await
                    .unwrap()
            ));
        }
    }
    sale.drained(1).await;
    assert_eq!(sale.row(0).await, *before);
    assert_eq!(
        sale.state(sale.order_id(&sale.buyer_at(0, 100))).await,
        None
    );
    sale.diverged.lock().unwrap().push(0);
}

async fn a_lost_outbox_stops_its_segment_and_no_other(shop: &Arc<Shop>) {
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = two_segments(shop).await;
    let before = sale.row(0).await;
    let _: i64 = shop.redis(redis::cmd("DEL").arg(sale.outbox(0))).await;
    only_the_second_goes_on(&sale, &before).await;
    recorder.stop().await;
}

async fn another_entry_in_the_place_of_the_anchor_stops_its_segment_and_no_other(shop: &Arc<Shop>) {
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = two_segments(shop).await;
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
    let _: (String,) = shop.redis_pipe(&replace).await;
    only_the_second_goes_on(&sale, &before).await;
    recorder.stop().await;
}

/// The anchor is right, but what follows is not.
async fn an_outbox_that_opens_again_stops_its_segment_and_no_other(shop: &Arc<Shop>) {
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = two_segments(shop).await;
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
    let _: String = shop.redis(&again).await;
    only_the_second_goes_on(&sale, &before).await;
    recorder.stop().await;
}

async fn an_entry_that_cannot_be_read_stops_its_segment_and_no_other(shop: &Arc<Shop>) {
    let sale = {
        let recorder = shop.recorder(RecorderSettings::default()).await;
        let sale = two_segments(shop).await;
        recorder.stop().await;
        sale
    };
    // What stands before it is recorded.
    let good = sale.buyer_at(0, 90);
    assert!(is_held(
        &sale
            .order(sale.ask(&good, 1, Acknowledge::Accepted))
            .await
            .unwrap()
    ));
    let poison: String = shop
        .redis(
            redis::cmd("XADD")
                .arg(sale.outbox(0))
                .arg("*")
                .arg("k")
                .arg("a later release's"),
        )
        .await;
    let recorder = shop.recorder(RecorderSettings::default()).await;
    eventually("recording what stands before it", async || {
        sale.state(sale.order_id(&good)).await.is_some()
    })
    .await;
    let before = sale.row(0).await;
    only_the_second_goes_on(&sale, &before).await;

    // Mended, it goes on by itself.
    let _: i64 = shop
        .redis(redis::cmd("XDEL").arg(sale.outbox(0)).arg(poison))
        .await;
    sale.drained(0).await;
    sale.diverged.lock().unwrap().clear();
    recorder.stop().await;
}

async fn an_order_that_the_ledger_refuses_stops_its_segment_and_no_other(shop: &Arc<Shop>) {
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = two_segments(shop).await;
    recorder.stop().await;
    let before = sale.row(0).await;
    let outlaw = sale.buyer_at(0, 99);
    for sql in refusing(shop.kind, &outlaw) {
        shop.sql(&sql).await;
    }
    // Both in one transaction.
    for buyer in [&outlaw, &sale.buyer_at(1, 99)] {
        assert!(is_held(
            &sale
                .order(sale.ask(buyer, 1, Acknowledge::Accepted))
                .await
                .unwrap()
        ));
    }
    record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    assert_eq!(
        sale.state(sale.order_id(&sale.buyer_at(1, 99))).await,
        Some(OrderState::Held)
    );

    let recorder = shop.recorder(RecorderSettings::default()).await;
    only_the_second_goes_on(&sale, &before).await;
    assert_eq!(sale.state(sale.order_id(&outlaw)).await, None);
    recorder.stop().await;
}

fn refusing(kind: Kind, outlaw: &BuyerId) -> Vec<String> {
    match kind {
        Kind::Postgres => vec![format!(
            "ALTER TABLE orders ADD CONSTRAINT no_outlaws CHECK (buyer <> '{outlaw}')"
        )],
        Kind::Sqlite => vec![format!(
            "CREATE TRIGGER no_outlaws BEFORE INSERT ON orders WHEN new.buyer = '{outlaw}' BEGIN SELECT RAISE(ABORT, 'no outlaws'); END"
        )],
    }
}

/// Everything is gone: no segment of the item may be recorded, nor opened anew as if it had never sold anything. A new item sells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_redis_stops_what_was_recorded_and_nothing_new() {
    let server = Redis::start().await.unwrap();
    let shop = Arc::new(Shop::sqlite_at(server.url()).await);
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = two_segments(&shop).await;
    let before = [sale.row(0).await, sale.row(1).await];
    let _: String = shop.redis(&redis::cmd("FLUSHALL")).await;

    let other = shop.sell(50, 2).await;
    let orders = rush(&other, &other.stock, 0..50, Acknowledge::Recorded).await;
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
            "nobody opened it again"
        );
    }
    recorder.stop().await;
    other.audit().await;
}
