//! The state diagram of an order: every transition, and every one that must be refused.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use testkit::tested_in;

use crate::{
    durability::run,
    env::{Answer, Env, Options, TestEnv, open, open_each},
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

/// The calls that are tried in every state: the order's own payment, another payment, and so on.
const CALLS: [&str; 4] = ["its payment", "another payment", "cancel", "refund"];

/// Expected result of a call: the order's new state, or the code of the refusal.
type Outcome = Result<&'static str, &'static str>;

/// Expected results in the order of the calls.
const TRANSITIONS: [(&str, [Outcome; 4]); 7] = [
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

/// An order of ann for its own item, in this state.
async fn order_in(env: &TestEnv, state: &str) -> (String, String) {
    let hold = if matches!(state, "expired" | "refund_due") {
        1
    } else {
        600
    };
    // For a rejected order, Redis has one unit more than the ledger.
    let stock = u64::from(state != "rejected");
    let item = json!({ "stock": stock, "hold_seconds": hold });
    let item = env.create(item).await;
    if state == "rejected" {
        return (item.clone(), rejected(env, &item).await);
    }
    let order = env.hold(&item, "ann", "k").await;
    match state {
        "confirmed" => paid(env, &order).await,
        "cancelled" => drop(env.cancel("ann", &order).await),
        "refunded" => {
            paid(env, &order).await;
            env.refund(&order).await;
        }
        "expired" => env.becomes(&order, state).await,
        "refund_due" => {
            env.becomes(&order, "expired").await;
            let others = bought(env, &item, "bob").await;
            paid(env, &others).await;
            env.pay(&order, &payment_of(&order)).await;
        }
        _ => {}
    }
    assert_eq!(env.state_of(&order).await, state);
    (item, order)
}

async fn paid(env: &TestEnv, order: &str) {
    let paid = env.pay(order, &payment_of(order)).await;
    paid.is_now("confirmed");
}

/// A payment pays one order only.
fn payment_of(order: &str) -> String {
    format!("pay-{order}")
}

/// Buys the unit that was just released or is being released.
async fn bought(env: &TestEnv, item: &str, buyer: &str) -> String {
    env.bought_again(item, buyer, "k", 1).await
}

async fn rejected(env: &TestEnv, item: &str) -> String {
    let mut cmd = redis::cmd("HINCRBY");
    cmd.arg(format!("stock:{{{item}:0}}"))
        .arg("available")
        .arg(1);
    run(&env.redis_url, &cmd).await;
    env.order(item, "ann", "k", 1).await.is(409, "sold_out");
    let path = crate::levels::path_of(item, "ann", "k");
    let order = path.strip_prefix("/v1/orders/").unwrap().to_owned();
    assert_eq!(env.state_of(&order).await, "rejected");
    order
}

async fn call(env: &TestEnv, call: &str, order: &str) -> Answer {
    match call {
        "its payment" => env.pay(order, &payment_of(order)).await,
        "another payment" => env.pay(order, &format!("another-{order}")).await,
        "cancel" => env.cancel("ann", order).await,
        _ => env.refund(order).await,
    }
}

/// Makes the call twice: the repeat must have the same result.
async fn try_call(env: &TestEnv, state: &str, name: &str, expected: Outcome) {
    let (_, order) = order_in(env, state).await;
    let first = call(env, name, &order).await;
    let is_of_no_arrow = |answer: &Answer, code: &str| {
        answer.is(409, code);
        // A refusal names the state that caused it, unless the payment is the cause.
        assert!(
            code == "already_paid" || answer.body["state"] == state,
            "{state}, {name}: {answer:?}"
        );
    };
    match expected {
        Ok(becomes) => {
            first.is_now(becomes);
            let again = call(env, name, &order).await;
            assert_eq!(
                (again.status, &again.body),
                (200, &first.body),
                "{state}, {name}, again"
            );
        }
        Err(code) => {
            is_of_no_arrow(&first, code);
            is_of_no_arrow(&call(env, name, &order).await, code);
            assert_eq!(env.state_of(&order).await, state, "{name} was refused");
        }
    }
    let shown = env.buyer_gets("ann", &format!("/v1/orders/{order}")).await;
    shown.is_now(expected.unwrap_or(state));
}

#[tested_in(open_each(Options::reconciled()))]
async fn exactly_the_documented_transitions_are_possible(env: Env) {
    let env = &env;
    let tries = TRANSITIONS.iter().flat_map(|(state, outcomes)| {
        CALLS
            .iter()
            .zip(outcomes)
            .map(move |(name, expected)| try_call(env, state, name, *expected))
    });
    join_all(tries).await;
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn a_repeat_of_an_order_shows_its_state_and_takes_no_units(env: Env) {
    let repeats = STATES.iter().map(|state| {
        let env = &env;
        async move {
            let (item, order) = order_in(env, state).await;
            let before = env.units(&item).await;
            for instance in [0, 1, 1] {
                let again = Answer::of(env.order_at(instance, &item, "ann", "k", 1)).await;
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
                let request = env.order_at(instance, &item, "ann", "k", 1);
                let request = request.header("Prefer", "respond-async");
                let async_again = Answer::of(request).await;
                assert_eq!(async_again.body, again.body, "also with `respond-async`");
                let refused = env.order(&item, "ann", "k", 2).await;
                refused.is(422, "idempotency_key_reused");
            }
            assert_eq!(env.units(&item).await, before, "{state}");
        }
    });
    join_all(repeats).await;
}

#[tested_in(open(Options::default()))]
async fn only_its_buyer_or_an_admin_can_cancel_an_order(env: Env) {
    let item = env.create(json!({ "stock": 2, "segments": 2 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let path = format!("/v1/orders/{order}");
    env.cancel("bob", &order).await.is(404, "order_not_found");
    let refused = Answer::of(env.anyone(Method::DELETE, &path)).await;
    refused.is(401, "unauthorized");
    for nobodys in ["00000000-0000-8000-8000-000000000000", "nonsense"] {
        env.cancel("ann", nobodys).await.is(404, "order_not_found");
        env.refund(nobodys).await.is(404, "order_not_found");
    }
    assert_eq!(env.state_of(&order).await, "held");
    let answer = Answer::of(env.admin(Method::DELETE, &path)).await;
    answer.is_now("cancelled");
    // To another buyer the order does not exist.
    env.cancel("bob", &order).await.is(404, "order_not_found");
    env.cancel("ann", &order).await.is_now("cancelled");
}

#[tested_in(open(Options::default()))]
async fn only_admins_can_refund(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    let order = env.hold(&item, "ann", "k").await;
    env.confirm(&order, "pay-1").await;
    let path = format!("/v1/orders/{order}/refund");
    let refused = Answer::of(env.buyer("ann", Method::POST, &path)).await;
    refused.is(403, "forbidden");
    let refused = Answer::of(env.anyone(Method::POST, &path)).await;
    refused.is(401, "unauthorized");
    assert_eq!(env.units(&item).await, [0, 0, 1]);
    env.refund(&order).await.is_now("refunded");
    assert_eq!(env.units(&item).await, [1, 0, 0], "the unit was released");
}

#[tested_in(open_each(Options {
    recorder: false,
    ..Options::default()
}))]
async fn an_order_that_only_its_segment_has_is_cancelled_when_the_ledger_has_it(env: Env) {
    let item = json!({ "stock": 3, "segments": 3, "durability": "accepted" });
    let item = env.create(item).await;
    let order = env.order(&item, "ann", "k", 1).await;
    assert_eq!(order.status, 202);
    let id = order.body["id"].as_str().unwrap();
    let cancelling = env.cancel("ann", id);
    let recording = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert_eq!(env.state_of(id).await, "held");
        env.start_recorder();
    };
    tokio::join!(cancelling, recording).0.is_now("cancelled");
    assert_eq!(env.units(&item).await, [3, 0, 0]);
}
