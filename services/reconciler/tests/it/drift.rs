//! Differences that nothing explains: told at once, and repaired when they stand.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemState, OrderState};
use ledger::{Changed, ItemChange};
use reconciler::ReconcilerSettings;
use stock::StateSet;

use crate::{
    metrics,
    shop::{CONFIRM_FOR, Sale, Shop, buyer, eventually, is_held, on_both, quick},
};

on_both!(
    a_difference_of_either_sign_is_told_at_once_and_repaired_when_it_has_stood,
    a_difference_that_goes_away_is_told_and_not_repaired,
    what_redis_sold_too_much_is_rejected_and_not_repaired_twice,
    a_repair_in_the_middle_of_a_sale_is_noticed_by_no_buyer,
    a_segment_that_somebody_left_halted_is_opened_again,
    a_segment_whose_mending_the_ledger_never_heard_of_is_paused_with_its_item,
);

fn drift_of(sale: &Sale) -> Option<f64> {
    metrics::gauge("stockade_drift_units", sale.item.id.as_str())
}

async fn a_difference_of_either_sign_is_told_at_once_and_repaired_when_it_has_stood(
    shop: &Arc<Shop>,
) {
    metrics::keep();
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell(40, 2).await;
    let orders = sale.hold_many(0..10).await;
    let before = sale.available().await;
    eventually("the metric being there", async || {
        drift_of(&sale) == Some(0.0)
    })
    .await;
    for (round, units) in [3_i64, -2].into_iter().enumerate() {
        let (epoch, since) = (sale.epochs().await[1], Instant::now());
        sale.bend(1, units).await;
        eventually("telling the difference", async || {
            drift_of(&sale) == Some(units.unsigned_abs() as f64)
        })
        .await;
        let told = reconciler::explain(&sale.stock, &*sale.ledger, &sale.item.id)
            .await
            .unwrap()
            .unwrap();
        if since.elapsed() < CONFIRM_FOR {
            assert!(told.is_pressing(), "{told:?}");
            assert_eq!(
                (
                    told.steps[0].action,
                    told.steps[0].segment,
                    told.steps[0].units
                ),
                ("mend", Some(1), units),
                "{told:?}"
            );
        }
        eventually("repairing it", async || sale.available().await == before).await;
        assert!(
            since.elapsed() >= CONFIRM_FOR,
            "it was repaired after {:?}",
            since.elapsed()
        );
        eventually("the metric being 0 again", async || {
            drift_of(&sale) == Some(0.0)
        })
        .await;
        assert!(sale.epochs().await[1] > epoch, "under a new epoch");

        let (drift, mended) = (sale.journal("drift").await, sale.journal("mend").await);
        assert_eq!(
            (drift.len(), mended.len()),
            (round + 1, round + 1),
            "once each"
        );
        assert_eq!(
            (
                &drift[0].entry.actor[..],
                &drift[0].entry.after["drift"],
                &drift[0].entry.after["segment"]
            ),
            ("reconciler", &units.into(), &1.into())
        );
        let (told, done) = (&mended[0].entry.before, &mended[0].entry.after);
        assert_eq!(
            (
                told["available"].as_i64().unwrap() - done["available"].as_i64().unwrap(),
                &done["segment"]
            ),
            (units, &1.into())
        );
        assert!(mended[0].entry.token.is_some() && mended[0].id > drift[0].id);
    }
    for (n, order) in orders.iter().enumerate() {
        assert_eq!(sale.state(*order).await, Some(OrderState::Held));
        assert!(
            is_held(&sale.order(&buyer(n), "key", 1).await),
            "a repeat has the same answer"
        );
    }
}

async fn a_difference_that_goes_away_is_told_and_not_repaired(shop: &Arc<Shop>) {
    shop.record().await;
    // Long enough for a busy machine to undo it in time.
    let confirm_for = Duration::from_secs(2);
    shop.reconcile(ReconcilerSettings {
        confirm_for,
        ..quick()
    })
    .await;
    let sale = shop.sell(40, 2).await;
    let epochs = sale.epochs().await;
    for _ in 0..2 {
        sale.bend(0, 5).await;
        tokio::time::sleep(confirm_for / 4).await;
        sale.bend(0, -5).await;
        tokio::time::sleep(confirm_for).await;
    }
    assert_eq!(sale.journal("drift").await.len(), 2, "each was told");
    assert!(sale.journal("mend").await.is_empty());
    assert_eq!(
        sale.epochs().await,
        epochs,
        "and nobody touched the segments"
    );
}

async fn what_redis_sold_too_much_is_rejected_and_not_repaired_twice(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(5, 1).await;
    sale.bend(0, 3).await;
    for n in 0..8 {
        assert!(
            is_held(&sale.order(&buyer(n), "key", 1).await),
            "Redis thinks that it has it"
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
    shop.reconcile(quick()).await;
    tokio::time::sleep(CONFIRM_FOR * 3).await;
    assert_eq!(sale.available().await, [0]);
    assert!(
        sale.journal("mend").await.is_empty(),
        "what was sold too much is not there any more"
    );
    // The counts of those that were rejected are Redis' own matter, which the next repair sets right.
    sale.bend(0, 1).await;
    eventually("repairing", async || sale.available().await == [0]).await;
}

async fn a_repair_in_the_middle_of_a_sale_is_noticed_by_no_buyer(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell(2000, 2).await;
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
                sale.journal("mend").await.len() >= 2
            })
            .await;
        },
    );
    let (held, ()) = tokio::join!(selling, bending);
    assert_eq!(held, 800, "everybody was answered, and nobody was refused");
    sale.comes_to_rest().await;
    assert_eq!(sale.orders().await, [("held".to_owned(), 800)].into());
    assert_eq!(sale.journal("drift").await.len(), 2);
}

async fn a_segment_that_somebody_left_halted_is_opened_again(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(20, 2).await;
    let order = sale.hold(&buyer(1), "key", 1).await;
    sale.stock.halt(&sale.segment(0), 1).await.unwrap();
    let told = reconciler::explain(&sale.stock, &*sale.ledger, &sale.item.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (told.steps[0].action, told.steps[0].segment),
        ("mend", Some(0)),
        "{told:?}"
    );
    // The halt had the first token. The lock's next one is the first, too: it may have to be told.
    shop.reconcile(quick()).await;
    eventually("opening it", async || {
        sale.inspect(0).await.mending.is_none()
    })
    .await;
    assert!(is_held(&sale.order(&sale.buyer_at(0, 7), "key", 1).await));
    assert_eq!(sale.state(order).await, Some(OrderState::Held));
}

/// Somebody mends a segment's drift and dies before the commit: the segment is an epoch ahead of the ledger, and keeps its anchor.
async fn mended_without_a_word_to_the_ledger(sale: &Sale, segment: u16) {
    sale.bend(segment, 3).await;
    let halted = sale.stock.halt(&sale.segment(segment), 1).await.unwrap();
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

async fn a_segment_whose_mending_the_ledger_never_heard_of_is_paused_with_its_item(
    shop: &Arc<Shop>,
) {
    shop.record().await;
    let sale = shop.sell(20, 2).await;
    mended_without_a_word_to_the_ledger(&sale, 0).await;
    eventually("recording it", async || {
        sale.row(0).await.checkpoint == Some(sale.inspect(0).await.last)
    })
    .await;
    assert_eq!(sale.epochs().await, [2, 1]);

    // The operator's change gets the epoch that the segment has seen already.
    let pause = ItemChange {
        state: Some(ItemState::Paused),
        ..ItemChange::default()
    };
    let changed = sale
        .ledger
        .change_item(&sale.item.id, &pause, None, "somebody")
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
        "one takes it for known"
    );
    assert!(
        is_held(&sale.order(&sale.buyer_at(0, 7), "key", 1).await),
        "and sells"
    );

    let told = reconciler::explain(&sale.stock, &*sale.ledger, &sale.item.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            told.steps[0].action,
            told.steps[0].segment,
            told.steps[0].units
        ),
        ("mend", Some(0), 0),
        "{told:?}"
    );
    shop.reconcile(quick()).await;
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
    assert_eq!(sale.journal("settings").await.len(), 1, "it was told once");
    eventually("being at rest", async || sale.is_at_rest().await).await;
    assert_eq!(sale.inspect(0).await.available, 9);
}
