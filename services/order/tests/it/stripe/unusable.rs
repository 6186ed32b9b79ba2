//! What Stripe sends and this service has no use for. A refusal would be repeated for days, and
//! Stripe would disable the endpoint.

use std::sync::Arc;

use axum::body::Body;
use futures::stream;
use order::{BuyerKey, Credentials, Limits, PaymentKeys};
use testkit::{in_time, tested_in};

use super::*;
use crate::env::{ADMIN, Env, payment_keys};

impl TestEnv {
    async fn assert_ignored_with(&self, body: &Value, why: &str) {
        for _ in 0..2 {
            let ignored = self.stripe_text(&body.to_string()).await;
            is(&ignored, "ignored");
            let detail = ignored.body["detail"].as_str().unwrap();
            assert!(detail.contains(why), "{body}: {detail}");
        }
    }
}

#[tested_in(open(Options::default()))]
async fn what_this_service_has_no_use_for_is_acknowledged_with_the_reason(env: Env) {
    let (item, order) = env.ordered().await;
    let paid = || session(&order, "pi_1", 1999, "eur");
    let with = |field: &str, value: Value| {
        let mut object = paid();
        object[field] = value;
        event("checkout.session.completed", &object)
    };
    let none = "no stockade_order and no stockade_cart";
    let kind = "a type of event that changes no order";
    let of_one = "is not the id of";
    let both = json!({ "stockade_order": order, "stockade_cart": order });
    let table = [
        (with("metadata", json!({})), none),
        (with("metadata", json!(null)), none),
        (event("invoice.paid", &json!({})), none),
        (event("customer.created", &paid()), kind),
        (event("payment_intent.payment_failed", &paid()), kind),
        (
            with("metadata", json!({ "stockade_order": "nonsense" })),
            of_one,
        ),
        (with("metadata", json!({ "stockade_order": 7 })), of_one),
        (
            with("metadata", json!({ "stockade_cart": "nonsense" })),
            of_one,
        ),
        (with("metadata", both), "set one of them"),
        (with("amount_total", json!(null)), "no amount"),
        (with("amount_total", json!(-1999)), "no amount"),
        (with("currency", json!(null)), "no currency"),
        (
            with("payment_intent", json!("not visible")),
            "no id of a payment",
        ),
        (
            json!({ "id": "evt_1", "object": "v2.core.event", "type": "v2.core.account.created",
                "created": "2026-11-25T10:00:00.000Z", "related_object": { "id": "acct_1" } }),
            "thin",
        ),
        (json!({ "type": "checkout.session.completed" }), "no event"),
        (json!([]), "no event"),
    ];
    for (body, why) in &table {
        env.assert_ignored_with(body, why).await;
    }
    let unknown_currency = with("currency", json!("zzzz"));
    is(
        &env.stripe_text(&unknown_currency.to_string()).await,
        "currency_mismatch",
    );
    for no_json in ["", "{", "checkout.session.completed"] {
        env.stripe_text(no_json).await.is(400, "invalid_request");
    }
    assert_eq!(env.state_of(&order).await, "held");
    assert_eq!(env.units(&item).await, [4, 1, 0]);
}

/// A store that has just failed over may not have an order yet that it will have.
#[tested_in(open(Options::default()))]
async fn an_event_of_an_unknown_order_is_asked_for_again_while_it_is_new(env: Env) {
    let unknown = "00000000-0000-8000-8000-000000000000";
    for (field, code) in [
        ("stockade_order", "order_not_found"),
        ("stockade_cart", "cart_not_found"),
    ] {
        let mut object = session(unknown, "pi_1", 1999, "eur");
        object["metadata"] = json!({ field: unknown });
        object["refunded"] = json!(true);
        for kind in [
            "checkout.session.completed",
            "checkout.session.expired",
            "charge.refunded",
        ] {
            let mut body = event(kind, &object);
            body["created"] = json!(jiff::Timestamp::now().as_second());
            env.stripe_text(&body.to_string()).await.is(404, code);
            for old in [json!(1_686_089_970), json!(null)] {
                body["created"] = old;
                env.assert_ignored_with(&body, "no such order or cart")
                    .await;
            }
        }
    }
}

/// Half a body keeps its connection for as long as it is waited for, and anyone can send one.
#[tested_in(open(Options::default()))]
async fn what_can_be_refused_by_its_head_is_answered_before_its_body(env: Env) {
    let paths = [
        ("/v1/webhooks/stripe", "Stripe-Signature"),
        ("/v1/orders/any/payment", "Stockade-Signature"),
        ("/v1/carts/any/payment", "Stockade-Signature"),
    ];
    let now = jiff::Timestamp::now().as_second();
    let signature = |time: i64| format!("t={time},v1={}", "0".repeat(64));
    let [without_keys, with_keys] = [PaymentKeys::default(), payment_keys()].map(|keys| {
        let buyers = BuyerKey::Secret(b"a secret of the shop's login".to_vec());
        let credentials = Arc::new(Credentials::new(&buyers, ADMIN).unwrap());
        let engine = Arc::clone(&env.engines[0]);
        order::router(engine, credentials, keys, None, &Limits::default())
    });
    for (path, header) in paths {
        for (api, value, expected) in [
            (&without_keys, signature(now), 503),
            (&with_keys, signature(now - 1000), 400),
            (&with_keys, "nonsense".into(), 400),
        ] {
            let request = http::Request::post(path).header(header, &value);
            let endless =
                Body::from_stream(stream::pending::<Result<&'static str, std::io::Error>>());
            let answer = api.answer(request.body(endless).unwrap());
            let answer = in_time("an answer before the body", answer).await;
            assert_eq!(answer.status().as_u16(), expected, "{path} {value}");
        }
    }
}
