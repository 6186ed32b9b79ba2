//! The reconciler finishes abandoned spillovers and removes settled ones.

use std::{sync::Arc, time::Duration};

use domain::BuyerId;
use stock::{InspectionEntries, Outcome, Reservation};
use testkit::{Sale, TestEnv, eventually, eventually_some, on_both_databases, tested};

use crate::env::quick;

fn short(sale: &Sale, buyer: &str, units: u32) -> Reservation {
    Reservation {
        within: Duration::from_millis(500),
        ..sale.reservation(&BuyerId::new(buyer).unwrap(), "key", units)
    }
}

async fn pending_spillovers(sale: &Sale) -> u64 {
    let segments = sale
        .stock
        .item(&sale.item)
        .inspect(InspectionEntries::None)
        .await
        .unwrap();
    segments.iter().map(|segment| segment.spillovers).sum()
}

#[tested(on_both_databases(crate::env::run))]
async fn abandoned_spillovers_are_settled(env: &Arc<TestEnv>) {
    let sale = env.sell(9, 3).await;
    // The item has fewer units: a settled spillover, which every segment has to remove.
    let greedy = eventually_some("an answer in time", async || {
        sale.try_order(short(&sale, "greedy", 10)).await.ok()
    });
    assert_eq!(greedy.await, Outcome::SoldOut);
    assert_eq!(pending_spillovers(&sale).await, 1);
    for n in 0..60 {
        let spilling = Arc::clone(&sale);
        let order = tokio::spawn(async move {
            spilling
                .try_order(short(&spilling, &format!("buyer-{n}"), 1 + n % 3))
                .await
        });
        tokio::time::sleep(Duration::from_micros(u64::from(n) * 20)).await;
        order.abort();
    }
    env.reconcile(quick()).await;
    env.record().await;
    eventually("settling every spillover", async || {
        pending_spillovers(&sale).await == 0
    })
    .await;
}
