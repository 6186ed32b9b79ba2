//! Servers that forget, fall silent, end, run out of memory, or should not have been used.

use std::{sync::Arc, time::Duration};

use stock::{
    Acknowledge, InspectionEntries, Outcome, RedisSettings, Reservation, Stock, StockError,
    StockSettings,
};
use testbed::{Redis, in_time};

use crate::{
    crowd::{all_answered, at_once, held, instances},
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{Site, on_own_server, patient, tested},
};

async fn flush_scripts(sale: &Sale) {
    let () = sale.redis(redis::cmd("SCRIPT").arg("FLUSH")).await;
}

#[tested(on_own_server)]
async fn a_server_that_lost_its_scripts_gets_them_back_within_the_request(
    site: Arc<Site>,
    _server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(2, 2).limit(2)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(1, n));
    flush_scripts(&sale).await;
    assert!(sale.sells(&ann, "home", 1).await);
    flush_scripts(&sale).await;
    assert!(sale.sells(&bob, "next", 1).await);
    flush_scripts(&sale).await;
    sale.at_first()
        .inspect(InspectionEntries::All)
        .await
        .unwrap();
    flush_scripts(&sale).await;
    sale.at_first().settle_spillovers().await.unwrap();
    flush_scripts(&sale).await;
    sale.stock.ready().await.unwrap();
    assert!(sale.sells(&ann, "home", 1).await);
}

#[tested(on_own_server)]
async fn a_restarted_server_has_every_accepted_order_and_takes_new_ones(
    site: Arc<Site>,
    server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(200, 2)).await;
    let reservations = |from: usize| {
        (from..from + 100)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        held(&all_answered(&[sale.at_first()], reservations(0)).await),
        100
    );
    server.restart().await.unwrap();
    let again = all_answered(&[sale.at_first()], reservations(0)).await;
    assert!(
        again
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Held { replayed: true, .. })),
        "{again:?}"
    );
    assert_eq!(
        held(&all_answered(&[sale.at_first()], reservations(100)).await),
        100
    );
    assert_eq!(sale.available().await, 0);
}

#[tested(on_own_server)]
async fn orders_that_run_into_a_restart_take_once(site: Arc<Site>, server: &mut Redis) {
    let sale = sale::open(&site, Terms::new(5000, 2)).await;
    let instances = instances(&sale, 2).await;
    let reservations: Vec<_> = (0..3000)
        .map(|n| sale.reservation(&buyer(n), "k", 1))
        .collect();
    let crowd = tokio::spawn({
        let (instances, reservations) = (instances.clone(), reservations.clone());
        async move { at_once(&instances, reservations).await }
    });
    eventually("the crowd being under way", async || {
        sale.available().await < 4900
    })
    .await;
    server.restart().await.unwrap();
    let outcomes = crowd.await.unwrap();
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.as_ref().is_ok_and(is_held)),
        "every order has an outcome in time"
    );
    assert_eq!(held(&all_answered(&instances, reservations).await), 3000);
    assert_eq!(sale.available().await, 2000);
}

/// An instance that soon takes a silent server for silent.
async fn impatient(site: &Site) -> Arc<Stock> {
    let redis = RedisSettings {
        response_timeout: Duration::from_millis(500),
        ..RedisSettings::new(&site.url)
    };
    site.instance_with(StockSettings {
        redis,
        ..site.settings()
    })
    .await
}

#[tested(on_own_server)]
async fn a_server_that_is_silent_for_a_while_makes_orders_slow_and_nothing_else(
    site: Arc<Site>,
    server: &mut Redis,
) {
    let sale = sale::open_with(&site, Terms::new(50, 2), impatient(&site).await).await;
    server.pause().await.unwrap();
    let crowd = tokio::spawn({
        let (item, reservations) = (
            sale.at_first(),
            (0..100)
                .map(|n| sale.reservation(&buyer(n % 50), "k", 1))
                .collect(),
        );
        async move { all_answered(&[item], reservations).await }
    });
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(!crowd.is_finished());
    server.resume().await.unwrap();
    assert_eq!(
        held(&crowd.await.unwrap()),
        100,
        "fifty orders, each asked for by two requests"
    );
    assert_eq!(sale.available().await, 0);
}

#[tested(on_own_server)]
async fn an_order_whose_time_runs_out_is_unknown_and_a_repeat_resolves_it(
    site: Arc<Site>,
    server: &mut Redis,
) {
    let sale = sale::open_with(&site, Terms::new(10, 2), impatient(&site).await).await;
    // So that the first of the orders does not have to look.
    assert!(sale.sells(&buyer(99), "k", 1).await);
    server.pause().await.unwrap();
    let reservations: Vec<_> = (0..5)
        .map(|n| Reservation {
            within: Duration::from_millis(800),
            ..sale.reservation(&buyer(n), "k", 1)
        })
        .collect();
    for outcome in at_once(&[sale.at_first()], reservations).await {
        assert!(
            matches!(outcome, Err(StockError::OutcomeUnknown(_))),
            "{outcome:?}"
        );
    }
    server.resume().await.unwrap();
    let again = all_answered(
        &[sale.at_first()],
        (0..5)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect(),
    )
    .await;
    assert_eq!(held(&again), 5);
    assert_eq!(
        sale.available().await,
        4,
        "what was sent in vain has been carried out, or refused as too late, but once"
    );
}

#[tested(on_own_server)]
async fn a_server_without_memory_takes_nothing_until_it_has_some(
    site: Arc<Site>,
    _server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(4, 2).limit(2)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    assert!(sale.sells(&ann, "k", 1).await);
    let before = sale.dumps().await;
    let maxmemory = async |bytes: u64| -> () {
        sale.redis(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes))
            .await
    };
    maxmemory(1).await;
    let reservation = Reservation {
        acknowledge: Acknowledge::Accepted,
        ..sale.reservation(&bob, "k", 1)
    };
    let refused = sale.at_first().order(reservation.clone()).await;
    assert!(refused.unwrap_err().proves_unchanged());
    assert_eq!(sale.dumps().await, before);
    sale.at_first()
        .inspect(InspectionEntries::All)
        .await
        .expect("looking needs no memory");
    sale.at_first()
        .settle_spillovers()
        .await
        .expect("nor does seeing what is due");
    sale.set_state(domain::ItemState::Paused, 2)
        .await
        .expect("pausing must always be possible");
    sale.set_state(domain::ItemState::Open, 3).await.unwrap();
    maxmemory(0).await;
    assert!(is_held(&sale.at_first().order(reservation).await.unwrap()));
}

async fn refusal(server: &Redis) -> String {
    match Stock::connect(patient(server.url())).await {
        Err(error @ StockError::Unsuitable(_)) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("not refused"),
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_by_the_name_of_the_setting() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = Redis::builder()
            .config("maxmemory-policy", policy)
            .start()
            .await
            .unwrap();
        let refusal = refusal(&server).await;
        assert!(
            refusal.contains("maxmemory-policy") && refusal.contains(policy),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn a_replica_is_refused_by_the_name_of_the_setting() {
    let master = Redis::start().await.unwrap();
    let replica = Redis::builder()
        .config("replicaof", &format!("127.0.0.1 {}", master.port()))
        .start()
        .await
        .unwrap();
    let refusal = refusal(&replica).await;
    assert!(refusal.contains("replicaof"), "{refusal}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_in_reasonable_time() {
    let mut server = Redis::start().await.unwrap();
    server.kill().await.unwrap();
    let connecting = Stock::connect(patient(server.url()));
    let connected = in_time("an error", connecting).await;
    assert!(matches!(connected.err(), Some(StockError::Redis(_))));
}
