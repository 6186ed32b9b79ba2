//! Who had the lock once, and who never had it, changes nothing.

use std::{sync::Arc, time::Duration};

use domain::{OrderState, TransferId};
use ledger::{LedgerError, StockChange, StockPart, TransferPlan};
use stock::{Restoration, StockError};

use crate::{
    locks::Anarchy,
    shop::{Sale, Shop, buyer, eventually, is_held, on_both_with_a_redis_of_its_own, quick},
};

on_both_with_a_redis_of_its_own!(
    who_wakes_up_in_the_middle_of_mending_is_refused_everywhere,
    tokens_that_are_too_low_repair_nothing_until_they_are_high_enough,
    a_lock_that_is_lost_in_the_middle_leaves_what_the_next_holder_carries_on,
    several_reconcilers_do_not_disturb_one_another,
    everybody_has_the_lock_and_only_the_latest_counts,
);

/// An item with recorded orders.
async fn sold(shop: &Arc<Shop>) -> Arc<Sale> {
    shop.record().await;
    let sale = shop.sell(60, 2).await;
    sale.hold_many(0..20).await;
    sale.comes_to_rest().await;
    sale
}

async fn empty(sale: &Sale) {
    let _: String = sale.redis(&redis::cmd("FLUSHALL")).await;
}

#[track_caller]
fn refused_by_segment<T: std::fmt::Debug>(outcome: Result<T, StockError>) {
    assert!(
        matches!(outcome, Err(StockError::Fenced { .. })),
        "{outcome:?}"
    );
}

#[track_caller]
fn refused_by_ledger<T>(outcome: Result<T, LedgerError>) {
    let error = outcome.err().expect("it has no authority");
    assert!(matches!(error, LedgerError::Fenced { .. }), "{error}");
}

/// It halted a segment under token 1 and was stopped; meanwhile another one mended all and moved units.
async fn who_wakes_up_in_the_middle_of_mending_is_refused_everywhere(shop: &Arc<Shop>) {
    let sale = sold(shop).await;
    let (id, mine, planned) = (&sale.item.id, 1, TransferId::random());
    sale.ledger.claim_item(id, mine).await.unwrap();
    let seen = sale.stock.halt(&sale.segment(0), mine).await.unwrap();
    let mut staged = sale
        .ledger
        .claim_to_mend(&[sale.segment(0)], mine)
        .await
        .unwrap();
    let memories = staged.memories().await.unwrap();
    let row = staged.rows()[0].clone();
    staged.release().await;

    shop.reconcile_with(quick(), Arc::new(Anarchy::from(2)))
        .await;
    sale.comes_to_rest().await;
    // The segment that was right hears of the new epoch too.
    eventually("everybody hearing of it", async || {
        sale.epochs()
            .await
            .windows(2)
            .all(|pair| pair[0] == pair[1])
    })
    .await;
    sale.comes_to_rest().await;
    let plan = |id| {
        [TransferPlan {
            id,
            from: 1,
            to: 0,
            units: 3,
        }]
    };
    let (before, epochs, rows) = (
        sale.available().await,
        sale.epochs().await,
        sale.ledger.segments(id).await.unwrap(),
    );

    refused_by_segment(sale.stock.halt(&sale.segment(0), mine).await);
    refused_by_segment(sale.stock.restore(&sale.item, &seen, &memories, &[]).await);
    refused_by_segment(
        sale.stock
            .adjust(
                &sale.item,
                &seen,
                Restoration::default(),
                row.available + 7,
                99,
            )
            .await,
    );
    refused_by_segment(
        sale.stock
            .transfer_out(&sale.segment(0), planned, 3, mine)
            .await,
    );
    refused_by_segment(
        sale.stock
            .transfer_in(&sale.segment(0), planned, 3, mine)
            .await,
    );
    refused_by_ledger(sale.ledger.claim_item(id, mine).await);
    refused_by_ledger(sale.ledger.claim_to_mend(&[sale.segment(0)], mine).await);
    refused_by_ledger(sale.ledger.plan_transfers(id, mine, &plan(planned)).await);
    let part = StockPart {
        transfer: TransferId::random(),
        segment: 0,
        units: 1,
    };
    sale.ledger
        .change_stock(id, &StockChange::TakeBack(vec![part]), None, "admin")
        .await
        .unwrap();
    let transfer = sale
        .ledger
        .open_transfers(Some(id))
        .await
        .unwrap()
        .into_iter()
        .find(|transfer| transfer.id == part.transfer);
    if let Some(transfer) = transfer {
        refused_by_ledger(
            sale.ledger
                .finish_take_back(&transfer, mine, "somebody who slept")
                .await,
        );
    }

    sale.comes_to_rest().await;
    assert_eq!(
        sale.available().await,
        [before[0] - 1, before[1]],
        "what the admin took back, and nothing else"
    );
    assert_eq!(sale.epochs().await, epochs);
    let now = sale.ledger.segments(id).await.unwrap();
    let units = |row: &ledger::SegmentRow| {
        (
            row.allocated,
            row.available,
            row.held,
            row.confirmed,
            row.returning,
        )
    };
    assert_eq!(
        units(&now[1]),
        units(&rows[1]),
        "nothing came or went there"
    );
    assert_eq!(sale.orders().await, [("held".to_owned(), 20)].into());
}

/// Lock servers that were set up anew begin with low tokens.
async fn tokens_that_are_too_low_repair_nothing_until_they_are_high_enough(shop: &Arc<Shop>) {
    let sale = sold(shop).await;
    sale.ledger.claim_item(&sale.item.id, 50).await.unwrap();
    let lock = Arc::new(Anarchy::from(1));
    sale.bend(0, 4).await;
    let bent = sale.available().await;
    let early = shop.reconciler(quick(), Arc::clone(&lock) as _).await;
    eventually("trying with many tokens", async || lock.given() > 20).await;
    assert_eq!(sale.available().await, bent, "nothing was changed");
    assert!(sale.journal("mend").await.is_empty());
    assert_eq!(sale.inspect(0).await.mending, None, "not even halted");
    assert_eq!(lock.noted(), 50, "and the lock was told");
    eventually("repairing with a token that is high enough", async || {
        sale.journal("mend").await.len() == 1
    })
    .await;
    early.stop().await;
    assert!(sale.journal("mend").await[0].entry.token >= Some(50));
}

/// A hundred holders, each of whom loses the lock somewhere on the way.
async fn a_lock_that_is_lost_in_the_middle_leaves_what_the_next_holder_carries_on(
    shop: &Arc<Shop>,
) {
    let sale = sold(shop).await;
    for micros in (0..8000_u32).step_by(250) {
        let lock = Anarchy::from(1 + i64::from(micros) * 100)
            .that_is_lost_after(Duration::from_micros(micros.into()));
        if micros % 1000 == 0 {
            empty(&sale).await;
        }
        let reconciler = shop.reconciler(quick(), Arc::new(lock)).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        reconciler.stop().await;
    }
    shop.reconcile_with(quick(), Arc::new(Anarchy::from(10_000_000)))
        .await;
    sale.comes_to_rest().await;
    for n in 0..20 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
        assert_eq!(
            sale.state(sale.order_id(&buyer(n), "key")).await,
            Some(OrderState::Held)
        );
    }
    assert_eq!(sale.available().await.iter().sum::<u64>(), 40);
}

async fn several_reconcilers_do_not_disturb_one_another(shop: &Arc<Shop>) {
    let sale = sold(shop).await;
    for _ in 0..3 {
        shop.reconcile(quick()).await;
    }
    for _ in 0..3 {
        empty(&sale).await;
        sale.comes_to_rest().await;
        sale.bend(1, 5).await;
        sale.comes_to_rest().await;
        assert_eq!(sale.available().await.iter().sum::<u64>(), 40);
    }
    // Two segments that were gone, and a difference in one, thrice: whoever comes second finds nothing to do. The journal is written last.
    eventually("noting the last repair", async || {
        sale.journal("mend").await.len() >= 9
    })
    .await;
    assert_eq!(
        (sale.journal("mend").await.len(), sale.epochs().await[1]),
        (9, 7)
    );
}

/// No lock at all, and many at once: the tokens and versions alone keep them apart.
async fn everybody_has_the_lock_and_only_the_latest_counts(shop: &Arc<Shop>) {
    let sale = sold(shop).await;
    let lock = Arc::new(Anarchy::from(1));
    for _ in 0..3 {
        shop.reconcile_with(quick(), Arc::clone(&lock) as _).await;
    }
    for _ in 0..3 {
        empty(&sale).await;
        sale.comes_to_rest().await;
        sale.bend(0, -3).await;
        eventually("repairing the difference", async || {
            sale.available().await.iter().sum::<u64>() == 40
        })
        .await;
        sale.comes_to_rest().await;
    }
    for n in 0..20 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
}
