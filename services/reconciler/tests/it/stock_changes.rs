//! Interrupted transfers: each continues from the step where it stopped.

use std::sync::Arc;

use domain::TransferId;
use ledger::TransferPlan;
use testkit::{Sale, TestEnv, buyer, is_held, on_both_databases, tested};

use crate::env::quick;

/// The step at which the transfer was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Planned,
    Left,
    LeftAndRecorded,
    Arrived,
}

const STEPS: [Step; 4] = [
    Step::Planned,
    Step::Left,
    Step::LeftAndRecorded,
    Step::Arrived,
];

/// No recorder runs until the test starts one.
async fn record(sale: &Sale) {
    sale.record_once().await;
}

async fn a_sale(env: &Arc<TestEnv>) -> Arc<Sale> {
    let sale = env.sell(20, 2).await;
    assert!(is_held(&sale.order(&sale.buyer_at(0, 0), "key", 1).await));
    record(&sale).await;
    sale.ledger.claim_item(&sale.item.id, 1).await.unwrap();
    sale
}

async fn is_completed(env: &Arc<TestEnv>, sales: &[Arc<Sale>]) {
    env.record().await;
    env.reconcile(quick()).await;
    for sale in sales {
        sale.comes_to_rest().await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_transfer_continues_from_every_step(env: &Arc<TestEnv>) {
    let mut sales = Vec::new();
    for step in STEPS {
        let sale = a_sale(env).await;
        let plan = TransferPlan {
            id: TransferId::random(),
            from: 0,
            to: 1,
            units: 4,
        };
        sale.ledger
            .plan_transfers(&sale.item.id, 1, &[plan])
            .await
            .unwrap();
        if step >= Step::Left {
            assert_eq!(
                sale.stock
                    .transfer_out(&sale.segment(0), plan.id, 4, 1)
                    .await
                    .unwrap(),
                4
            );
        }
        if step >= Step::LeftAndRecorded {
            record(&sale).await;
        }
        if step >= Step::Arrived {
            sale.stock
                .transfer_in(&sale.segment(1), plan.id, 4, 1)
                .await
                .unwrap();
        }
        sales.push(sale);
    }
    is_completed(env, &sales).await;
    for (sale, step) in sales.iter().zip(STEPS) {
        assert_eq!(sale.available().await, [5, 14], "{step:?}");
        assert_eq!(
            [sale.row(0).await.allocated, sale.row(1).await.allocated],
            [6, 14],
            "{step:?}"
        );
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_top_up_continues_from_every_step(env: &Arc<TestEnv>) {
    let mut sales = Vec::new();
    for step in [Step::LeftAndRecorded, Step::Arrived] {
        let sale = a_sale(env).await;
        let (transfer, item) = sale.top_up(1, 7).await;
        assert_eq!(item.stock, 27);
        if step == Step::Arrived {
            sale.stock
                .transfer_in(&sale.segment(1), transfer, 7, 1)
                .await
                .unwrap();
        }
        sales.push(sale);
    }
    is_completed(env, &sales).await;
    for sale in &sales {
        assert_eq!(sale.available().await, [9, 17]);
        assert_eq!(sale.report().await.stock, 27);
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_withdrawal_continues_from_every_step(env: &Arc<TestEnv>) {
    let mut sales = Vec::new();
    for step in [Step::Planned, Step::Left, Step::LeftAndRecorded] {
        let sale = a_sale(env).await;
        let (transfer, _) = sale.withdraw(0, 4).await;
        if step >= Step::Left {
            assert_eq!(
                sale.stock
                    .transfer_out(&sale.segment(0), transfer, 4, 1)
                    .await
                    .unwrap(),
                4
            );
        }
        if step >= Step::LeftAndRecorded {
            record(&sale).await;
            assert_eq!(sale.report().await.in_transit, 4);
        }
        sales.push(sale);
    }
    is_completed(env, &sales).await;
    for sale in &sales {
        assert_eq!(sale.available().await, [5, 10]);
        assert_eq!(sale.report().await.stock, 16);
        assert_eq!(sale.journal("withdrawn").await.len(), 1, "once");
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_withdrawal_takes_the_units_that_are_unsold_when_it_runs(env: &Arc<TestEnv>) {
    let sale = a_sale(env).await;
    sale.withdraw(0, 9).await;
    // The withdrawal was planned when there were nine units. An order takes six of them first.
    assert!(is_held(&sale.order(&sale.buyer_at(0, 1), "key", 6).await));
    is_completed(env, &[Arc::clone(&sale)]).await;
    assert_eq!(
        (
            sale.available().await,
            sale.report().await.stock,
            sale.report().await.held
        ),
        (vec![0, 10], 17, 7)
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn several_reconcilers_execute_each_transfer_once(env: &Arc<TestEnv>) {
    let sale = env.sell(400, 4).await;
    let plan = |n: u16| TransferPlan {
        id: TransferId::random(),
        from: n % 4,
        to: (n + 1) % 4,
        units: 3,
    };
    let plans: Vec<_> = (0..40).map(plan).collect();
    sale.ledger.claim_item(&sale.item.id, 1).await.unwrap();
    sale.ledger
        .plan_transfers(&sale.item.id, 1, &plans)
        .await
        .unwrap();
    for _ in 0..3 {
        env.reconcile(quick()).await;
    }
    is_completed(env, &[Arc::clone(&sale)]).await;
    assert_eq!(
        sale.available().await,
        [100; 4],
        "each segment gave and got thirty units"
    );
    assert!(is_held(&sale.order(&buyer(0), "key", 1).await));
}
