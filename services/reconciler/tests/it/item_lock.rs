//! A reconciler that lost the lock, or never had it, changes nothing.

use std::{sync::Arc, time::Duration};

use domain::{OrderState, TransferId};
use ledger::{LedgerError, TransferPlan};
use stock::{Outcome, Restoration, StockError};
use testkit::{
    Sale, TestEnv, buyer, eventually, eventually_some, is_held, on_both_databases, tested,
};

use crate::{env::quick, locks::Anarchy};

/// An item with recorded orders.
async fn sold(env: &Arc<TestEnv>) -> Arc<Sale> {
    env.record().await;
    let sale = env.sell(60, 2).await;
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

/// A reconciler halts a segment under token 1 and stalls; meanwhile another one repairs all
/// segments and moves units.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_reconciler_that_lost_its_lock_during_a_repair_is_refused_everywhere(env: &Arc<TestEnv>) {
    let sale = sold(env).await;
    let (id, mine, planned) = (&sale.item.id, 1, TransferId::random());
    sale.ledger.claim_item(id, mine).await.unwrap();
    let seen = sale
        .stock
        .halt(&sale.segment(0), mine, stock::OldMemory::Keep)
        .await
        .unwrap();
    let memories = sale.ledger.memories(id, None, 1_000).await.unwrap().rows;
    let staged = sale
        .ledger
        .claim_for_repair(&[sale.segment(0)], mine)
        .await
        .unwrap();
    let row = staged.rows()[0].clone();
    staged.release().await;

    env.reconcile_with(quick(), Arc::new(Anarchy::from(2)))
        .await;
    sale.comes_to_rest().await;
    // The segment without a fault gets the new epoch too.
    eventually("all segments having the new epoch", async || {
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

    refused_by_segment(
        sale.stock
            .halt(&sale.segment(0), mine, stock::OldMemory::Keep)
            .await,
    );
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
    refused_by_ledger(sale.ledger.claim_for_repair(&[sale.segment(0)], mine).await);
    refused_by_ledger(sale.ledger.plan_transfers(id, mine, &plan(planned)).await);
    let (withdrawal, _) = sale.withdraw(0, 1).await;
    let transfer = sale
        .ledger
        .open_transfers(Some(id))
        .await
        .unwrap()
        .into_iter()
        .find(|transfer| transfer.id == withdrawal);
    if let Some(transfer) = transfer {
        refused_by_ledger(
            sale.ledger
                .finish_withdrawal(&transfer, mine, "stalled reconciler")
                .await,
        );
    }

    sale.comes_to_rest().await;
    assert_eq!(
        sale.available().await,
        [before[0] - 1, before[1]],
        "only the admin's withdrawal changed the stock"
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
    assert_eq!(units(&now[1]), units(&rows[1]), "no units were moved there");
    assert_eq!(sale.orders().await, [("held".to_owned(), 20)].into());
}

/// New lock servers start with low tokens.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn low_tokens_repair_nothing_until_they_are_high_enough(env: &Arc<TestEnv>) {
    let sale = sold(env).await;
    sale.ledger.claim_item(&sale.item.id, 50).await.unwrap();
    let lock = Arc::new(Anarchy::from(1).that_gives_up_to(49));
    sale.bend(0, 4).await;
    let bent = sale.available().await;
    let early = env.reconciler(quick(), Arc::clone(&lock) as _).await;
    eventually("trying with many tokens", async || lock.given() > 20).await;
    assert_eq!(sale.available().await, bent, "nothing was changed");
    assert!(sale.journal("repair").await.is_empty());
    assert_eq!(
        sale.inspect(0).await.repairing,
        None,
        "the segment is not halted either"
    );
    assert_eq!(lock.noted(), 50, "the lock was given the row's token");
    lock.gives_all();
    eventually("repairing with a token that is high enough", async || {
        sale.journal("repair").await.len() == 1
    })
    .await;
    early.stop().await;
    assert!(sale.journal("repair").await[0].entry.token >= Some(50));
}

/// A hundred holders, each of which loses the lock at some point of its work.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn the_next_holder_continues_the_work_of_one_that_lost_the_lock(env: &Arc<TestEnv>) {
    let sale = sold(env).await;
    for micros in (0..8000_u32).step_by(250) {
        let lock = Anarchy::from(1 + i64::from(micros) * 100)
            .that_is_lost_after(Duration::from_micros(micros.into()));
        if micros % 1000 == 0 {
            empty(&sale).await;
        }
        let reconciler = env.reconciler(quick(), Arc::new(lock)).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        reconciler.stop().await;
    }
    env.reconcile_with(quick(), Arc::new(Anarchy::from(10_000_000)))
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

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn several_reconcilers_repair_each_fault_once(env: &Arc<TestEnv>) {
    let sale = sold(env).await;
    for _ in 0..3 {
        env.reconcile(quick()).await;
    }
    for _ in 0..3 {
        empty(&sale).await;
        sale.comes_to_rest().await;
        sale.bend(1, 5).await;
        sale.comes_to_rest().await;
        assert_eq!(sale.available().await.iter().sum::<u64>(), 40);
    }
    // Two lost segments and one drift, three times: the reconciler that comes second finds no work.
    // The journal is written last.
    eventually("noting the last repair", async || {
        sale.journal("repair").await.len() >= 9
    })
    .await;
    assert_eq!(sale.journal("repair").await.len(), 9);
    // The two lost segments get one epoch if one look finds both, as nearly always, or one each.
    let epoch = sale.epochs().await[1];
    assert!((7..=10).contains(&epoch), "{epoch}");
}

/// Without a working lock, many reconcilers run concurrently: only tokens and versions protect the
/// item.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn only_the_latest_token_takes_effect_if_all_reconcilers_have_the_lock(env: &Arc<TestEnv>) {
    let sale = sold(env).await;
    let lock = Anarchy::from(1).that_waits_up_to(Duration::from_secs(1));
    let lock = Arc::new(lock);
    for _ in 0..3 {
        env.reconcile_with(quick(), Arc::clone(&lock) as _).await;
    }
    for _ in 0..3 {
        empty(&sale).await;
        sale.comes_to_rest().await;
        lock.is_at_rest();
        sale.bend(0, -3).await;
        eventually("repairing the difference", async || {
            sale.available().await.iter().sum::<u64>() == 40
        })
        .await;
        sale.comes_to_rest().await;
        lock.is_at_rest();
    }
    for n in 0..20 {
        assert!(is_held(&repeat(&sale, n).await));
    }
}

/// Repeats an order. A reconciler that looked before the last repair ended may halt a segment once
/// more, and then the answer is that a retry is safe.
async fn repeat(sale: &Arc<Sale>, n: usize) -> Outcome {
    eventually_some("repeating an order", async || {
        match sale.try_order(sale.reservation(&buyer(n), "key", 1)).await {
            Ok(outcome) => Some(outcome),
            Err(error) if error.is_retryable() => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await
}
