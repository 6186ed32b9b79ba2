//! Payments: each is taken once, and only from whoever has the secret.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::hmac;
use futures::future::join_all;
use order::{BuyerKey, Credentials, Limits, PaymentKey};
use reqwest::Method;
use serde_json::json;
use tower::ServiceExt;

use crate::shop::{ADMIN, Answer, Options, PAYMENT_SECRET, open, open_each, payment_key};

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_taken_once_however_often_and_wherever_it_is_reported() {
    open_each(
        Options {
            instances: 2,
            ..Options::default()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 5, "segments": 2 })).await;
            let order = shop.hold(&item, "ann", "k").await;
            let reports =
                join_all((0..20).map(|report| shop.pay_at(report % 2, &order, "pay-1"))).await;
            for report in &reports {
                assert_eq!(report.is_now("confirmed").body, reports[0].body);
            }
            shop.pay_at(1, &order, "pay-1").await.is_now("confirmed");
            assert!(
                shop.stray_payments(&item).await.is_empty(),
                "it was the same payment each time"
            );
            assert_eq!(shop.units(&item).await, [4, 0, 1]);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_payments_one_pays_and_the_others_are_noted_to_be_given_back() {
    open_each(
        Options {
            instances: 2,
            ..Options::default()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 5, "segments": 2 })).await;
            let order = shop.hold(&item, "ann", "k").await;
            let payments: Vec<_> = (0..6).map(|payment| format!("pay-{payment}")).collect();
            let answers = join_all(
                payments
                    .iter()
                    .enumerate()
                    .map(|(at, payment)| shop.pay_at(at % 2, &order, payment)),
            )
            .await;
            let mut stray = Vec::new();
            for (payment, answer) in payments.iter().zip(&answers) {
                if answer.status == 200 {
                    answer.is_now("confirmed");
                } else {
                    answer.is(409, "already_paid");
                    stray.push(payment.clone());
                }
            }
            assert_eq!(stray.len(), 5, "one of them paid");
            for payment in &stray {
                shop.pay_at(1, &order, payment)
                    .await
                    .is(409, "already_paid");
            }
            assert_eq!(
                shop.stray_payments(&item).await,
                stray,
                "once each, however often they are reported"
            );
            let entry = shop.journal(&item, "stray_payment").await.swap_remove(0);
            assert_eq!(
                (&entry["actor"], &entry["before"]["order"]),
                (&json!("payment"), &json!(order))
            );

            let cancelled = shop.hold(&item, "bob", "k").await;
            shop.cancel("bob", &cancelled).await.is_now("cancelled");
            assert_eq!(
                shop.pay(&cancelled, "pay-late")
                    .await
                    .is(409, "order_not_payable")
                    .body["state"],
                "cancelled"
            );
            assert!(
                shop.stray_payments(&item)
                    .await
                    .contains(&"pay-late".to_owned())
            );
            assert_eq!(shop.units(&item).await, [4, 0, 1]);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_amount_is_what_the_order_costs_or_the_payment_is_noted_and_nothing_is_changed() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 5, "price_cents": 150 })).await;
        let order = shop.order(&item, "ann", "k", 2).await;
        let id = order.is_held().body["id"].as_str().unwrap();
        let pay = async |payment: &str, amount: u64| {
            Answer::of(shop.report(
                0,
                id,
                &json!({ "payment": payment, "amount_cents": amount }),
            ))
            .await
        };
        for wrong in [0, 150, 299, 301, 301] {
            let refused = pay(&format!("pay-{wrong}"), wrong).await;
            assert_eq!(
                refused.is(422, "amount_mismatch").body["field"],
                "amount_cents"
            );
            assert!(
                refused.body["detail"].as_str().unwrap().contains("300"),
                "{refused:?}"
            );
        }
        assert_eq!(shop.state_of(id).await, "held");
        let stray = ["pay-0", "pay-150", "pay-299", "pay-301"];
        assert_eq!(
            shop.stray_payments(&item).await,
            stray,
            "somebody has this money, and the order has not"
        );
        let entry = shop.journal(&item, "stray_payment").await.swap_remove(0);
        assert_eq!(
            (&entry["before"]["order"], &entry["after"]["amount_cents"]),
            (&json!(id), &json!(301))
        );
        pay("pay-1", 300).await.is_now("confirmed");
        pay("pay-1", 299).await.is(422, "amount_mismatch");
        assert_eq!(
            shop.stray_payments(&item).await,
            stray,
            "the order has this one"
        );
        assert_eq!(shop.units(&item).await, [3, 0, 2]);
    })
    .await;
}

/// As a provider would sign, at a time of ours.
fn signed(secret: &[u8], seconds: i64, body: &[u8]) -> String {
    let text = [seconds.to_string().as_bytes(), b".", body].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text);
    let hex: String = tag
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("t={seconds},v1={hex}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_not_the_providers_or_not_of_now_changes_nothing() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 5 })).await;
        let order = shop.hold(&item, "ann", "k").await;
        let (body, now) = (
            br#"{"payment":"pay-1"}"#,
            jiff::Timestamp::now().as_second(),
        );
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
            signed(PAYMENT_SECRET, now - 310, body),
            signed(PAYMENT_SECRET, now + 310, body),
            of_another_time,
        ];
        for signature in &bad {
            let refused = Answer::of(shop.report_signed(0, &order, signature, body.to_vec())).await;
            assert_eq!(
                refused.is(401, "invalid_signature").header("content-type"),
                Some("application/problem+json"),
                "{signature}"
            );
        }
        let unsigned = shop
            .anyone(Method::POST, &format!("/orders/{order}/payment"))
            .body(body.to_vec());
        Answer::of(unsigned).await.is(401, "invalid_signature");
        // A token is no signature.
        let by_admin = shop
            .admin(Method::POST, &format!("/orders/{order}/payment"))
            .body(body.to_vec());
        Answer::of(by_admin).await.is(401, "invalid_signature");
        for place in 0..body.len() {
            let mut changed = body.to_vec();
            changed[place] ^= 1;
            Answer::of(shop.report_signed(0, &order, &good, changed))
                .await
                .is(401, "invalid_signature");
        }
        assert_eq!(shop.state_of(&order).await, "held");
        assert!(shop.stray_payments(&item).await.is_empty());
        for slow_or_fast in [now - 280, now + 280] {
            let signature = signed(PAYMENT_SECRET, slow_or_fast, body);
            Answer::of(shop.report_signed(0, &order, &signature, body.to_vec()))
                .await
                .is_now("confirmed");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_sent_again_changes_nothing() {
    open(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 5 })).await;
            let order = shop.hold(&item, "ann", "k").await;
            let body = br#"{"payment":"pay-1"}"#;
            let signature = payment_key().sign(body);
            let replay = async |instance| {
                Answer::of(shop.report_signed(instance, &order, &signature, body.to_vec())).await
            };
            replay(0).await.is_now("confirmed");
            replay(1).await.is_now("confirmed");
            assert_eq!(shop.units(&item).await, [4, 0, 1]);
            shop.refund(&order).await.is_now("refunded");
            for instance in [0, 1] {
                replay(instance).await.is_now("refunded");
            }
            assert_eq!(
                shop.units(&item).await,
                [5, 0, 0],
                "the money went back, and the unit"
            );
            assert!(shop.stray_payments(&item).await.is_empty());
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_names_its_order_pays_no_other() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 5 })).await;
        let (order, others) = (
            shop.hold(&item, "ann", "k").await,
            shop.hold(&item, "mallory", "k").await,
        );
        let body = json!({ "payment": "pay-1", "order": order })
            .to_string()
            .into_bytes();
        let signature = payment_key().sign(&body);
        let send =
            async |to: &str| Answer::of(shop.report_signed(0, to, &signature, body.clone())).await;
        assert_eq!(
            send(&others).await.is(422, "order_mismatch").body["field"],
            "order"
        );
        send(&order).await.is_now("confirmed");
        send(&order).await.is_now("confirmed");
        send(&others).await.is(422, "order_mismatch");
        assert_eq!(shop.state_of(&others).await, "held");
        for named in ["", "nonsense", &order] {
            let refused =
                Answer::of(shop.report(0, &others, &json!({ "payment": "pay-2", "order": named })))
                    .await;
            refused.is(422, "order_mismatch");
        }
        assert!(shop.stray_payments(&item).await.is_empty());
        // In other letters it is the same order.
        let paid = Answer::of(shop.report(
            0,
            &others,
            &json!({ "payment": "pay-2", "order": others.to_uppercase() }),
        ))
        .await;
        paid.is_now("confirmed");
        assert_eq!(shop.units(&item).await, [3, 0, 2]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_message_is_refused_by_the_name_of_the_field() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 5 })).await;
        let order = shop.hold(&item, "ann", "k").await;
        let table = [
            (json!({}), "payment"),
            (json!({ "payment": "" }), "payment"),
            (json!({ "payment": "a b" }), "payment"),
            (json!({ "payment": "x".repeat(256) }), "payment"),
            (json!({ "payment": 7 }), "payment"),
            (
                json!({ "payment": "p", "amount_cents": -1 }),
                "amount_cents",
            ),
            (
                json!({ "payment": "p", "amount_cents": 1.5 }),
                "amount_cents",
            ),
            (
                json!({ "payment": "p", "amount_cents": "10" }),
                "amount_cents",
            ),
            (json!({ "payment": "p", "amount": 1 }), "amount"),
            (json!({ "payment": "p", "order": 7 }), "order"),
            (json!([]), "body"),
        ];
        for (body, field) in table {
            let refused = Answer::of(shop.report(0, &order, &body)).await;
            assert_eq!(
                refused.is(400, "invalid_request").body["field"],
                field,
                "{body}"
            );
        }
        assert_eq!(shop.state_of(&order).await, "held");
        for nobodys in ["00000000-0000-8000-8000-000000000000", "nonsense"] {
            shop.pay(nobodys, "pay-1").await.is(404, "order_not_found");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_only_its_segment_has_is_paid_when_the_ledger_has_it() {
    open_each(
        Options {
            recorder: false,
            ..Options::default()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 3, "segments": 3 })).await;
            let placed = Answer::of(
                shop.order_at(0, &item, "ann", "k", 1)
                    .header("Prefer", "respond-async"),
            )
            .await;
            assert_eq!(placed.status, 202);
            let id = placed.body["id"].as_str().unwrap();
            let recording = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                assert_eq!(shop.state_of(id).await, "held");
                shop.start_recorder();
            };
            tokio::join!(shop.pay(id, "pay-1"), recording)
                .0
                .is_now("confirmed");
            assert_eq!(shop.units(&item).await, [2, 0, 1]);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_records_a_payment_has_an_unknown_outcome_and_is_to_be_reported_again() {
    open(
        Options {
            recorder: false,
            order_within: Duration::from_millis(300),
            ..Options::default()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 3 })).await;
            let placed = Answer::of(
                shop.order_at(0, &item, "ann", "k", 1)
                    .header("Prefer", "respond-async"),
            )
            .await;
            let id = placed.body["id"].as_str().unwrap();
            assert_eq!(
                shop.pay(id, "pay-1")
                    .await
                    .is(503, "outcome_unknown")
                    .header("retry-after"),
                Some("1")
            );
            shop.start_recorder();
            shop.settled_audit(&item).await;
            shop.pay(id, "pay-1").await.is_now("confirmed");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_no_signature_is_good() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 1 })).await;
        let order = shop.hold(&item, "ann", "k").await;
        let credentials = Credentials::new(
            &BuyerKey::Secret(b"a secret of the shop's login".to_vec()),
            ADMIN,
        )
        .unwrap();
        let router = order::router(
            Arc::clone(&shop.engines[0]),
            Arc::new(credentials),
            None,
            None,
            &Limits::default(),
        );
        let body = br#"{"payment":"pay-1"}"#;
        for key in [
            payment_key(),
            PaymentKey::new(b"", Duration::from_secs(300)),
        ] {
            let request = http::Request::post(format!("/orders/{order}/payment"))
                .header("Stockade-Signature", key.sign(body));
            let response = router
                .clone()
                .oneshot(request.body(axum::body::Body::from(body.to_vec())).unwrap())
                .await
                .unwrap();
            assert_eq!(response.status().as_u16(), 401);
        }
        assert_eq!(shop.state_of(&order).await, "held");
    })
    .await;
}
