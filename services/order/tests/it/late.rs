//! Payments after the hold has expired: units are reacquired if possible, and otherwise the money
//! is due for refund.

use futures::future::join_all;
use serde_json::json;
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, open, open_each};

/// An order whose hold has expired and whose unit has returned.
async fn expired(env: &TestEnv, item: &str, buyer: &str) -> String {
    let order = env.hold(item, buyer, "k").await;
    env.becomes(&order, "expired").await;
    order
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn a_late_payment_reacquires_units_from_any_segment(env: Env) {
    let item = json!({ "stock": 4, "segments": 4, "hold_seconds": 1, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let order = expired(&env, &item, "ann").await;
    assert_eq!(env.units(&item).await, [4, 0, 0]);
    // One unit is left, perhaps in another segment than ann's home.
    for buyer in ["bob", "carol", "dave"] {
        let order = env.hold(&item, buyer, "k").await;
        env.confirm(&order, &format!("pay-{buyer}")).await;
    }
    let paid = env.pay_at(1, &order, "pay-1").await;
    assert_eq!(
        paid.is_now("confirmed").body["id"],
        json!(order),
        "it is still the same order"
    );
    env.pay_at(0, &order, "pay-1").await.is_now("confirmed");
    env.pay_at(0, &order, "pay-9").await.is(409, "already_paid");
    assert_eq!(env.units(&item).await, [0, 0, 4]);
    let again = env.order(&item, "ann", "k", 1).await;
    assert_eq!(again.status, 201);
    assert_eq!(again.body["state"], "confirmed");
    let refused = env.order(&item, "ann", "k-2", 1).await;
    refused.is(409, "buyer_limit_reached");
    env.refund(&order).await.is_now("refunded");
    assert_eq!(
        env.units(&item).await,
        [1, 0, 3],
        "reacquired units are released too"
    );
    let another = env.hold(&item, "ann", "k-2").await;
    env.confirm(&another, "pay-2").await;
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_late_payment_for_a_sold_out_item_is_due_for_refund(env: Env) {
    let item = json!({ "stock": 2, "segments": 2, "hold_seconds": 1 });
    let item = env.create(item).await;
    let order = expired(&env, &item, "ann").await;
    env.settled_audit(&item).await;
    for buyer in ["bob", "carol"] {
        let order = env.hold(&item, buyer, "k").await;
        env.confirm(&order, &format!("pay-{buyer}")).await;
    }
    env.pay(&order, "pay-1").await.is_now("refund_due");
    env.pay(&order, "pay-1").await.is_now("refund_due");
    env.pay(&order, "pay-9").await.is(409, "already_paid");
    env.pay(&order, "pay-9").await.is(409, "already_paid");
    assert_eq!(env.unmatched_payments(&item).await, ["pay-9"]);
    let owed = env.journal(&item, "refund_due").await;
    assert_eq!(owed.len(), 1, "{owed:?}");
    assert_eq!(owed[0]["before"]["order"], json!(order));
    assert_eq!(owed[0]["after"]["payment"], "pay-1");
    env.refund(&order).await.is_now("refunded");
    env.refund(&order).await.is_now("refunded");
    assert_eq!(
        env.units(&item).await,
        [0, 0, 2],
        "the order had no units to release"
    );
}

#[tested_in(open(Options::reconciled()))]
async fn a_late_payment_for_a_closed_item_is_due_for_refund(env: Env) {
    for state in ["paused", "closed"] {
        let item = json!({ "stock": 2, "segments": 2, "hold_seconds": 1 });
        let item = env.create(item).await;
        let order = expired(&env, &item, "ann").await;
        env.put_state(&item, state).await;
        let payment = format!("pay-{state}");
        env.pay(&order, &payment).await.is_now("refund_due");
        env.put_state(&item, "open").await;
        env.pay(&order, &payment).await.is_now("refund_due");
        env.refund(&order).await.is_now("refunded");
        assert_eq!(env.units(&item).await, [2, 0, 0]);
    }
}

#[tested_in(open(Options::reconciled()))]
async fn a_held_order_can_be_paid_after_its_item_was_closed(env: Env) {
    let item = env.create(json!({ "stock": 2 })).await;
    let (paid, cancelled) = (
        env.hold(&item, "ann", "k").await,
        env.hold(&item, "bob", "k").await,
    );
    env.put_state(&item, "closed").await;
    env.confirm(&paid, "pay-1").await;
    env.cancel("bob", &cancelled).await.is_now("cancelled");
    assert_eq!(env.units(&item).await, [1, 0, 1]);
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_late_payment_of_a_buyer_at_the_limit_is_due_for_refund(env: Env) {
    let item = json!({ "stock": 9, "segments": 3, "hold_seconds": 1, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let order = expired(&env, &item, "ann").await;
    env.settled_audit(&item).await;
    let second = env.hold(&item, "ann", "k-2").await;
    env.confirm(&second, "pay-2").await;
    env.pay(&order, "pay-1").await.is_now("refund_due");
    assert_eq!(env.state_of(&second).await, "confirmed");
    env.refund(&order).await.is_now("refunded");
    assert_eq!(env.units(&item).await, [8, 0, 1]);
}

/// Repeats a report whose outcome is unknown, as a payment provider does.
async fn reported(env: &TestEnv, instance: usize, order: &str, payment: &str) -> Answer {
    loop {
        let answer = env.pay_at(instance, order, payment).await;
        if answer.status != 503 {
            return answer;
        }
    }
}

#[tested_in(open_each(Options::reconciled().with_instances(3)))]
async fn a_late_payment_reported_to_all_instances_reacquires_units_once(env: Env) {
    let item = json!({ "stock": 100, "segments": 4, "hold_seconds": 1, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let orders = join_all((0..60).map(|buyer| {
        let (env, item) = (&env, &item);
        async move { expired(env, item, &format!("buyer-{buyer}")).await }
    }))
    .await;
    let reports = orders.iter().enumerate().flat_map(|(buyer, order)| {
        let env = &env;
        (0..6).map(move |report| async move {
            reported(env, report % 3, order, &format!("pay-{buyer}")).await
        })
    });
    for report in join_all(reports).await {
        report.is_now("confirmed");
    }
    assert_eq!(env.units(&item).await, [40, 0, 60]);
    assert!(env.unmatched_payments(&item).await.is_empty());
}
