//! Recorders and servers die at any moment.

use std::{sync::Arc, time::Duration};

use recorder::RecorderSettings;
use stock::Acknowledge;
use testbed::{Postgres, Redis};

use crate::shop::{Shop, eventually, is_held, on_both, rush};

on_both!(
    a_recorder_that_dies_in_the_middle_leaves_everything_to_be_recorded_once,
    a_claim_that_is_dropped_leaves_everything_to_be_recorded
);

async fn a_recorder_that_dies_in_the_middle_leaves_everything_to_be_recorded_once(
    shop: &Arc<Shop>,
) {
    let sale = shop.sell(2000, 4).await;
    let mut taken = 0;
    for round in 0..12 {
        let recorder = shop.recorder(RecorderSettings::default()).await;
        let selling = rush(
            &sale,
            &sale.stock,
            round * 100..round * 100 + 100,
            Acknowledge::Accepted,
        );
        let dying = async {
            // Other points in every round: before, within and after the first transactions.
            tokio::time::sleep(Duration::from_micros(500 * round as u64)).await;
            recorder.task.abort();
            let _ = recorder.task.await;
        };
        let (orders, ()) = tokio::join!(selling, dying);
        taken += orders
            .iter()
            .filter(|(_, outcome)| is_held(outcome))
            .count();
    }
    assert_eq!(taken, 1200);
    let recorder = shop.recorder(RecorderSettings::default()).await;
    sale.all_drained().await;
    recorder.stop().await;
    let totals = sale.ledger.totals(&sale.item.id).await.unwrap().unwrap();
    assert_eq!(totals.orders_by_state, [("held".to_owned(), 1200)]);
}

async fn a_claim_that_is_dropped_leaves_everything_to_be_recorded(shop: &Arc<Shop>) {
    let sale = shop.sell(100, 2).await;
    rush(&sale, &sale.stock, 0..50, Acknowledge::Accepted).await;
    let claim = sale
        .ledger
        .claim(&sale.segments(), 2)
        .await
        .unwrap()
        .unwrap();
    let recorder = shop.recorder(RecorderSettings::default()).await;
    drop(claim);
    sale.all_drained().await;
    recorder.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_goes_on_when_redis_is_back() {
    let mut server = Redis::start().await.unwrap();
    let shop = Arc::new(Shop::sqlite_at(server.url()).await);
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = shop.sell(200, 2).await;
    rush(&sale, &sale.stock, 0..50, Acknowledge::Accepted).await;
    server.restart().await.unwrap();
    eventually("orders being taken again", async || {
        let ask = sale.ask(&sale.buyer_at(0, 90), 1, Acknowledge::Accepted);
        sale.order(ask).await.is_ok_and(|outcome| is_held(&outcome))
    })
    .await;
    rush(&sale, &sale.stock, 50..100, Acknowledge::Accepted).await;
    sale.all_drained().await;
    recorder.stop().await;
    sale.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_goes_on_when_the_ledger_is_back() {
    let (redis, mut postgres) = (
        Redis::start().await.unwrap(),
        Postgres::start().await.unwrap(),
    );
    let shop = Arc::new(Shop::postgres_at(redis.url(), postgres.url("postgres")).await);
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = shop.sell(1000, 2).await;
    for round in 0..2 {
        rush(
            &sale,
            &sale.stock,
            round * 200..round * 200 + 100,
            Acknowledge::Accepted,
        )
        .await;
        postgres.kill().await.unwrap();
        rush(
            &sale,
            &sale.stock,
            round * 200 + 100..round * 200 + 200,
            Acknowledge::Accepted,
        )
        .await;
        postgres.restart().await.unwrap();
        eventually("the ledger being back", async || {
            sale.ledger.ping().await.is_ok()
        })
        .await;
        sale.all_drained().await;
    }
    recorder.stop().await;
    sale.audit().await;
}

/// It gives up what it cannot record, soon, instead of never ending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_without_servers_ends_when_it_is_asked_to() {
    let (mut redis, mut postgres) = (
        Redis::start().await.unwrap(),
        Postgres::start().await.unwrap(),
    );
    let shop = Arc::new(Shop::postgres_at(redis.url(), postgres.url("postgres")).await);
    let recorder = shop.recorder(RecorderSettings::default()).await;
    let sale = shop.sell(1000, 64).await;
    sale.all_drained().await;
    postgres.kill().await.unwrap();
    rush(&sale, &sale.stock, 0..200, Acknowledge::Accepted).await;
    redis.kill().await.unwrap();
    recorder.stop().await;
}
