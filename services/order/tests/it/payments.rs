//! Each payment is applied once, and only if it is signed with the secret.

use std::{sync::Arc, time::Duration};

use domain::{BuyerId, IdempotencyKey, ItemId, OrderId};
use futures::future::join_all;
use order::{BuyerKey, Credentials, Limits, PaymentKey};
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{
    ADMIN, Answer, Env, Options, PAYMENT_SECRET, known, on_both_ledgers, open, open_each,
    payment_key,
};

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_payment_is_applied_once_however_often_it_is_reported(env: Env) {
    let item = env.create(json!({ "stock": 5, "segments": 2 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let reports = join_all((0..20).map(|report| env.pay_at(report % 2, &order, "pay-1"))).await;
    for report in &reports {
        assert_eq!(report.is_now("confirmed").body, reports[0].body);
    }
    env.pay_at(1, &order, "pay-1").await.is_now("confirmed");
    assert!(
        env.unmatched_payments(&item).await.is_empty(),
        "it was the same payment each time"
    );
    assert_eq!(env.units(&item).await, [4, 0, 1]);
}

/// An admin looks for each order at the instance that hears of its payment, just before another
/// instance places it.
#[tested_in(on_both_ledgers(Options::default().with_instances(2)))]
async fn a_payment_finds_an_order_that_was_missing_a_moment_ago(env: Env) {
    let item = env.create(json!({ "stock": 9 })).await;
    let (id, ann) = (ItemId::new(&*item).unwrap(), BuyerId::new("ann").unwrap());
    for n in 0..5 {
        let key = format!("k{n}");
        let name = IdempotencyKey::new(&*key).unwrap();
        let order = OrderId::derive(&id, id.tag(), &ann, &name).to_string();
        let look = env.at(1, Method::GET, &format!("/v1/orders/{order}"));
        let missing = Answer::of(look.bearer_auth(ADMIN)).await;
        missing.is(404, "order_not_found");
        assert_eq!(env.hold(&item, "ann", &key).await, order);
        let done = env.pay_at(1, &order, &format!("pay-{n}")).await;
        done.is_now("confirmed");
    }
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn one_of_several_payments_pays_and_the_others_are_journaled(env: Env) {
    let item = env.create(json!({ "stock": 5, "segments": 2 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let payments: Vec<_> = (0..6).map(|payment| format!("pay-{payment}")).collect();
    let answers = join_all(
        payments
            .iter()
            .enumerate()
            .map(|(at, payment)| env.pay_at(at % 2, &order, payment)),
    )
    .await;
    let mut unmatched = Vec::new();
    for (payment, answer) in payments.iter().zip(&answers) {
        if answer.status == 200 {
            answer.is_now("confirmed");
        } else {
            answer.is(409, "already_paid");
            unmatched.push(payment.clone());
        }
    }
    assert_eq!(unmatched.len(), 5, "one of them paid");
    for payment in &unmatched {
        env.pay_at(1, &order, payment).await.is(409, "already_paid");
    }
    assert_eq!(
        env.unmatched_payments(&item).await,
        unmatched,
        "one entry each for any number of reports"
    );
    let entry = env.journal(&item, "unmatched_payment").await.swap_remove(0);
    assert_eq!(entry["actor"], "payment");
    assert_eq!(entry["before"]["order"], json!(order));

    let cancelled = env.hold(&item, "bob", "k").await;
    env.cancel("bob", &cancelled).await.is_now("cancelled");
    assert_eq!(
        env.pay(&cancelled, "pay-late")
            .await
            .is(409, "order_not_payable")
            .body["state"],
        "cancelled"
    );
    assert!(
        env.unmatched_payments(&item)
            .await
            .contains(&"pay-late".to_owned())
    );
    assert_eq!(env.units(&item).await, [4, 0, 1]);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_payment_in_another_currency_is_journaled_and_changes_nothing(env: Env) {
    let item = json!({ "stock": 5, "price": 150, "currency": "EUR" });
    let item = env.create(item).await;
    let order = env.hold(&item, "ann", "k").await;
    let cart = env.held_cart("ann", "l", &[(&item, 2)]).await;
    let pay = async |payment: &str, currency: &Value| {
        let report = |of: &str, id: &str, amount: u64| json!({ "payment": format!("{payment}-{of}"), of: id, "amount": amount, "currency": currency });
        let of_order = report("order", &order, 150);
        let of_cart = report("cart", &cart, 300).to_string();
        [
            Answer::of(env.report(0, &order, &of_order)).await,
            env.report_cart(&cart, of_cart.as_bytes()).await,
        ]
    };
    for _ in 0..2 {
        for refused in pay("dollars", &json!("USD")).await {
            let detail = refused.is(422, "currency_mismatch").body["detail"].as_str();
            assert!(detail.unwrap().contains("EUR"), "{refused:?}");
        }
    }
    for malformed in [json!("eur"), json!("EURO"), json!(""), json!("E\u{b2}")] {
        for refused in pay("malformed", &malformed).await {
            refused.blames("currency");
        }
    }
    for refused in pay("number", &json!(978)).await {
        refused.blames("currency");
    }
    assert_eq!(
        env.unmatched_payments(&item).await,
        ["dollars-cart", "dollars-order"],
        "one entry each for any number of reports"
    );
    let entry = env.journal(&item, "unmatched_payment").await.swap_remove(0);
    assert_eq!(entry["after"]["currency"], "USD");
    assert_eq!(env.units(&item).await, [2, 3, 0]);
    for _ in 0..2 {
        for paid in pay("euros", &json!("EUR")).await {
            paid.is_now("confirmed");
        }
    }
    // The order's own payment, reported again in another currency, is no other payment.
    for refused in pay("euros", &json!("USD")).await {
        refused.is(422, "currency_mismatch");
    }
    assert_eq!(env.unmatched_payments(&item).await.len(), 2);
    assert_eq!(env.units(&item).await, [2, 0, 3]);
}

#[tested_in(open(Options::default()))]
async fn a_payment_of_another_amount_is_journaled_and_changes_nothing(env: Env) {
    let item = env.create(json!({ "stock": 5, "price": 150 })).await;
    let order = env.order(&item, "ann", "k", 2).await;
    let id = order.is_held().body["id"].as_str().unwrap();
    let pay = async |payment: &str, amount: u64| {
        Answer::of(env.report(
            0,
            id,
            &json!({ "payment": payment, "order": id, "amount": amount }),
        ))
        .await
    };
    for wrong in [0, 150, 299, 301, 301] {
        let refused = pay(&format!("pay-{wrong}"), wrong).await;
        assert_eq!(refused.is(422, "amount_mismatch").body["field"], "amount");
        assert!(
            refused.body["detail"].as_str().unwrap().contains("300"),
            "{refused:?}"
        );
    }
    assert_eq!(env.state_of(id).await, "held");
    let unmatched = ["pay-150", "pay-299", "pay-301"];
    assert_eq!(
        env.unmatched_payments(&item).await,
        unmatched,
        "payments that the order did not take, and that moved money"
    );
    let entry = env.journal(&item, "unmatched_payment").await.swap_remove(0);
    assert_eq!(entry["before"]["order"], json!(id));
    assert_eq!(entry["after"]["amount"], 301);
    pay("pay-1", 300).await.is_now("confirmed");
    pay("pay-1", 299).await.is(422, "amount_mismatch");
    assert_eq!(
        env.unmatched_payments(&item).await,
        unmatched,
        "the order's own payment is not journaled"
    );
    assert_eq!(env.units(&item).await, [3, 0, 2]);
}

/// Signs as a provider would, with a given time.
pub fn signed(secret: &[u8], seconds: i64, body: &[u8]) -> String {
    let text = [seconds.to_string().as_bytes(), b".", body].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text);
    let hex: String = tag
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("t={seconds},v1={hex}")
}

#[tested_in(open(Options::default()))]
async fn a_message_with_a_wrong_signature_or_time_changes_nothing(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let now = jiff::Timestamp::now().as_second();
    let body = json!({ "payment": "pay-1", "order": order }).to_string();
    let body = body.as_bytes();
    let good = signed(PAYMENT_SECRET, now, body);
    let of_another_time = good.replace(&format!("t={now}"), &format!("t={}", now - 1));
    let bad = [
        String::new(),
        "nonsense".into(),
        format!("t={now}"),
        format!("t={now},v1="),
        format!("t={now},v1=zz"),
        good.split_once(',').unwrap().1.to_owned(),
        good[..good.len() - 2].to_owned(),
        signed(b"another secret", now, body),
        signed(PAYMENT_SECRET, now, br#"{"payment":"pay-2"}"#),
        of_another_time,
    ];
    for signature in &bad {
        let refused = Answer::of(env.report_signed(0, &order, signature, body.to_vec())).await;
        assert_eq!(
            refused.is(400, "invalid_signature").header("content-type"),
            Some("application/problem+json"),
            "{signature}"
        );
    }
    // Nothing but the time is wrong. It may pass for minutes until the service looks at it.
    for time in [now - 310, now + 3600] {
        let signature = signed(PAYMENT_SECRET, time, body);
        let refused = Answer::of(env.report_signed(0, &order, &signature, body.to_vec())).await;
        let detail = &refused.is(400, "invalid_signature").body["detail"];
        assert!(detail.to_string().contains("t differs"), "{detail}");
    }
    let unsigned = env
        .anyone(Method::POST, &format!("/v1/orders/{order}/payment"))
        .body(body.to_vec());
    Answer::of(unsigned).await.is(400, "invalid_signature");
    // A token is not a signature.
    let by_admin = env
        .admin(Method::POST, &format!("/v1/orders/{order}/payment"))
        .body(body.to_vec());
    Answer::of(by_admin).await.is(400, "invalid_signature");
    for place in 0..body.len() {
        let mut changed = body.to_vec();
        changed[place] ^= 1;
        Answer::of(env.report_signed(0, &order, &good, changed))
            .await
            .is(400, "invalid_signature");
    }
    assert_eq!(env.state_of(&order).await, "held");
    assert!(env.unmatched_payments(&item).await.is_empty());
    let now = jiff::Timestamp::now().as_second();
    for slow_or_fast in [now - 100, now + 280] {
        let signature = signed(PAYMENT_SECRET, slow_or_fast, body);
        Answer::of(env.report_signed(0, &order, &signature, body.to_vec()))
            .await
            .is_now("confirmed");
    }
}

#[tested_in(open(Options::reconciled().with_instances(2)))]
async fn a_replayed_message_changes_nothing(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let body = json!({ "payment": "pay-1", "order": order }).to_string();
    let signature = payment_key().sign(body.as_bytes());
    let replay = async |instance| {
        Answer::of(env.report_signed(instance, &order, &signature, body.clone().into())).await
    };
    replay(0).await.is_now("confirmed");
    replay(1).await.is_now("confirmed");
    assert_eq!(env.units(&item).await, [4, 0, 1]);
    env.refund(&order).await.is_now("refunded");
    for instance in [0, 1] {
        replay(instance).await.is_now("refunded");
    }
    assert_eq!(
        env.units(&item).await,
        [5, 0, 0],
        "the money and the unit were returned"
    );
    assert!(env.unmatched_payments(&item).await.is_empty());
}

#[tested_in(open(Options::default()))]
async fn a_message_that_names_its_order_pays_no_other(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let (order, others) = (
        env.hold(&item, "ann", "k").await,
        env.hold(&item, "mallory", "k").await,
    );
    let body = json!({ "payment": "pay-1", "order": order })
        .to_string()
        .into_bytes();
    let signature = payment_key().sign(&body);
    let send =
        async |to: &str| Answer::of(env.report_signed(0, to, &signature, body.clone())).await;
    send(&others).await.is_of(422, "order_mismatch", "order");
    send(&order).await.is_now("confirmed");
    send(&order).await.is_now("confirmed");
    send(&others).await.is(422, "order_mismatch");
    assert_eq!(env.state_of(&others).await, "held");
    for named in ["", "nonsense", &order] {
        let refused =
            Answer::of(env.report(0, &others, &json!({ "payment": "pay-2", "order": named })))
                .await;
        refused.is(422, "order_mismatch");
    }
    assert!(env.unmatched_payments(&item).await.is_empty());
    // The id in other letter case is the same order.
    let report = json!({ "payment": "pay-2", "order": others.to_uppercase() });
    let paid = Answer::of(env.report(0, &others, &report)).await;
    paid.is_now("confirmed");
    assert_eq!(env.units(&item).await, [3, 0, 2]);
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_payment_pays_one_order_only(env: Env) {
    let item = env.create(json!({ "stock": 9 })).await;
    let mut orders = Vec::new();
    for buyer in ["ann", "bob", "cem", "dot"] {
        orders.push(env.hold(&item, buyer, "k").await);
    }
    let reports =
        join_all((0..20).map(|report| env.pay_at(report % 2, &orders[report % 4], "pay-1"))).await;
    let paid: Vec<_> = (0..4).filter(|n| reports[*n].status == 200).collect();
    let &[winner] = &paid[..] else {
        panic!("one order is paid: {reports:?}");
    };
    for (report, answer) in reports.iter().enumerate() {
        if report % 4 == winner {
            answer.is_now("confirmed");
        } else {
            let refused = answer.is(409, "payment_already_used");
            assert_eq!(refused.body["field"], "payment");
            assert_eq!(env.state_of(&orders[report % 4]).await, "held");
        }
    }
    assert_eq!(
        env.unmatched_payments(&item).await,
        ["pay-1"; 3],
        "one entry for each other order"
    );
    let loser = &orders[(winner + 1) % 4];
    env.confirm(loser, "pay-2").await;
    env.refund(&orders[winner]).await.is_now("refunded");
    let third = &orders[(winner + 2) % 4];
    let again = env.pay(third, "pay-1").await;
    again.is(409, "payment_returned");
    assert_eq!(env.units(&item).await, [6, 2, 1]);
}

#[tested_in(open(Options::default()))]
async fn an_order_with_a_price_is_paid_with_an_amount_only(env: Env) {
    let item = env.create(json!({ "stock": 5, "price": 150 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let refused = env.pay(&order, "pay-1").await;
    let refused = refused.is(400, "invalid_request");
    assert_eq!(refused.body["field"], "amount");
    assert!(refused.body["detail"].as_str().unwrap().contains("150"));
    assert_eq!(env.state_of(&order).await, "held");
    assert!(env.unmatched_payments(&item).await.is_empty());
    let body = json!({ "payment": "pay-1", "order": order, "amount": 150 });
    let done = Answer::of(env.report(0, &order, &body)).await;
    done.is_now("confirmed");
}

#[tested_in(open(Options::default()))]
async fn a_bad_message_is_refused_by_the_name_of_the_field(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let table = [
        (json!({}), "payment"),
        (json!({ "payment": "p" }), "order"),
        (json!({ "payment": "", "order": order }), "payment"),
        (json!({ "payment": "a b", "order": order }), "payment"),
        (
            json!({ "payment": "x".repeat(256), "order": order }),
            "payment",
        ),
        (json!({ "payment": 7 }), "payment"),
        (
            json!({ "payment": "p", "order": order, "amount": -1 }),
            "amount",
        ),
        (
            json!({ "payment": "p", "order": order, "amount": 1.5 }),
            "amount",
        ),
        (
            json!({ "payment": "p", "order": order, "amount": "10" }),
            "amount",
        ),
        (
            json!({ "payment": "p", "order": order, "cents": 1 }),
            "cents",
        ),
        (json!({ "payment": "p", "order": 7 }), "order"),
        (json!([]), "body"),
    ];
    for (body, field) in table {
        let refused = Answer::of(env.report(0, &order, &body)).await;
        refused.blames(field);
    }
    assert_eq!(env.state_of(&order).await, "held");
    for nobodys in ["00000000-0000-8000-8000-000000000000", "nonsense"] {
        env.pay(nobodys, "pay-1").await.is(404, "order_not_found");
    }
}

#[tested_in(open_each(Options {
    recorder: false,
    ..Options::default()
}))]
async fn an_order_that_only_its_segment_has_is_paid_when_the_ledger_has_it(env: Env) {
    let item = env.create(json!({ "stock": 3, "segments": 3 })).await;
    let request = env.order_at(0, &item, "ann", "k", 1);
    let placed = Answer::of(request.header("Prefer", "respond-async")).await;
    assert_eq!(placed.status, 202);
    let id = placed.body["id"].as_str().unwrap();
    let recording = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(env.state_of(id).await, "held");
        env.start_recorder();
    };
    tokio::join!(env.pay(id, "pay-1"), recording)
        .0
        .is_now("confirmed");
    assert_eq!(env.units(&item).await, [2, 0, 1]);
}

#[tested_in(open(Options {
    recorder: false,
    order_timeout: Duration::from_secs(1),
    ..Options::default()
}))]
async fn without_a_recorder_a_payment_has_an_unknown_outcome_and_can_be_repeated(env: Env) {
    let item = env.create(json!({ "stock": 3 })).await;
    let placed = known(async || {
        let order = env.order_at(0, &item, "ann", "k", 1);
        Answer::of(order.header("Prefer", "respond-async")).await
    })
    .await;
    let id = placed.body["id"].as_str().unwrap();
    assert_eq!(
        env.pay(id, "pay-1")
            .await
            .is(503, "outcome_unknown")
            .header("retry-after"),
        Some("1")
    );
    env.start_recorder();
    env.settled_audit(&item).await;
    let paid = known(async || env.pay(id, "pay-1").await).await;
    paid.is_now("confirmed");
}

#[tested_in(open(Options::default()))]
async fn without_a_secret_every_signature_is_refused(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let credentials = Credentials::new(
        &BuyerKey::Secret(b"a secret of the shop's login".to_vec()),
        ADMIN,
    )
    .unwrap();
    let api = order::router(
        Arc::clone(&env.engines[0]),
        Arc::new(credentials),
        order::PaymentKeys::default(),
        None,
        &Limits::default(),
    );
    let body = br#"{"payment":"pay-1"}"#;
    for key in [
        payment_key(),
        PaymentKey::new(b"", Duration::from_secs(300)),
    ] {
        let request = http::Request::post(format!("/v1/orders/{order}/payment"))
            .header("Stockade-Signature", key.sign(body));
        let request = request.body(axum::body::Body::from(body.to_vec()));
        let response = api.answer(request.unwrap()).await;
        assert_eq!(response.status().as_u16(), 503);
    }
    assert_eq!(env.state_of(&order).await, "held");
}
