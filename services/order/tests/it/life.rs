//! The picture of an order's states: every arrow, and every one that is not there.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::{
    durability::run,
    shop::{Answer, Options, Shop, open, open_each},
};

const STATES: [&str; 7] = [
    "held",
    "confirmed",
    "cancelled",
    "expired",
    "refund_due",
    "refunded",
    "rejected",
];

/// Under what each of the calls is tried, in every state: the payment that the order has, if it has one; another payment; and so on.
const CALLS: [&str; 4] = ["its payment", "another payment", "cancel", "refund"];

/// What is to come of a call: the state that the order has then, or the code of the refusal.
type Outcome = Result<&'static str, &'static str>;

/// Of the calls, in their order.
const PICTURE: [(&str, [Outcome; 4]); 7] = [
    (
        "held",
        [
            Ok("confirmed"),
            Ok("confirmed"),
            Ok("cancelled"),
            Err("order_not_refundable"),
        ],
    ),
    (
        "confirmed",
        [
            Ok("confirmed"),
            Err("already_paid"),
            Err("order_not_cancellable"),
            Ok("refunded"),
        ],
    ),
    (
        "cancelled",
        [
            Err("order_not_payable"),
            Err("order_not_payable"),
            Ok("cancelled"),
            Err("order_not_refundable"),
        ],
    ),
    (
        "expired",
        [
            Ok("confirmed"),
            Ok("confirmed"),
            Err("order_not_cancellable"),
            Err("order_not_refundable"),
        ],
    ),
    (
        "refund_due",
        [
            Ok("refund_due"),
            Err("already_paid"),
            Err("order_not_cancellable"),
            Ok("refunded"),
        ],
    ),
    (
        "refunded",
        [
            Ok("refunded"),
            Err("order_not_payable"),
            Err("order_not_cancellable"),
            Ok("refunded"),
        ],
    ),
    (
        "rejected",
        [
            Err("order_not_payable"),
            Err("order_not_payable"),
            Err("order_not_cancellable"),
            Err("order_not_refundable"),
        ],
    ),
];

/// An order of ann's, of an item of its own, that has come to this state.
async fn order_in(shop: &Shop, state: &str) -> (String, String) {
    let hold = if matches!(state, "expired" | "refund_due") {
        1
    } else {
        600
    };
    // Where it is to be rejected, Redis has a unit that the ledger does not know.
    let stock = u64::from(state != "rejected");
    let item = shop
        .create(json!({ "stock": stock, "hold_seconds": hold }))
        .await;
    if state == "rejected" {
        return (item.clone(), rejected(shop, &item).await);
    }
    let order = shop.hold(&item, "ann", "k").await;
    match state {
        "confirmed" => paid(shop, &order).await,
        "cancelled" => drop(shop.cancel("ann", &order).await),
        "refunded" => {
            paid(shop, &order).await;
            shop.refund(&order).await;
        }
        "expired" => shop.becomes(&order, state).await,
        "refund_due" => {
            shop.becomes(&order, "expired").await;
            let others = bought(shop, &item, "bob").await;
            shop.pay(&others, "pay-2").await.is_now("confirmed");
            shop.pay(&order, "pay-1").await;
        }
        _ => {}
    }
    assert_eq!(shop.state_of(&order).await, state);
    (item, order)
}

async fn paid(shop: &Shop, order: &str) {
    shop.pay(order, "pay-1").await.is_now("confirmed");
}

/// The unit came back a moment ago, or comes now.
async fn bought(shop: &Shop, item: &str, buyer: &str) -> String {
    for attempt in 0..200 {
        let answer = shop.order(item, buyer, &format!("k-{attempt}"), 1).await;
        if answer.status == 201 {
            return answer.body["id"].as_str().unwrap().to_owned();
        }
        answer.is(409, "sold_out");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the unit of {item} never came back");
}

async fn rejected(shop: &Shop, item: &str) -> String {
    let mut cmd = redis::cmd("HINCRBY");
    cmd.arg(format!("stock:{{{item}:0}}"))
        .arg("available")
        .arg(1);
    run(&shop.redis_url, &cmd).await;
    shop.order(item, "ann", "k", 1).await.is(409, "sold_out");
    let path = crate::levels::path_of(item, "ann", "k");
    let order = path.strip_prefix("/orders/").unwrap().to_owned();
    assert_eq!(shop.state_of(&order).await, "rejected");
    order
}

async fn call(shop: &Shop, call: &str, order: &str) -> Answer {
    match call {
        "its payment" => shop.pay(order, "pay-1").await,
        "another payment" => shop.pay(order, "pay-9").await,
        "cancel" => shop.cancel("ann", order).await,
        _ => shop.refund(order).await,
    }
}

/// The call is made twice: what it was answered it is answered again.
async fn try_call(shop: &Shop, state: &str, name: &str, expected: Outcome) {
    let (_, order) = order_in(shop, state).await;
    let first = call(shop, name, &order).await;
    let is_of_no_arrow = |answer: &Answer, code: &str| {
        answer.is(409, code);
        // Who is refused is told the state that refused it; where the payment is what is wrong, there is no state to be told.
        assert!(
            code == "already_paid" || answer.body["state"] == state,
            "{state}, {name}: {answer:?}"
        );
    };
    match expected {
        Ok(becomes) => {
            first.is_now(becomes);
            let again = call(shop, name, &order).await;
            assert_eq!(
                (again.status, &again.body),
                (200, &first.body),
                "{state}, {name}, again"
            );
        }
        Err(code) => {
            is_of_no_arrow(&first, code);
            is_of_no_arrow(&call(shop, name, &order).await, code);
            assert_eq!(shop.state_of(&order).await, state, "{name} was refused");
        }
    }
    let shown = Answer::of(shop.buyer("ann", Method::GET, &format!("/orders/{order}"))).await;
    shown.is_now(expected.unwrap_or(state));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_arrow_of_the_picture_is_there_and_no_other() {
    open_each(Options::reconciled(), async |shop| {
        let shop = &shop;
        let tries = PICTURE.iter().flat_map(|(state, outcomes)| {
            CALLS
                .iter()
                .zip(outcomes)
                .map(move |(name, expected)| try_call(shop, state, name, *expected))
        });
        join_all(tries).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_repeats_the_order_is_told_where_it_stands_and_nothing_is_taken_again() {
    open_each(
        Options {
            instances: 2,
            ..Options::reconciled()
        },
        async |shop| {
            let repeats = STATES.iter().map(|state| {
                let shop = &shop;
                async move {
                    let (item, order) = order_in(shop, state).await;
                    let before = shop.units(&item).await;
                    for instance in [0, 1, 1] {
                        let again = Answer::of(shop.order_at(instance, &item, "ann", "k", 1)).await;
                        if *state == "rejected" {
                            again.is(409, "sold_out");
                            continue;
                        }
                        assert_eq!(
                            (again.status, &again.body["state"], &again.body["id"]),
                            (201, &json!(state), &json!(order)),
                            "{again:?}"
                        );
                        assert_eq!(again.header("idempotent-replayed"), Some("true"));
                        let async_again = Answer::of(
                            shop.order_at(instance, &item, "ann", "k", 1)
                                .header("Prefer", "respond-async"),
                        )
                        .await;
                        assert_eq!(
                            async_again.body, again.body,
                            "also for who does not want to wait"
                        );
                        shop.order(&item, "ann", "k", 2)
                            .await
                            .is(422, "idempotency_key_reused");
                    }
                    assert_eq!(shop.units(&item).await, before, "{state}");
                }
            });
            join_all(repeats).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_cancelled_by_its_buyer_or_an_admin_and_by_nobody_else() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 2, "segments": 2 })).await;
        let order = shop.hold(&item, "ann", "k").await;
        let path = format!("/orders/{order}");
        shop.cancel("bob", &order).await.is(404, "order_not_found");
        Answer::of(shop.anyone(Method::DELETE, &path))
            .await
            .is(401, "unauthorized");
        for nobodys in ["00000000-0000-8000-8000-000000000000", "nonsense"] {
            shop.cancel("ann", nobodys).await.is(404, "order_not_found");
            shop.refund(nobodys).await.is(404, "order_not_found");
        }
        assert_eq!(shop.state_of(&order).await, "held");
        Answer::of(shop.admin(Method::DELETE, &path))
            .await
            .is_now("cancelled");
        // To another buyer it does not even exist any more than before.
        shop.cancel("bob", &order).await.is(404, "order_not_found");
        shop.cancel("ann", &order).await.is_now("cancelled");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_given_back_by_admins_only() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 1 })).await;
        let order = shop.hold(&item, "ann", "k").await;
        shop.pay(&order, "pay-1").await.is_now("confirmed");
        let path = format!("/orders/{order}/refund");
        Answer::of(shop.buyer("ann", Method::POST, &path))
            .await
            .is(401, "unauthorized");
        Answer::of(shop.anyone(Method::POST, &path))
            .await
            .is(401, "unauthorized");
        assert_eq!(shop.units(&item).await, [0, 0, 1]);
        shop.refund(&order).await.is_now("refunded");
        assert_eq!(shop.units(&item).await, [1, 0, 0], "the unit came back");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_only_its_segment_has_is_cancelled_when_the_ledger_has_it() {
    open_each(
        Options {
            recorder: false,
            ..Options::default()
        },
        async |shop| {
            let item = shop
                .create(json!({ "stock": 3, "segments": 3, "durability": "accepted" }))
                .await;
            let order = shop.order(&item, "ann", "k", 1).await;
            assert_eq!(order.status, 202);
            let id = order.body["id"].as_str().unwrap();
            let cancelling = shop.cancel("ann", id);
            let recording = async {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                assert_eq!(shop.state_of(id).await, "held");
                shop.start_recorder();
            };
            tokio::join!(cancelling, recording).0.is_now("cancelled");
            assert_eq!(shop.units(&item).await, [3, 0, 0]);
        },
    )
    .await;
}
