//! Drift is reported immediately, and repaired once it is confirmed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemState, OrderState};
use ledger::{Changed, ItemChange};
use reconciler::ReconcilerSettings;
use stock::StateSet;
use testkit::{Deadline, Sale, TestEnv, buyer, eventually, is_held, on_both_databases, tested};

use crate::{
    env::{CONFIRMATION_PERIOD, quick},
    metrics,
    unresponsive::UnresponsiveLedger,
};

fn drift_of(sale: &Sale) -> Option<f64> {
    metrics::gauge("stockade_drift_units", sale.item.id.as_str())
}

#[tested(on_both_databases(crate::env::run))]
async fn drift_of_either_sign_is_reported_immediately_and_repaired_once_confirmed(
    env: &Arc<TestEnv>,
) {
    metrics::supervise();
    env.record().await;
    // The metric shows a difference until its repair ends. A repair waits until the test has seen
    // it.
    let ledger = UnresponsiveLedger::with_pages(env.ledger().await, 0);
    let settings = ReconcilerSettings {
        // No home check reads pages.
        close_delay: Duration::from_secs(3600),
        ..quick()
    };
    env.reconcile_on(Arc::clone(&ledger) as _, settings).await;
    let sale = env.sell(40, 2).await;
    let orders = sale.hold_many(0..10).await;
    let before = sale.available().await;
    eventually("the metric being there", async || {
        drift_of(&sale) == Some(0.0)
    })
    .await;
    let deadline = Deadline::start();
    let (mut left, mut rounds) = (vec![-2_i64, 3], 0);
    while let Some(&units) = left.last() {
        rounds += 1;
        let (epoch, since) = (sale.epochs().await[1], Instant::now());
        sale.bend(1, units).await;
        eventually("telling the difference", async || {
            drift_of(&sale) == Some(units.unsigned_abs() as f64)
        })
        .await;
        let plan = reconciler::plan(&sale.stock, &*sale.ledger, &sale.item.id)
            .await
            .unwrap()
            .unwrap();
        if since.elapsed() < CONFIRMATION_PERIOD {
            assert!(plan.is_pressing(), "{plan:?}");
            assert_eq!(
                (
                    plan.steps[0].action,
                    plan.steps[0].segment,
                    plan.steps[0].units
                ),
                ("repair", Some(1), units),
                "{plan:?}"
            );
            left.pop();
        } else {
            // On a busy machine the plan may come too late: then the test tries again.
            deadline.check("no plan came in time");
        }
        ledger.give_all_pages();
        eventually("repairing it", async || sale.available().await == before).await;
        assert!(
            since.elapsed() >= CONFIRMATION_PERIOD,
            "repaired after {:?}",
            since.elapsed()
        );
        eventually("the metric being 0 again", async || {
            drift_of(&sale) == Some(0.0)
        })
        .await;
        ledger.give_no_page();
        assert!(
            sale.epochs().await[1] > epoch,
            "the repair sets a new epoch"
        );

        let (drift, repaired) = (sale.journal("drift").await, sale.journal("repair").await);
        assert_eq!((drift.len(), repaired.len()), (rounds, rounds), "once each");
        assert_eq!(
            (
                &drift[0].entry.actor[..],
                &drift[0].entry.after["drift"],
                &drift[0].entry.after["segment"]
            ),
            ("reconciler", &units.into(), &1.into())
        );
        let (before, after) = (&repaired[0].entry.before, &repaired[0].entry.after);
        assert_eq!(
            (
                before["available"].as_i64().unwrap() - after["available"].as_i64().unwrap(),
                &after["segment"]
            ),
            (units, &1.into())
        );
        assert!(repaired[0].entry.token.is_some() && repaired[0].id > drift[0].id);
    }
    ledger.give_all_pages();
    for (n, order) in orders.iter().enumerate() {
        assert_eq!(sale.state(*order).await, Some(OrderState::Held));
        assert!(
            is_held(&sale.order(&buyer(n), "key", 1).await),
            "a repeat has the same answer"
        );
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn drift_that_disappears_is_reported_and_not_repaired(env: &Arc<TestEnv>) {
    env.record().await;
    let confirmation_period = Duration::from_secs(1);
    env.reconcile(ReconcilerSettings {
        confirmation_period,
        ..quick()
    })
    .await;
    let sale = env.sell(40, 2).await;
    let deadline = Deadline::start();
    let mut undone_in_time = 0;
    while undone_in_time < 2 {
        let (drifts, repairs) = (
            sale.journal("drift").await.len(),
            sale.journal("repair").await.len(),
        );
        let epochs = sale.epochs().await;
        let since = Instant::now();
        sale.bend(0, 5).await;
        eventually("the report of the drift", async || {
            sale.journal("drift").await.len() > drifts
        })
        .await;
        tokio::time::sleep(confirmation_period / 4).await;
        sale.bend(0, -5).await;
        // On a busy machine the drift may persist for long enough: then the test tries again.
        let is_in_time = since.elapsed() < confirmation_period;
        tokio::time::sleep(confirmation_period).await;
        sale.comes_to_rest().await;
        if !is_in_time {
            deadline.check("drift was not reported and undone in time");
            continue;
        }
        assert_eq!(sale.journal("drift").await.len(), drifts + 1, "once");
        assert_eq!(sale.journal("repair").await.len(), repairs);
        assert_eq!(sale.epochs().await, epochs, "the segments are unchanged");
        undone_in_time += 1;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_that_redis_oversold_are_rejected_and_not_repaired_twice(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(5, 1).await;
    sale.bend(0, 3).await;
    for n in 0..8 {
        assert!(
            is_held(&sale.order(&buyer(n), "key", 1).await),
            "Redis has the order"
        );
    }
    eventually("recording", async || {
        sale.orders().await.values().sum::<u64>() == 8
    })
    .await;
    assert_eq!(
        sale.orders().await,
        [("held".to_owned(), 5), ("rejected".to_owned(), 3)].into()
    );
    env.reconcile(quick()).await;
    tokio::time::sleep(CONFIRMATION_PERIOD * 3).await;
    assert_eq!(sale.available().await, [0]);
    assert!(
        sale.journal("repair").await.is_empty(),
        "the oversold units are gone"
    );
    // The next repair corrects the counts of rejected orders in Redis.
    sale.bend(0, 1).await;
    eventually("repairing", async || sale.available().await == [0]).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn no_buyer_notices_a_repair_during_a_sale(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell(2000, 2).await;
    let (selling, bending) = (
        async {
            let mut held = 0;
            for wave in 0..40 {
                let orders = (0..20).map(|n| {
                    let sale = Arc::clone(&sale);
                    async move { sale.order(&buyer(wave * 20 + n), "key", 1).await }
                });
                held += futures::future::join_all(orders)
                    .await
                    .iter()
                    .filter(|outcome| is_held(outcome))
                    .count();
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            held
        },
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sale.bend(0, 7).await;
            sale.bend(1, -7).await;
            eventually("repairing both", async || {
                sale.journal("repair").await.len() >= 2
            })
            .await;
        },
    );
    let (held, ()) = tokio::join!(selling, bending);
    assert_eq!(held, 800, "all buyers were answered, and none was refused");
    sale.comes_to_rest().await;
    assert_eq!(sale.orders().await, [("held".to_owned(), 800)].into());
    assert_eq!(sale.journal("drift").await.len(), 2);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_segment_left_halted_is_reopened(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(20, 2).await;
    let order = sale.hold(&buyer(1), "key", 1).await;
    sale.stock
        .halt(&sale.segment(0), 1, stock::OldMemory::Keep)
        .await
        .unwrap();
    let plan = reconciler::plan(&sale.stock, &*sale.ledger, &sale.item.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (plan.steps[0].action, plan.steps[0].segment),
        ("repair", Some(0)),
        "{plan:?}"
    );
    // The halt had the first token. The lock's next token is the first, too: it may have to be
    // raised.
    env.reconcile(quick()).await;
    eventually("opening it", async || {
        sale.inspect(0).await.repairing.is_none()
    })
    .await;
    assert!(is_held(&sale.order(&sale.buyer_at(0, 7), "key", 1).await));
    assert_eq!(sale.state(order).await, Some(OrderState::Held));
}

/// A repair of a segment's drift dies before the commit: the segment is an epoch ahead of the
/// ledger, and keeps its anchor.
async fn repaired_without_a_commit_in_the_ledger(sale: &Sale, segment: u16) {
    sale.bend(segment, 3).await;
    let halted = sale
        .stock
        .halt(&sale.segment(segment), 1, stock::OldMemory::Keep)
        .await
        .unwrap();
    let restoration = sale
        .stock
        .restore(&sale.item, &halted, &[], &[])
        .await
        .unwrap();
    let available = sale.row(segment).await.available;
    sale.stock
        .adjust(
            &sale.item,
            &halted,
            restoration,
            available,
            sale.item.epoch + 1,
        )
        .await
        .unwrap();
}

#[tested(on_both_databases(crate::env::run))]
async fn a_segment_whose_repair_was_not_committed_is_paused_with_its_item(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(20, 2).await;
    repaired_without_a_commit_in_the_ledger(&sale, 0).await;
    eventually("recording it", async || {
        sale.row(0).await.checkpoint == Some(sale.inspect(0).await.last)
    })
    .await;
    assert_eq!(sale.epochs().await, [2, 1]);

    // The operator's change gets the epoch that the segment already has.
    let pause = ItemChange {
        state: Some(ItemState::Paused),
        ..ItemChange::default()
    };
    let changed = sale
        .ledger
        .change_item(&sale.item.id, &pause, None, "operator")
        .await
        .unwrap();
    let Changed::Item(paused) = changed else {
        panic!("{changed:?}")
    };
    assert_eq!(paused.epoch, 2);
    let set = sale.stock.configure(&paused).await.unwrap();
    assert_eq!(
        set,
        [StateSet::Same, StateSet::Set],
        "one segment ignores the change"
    );
    assert!(
        is_held(&sale.order(&sale.buyer_at(0, 7), "key", 1).await),
        "and sells"
    );

    let plan = reconciler::plan(&sale.stock, &*sale.ledger, &sale.item.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            plan.steps[0].action,
            plan.steps[0].segment,
            plan.steps[0].units
        ),
        ("repair", Some(0), 0),
        "{plan:?}"
    );
    env.reconcile(quick()).await;
    eventually("pausing it", async || {
        sale.inspect(0).await.state == ItemState::Paused
    })
    .await;
    eventually("telling the ledger", async || {
        sale.ledger
            .item(&sale.item.id)
            .await
            .unwrap()
            .unwrap()
            .epoch
            == sale.epochs().await[0]
    })
    .await;
    assert_eq!(
        sale.journal("settings").await.len(),
        1,
        "it was reported once"
    );
    eventually("being at rest", async || sale.is_at_rest().await).await;
    assert_eq!(sale.inspect(0).await.available, 9);
}
