//! Orders are recorded exactly once by any number of recorders.

use std::{sync::Arc, time::Duration};

use domain::OrderState;
use ledger::Events;
use recorder::{RecorderSettings, record_once};
use stock::{Acknowledge, InspectionEntries, Outcome};
use testkit::{Backend, Sale, TestEnv, eventually, is_held, on_both_databases, tested};
use tokio::task::JoinSet;

use crate::env::without_sweeps;

#[tested(on_both_databases(crate::env::run))]
async fn an_order_that_waits_for_the_ledger_is_answered_once_recorded(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.sell(400, 4).await;
    for wave in 0..3 {
        for (order, outcome) in sale
            .rush(
                &sale.stock,
                wave * 100..wave * 100 + 100,
                Acknowledge::Recorded,
            )
            .await
        {
            assert!(
                matches!(
                    outcome,
                    Outcome::Held {
                        recorded: true,
                        replayed: false,
                        ..
                    }
                ),
                "{outcome:?}"
            );
            assert_eq!(sale.state(order).await, Some(OrderState::Held));
        }
    }
    sale.all_drained().await;
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn accepted_orders_are_recorded_soon(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.sell(250, 3).await;
    let orders = sale.rush(&sale.stock, 0..300, Acknowledge::Accepted).await;
    sale.all_drained().await;
    for (order, outcome) in &orders {
        assert_eq!(
            sale.state(*order).await,
            is_held(outcome).then_some(OrderState::Held)
        );
    }
    assert_eq!(
        orders
            .iter()
            .filter(|(_, outcome)| is_held(outcome))
            .count(),
        250
    );
    recorder.stop().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn two_concurrent_recorders_record_everything_once(env: &Arc<TestEnv>) {
    let recorders = [
        env.recorder(RecorderSettings::default()).await,
        env.recorder(RecorderSettings::default()).await,
    ];
    let sale = env.sell(900, 4).await;
    let mut buyers = JoinSet::new();
    for instance in 0..3 {
        let (sale, stock) = (Arc::clone(&sale), env.stock().await);
        buyers.spawn(async move {
            let mut outcomes = Vec::new();
            for wave in 0..10 {
                let first = instance * 400 + wave * 40;
                outcomes.extend(
                    sale.rush(&stock, first..first + 40, Acknowledge::Recorded)
                        .await,
                );
            }
            stock.shutdown().await;
            outcomes
        });
    }
    let by_hand = {
        let (sale, stock, ledger) = (Arc::clone(&sale), env.stock().await, env.ledger().await);
        tokio::spawn(async move {
            loop {
                record_once(&stock, &*ledger, &sale.segments())
                    .await
                    .unwrap();
            }
        })
    };
    let outcomes: Vec<_> = buyers.join_all().await.into_iter().flatten().collect();
    by_hand.abort();
    sale.all_drained().await;
    let held = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Held { recorded: true, .. }))
        .count();
    assert_eq!((outcomes.len(), held), (1200, 900));
    let totals = sale.ledger.totals(&sale.item.id).await.unwrap().unwrap();
    assert_eq!(totals.orders_by_state, [("held".to_owned(), 900)]);
    for recorder in recorders {
        recorder.stop().await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn more_segments_than_fit_a_transaction_are_recorded(env: &Arc<TestEnv>) {
    let sale = env.sell(400, 40).await;
    sale.rush(&sale.stock, 0..100, Acknowledge::Accepted).await;
    record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    for segment in 0..40 {
        let inspection = sale
            .stock
            .inspect(&sale.segment(segment), InspectionEntries::None)
            .await
            .unwrap();
        assert_eq!(Some(inspection.last), sale.row(segment).await.checkpoint);
        assert_eq!(inspection.outbox, 1);
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn stopping_drains_the_orders_that_were_taken(env: &Arc<TestEnv>) {
    // Neither a sweep nor, for most of the orders, a wake-up arrives before the stop.
    for _ in 0..5 {
        let sale = env.sell(200, 4).await;
        let recorder = env.recorder(without_sweeps()).await;
        sale.rush(&sale.stock, 0..200, Acknowledge::Accepted).await;
        recorder.stop().await;
        assert_eq!(held(&sale).await, 200);
    }
}

/// A segment with a single new entry is not read again, unless its announcement finds more. Nothing
/// else would tell of an order that came in between.
#[tested(on_both_databases(crate::env::run))]
async fn orders_that_come_while_others_are_recorded_are_found_without_a_sweep(env: &Arc<TestEnv>) {
    let recorder = env.recorder(without_sweeps()).await;
    let sale = env.sell(1000, 2).await;
    let first = sale.rush(&sale.stock, 0..1, Acknowledge::Recorded).await;
    assert!(is_held(&first[0].1), "{first:?}");
    let mut buyers = JoinSet::new();
    for buyer in 0..4 {
        let sale = Arc::clone(&sale);
        buyers.spawn(async move {
            for wave in 0..50 {
                let order = 1 + buyer * 50 + wave;
                let orders = sale
                    .rush(&sale.stock, order..order + 1, Acknowledge::Recorded)
                    .await;
                assert!(
                    matches!(orders[0].1, Outcome::Held { recorded: true, .. }),
                    "{orders:?}"
                );
            }
        });
    }
    buyers.join_all().await;
    sale.all_drained().await;
    recorder.stop().await;
}

/// SQLite has one writer. A second worker would only take segments out of the transactions of the
/// first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_segments_that_wait_for_the_writer_are_recorded_together() {
    crate::env::run(Backend::Sqlite, async |env| {
        let settings = RecorderSettings {
            workers: 4,
            ..without_sweeps()
        };
        let recorder = env.recorder(settings).await;
        let sale = env.sell(100, 8).await;
        sale.all_drained().await;
        let before = sale.ledger.end_of_events().await.unwrap();
        let claim = sale.ledger.claim(&sale.segments(), 1).await.unwrap();
        for order in 0..20 {
            sale.rush(&sale.stock, order..order + 1, Acknowledge::Accepted)
                .await;
            // Each worker that is free hears of it.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        claim.unwrap().release().await;
        sale.all_drained().await;
        // Each transaction tells of its orders in one event. The first one has the segments whose
        // wake-ups came before it asked for the writer, and the second has the others. A late
        // wake-up may find a third.
        let events = sale.ledger.events(before, 100).await.unwrap();
        assert!(
            matches!(&events, Events::Page(page) if (1..=3).contains(&page.len())),
            "{events:?}"
        );
        recorder.stop().await;
    })
    .await;
}

async fn held(sale: &Sale) -> u64 {
    sale.ledger
        .segments(&sale.item.id)
        .await
        .unwrap()
        .iter()
        .map(|row| row.held)
        .sum()
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_that_redis_oversold_are_rejected(env: &Arc<TestEnv>) {
    let recorder = env.recorder(RecorderSettings::default()).await;
    let sale = env.sell(10, 1).await;
    sale.drained(0).await;
    let name = format!("stock:{{{}:0}}", sale.item.id);
    let _: i64 = env
        .redis(redis::cmd("HINCRBY").arg(name).arg("available").arg(5))
        .await;
    let orders = sale.rush(&sale.stock, 0..20, Acknowledge::Recorded).await;
    let count =
        |wanted: fn(&Outcome) -> bool| orders.iter().filter(|(_, outcome)| wanted(outcome)).count();
    let recorded = count(|outcome| matches!(outcome, Outcome::Held { recorded: true, .. }));
    let rejected = count(|outcome| *outcome == Outcome::Rejected);
    assert_eq!(
        (recorded, rejected, count(Outcome::is_sold_out)),
        (10, 5, 5)
    );
    for (order, outcome) in &orders {
        let expected = match outcome {
            Outcome::Held { .. } => Some(OrderState::Held),
            Outcome::Rejected => Some(OrderState::Rejected),
            _ => None,
        };
        assert_eq!(sale.state(*order).await, expected);
    }
    eventually("the drift being zero", async || {
        let redis = sale
            .stock
            .inspect(&sale.segment(0), InspectionEntries::None)
            .await
            .unwrap();
        redis.available == sale.row(0).await.available
    })
    .await;
    recorder.stop().await;
}
