//! Units that come back can be bought at once, also where the item has just been called sold out.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::shop::{Answer, Options, Shop, open_each};

/// Far longer than the test: nobody looks again by himself.
const HINT: Duration = Duration::from_secs(600);

/// What is refused at every instance by its hint.
async fn sold_out_everywhere(shop: &Shop, item: &str) {
    for instance in 0..shop.urls.len() {
        for n in 0..3 {
            Answer::of(shop.order_at(instance, item, &format!("early-{instance}-{n}"), "k", 1))
                .await
                .is(409, "sold_out");
        }
    }
}

/// The message that units came back is on its way while we ask, hence a few looks; the hint alone would refuse for ten minutes.
async fn is_bought_at(shop: &Shop, instance: usize, item: &str, what: &str) -> String {
    let since = Instant::now();
    for attempt in 0.. {
        let answer = Answer::of(shop.order_at(
            instance,
            item,
            &format!("{what}-{instance}"),
            &format!("k-{attempt}"),
            1,
        ))
        .await;
        if answer.status == 201 {
            eprintln!(
                "{what}: bought at instance {instance} after {:?}",
                since.elapsed()
            );
            return answer.body["id"].as_str().unwrap().to_owned();
        }
        answer.is(409, "sold_out");
        assert!(
            since.elapsed() < Duration::from_secs(2),
            "{what}: instance {instance} still says sold out"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    unreachable!()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_is_bought_at_once_at_every_instance() {
    open_each(
        Options {
            instances: 3,
            hint_lifetime: HINT,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop
                .create(json!({ "stock": 1, "segments": 2, "limit_per_buyer": 1 }))
                .await;
            let mut order = shop.hold(&item, "ann", "k").await;
            sold_out_everywhere(&shop, &item).await;
            shop.cancel_at(0, "ann", &order).await.is_now("cancelled");
            order = is_bought_at(&shop, 2, &item, "cancelled").await;
            sold_out_everywhere(&shop, &item).await;
            shop.pay(&order, "pay-1").await.is_now("confirmed");
            sold_out_everywhere(&shop, &item).await;
            shop.refund_at(1, &order).await.is_now("refunded");
            is_bought_at(&shop, 0, &item, "refunded").await;
            sold_out_everywhere(&shop, &item).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_is_bought_at_every_instance() {
    open_each(
        Options {
            instances: 2,
            hint_lifetime: HINT,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop
                .create(json!({ "stock": 2, "segments": 2, "hold_seconds": 1 }))
                .await;
            let orders = [
                shop.hold(&item, "ann", "k").await,
                shop.hold(&item, "bob", "k").await,
            ];
            sold_out_everywhere(&shop, &item).await;
            for order in &orders {
                shop.becomes(order, "expired").await;
            }
            for instance in 0..2 {
                is_bought_at(&shop, instance, &item, "expired").await;
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_units_are_bought_at_every_instance() {
    open_each(
        Options {
            instances: 2,
            hint_lifetime: HINT,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 0, "segments": 2 })).await;
            sold_out_everywhere(&shop, &item).await;
            let added = shop.move_stock(0, &item, "k", &json!({ "add": 2 })).await;
            assert_eq!((added.status, &added.body["available"]), (200, &json!(2)));
            for instance in [1, 0] {
                is_bought_at(&shop, instance, &item, "new").await;
            }
        },
    )
    .await;
}
