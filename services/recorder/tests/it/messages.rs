//! A lost wake-up delays recording by about a second at most.

use std::{sync::Arc, time::Duration};

use ledger::SegmentReplay;
use recorder::{RecorderSettings, open_missing_segments};
use stock::{Acknowledge, InspectionEntries};
use testbed::Redis;
use testkit::{Database, Running, Sale, TestEnv, eventually, is_held, on_both_databases, tested};

use crate::env::without_sweeps;

async fn recorder_without_sweeps(env: &TestEnv) -> Running {
    env.recorder(without_sweeps()).await
}

async fn outbox_length(sale: &Sale, segment: u16) -> u64 {
    sale.stock
        .inspect(&sale.segment(segment), InspectionEntries::None)
        .await
        .unwrap()
        .outbox
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_taken_before_a_recorder_started_are_recorded(env: &Arc<TestEnv>) {
    let sale = env.sell(100, 2).await;
    sale.rush(&sale.stock, 0..50, Acknowledge::Accepted).await;
    let recorder = recorder_without_sweeps(env).await;
    sale.all_drained().await;
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_wake_up_alone_starts_recording(env: &Arc<TestEnv>) {
    let recorder = recorder_without_sweeps(env).await;
    let sale = env.sell(100, 2).await;
    for wave in 0..20 {
        sale.rush(&sale.stock, wave * 4..wave * 4 + 4, Acknowledge::Accepted)
            .await;
        sale.all_drained().await;
    }
    recorder.stop().await;
}

/// On its own Redis server, because it cuts all subscriptions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_recorded_after_a_subscription_was_lost() {
    let server = Redis::start().await.unwrap();
    let env = TestEnv::at(Database::empty_sqlite(), server.url()).await;
    let recorder = recorder_without_sweeps(&env).await;
    let sale = env.sell(100, 2).await;
    sale.all_drained().await;
    for wave in 0..3 {
        let _: i64 = env
            .redis(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"))
            .await;
        sale.rush(
            &sale.stock,
            wave * 20..wave * 20 + 20,
            Acknowledge::Accepted,
        )
        .await;
        sale.all_drained().await;
    }
    // Stopping also drains the orders whose wake-ups were lost.
    let _: i64 = env
        .redis(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"))
        .await;
    sale.rush(&sale.stock, 60..80, Acknowledge::Accepted).await;
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
    sale.assert_recorded().await;
}

/// A recorder that dies between commit and trim leaves an outbox whose script sends no wake-ups.
#[tested(on_both_databases(crate::env::run))]
async fn an_outbox_that_was_not_trimmed_is_trimmed_and_wakes_again(env: &Arc<TestEnv>) {
    let sale = env.sell(100, 1).await;
    sale.rush(&sale.stock, 0..3, Acknowledge::Accepted).await;
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

    let recorder = recorder_without_sweeps(env).await;
    eventually("trimming", async || outbox_length(&sale, 0).await == 1).await;
    sale.rush(&sale.stock, 10..20, Acknowledge::Accepted).await;
    sale.drained(0).await;
    eventually("trimming", async || outbox_length(&sale, 0).await == 1).await;
    recorder.stop().await;
}

/// One sweep is enough: see `orders_taken_before_a_recorder_started_are_recorded`. So the interval
/// of the sweeps is what an order waits for, and what a sweep takes.
#[tested(on_both_databases(crate::env::run))]
async fn an_order_whose_wake_up_was_lost_is_recorded_by_a_later_sweep(env: &Arc<TestEnv>) {
    assert!(RecorderSettings::default().sweep_interval * 2 <= Duration::from_secs(1));
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.sell(100, 1).await;
    sale.drained(0).await;
    eventually("trimming", async || outbox_length(&sale, 0).await == 1).await;
    // An entry without a wake-up, as if the cluster bus had lost it.
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
    let entry: String = env.redis(&append).await;
    let name = format!("stock:{{{}:0}}", sale.item.id);
    let _: i64 = env
        .redis(redis::cmd("HSET").arg(name).arg("last").arg(entry))
        .await;
    // The outbox is longer than its anchor, so these orders send no wake-up either.
    let orders = sale.rush(&sale.stock, 0..5, Acknowledge::Recorded).await;
    assert!(orders.iter().all(|(_, outcome)| is_held(outcome)));
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_segment_that_its_creator_left_unopened_is_opened(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.create(60, 3).await;
    // The creator had opened one segment before it died.
    sale.stock.open_segment(&sale.item, 1).await.unwrap();
    eventually("opening", async || {
        sale.stock
            .item(&sale.item)
            .inspect(InspectionEntries::None)
            .await
            .is_ok()
    })
    .await;
    let orders = sale.rush(&sale.stock, 0..60, Acknowledge::Recorded).await;
    assert!(orders.iter().all(|(_, outcome)| is_held(outcome)));
    recorder.stop().await;

    let sale = env.create(60, 3).await;
    open_missing_segments(&sale.stock, &*sale.ledger)
        .await
        .unwrap();
    assert_eq!(
        sale.stock.open(&sale.item).await.unwrap(),
        0,
        "all were opened"
    );
}
