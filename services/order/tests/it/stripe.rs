//! Stripe's webhooks, with bodies as Stripe documents them, less the fields that nothing reads.

mod free;
mod refunds;
mod sessions;
mod unusable;

use std::time::Duration;

use order::PaymentKey;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::tested_in;

use crate::{
    env::{Answer, Env, Options, STRIPE_SECRETS, TestEnv, on_both_ledgers, open, open_each},
    payments::signed,
};

fn key(secret: &str) -> PaymentKey {
    PaymentKey::new(secret.as_bytes(), Duration::from_secs(300))
}

fn event(kind: &str, object: &Value) -> Value {
    json!({
        "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy", "object": "event", "api_version": "2024-06-20", "created": 1_686_089_970,
        "data": { "object": object }, "livemode": false, "pending_webhooks": 1,
        "request": { "id": null, "idempotency_key": null }, "type": kind,
    })
}

/// A Checkout session of this order.
fn session(order: &str, intent: &str, amount: u64, currency: &str) -> Value {
    json!({
        "id": "cs_test_a11YYufWQzNY63zpQ6QSNRQhkUpVph4WRmzW0zWJO2znZKdVujZ0N0S22u", "object": "checkout.session",
        "amount_subtotal": amount, "amount_total": amount, "currency": currency, "customer": null,
        "metadata": { "stockade_order": order }, "mode": "payment", "payment_intent": intent,
        "payment_status": "paid", "status": "complete",
    })
}

fn intent(order: &str, id: &str, amount: u64) -> Value {
    json!({
        "id": id, "object": "payment_intent", "amount": amount, "amount_received": amount, "currency": "eur",
        "latest_charge": "ch_3MmlLrLkdIwHu7ix0uke3Ezy", "metadata": { "stockade_order": order }, "status": "succeeded",
    })
}

fn charge(order: &str, intent: &str, refunded: bool) -> Value {
    json!({
        "id": "ch_3MmlLrLkdIwHu7ix0uke3Ezy", "object": "charge", "amount": 1999, "amount_refunded": if refunded { 1999 } else { 500 },
        "currency": "eur", "metadata": { "stockade_order": order }, "payment_intent": intent, "refunded": refunded,
    })
}

impl TestEnv {
    async fn stripe_signed(&self, body: &Value, header: &str, signature: &str) -> Answer {
        let request = self.anyone(Method::POST, "/v1/webhooks/stripe");
        Answer::of(request.header(header, signature).body(body.to_string())).await
    }

    async fn stripe(&self, kind: &str, object: &Value) -> Answer {
        self.stripe_text(&event(kind, object).to_string()).await
    }

    /// An event of Stripe, and what comes of it.
    async fn notified(&self, kind: &str, object: &Value, result: &str) {
        is(&self.stripe(kind, object).await, result);
    }

    /// A body that Stripe has signed, whatever it is.
    async fn stripe_text(&self, body: &str) -> Answer {
        self.stripe_text_at(0, body).await
    }

    async fn stripe_text_at(&self, instance: usize, body: &str) -> Answer {
        let request = self
            .at(instance, Method::POST, "/v1/webhooks/stripe")
            .header(
                "Stripe-Signature",
                key(STRIPE_SECRETS[0]).sign(body.as_bytes()),
            );
        Answer::of(request.body(body.to_owned())).await
    }

    /// The payments that are to be returned.
    async fn due_payments(&self) -> Vec<String> {
        let due = self.admin_gets("/v1/refunds-due").await;
        let due = due.rows();
        due.iter()
            .map(|row| row["payment"].as_str().unwrap().to_owned())
            .collect()
    }

    /// An item that costs 19.99 euros, and an order of it.
    async fn ordered(&self) -> (String, String) {
        let item = json!({ "stock": 5, "price": 1999, "currency": "EUR" });
        let item = self.create(item).await;
        let order = self.hold(&item, "ann", "k").await;
        (item, order)
    }
}

fn is(answer: &Answer, result: &str) {
    assert_eq!(
        (answer.status, &answer.body["result"]),
        (200, &json!(result)),
        "{answer:?}"
    );
}

#[tested_in(open(Options::default()))]
async fn a_checkout_confirms_its_order_however_often_and_in_whichever_order_it_is_reported(
    env: Env,
) {
    let (item, order) = env.ordered().await;
    let unpaid = {
        let mut session = session(&order, "pi_1", 1999, "eur");
        session["payment_status"] = json!("unpaid");
        session
    };
    env.notified("checkout.session.completed", &unpaid, "ignored")
        .await;
    assert_eq!(env.state_of(&order).await, "held");
    let paid = session(&order, "pi_1", 1999, "eur");
    for _ in 0..2 {
        env.notified(
            "payment_intent.succeeded",
            &intent(&order, "pi_1", 1999),
            "confirmed",
        )
        .await;
        env.notified("checkout.session.completed", &paid, "confirmed")
            .await;
        env.notified(
            "checkout.session.async_payment_succeeded",
            &paid,
            "confirmed",
        )
        .await;
    }
    // Out of order: the session has expired before, and its event comes late.
    env.notified("checkout.session.expired", &paid, "ignored")
        .await;
    assert_eq!(env.units(&item).await, [4, 0, 1]);

    env.notified("charge.refunded", &charge(&order, "pi_1", false), "ignored")
        .await;
    for _ in 0..2 {
        env.notified("charge.refunded", &charge(&order, "pi_1", true), "refunded")
            .await;
    }
}

#[tested_in(open(Options::default()))]
async fn the_refund_of_a_surplus_payment_leaves_the_order_paid(env: Env) {
    let (item, order) = env.ordered().await;
    for (payment, result) in [("pi_1", "confirmed"), ("pi_2", "already_paid")] {
        let session = session(&order, payment, 1999, "eur");
        let answer = env.stripe("checkout.session.completed", &session).await;
        is(&answer, result);
    }
    let surplus = charge(&order, "pi_2", true);
    env.notified("charge.refunded", &surplus, "payment_refunded")
        .await;
    assert_eq!(env.state_of(&order).await, "confirmed");
    assert_eq!(env.units(&item).await, [4, 0, 1]);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_refund_of_a_cart_that_overtakes_its_payment_is_remembered(env: Env) {
    let item = json!({ "stock": 5, "price": 1999, "currency": "EUR" });
    let item = env.create(item).await;
    let cart = env.held_cart("ann", "k", &[(&item, 1)]).await;
    let of_cart = |mut object: Value| {
        object["metadata"] = json!({ "stockade_cart": cart });
        object
    };
    let wrong = of_cart(intent(&cart, "pi_2", 1));
    env.notified("payment_intent.succeeded", &wrong, "amount_mismatch")
        .await;
    for payment in ["pi_1", "pi_2"] {
        let refund = of_cart(charge(&cart, payment, true));
        env.notified("charge.refunded", &refund, "payment_refunded")
            .await;
        let paid = of_cart(intent(&cart, payment, 1999));
        env.notified("payment_intent.succeeded", &paid, "payment_returned")
            .await;
    }
    let paid = of_cart(intent(&cart, "pi_3", 1999));
    env.notified("payment_intent.succeeded", &paid, "confirmed")
        .await;
    let refund = of_cart(charge(&cart, "pi_3", true));
    env.notified("charge.refunded", &refund, "refunded").await;
    assert_eq!(env.units(&item).await, [5, 0, 0]);
    let mut unknown = refund;
    unknown["payment_intent"] = json!("pi_4");
    unknown["metadata"] = json!({ "stockade_cart": "00000000-0000-8000-8000-000000000000" });
    env.notified("charge.refunded", &unknown, "ignored").await;
}

#[tested_in(open(Options::default()))]
async fn an_expired_checkout_releases_its_units_and_a_payment_after_it_is_due_back(env: Env) {
    let (item, order) = env.ordered().await;
    let session = session(&order, "pi_1", 1999, "eur");
    let named = env.name_session(&order, &session["id"]).await;
    assert_eq!(named.status, 200, "{named:?}");
    for _ in 0..2 {
        env.notified("checkout.session.expired", &session, "cancelled")
            .await;
    }
    env.notified("checkout.session.completed", &session, "order_not_payable")
        .await;
    let due = env.admin_gets("/v1/refunds-due").await;
    let due = due.rows().clone();
    assert!(
        due.iter()
            .any(|due| due["order"] == *order && due["payment"] == "pi_1"),
        "{due:?}"
    );
    assert_eq!(env.units(&item).await[2], 0);
}

#[tested_in(open(Options::default()))]
async fn a_wrong_amount_or_currency_and_a_payment_of_another_order_confirm_nothing(env: Env) {
    let (item, order) = env.ordered().await;
    let wrong = session(&order, "pi_1", 1, "eur");
    env.notified("checkout.session.completed", &wrong, "amount_mismatch")
        .await;
    let wrong = session(&order, "pi_2", 1999, "usd");
    env.notified("checkout.session.completed", &wrong, "currency_mismatch")
        .await;
    assert_eq!(env.state_of(&order).await, "held");
    let right = session(&order, "pi_3", 1999, "eur");
    env.notified("checkout.session.completed", &right, "confirmed")
        .await;
    let again = session(&order, "pi_4", 1999, "eur");
    env.notified("checkout.session.completed", &again, "already_paid")
        .await;
    let other = env.hold(&item, "bob", "k").await;
    let stolen = session(&other, "pi_3", 1999, "eur");
    env.notified(
        "checkout.session.completed",
        &stolen,
        "payment_already_used",
    )
    .await;
    assert_eq!(env.state_of(&other).await, "held");
}

#[tested_in(open(Options::default()))]
async fn only_stripes_signature_of_the_present_or_previous_secret_counts(env: Env) {
    let (_, order) = env.ordered().await;
    let body = event(
        "checkout.session.completed",
        &session(&order, "pi_1", 1999, "eur"),
    );
    let text = body.to_string();
    let at = |time: i64| signed(STRIPE_SECRETS[0].as_bytes(), time, text.as_bytes());
    let now = jiff::Timestamp::now().as_second();
    for (header, signature, why) in [
        (
            "Stripe-Signature",
            key("whsec_other").sign(text.as_bytes()),
            "v1 is not the HMAC-SHA256",
        ),
        // Only their age is wrong.
        ("Stripe-Signature", at(now - 310), "t differs"),
        ("Stripe-Signature", at(1_686_089_970), "t differs"),
        (
            "Stripe-Signature",
            at(now - 310).replace(&format!("t={}", now - 310), &format!("t={now}")),
            "v1 is not the HMAC-SHA256",
        ),
        ("Stripe-Signature", "v1=".into(), "expected 64 hex digits"),
        (
            "Stockade-Signature",
            at(now),
            "expected the header Stripe-Signature",
        ),
    ] {
        let answer = env.stripe_signed(&body, header, &signature).await;
        let detail = &answer.is(400, "invalid_signature").body["detail"];
        assert!(detail.to_string().contains(why), "{detail}");
    }
    assert_eq!(env.state_of(&order).await, "held");
    // Signed in the same way as those whose age is wrong.
    let now = jiff::Timestamp::now().as_second();
    let previous = signed(STRIPE_SECRETS[1].as_bytes(), now - 100, text.as_bytes());
    // Stripe also sends a signature of an older scheme, and both secrets' while one changes.
    let both =
        format!("{previous},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39");
    is(
        &env.stripe_signed(&body, "Stripe-Signature", &both).await,
        "confirmed",
    );
}
