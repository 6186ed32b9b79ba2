//! Payments that come after the hold: the units are taken again if they can be had, and the money is to be given back if not.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::shop::{Answer, Options, Shop, open, open_each};

/// An order whose hold is over and whose unit is back.
async fn expired(shop: &Shop, item: &str, buyer: &str) -> String {
    let order = shop.hold(item, buyer, "k").await;
    shop.becomes(&order, "expired").await;
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_payment_takes_units_again_wherever_they_lie() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop
                .create(
                    json!({ "stock": 4, "segments": 4, "hold_seconds": 1, "limit_per_buyer": 1 }),
                )
                .await;
            let order = expired(&shop, &item, "ann").await;
            assert_eq!(shop.units(&item).await, [4, 0, 0]);
            // One unit is left, perhaps far from ann's home.
            for buyer in ["bob", "carol", "dave"] {
                let order = shop.hold(&item, buyer, "k").await;
                shop.pay(&order, &format!("pay-{buyer}"))
                    .await
                    .is_now("confirmed");
            }
            let paid = shop.pay_at(1, &order, "pay-1").await;
            assert_eq!(
                paid.is_now("confirmed").body["id"],
                json!(order),
                "it is still the same order"
            );
            shop.pay_at(0, &order, "pay-1").await.is_now("confirmed");
            shop.pay_at(0, &order, "pay-9")
                .await
                .is(409, "already_paid");
            assert_eq!(shop.units(&item).await, [0, 0, 4]);
            let again = shop.order(&item, "ann", "k", 1).await;
            assert_eq!(
                (again.status, &again.body["state"]),
                (201, &json!("confirmed"))
            );
            shop.order(&item, "ann", "k-2", 1)
                .await
                .is(409, "buyer_limit_reached");
            shop.refund(&order).await.is_now("refunded");
            assert_eq!(
                shop.units(&item).await,
                [1, 0, 3],
                "what was taken anew comes back too"
            );
            let another = shop.hold(&item, "ann", "k-2").await;
            shop.pay(&another, "pay-2").await.is_now("confirmed");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_left_the_money_is_due_back() {
    open_each(Options::reconciled(), async |shop| {
        let item = shop
            .create(json!({ "stock": 2, "segments": 2, "hold_seconds": 1 }))
            .await;
        let order = expired(&shop, &item, "ann").await;
        shop.settled_audit(&item).await;
        for buyer in ["bob", "carol"] {
            let order = shop.hold(&item, buyer, "k").await;
            shop.pay(&order, &format!("pay-{buyer}"))
                .await
                .is_now("confirmed");
        }
        shop.pay(&order, "pay-1").await.is_now("refund_due");
        shop.pay(&order, "pay-1").await.is_now("refund_due");
        shop.pay(&order, "pay-9").await.is(409, "already_paid");
        shop.pay(&order, "pay-9").await.is(409, "already_paid");
        assert_eq!(shop.stray_payments(&item).await, ["pay-9"]);
        let owed = shop.journal(&item, "refund_due").await;
        assert_eq!(owed.len(), 1, "{owed:?}");
        assert_eq!(
            (&owed[0]["before"]["order"], &owed[0]["after"]["payment"]),
            (&json!(order), &json!("pay-1"))
        );
        shop.refund(&order).await.is_now("refunded");
        shop.refund(&order).await.is_now("refunded");
        assert_eq!(
            shop.units(&item).await,
            [0, 0, 2],
            "it had no unit to give back"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_sold_any_more_the_money_is_due_back() {
    open(Options::reconciled(), async |shop| {
        for state in ["paused", "closed"] {
            let item = shop
                .create(json!({ "stock": 2, "segments": 2, "hold_seconds": 1 }))
                .await;
            let order = expired(&shop, &item, "ann").await;
            let set = async |state| {
                let answer = Answer::of(
                    shop.admin(Method::PUT, &format!("/items/{item}/state"))
                        .json(&json!({ "state": state })),
                )
                .await;
                assert_eq!(answer.status, 200);
            };
            set(state).await;
            shop.pay(&order, "pay-1").await.is_now("refund_due");
            set("open").await;
            shop.pay(&order, "pay-1").await.is_now("refund_due");
            shop.refund(&order).await.is_now("refunded");
            assert_eq!(shop.units(&item).await, [2, 0, 0]);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_order_is_paid_although_its_item_is_closed_by_then() {
    open(Options::reconciled(), async |shop| {
        let item = shop.create(json!({ "stock": 2 })).await;
        let (paid, cancelled) = (
            shop.hold(&item, "ann", "k").await,
            shop.hold(&item, "bob", "k").await,
        );
        Answer::of(
            shop.admin(Method::PUT, &format!("/items/{item}/state"))
                .json(&json!({ "state": "closed" })),
        )
        .await;
        shop.pay(&paid, "pay-1").await.is_now("confirmed");
        shop.cancel("bob", &cancelled).await.is_now("cancelled");
        assert_eq!(shop.units(&item).await, [1, 0, 1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_who_has_all_that_one_may_have_gets_the_money_back() {
    open_each(Options::reconciled(), async |shop| {
        let item = shop
            .create(json!({ "stock": 9, "segments": 3, "hold_seconds": 1, "limit_per_buyer": 1 }))
            .await;
        let order = expired(&shop, &item, "ann").await;
        shop.settled_audit(&item).await;
        let second = shop.hold(&item, "ann", "k-2").await;
        shop.pay(&second, "pay-2").await.is_now("confirmed");
        shop.pay(&order, "pay-1").await.is_now("refund_due");
        assert_eq!(shop.state_of(&second).await, "confirmed");
        shop.refund(&order).await.is_now("refunded");
        assert_eq!(shop.units(&item).await, [8, 0, 1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_payment_that_is_reported_everywhere_at_once_takes_its_units_once() {
    open_each(
        Options {
            instances: 3,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop
                .create(
                    json!({ "stock": 100, "segments": 4, "hold_seconds": 1, "limit_per_buyer": 1 }),
                )
                .await;
            let orders = join_all((0..60).map(|buyer| {
                let (shop, item) = (&shop, &item);
                async move { expired(shop, item, &format!("buyer-{buyer}")).await }
            }))
            .await;
            let reports = orders.iter().enumerate().flat_map(|(buyer, order)| {
                let shop = &shop;
                (0..6).map(move |report| async move {
                    shop.pay_at(report % 3, order, &format!("pay-{buyer}"))
                        .await
                })
            });
            for report in join_all(reports).await {
                report.is_now("confirmed");
            }
            assert_eq!(shop.units(&item).await, [40, 0, 60]);
            assert!(shop.stray_payments(&item).await.is_empty());
        },
    )
    .await;
}
