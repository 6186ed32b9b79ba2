//! Transfers that somebody began and did not end: each is carried on from where it was.

use std::sync::Arc;

use domain::TransferId;
use ledger::{Changed, StockChange, StockPart, TransferPlan};

use crate::shop::{Sale, Shop, buyer, is_held, on_both, quick};

on_both!(
    a_transfer_is_carried_on_from_every_step,
    new_units_arrive_from_every_step,
    a_take_back_is_carried_on_from_every_step,
    a_take_back_takes_what_nobody_has_by_then,
    several_who_carry_transfers_on_move_each_once,
);

/// Where whoever carried it died.
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

/// Nobody records by himself until the test lets a recorder in.
async fn record(sale: &Sale) {
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
}

async fn a_sale(shop: &Arc<Shop>) -> Arc<Sale> {
    let sale = shop.sell(20, 2).await;
    assert!(is_held(&sale.order(&sale.buyer_at(0, 0), "key", 1).await));
    record(&sale).await;
    sale.ledger.claim_item(&sale.item.id, 1).await.unwrap();
    sale
}

async fn is_carried_on(shop: &Arc<Shop>, sales: &[Arc<Sale>]) {
    shop.record().await;
    shop.reconcile(quick()).await;
    for sale in sales {
        sale.comes_to_rest().await;
    }
}

async fn a_transfer_is_carried_on_from_every_step(shop: &Arc<Shop>) {
    let mut sales = Vec::new();
    for step in STEPS {
        let sale = a_sale(shop).await;
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
    is_carried_on(shop, &sales).await;
    for (sale, step) in sales.iter().zip(STEPS) {
        assert_eq!(sale.available().await, [5, 14], "{step:?}");
        assert_eq!(
            [sale.row(0).await.allocated, sale.row(1).await.allocated],
            [6, 14],
            "{step:?}"
        );
    }
}

async fn new_units_arrive_from_every_step(shop: &Arc<Shop>) {
    let mut sales = Vec::new();
    for step in [Step::LeftAndRecorded, Step::Arrived] {
        let sale = a_sale(shop).await;
        let part = StockPart {
            transfer: TransferId::random(),
            segment: 1,
            units: 7,
        };
        let changed = sale
            .ledger
            .change_stock(
                &sale.item.id,
                &StockChange::TopUp(vec![part]),
                None,
                "admin",
            )
            .await
            .unwrap();
        assert!(matches!(changed, Changed::Item(item) if item.stock == 27));
        if step == Step::Arrived {
            sale.stock
                .transfer_in(&sale.segment(1), part.transfer, 7, 1)
                .await
                .unwrap();
        }
        sales.push(sale);
    }
    is_carried_on(shop, &sales).await;
    for sale in &sales {
        assert_eq!(
            (sale.available().await, sale.report().await.stock),
            (vec![9, 17], 27)
        );
    }
}

async fn a_take_back_is_carried_on_from_every_step(shop: &Arc<Shop>) {
    let mut sales = Vec::new();
    for step in [Step::Planned, Step::Left, Step::LeftAndRecorded] {
        let sale = a_sale(shop).await;
        let part = StockPart {
            transfer: TransferId::random(),
            segment: 0,
            units: 4,
        };
        sale.ledger
            .change_stock(
                &sale.item.id,
                &StockChange::TakeBack(vec![part]),
                None,
                "admin",
            )
            .await
            .unwrap();
        if step >= Step::Left {
            assert_eq!(
                sale.stock
                    .transfer_out(&sale.segment(0), part.transfer, 4, 1)
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
    is_carried_on(shop, &sales).await;
    for sale in &sales {
        assert_eq!(
            (sale.available().await, sale.report().await.stock),
            (vec![5, 10], 16)
        );
        assert_eq!(sale.journal("taken_back").await.len(), 1, "once");
    }
}

async fn a_take_back_takes_what_nobody_has_by_then(shop: &Arc<Shop>) {
    let sale = a_sale(shop).await;
    let part = StockPart {
        transfer: TransferId::random(),
        segment: 0,
        units: 9,
    };
    sale.ledger
        .change_stock(
            &sale.item.id,
            &StockChange::TakeBack(vec![part]),
            None,
            "admin",
        )
        .await
        .unwrap();
    // It was decided when there were nine. By now somebody has bought six of them.
    assert!(is_held(&sale.order(&sale.buyer_at(0, 1), "key", 6).await));
    is_carried_on(shop, &[Arc::clone(&sale)]).await;
    assert_eq!(
        (
            sale.available().await,
            sale.report().await.stock,
            sale.report().await.held
        ),
        (vec![0, 10], 17, 7)
    );
}

async fn several_who_carry_transfers_on_move_each_once(shop: &Arc<Shop>) {
    let sale = shop.sell(400, 4).await;
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
        shop.reconcile(quick()).await;
    }
    is_carried_on(shop, &[Arc::clone(&sale)]).await;
    assert_eq!(
        sale.available().await,
        [100; 4],
        "each gave thirty and got thirty"
    );
    assert!(is_held(&sale.order(&buyer(0), "key", 1).await));
}
