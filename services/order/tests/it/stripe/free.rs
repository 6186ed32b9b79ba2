//! Checkout sessions in which nothing is to be paid: a free item, a discount of everything.

use super::*;

/// A completed session without a payment, of an order or a cart.
fn free_session(field: &str, of: &str) -> Value {
    json!({
        "id": "cs_free", "object": "checkout.session", "amount_subtotal": 1999, "amount_total": 0, "currency": "eur",
        "metadata": { field: of }, "mode": "payment", "payment_intent": null,
        "payment_status": "no_payment_required", "status": "complete",
    })
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_session_without_a_payment_confirms_what_costs_nothing(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let cart = env.held_cart("ann", "l", &[(&item, 2)]).await;
    let [of_order, mut of_cart] = [("stockade_order", &order), ("stockade_cart", &cart)]
        .map(|(field, of)| free_session(field, of));
    of_cart["id"] = json!("cs_cart");
    for _ in 0..2 {
        for object in [&of_order, &of_cart] {
            let done = env.stripe("checkout.session.completed", object).await;
            is(&done, "confirmed");
        }
    }
    // A session of before that expires now.
    for object in [&of_order, &of_cart] {
        env.notified("checkout.session.expired", object, "ignored")
            .await;
    }
    let shown = env.admin_gets(&format!("/v1/orders/{order}")).await;
    assert_eq!(shown.body["payment"], "cs_free");
    assert_eq!(env.read_cart(&cart).await.body["payment"], "cs_cart");
    assert_eq!(env.units(&item).await, [2, 0, 3]);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_session_without_a_payment_pays_nothing_that_has_a_price(env: Env) {
    let (item, order) = env.ordered().await;
    let cart = env.held_cart("ann", "l", &[(&item, 1)]).await;
    let fields = [("stockade_order", &order), ("stockade_cart", &cart)];
    for (field, of) in fields {
        let free = free_session(field, of);
        for _ in 0..2 {
            env.notified("checkout.session.completed", &free, "amount_mismatch")
                .await;
        }
        // The payment is delayed to another day, so its amount says nothing.
        let mut delayed = free.clone();
        for amount in [json!(1999), json!(null)] {
            delayed["amount_total"] = amount;
            env.notified("checkout.session.completed", &delayed, "ignored")
                .await;
        }
    }
    assert_eq!(env.units(&item).await, [3, 2, 0]);
    // No money has moved, and Stripe could not return any.
    assert_eq!(env.due_payments().await, [""; 0]);
    for (at, (field, of)) in fields.into_iter().enumerate() {
        let mut paid = session(of, &format!("pi_{at}"), 1999, "eur");
        paid["metadata"] = json!({ field: of });
        env.notified("checkout.session.completed", &paid, "confirmed")
            .await;
    }
    assert_eq!(env.units(&item).await, [3, 0, 2]);
}

#[tested_in(open(Options::default()))]
async fn a_session_without_a_payment_that_comes_too_late_leaves_nothing_to_return(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    let order = env.hold(&item, "ann", "k").await;
    env.cancel("ann", &order).await.is_now("cancelled");
    let free = free_session("stockade_order", &order);
    env.notified("checkout.session.completed", &free, "order_not_payable")
        .await;
    assert_eq!(env.due_payments().await, [""; 0]);
}
