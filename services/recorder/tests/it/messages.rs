//! A lost message costs time, and not more than about a second.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ledger::SegmentReplay;
use recorder::{RecorderSettings, open_missing_segments};
use stock::{Acknowledge, InspectionEntries};
use testbed::Redis;

use crate::shop::{Sale, Shop, eventually, is_held, on_both, rush};

on_both!(
    what_was_taken_before_a_recorder_started_is_recorded,
    a_wake_up_is_enough,
    an_outbox_that_was_not_trimmed_is_trimmed_and_wakes_again,
    an_order_whose_wake_up_was_lost_is_recorded_within_about_a_second,
    a_segment_that_its_creator_left_unopened_is_opened,
);

/// As good as never.
const NO_SWEEP: Duration = Duration::from_secs(3600);

async fn outbox_length(sale: &Sale, segment: u16) -> u64 {
    sale.stock
        .inspect(&sale.segment(segment), InspectionEntries::None)
        .await
        .unwrap()
        .outbox
}

async fn what_was_taken_before_a_recorder_started_is_recorded(shop: &Arc<Shop>) {
    let sale = shop.sell(100, 2).await;
    rush(&sale, &sale.stock, 0..50, Acknowledge::Accepted).await;
    let recorder = shop
        .recorder(RecorderSettings {
            sweep_every: NO_SWEEP,
            ..RecorderSettings::default()
        })
        .await;
    sale.all_drained().await;
    recorder.stop().await;
}

async fn a_wake_up_is_enough(shop: &Arc<Shop>) {
    let recorder = shop
        .recorder(RecorderSettings {
            sweep_every: NO_SWEEP,
            ..RecorderSettings::default()
        })
        .await;
    let sale = shop.sell(100, 2).await;
    for wave in 0..20 {
        rush(
            &sale,
            &sale.stock,
            wave * 4..wave * 4 + 4,
            Acknowledge::Accepted,
        )
        .await;
        sale.all_drained().await;
    }
    recorder.stop().await;
}

/// On a server of its own: it ends everybody's subscriptions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_subscription_is_made_up_for() {
    let server = Redis::start().await.unwrap();
    let shop = Shop::sqlite_at(server.url()).await;
    let recorder = shop
        .recorder(RecorderSettings {
            sweep_every: NO_SWEEP,
            ..RecorderSettings::default()
        })
        .await;
    let sale = shop.sell(100, 2).await;
    sale.all_drained().await;
    for wave in 0..3 {
        let _: i64 = shop
            .redis(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"))
            .await;
        rush(
            &sale,
            &sale.stock,
            wave * 20..wave * 20 + 20,
            Acknowledge::Accepted,
        )
        .await;
        sale.all_drained().await;
    }
    // Nor does it end without what it could not hear of.
    let _: i64 = shop
        .redis(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"))
        .await;
    rush(&sale, &sale.stock, 60..80, Acknowledge::Accepted).await;
    recorder.stop().await;
    let held: u64 = sale
        .ledger
        .segments(&sale.item.id)
        .await
        .unwrap()
        .iter()
        .map(|row| row.held)
        .sum();
    assert_eq!(held, 80);
    sale.audit().await;
}

/// A recorder that dies between commit and trim leaves an outbox whose script sends no wake-ups.
async fn an_outbox_that_was_not_trimmed_is_trimmed_and_wakes_again(shop: &Arc<Shop>) {
    let sale = shop.sell(100, 1).await;
    rush(&sale, &sale.stock, 0..3, Acknowledge::Accepted).await;
    let key = sale.segment(0);
    let claim = sale
        .ledger
        .claim(std::slice::from_ref(&key), 1)
        .await
        .unwrap()
        .unwrap();
    let entries = sale.stock.read_outbox(&key, None, 100).await.unwrap();
    assert!(entries.len() >= 2);
    let replay = SegmentReplay {
        row: claim.rows()[0].clone(),
        entries,
    };
    claim.record(vec![replay]).await.unwrap();
    assert!(outbox_length(&sale, 0).await >= 2);

    let recorder = shop
        .recorder(RecorderSettings {
            sweep_every: NO_SWEEP,
            ..RecorderSettings::default()
        })
        .await;
    eventually("trimming", async || outbox_length(&sale, 0).await == 1).await;
    rush(&sale, &sale.stock, 10..20, Acknowledge::Accepted).await;
    sale.drained(0).await;
    eventually("trimming", async || outbox_length(&sale, 0).await == 1).await;
    recorder.stop().await;
}

async fn an_order_whose_wake_up_was_lost_is_recorded_within_about_a_second(shop: &Arc<Shop>) {
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = shop.sell(100, 1).await;
    sale.drained(0).await;
    eventually("trimming", async || outbox_length(&sale, 0).await == 1).await;
    // An entry that is put there without a message, as if the cluster's bus had lost it.
    let mut append = redis::cmd("XADD");
    append
        .arg(sale.outbox(0))
        .arg("*")
        .arg("k")
        .arg("state")
        .arg("s")
        .arg("open")
        .arg("e")
        .arg(1);
    let entry: String = shop.redis(&append).await;
    let name = format!("stock:{{{}:0}}", sale.item.id);
    let _: i64 = shop
        .redis(redis::cmd("HSET").arg(name).arg("last").arg(entry))
        .await;
    let began = Instant::now();
    // It is not alone any more, so that these send no message either.
    let orders = rush(&sale, &sale.stock, 0..5, Acknowledge::Recorded).await;
    assert!(orders.iter().all(|(_, outcome)| is_held(outcome)));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    recorder.stop().await;
}

async fn a_segment_that_its_creator_left_unopened_is_opened(shop: &Arc<Shop>) {
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = shop.create(60, 3).await;
    // One of them the creator had opened before it died.
    sale.stock.open_segment(&sale.item, 1).await.unwrap();
    eventually("opening", async || {
        sale.stock
            .item(&sale.item)
            .inspect(InspectionEntries::None)
            .await
            .is_ok()
    })
    .await;
    let orders = rush(&sale, &sale.stock, 0..60, Acknowledge::Recorded).await;
    assert!(orders.iter().all(|(_, outcome)| is_held(outcome)));
    recorder.stop().await;

    let sale = shop.create(60, 3).await;
    open_missing_segments(&sale.stock, &*sale.ledger)
        .await
        .unwrap();
    assert_eq!(
        sale.stock.open(&sale.item).await.unwrap(),
        0,
        "all were opened"
    );
}
