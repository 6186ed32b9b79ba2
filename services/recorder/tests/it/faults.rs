//! Recording when recorders and servers die at any moment.

use std::{sync::Arc, time::Duration};

use recorder::RecorderSettings;
use stock::Acknowledge;
use testbed::{Postgres, Redis};
use testkit::{Database, TestEnv, eventually, in_time, is_held, on_both_databases, tested};
use tokio_util::sync::CancellationToken;

#[tested(on_both_databases(crate::env::run))]
async fn after_a_recorder_dies_all_entries_are_recorded_once(env: &Arc<TestEnv>) {
    let sale = env.sell(2000, 4).await;
    let mut taken = 0;
    for round in 0..12 {
        let recorder = env.recorder(RecorderSettings::default()).await;
        let selling = sale.rush(
            &sale.stock,
            round * 100..round * 100 + 100,
            Acknowledge::Accepted,
        );
        let dying = async {
            // Each round stops at another point: before, within and after the first transactions.
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
    let recorder = env.recorder(RecorderSettings::default()).await;
    sale.all_drained().await;
    recorder.stop().await;
    let totals = sale.ledger.totals(&sale.item.id).await.unwrap().unwrap();
    assert_eq!(totals.orders_by_state, [("held".to_owned(), 1200)]);
}

#[tested(on_both_databases(crate::env::run))]
async fn after_a_claim_is_dropped_all_entries_are_recorded(env: &Arc<TestEnv>) {
    let sale = env.sell(100, 2).await;
    sale.rush(&sale.stock, 0..50, Acknowledge::Accepted).await;
    let claim = sale
        .ledger
        .claim(&sale.segments(), 2)
        .await
        .unwrap()
        .unwrap();
    let recorder = env.recorder(RecorderSettings::default()).await;
    drop(claim);
    sale.all_drained().await;
    recorder.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_resumes_when_redis_is_back() {
    let mut server = Redis::start().await.unwrap();
    let env = Arc::new(TestEnv::at(Database::empty_sqlite(), server.url()).await);
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.sell(200, 2).await;
    sale.rush(&sale.stock, 0..50, Acknowledge::Accepted).await;
    server.restart().await.unwrap();
    eventually("orders being taken again", async || {
        let reservation =
            sale.reservation_for(&sale.buyer_at(0, 90), "key", 1, Acknowledge::Accepted);
        sale.try_order(reservation)
            .await
            .is_ok_and(|outcome| is_held(&outcome))
    })
    .await;
    sale.rush(&sale.stock, 50..100, Acknowledge::Accepted).await;
    sale.all_drained().await;
    recorder.stop().await;
    sale.assert_recorded().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_resumes_when_the_ledger_is_back() {
    let (redis, mut postgres) = (
        Redis::start().await.unwrap(),
        Postgres::start().await.unwrap(),
    );
    let env =
        Arc::new(TestEnv::at(Database::postgres_at(postgres.url("postgres")), redis.url()).await);
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.sell(1000, 2).await;
    for round in 0..2 {
        sale.rush(
            &sale.stock,
            round * 200..round * 200 + 100,
            Acknowledge::Accepted,
        )
        .await;
        postgres.kill().await.unwrap();
        sale.rush(
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
        // The ledger of the test asks a connection whether it lives only after a second of rest.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        sale.all_drained().await;
    }
    recorder.stop().await;
    sale.assert_recorded().await;
}

/// It abandons the entries that it cannot record instead of hanging.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_without_servers_stops_when_it_is_asked_to() {
    let (mut redis, mut postgres) = (
        Redis::start().await.unwrap(),
        Postgres::start().await.unwrap(),
    );
    let env =
        Arc::new(TestEnv::at(Database::postgres_at(postgres.url("postgres")), redis.url()).await);
    // With the product's time-outs of a ledger that is down.
    let ledger = ledger::connect(&env.database.url, 4).await.unwrap();
    let (stock, stop) = (env.stock().await, CancellationToken::new());
    let recorder = tokio::spawn(recorder::run(
        Arc::clone(&stock),
        ledger,
        RecorderSettings::default(),
        stop.clone(),
    ));
    let sale = env.sell(1000, 64).await;
    sale.all_drained().await;
    postgres.kill().await.unwrap();
    sale.rush(&sale.stock, 0..200, Acknowledge::Accepted).await;
    redis.kill().await.unwrap();
    stop.cancel();
    in_time("the end of the recorder", recorder).await.unwrap();
    stock.shutdown().await;
}

/// As on a master that lacks its replicas. One segment has been recorded and cannot be trimmed, the other
/// has entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_cannot_be_trimmed_keeps_no_entry_from_being_recorded() {
    let server = Redis::start().await.unwrap();
    let env = Arc::new(TestEnv::at(Database::empty_sqlite(), server.url()).await);
    let sale = env.sell(20, 2).await;
    let mut orders = Vec::new();
    for home in 0..2 {
        let buyer = sale.buyer_at(home, 0);
        let reservation = sale.reservation_for(&buyer, "key", 1, Acknowledge::Accepted);
        orders.push(reservation.order);
        assert!(is_held(&sale.try_order(reservation).await.unwrap()));
    }
    let replicas = async |needed: &str| {
        let mut config = redis::cmd("CONFIG");
        config.arg("SET").arg("min-replicas-to-write").arg(needed);
        env.redis::<()>(&config).await;
    };
    replicas("1").await;
    let first = [sale.segment(0)];
    recorder::record_once(&sale.stock, &*sale.ledger, &first)
        .await
        .unwrap_err();
    assert!(
        sale.state(orders[0]).await.is_some(),
        "recorded all the same"
    );
    let recorder = env.recorder(RecorderSettings::default()).await;
    eventually("the entries of the other segment", async || {
        sale.state(orders[1]).await.is_some()
    })
    .await;
    replicas("0").await;
    sale.all_drained().await;
    recorder.stop().await;
    crate::env::audit(&env).await;
}
