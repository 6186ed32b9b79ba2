//! Walks that nobody ends are ended, and walks that are over are forgotten.

use std::{sync::Arc, time::Duration};

use domain::BuyerId;
use stock::{Ask, InspectionEntries, Outcome};

use crate::shop::{Sale, Shop, eventually, on_both, quick};

on_both!(abandoned_walks_are_settled);

fn short(sale: &Sale, buyer: &str, units: u32) -> Ask {
    Ask {
        within: Duration::from_millis(150),
        ..sale.ask(&BuyerId::new(buyer).unwrap(), "key", units)
    }
}

async fn walks(sale: &Sale) -> u64 {
    let segments = sale
        .stock
        .item(&sale.item)
        .inspect(InspectionEntries::None)
        .await
        .unwrap();
    segments.iter().map(|segment| segment.walks).sum()
}

async fn abandoned_walks_are_settled(shop: &Arc<Shop>) {
    let sale = shop.sell(9, 3).await;
    // No segment has as many: a walk that ended and has to be forgotten everywhere.
    assert_eq!(
        sale.try_order(short(&sale, "greedy", 4)).await.unwrap(),
        Outcome::SoldOut
    );
    assert_eq!(walks(&sale).await, 1);
    for n in 0..60 {
        let walking = Arc::clone(&sale);
        let order = tokio::spawn(async move {
            walking
                .try_order(short(&walking, &format!("buyer-{n}"), 1 + n % 3))
                .await
        });
        tokio::time::sleep(Duration::from_micros(u64::from(n) * 20)).await;
        order.abort();
    }
    shop.reconcile(quick()).await;
    shop.record().await;
    eventually("settling every walk", async || walks(&sale).await == 0).await;
}
