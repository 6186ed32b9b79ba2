//! Carts: all lines or none, whatever happens on the way.

mod amounts;
mod foreseen;
mod freed;
mod holds;
mod late;
mod lines;
mod placed_for;
mod prices;

use std::{pin::pin, time::Duration};

use domain::{
    BuyerId, Cart, CartId, CartLine, CartState, IdempotencyKey, ItemId, OrderId, Quantity,
};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use stock::{Acknowledge, Outcome, Reservation};
use testkit::{Deadline, eventually, eventually_some, tested_in, timeout};

use crate::env::{
    Answer, Env, Options, SHORT_HOLDS, Stores, TestEnv, known, on_both_ledgers, open, open_each,
    payment_key, token,
};

impl TestEnv {
    async fn post_cart(&self, instance: usize, buyer: &str, key: &str, body: &Value) -> Answer {
        let request = self
            .at(instance, Method::POST, "/v1/carts")
            .bearer_auth(token(buyer))
            .header("Idempotency-Key", key);
        Answer::of(request.json(body)).await
    }

    pub async fn cart(&self, buyer: &str, key: &str, lines: &[(&str, u32)]) -> Answer {
        self.post_cart(0, buyer, key, &cart_of(lines)).await
    }

    pub async fn held_cart(&self, buyer: &str, key: &str, lines: &[(&str, u32)]) -> String {
        let cart = self.cart(buyer, key, lines).await;
        cart.is_held().id()
    }

    pub async fn read_cart(&self, cart: &str) -> Answer {
        self.admin_gets(&format!("/v1/carts/{cart}")).await
    }

    pub async fn cancel_cart(&self, buyer: &str, cart: &str) -> Answer {
        Answer::of(self.buyer(buyer, Method::DELETE, &format!("/v1/carts/{cart}"))).await
    }

    /// Repeats an order, with a new key each time, until it gets its units. Returns its id.
    pub async fn bought_again(&self, item: &str, buyer: &str, key: &str, quantity: u32) -> String {
        let mut attempt = 0_u32;
        let what = format!("an order of {quantity} units of {item}");
        eventually_some(&what, async || {
            attempt += 1;
            let key = format!("{key}-{attempt}");
            let order = self.order(item, buyer, &key, quantity).await;
            if order.status != 201 {
                order.is(409, "sold_out");
                return None;
            }
            order.body["id"].as_str().map(str::to_owned)
        })
        .await
    }

    async fn refund_cart(&self, cart: &str) -> Answer {
        Answer::of(self.admin(Method::POST, &format!("/v1/carts/{cart}/refund"))).await
    }

    pub async fn pay_cart(&self, cart: &str, payment: &str, amount: Option<u64>) -> Answer {
        let mut body = json!({ "payment": payment, "cart": cart });
        if let Some(amount) = amount {
            body["amount"] = json!(amount);
        }
        self.report_cart(cart, body.to_string().as_bytes()).await
    }

    /// A payment that confirms its cart.
    pub async fn confirm_cart(&self, cart: &str, payment: &str, amount: Option<u64>) {
        let paid = self.pay_cart(cart, payment, amount).await;
        paid.is_now("confirmed");
    }

    pub async fn report_cart(&self, cart: &str, body: &[u8]) -> Answer {
        let request = self
            .anyone(Method::POST, &format!("/v1/carts/{cart}/payment"))
            .header("Stockade-Signature", payment_key().sign(body))
            .header("Content-Type", "application/json");
        Answer::of(request.body(body.to_vec())).await
    }

    /// Waits until the cart is in this state, and all of its lines in that one.
    pub async fn cart_becomes(&self, cart: &str, state: &str) {
        let what = format!("the state {state} of {cart}");
        eventually(&what, async || {
            self.read_cart(cart).await.body["state"] == state
        })
        .await;
    }

    /// The states of the cart's lines, as orders.
    async fn line_states(&self, cart: &str) -> Vec<String> {
        let cart = self.read_cart(cart).await;
        let lines = orders(&cart.body);
        join_all(lines.iter().map(|order| self.state_of(order))).await
    }
}

fn cart_of(lines: &[(&str, u32)]) -> Value {
    let lines = lines
        .iter()
        .map(|(item, quantity)| json!({ "item": item, "quantity": quantity }));
    json!({ "lines": lines.collect::<Vec<_>>() })
}

fn orders(cart: &Value) -> Vec<String> {
    let lines = cart["lines"].as_array().unwrap();
    lines
        .iter()
        .map(|line| line["order"].as_str().unwrap().to_owned())
        .collect()
}

#[tested_in(open_each(Options::default()))]
async fn a_cart_is_held_paid_and_refunded_as_one(env: Env) {
    let vase = env.create(json!({ "stock": 5, "price": 300 })).await;
    let bowl = json!({ "stock": 5, "price": 50, "segments": 2 });
    let bowl = env.create(bowl).await;
    let lines = [(&*vase, 2), (&*bowl, 1), (&*vase, 1)];
    let placed = env.cart("ann", "k", &lines).await;
    placed.is_held();
    let body = &placed.body;
    assert_eq!(body["amount"], 950);
    assert_eq!(body["currency"], "USD");
    let of = |line: usize| {
        (
            body["lines"][line]["item"].clone(),
            body["lines"][line]["quantity"].clone(),
        )
    };
    assert_eq!(
        of(0),
        (json!(vase), json!(3)),
        "lines of one item are summed"
    );
    assert_eq!(of(1), (json!(bowl), json!(1)));
    assert!(body["expires_at"].is_string(), "{placed:?}");
    let id = body["id"].as_str().unwrap();
    assert_eq!(placed.header("location"), Some(&*format!("/v1/carts/{id}")));
    for order in orders(body) {
        let shown = env.buyer_gets("ann", &format!("/v1/orders/{order}")).await;
        assert_eq!(shown.body["state"], "held");
        assert_eq!(shown.body["cart"], json!(id));
    }
    let repeated = env.cart("ann", "k", &lines).await;
    assert_eq!(&repeated.is_held().body, body);
    assert_eq!(repeated.header("idempotent-replayed"), Some("true"));

    let refused = env.pay_cart(id, "pay-1", Some(949)).await;
    refused.is(422, "amount_mismatch");
    let refused = env.pay_cart(id, "pay-1", None).await;
    refused.is(400, "invalid_request");
    assert_eq!(env.line_states(id).await, ["held", "held"]);
    for _ in 0..2 {
        env.confirm_cart(id, "pay-2", Some(950)).await;
    }
    assert_eq!(env.line_states(id).await, ["confirmed", "confirmed"]);
    let refused = env.pay_cart(id, "pay-3", Some(950)).await;
    refused.is(409, "already_paid");
    let refused = env.cancel_cart("ann", id).await;
    refused.is(409, "cart_not_cancellable");
    assert_eq!(env.units(&vase).await, [2, 0, 3]);
    assert_eq!(env.units(&bowl).await, [4, 0, 1]);
    for _ in 0..2 {
        env.refund_cart(id).await.is_now("refunded");
    }
    assert_eq!(env.line_states(id).await, ["refunded", "refunded"]);
    assert_eq!(env.units(&vase).await, [5, 0, 0]);
    assert_eq!(env.units(&bowl).await, [5, 0, 0]);
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_cart_with_a_line_that_is_sold_out_takes_nothing(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let bowl = env.create(json!({ "stock": 1 })).await;
    let cup = env.create(json!({ "stock": 5 })).await;
    env.hold(&bowl, "bob", "k").await;
    for lines in [
        [(&*vase, 5), (&*bowl, 1), (&*cup, 5)],
        [(&*bowl, 1), (&*cup, 5), (&*vase, 5)],
    ] {
        let key = lines[0].0;
        // The second instance has not seen the items, so it foresees no refusal.
        let refused = env.post_cart(1, "ann", key, &cart_of(&lines)).await;
        refused.is(409, "sold_out");
        assert_eq!(refused.body["item"], json!(bowl));
        for item in [&*vase, &*cup] {
            let order = env.bought_again(item, "eve", key, 5).await;
            env.cancel("eve", &order).await;
        }
        let repeated = env.cart("ann", key, &lines).await;
        assert_eq!(repeated.is(409, "sold_out").body["item"], json!(bowl));
    }
    assert_eq!(env.units(&vase).await, [5, 0, 0]);
    assert_eq!(env.units(&cup).await, [5, 0, 0]);
}

/// Far longer than the test: no instance refreshes its sold-out cache by time.
const SOLD_OUT_CACHE_TTL: Duration = Duration::from_secs(24 * 3600);

#[tested_in(open_each(Options {
    instances: 2,
    sold_out_cache_ttl: SOLD_OUT_CACHE_TTL,
    ..Options::default()
}))]
async fn only_a_refusal_that_was_written_is_final_for_the_key(env: Env) {
    let vase = env.create(json!({ "stock": 1, "segments": 1 })).await;
    let order = env.hold(&vase, "bob", "k").await;
    // The second instance has not seen the item, so it foresees no refusal.
    let cart = cart_of(&[(&vase, 1)]);
    let decided = env.post_cart(1, "ann", "decided", &cart).await;
    assert_eq!(decided.is(409, "sold_out").body["final"], true);
    let shed = env.cart("eve", "shed", &[(&vase, 1)]).await;
    let shed = &shed.is(409, "sold_out").body;
    assert_eq!(shed["final"], false);
    assert_eq!(shed["item"], json!(vase));
    env.cancel("bob", &order).await.is_now("cancelled");
    let decided = env.cart("ann", "decided", &[(&vase, 1)]).await;
    assert_eq!(decided.is(409, "sold_out").body["final"], true);
    eventually("a cart that is shed no more", async || {
        env.cart("eve", "shed", &[(&vase, 1)]).await.status == 201
    })
    .await;
}

#[tested_in(open(Options::default()))]
async fn a_bad_cart_is_refused_with_pointers_and_changes_nothing(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let euro = env.create(json!({ "stock": 5, "currency": "EUR" })).await;
    let pair = env.create(json!({ "stock": 5, "max_per_order": 2 })).await;
    let line = |item: &str, quantity: i64| json!({ "item": item, "quantity": quantity });
    let invalid = [
        (
            json!({ "lines": [line(&vase, 1), line(&pair, 2), line(&pair, 1)] }),
            "/lines/1/quantity",
        ),
        (json!({}), "/lines"),
        (json!({ "lines": [] }), "/lines"),
        (json!({ "lines": vec![line(&vase, 1); 21] }), "/lines"),
        (json!({ "lines": 7 }), "/lines"),
        (json!([]), ""),
        (
            json!({ "lines": [line(&vase, 1), line(&vase, 0)] }),
            "/lines/1/quantity",
        ),
        (json!({ "lines": [line(&vase, -1)] }), "/lines/0/quantity"),
        (
            json!({ "lines": [line(&vase, 999_999), line(&vase, 2)] }),
            "/lines/0/quantity",
        ),
        (json!({ "lines": [{ "item": vase }] }), "/lines/0"),
        (json!({ "lines": [line(&vase, 1)], "more": 1 }), "/more"),
        (
            json!({ "lines": [line(&vase, 1), line(&euro, 1)] }),
            "/lines/1/item",
        ),
    ];
    let unknown = [
        (
            json!({ "lines": [line(&vase, 1), line(&vase, 1), line("no-such-item", 1)] }),
            "/lines/2/item",
        ),
        (
            json!({ "lines": [line(&vase, 1), line("no-such-item", 1)] }),
            "/lines/1/item",
        ),
        (json!({ "lines": [line("a b", 1)] }), "/lines/0/item"),
    ];
    for (cases, status, code) in [
        (&invalid[..], 400, "invalid_request"),
        (&unknown[..], 404, "item_not_found"),
    ] {
        for (body, pointer) in cases {
            let answer = env.post_cart(0, "ann", "k", body).await;
            let errors = &answer.is(status, code).body["errors"];
            assert_eq!(errors[0]["pointer"], *pointer, "{body}: {answer:?}");
        }
    }
    for (name, shown, item) in [
        (
            "no-such-item",
            "no such item: no-such-item",
            json!("no-such-item"),
        ),
        ("a b", "no such item: a b", json!(null)),
        (
            &"é".repeat(70),
            &format!("no such item: {}...", "é".repeat(64)),
            json!(null),
        ),
    ] {
        let body = json!({ "lines": [line(&vase, 1), line(name, 1)] });
        let unknown = env.post_cart(0, "ann", "k", &body).await;
        let body = &unknown.is(404, "item_not_found").body;
        let found = (
            &body["detail"],
            &body["errors"][0]["detail"],
            &body["field"],
            &body["item"],
        );
        let expected = (&json!(shown), &json!(shown), &json!("lines/1/item"), &item);
        assert_eq!(found, expected, "{unknown:?}");
    }
    let long = env
        .buyer("ann", Method::POST, "/v1/carts")
        .header("Idempotency-Key", "k");
    let long = Answer::of(long.body(format!(r#"{{"x":"{}"}}"#, "x".repeat(20_000)))).await;
    long.is(413, "payload_too_large");
    assert_eq!(long.body["errors"][0]["pointer"], "");
    let without_key = env.buyer("ann", Method::POST, "/v1/carts");
    let without_key = Answer::of(without_key.json(&cart_of(&[(&vase, 1)]))).await;
    without_key.blames("Idempotency-Key");
    let nobody = env
        .anyone(Method::POST, "/v1/carts")
        .json(&cart_of(&[(&vase, 1)]));
    Answer::of(nobody).await.is(401, "unauthorized");
    let mine = env.buyer_gets("ann", "/v1/carts").await;
    assert_eq!(mine.body["data"], json!([]));
    assert_eq!(env.units(&vase).await, [5, 0, 0]);
    assert_eq!(env.units(&euro).await, [5, 0, 0]);
    env.held_cart("ann", "k", &[(&vase, 1)]).await;
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_key_means_one_cart_at_every_instance(env: Env) {
    let vase = env.create(json!({ "stock": 50 })).await;
    let bowl = env.create(json!({ "stock": 50 })).await;
    let body = cart_of(&[(&vase, 1), (&bowl, 2)]);
    let repeats = (0..12).map(|n| env.post_cart(n % 2, "ann", "k", &body));
    let answers = join_all(repeats).await;
    for answer in &answers {
        assert_eq!(answer.is_held().body, answers[0].body);
    }
    let first = answers
        .iter()
        .filter(|answer| answer.header("idempotent-replayed").is_none());
    assert_eq!(first.count(), 1, "one request has placed it");
    assert_eq!(env.units(&vase).await, [49, 1, 0]);
    let same = env.cart("ann", "k", &[(&bowl, 2), (&vase, 1)]).await;
    assert_eq!(same.is_held().body["id"], answers[0].body["id"]);
    for other in [vec![(&*vase, 2), (&*bowl, 2)], vec![(&*vase, 1)]] {
        let refused = env.cart("ann", "k", &other).await;
        refused.is(422, "idempotency_key_reused");
    }
    let bob = env.cart("bob", "k", &[(&vase, 1), (&bowl, 2)]).await;
    assert_ne!(bob.is_held().body["id"], answers[0].body["id"]);
    // An order with the same key is another one.
    let order = env.hold(&vase, "ann", "k").await;
    assert!(!orders(&answers[0].body).contains(&order));
    assert_eq!(env.units(&vase).await, [47, 3, 0]);
}

#[tested_in(open_each(Options::default()))]
async fn a_line_does_nothing_alone(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let bowl = env.create(json!({ "stock": 5 })).await;
    let cart = env.held_cart("ann", "k", &[(&vase, 1), (&bowl, 1)]).await;
    let line = orders(&env.read_cart(&cart).await.body)[0].clone();
    for answer in [
        env.pay(&line, &format!("alone-{line}")).await,
        env.cancel("ann", &line).await,
        env.refund(&line).await,
    ] {
        assert_eq!(answer.is(409, "order_in_cart").body["cart"], json!(cart));
    }
    assert_eq!(
        env.unmatched_payments(&vase).await,
        [format!("alone-{line}")]
    );
    assert_eq!(env.line_states(&cart).await, ["held", "held"]);
    let of_bob = env.buyer("bob", Method::GET, &format!("/v1/carts/{cart}"));
    Answer::of(of_bob).await.is(404, "cart_not_found");
    let refused = env.cancel_cart("bob", &cart).await;
    refused.is(404, "cart_not_found");
    for _ in 0..2 {
        env.cancel_cart("ann", &cart).await.is_now("cancelled");
    }
    assert_eq!(env.line_states(&cart).await, ["cancelled", "cancelled"]);
    let refused = env.pay_cart(&cart, &format!("late-{cart}"), None).await;
    refused.is(409, "cart_not_payable");
    assert_eq!(env.unmatched_payments(&vase).await.len(), 2);
    env.refund_cart(&cart).await.is(409, "cart_not_refundable");
    assert_eq!(env.units(&vase).await, [5, 0, 0]);
    assert_eq!(env.units(&bowl).await, [5, 0, 0]);
}

#[tested_in(open_each(Options::default()))]
async fn a_payment_pays_one_cart_or_order_only(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let first = env.held_cart("ann", "k1", &[(&vase, 1)]).await;
    let second = env.held_cart("ann", "k2", &[(&vase, 1)]).await;
    let order = env.hold(&vase, "ann", "k3").await;
    let payment = format!("pay-{first}");
    env.confirm_cart(&first, &payment, None).await;
    let refused = env.pay_cart(&second, &payment, None).await;
    refused.is(409, "payment_already_used");
    let refused = env.pay(&order, &payment).await;
    refused.is(409, "payment_already_used");
    let mismatch = json!({ "payment": "p", "cart": second });
    env.report_cart(&first, mismatch.to_string().as_bytes())
        .await
        .is(422, "cart_mismatch");
    env.confirm(&order, &format!("pay-{order}")).await;
    let refused = env.pay_cart(&second, &format!("pay-{order}"), None).await;
    refused.is(409, "payment_already_used");
    assert_eq!(env.units(&vase).await, [2, 1, 2]);
}

/// Two carts want the last unit of two items, in opposite order.
#[tested_in(open_each(Options::default().with_instances(2)))]
async fn of_two_carts_that_cross_one_gets_all_and_the_other_nothing(env: Env) {
    for round in 0..8 {
        let vase = env.create(json!({ "stock": 1 })).await;
        let bowl = env.create(json!({ "stock": 1 })).await;
        let (there, back) = (
            cart_of(&[(&vase, 1), (&bowl, 1)]),
            cart_of(&[(&bowl, 1), (&vase, 1)]),
        );
        let key = format!("k{round}");
        let (ann, bob) = tokio::join!(
            env.post_cart(0, "ann", &key, &there),
            env.post_cart(1, "bob", &key, &back)
        );
        let mut statuses = [ann.status, bob.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409], "{ann:?} {bob:?}");
        let refused = if ann.status == 409 { &ann } else { &bob };
        refused.is(409, "sold_out");
        assert_eq!(env.units(&vase).await, [0, 1, 0]);
        assert_eq!(env.units(&bowl).await, [0, 1, 0]);
    }
}

#[tested_in(open_each(Options::default()))]
async fn the_limit_of_every_item_holds_and_a_failed_cart_uses_none_of_it(env: Env) {
    let vase = json!({ "stock": 9, "limit_per_buyer": 2 });
    let vase = env.create(vase).await;
    let bowl = json!({ "stock": 9, "limit_per_buyer": 1 });
    let bowl = env.create(bowl).await;
    for (n, lines) in [[(&*vase, 1), (&*bowl, 2)], [(&*vase, 3), (&*bowl, 1)]]
        .iter()
        .enumerate()
    {
        let refused = env.cart("ann", &format!("k{n}"), lines).await;
        let item = if n == 0 { &bowl } else { &vase };
        assert_eq!(
            refused.is(409, "buyer_limit_reached").body["item"],
            json!(item)
        );
    }
    let cart = env.held_cart("ann", "k2", &[(&vase, 2), (&bowl, 1)]).await;
    let answer = env.order(&vase, "ann", "o", 1).await;
    answer.is(409, "buyer_limit_reached");
    let answer = env.cart("ann", "k3", &[(&bowl, 1)]).await;
    answer.is(409, "buyer_limit_reached");
    env.cancel_cart("ann", &cart).await.is_now("cancelled");
    env.held_cart("ann", "k4", &[(&bowl, 1), (&vase, 2)]).await;
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_payment_and_a_cancellation_at_the_same_time_leave_no_cart_in_parts(env: Env) {
    let vase = env.create(json!({ "stock": 50 })).await;
    let bowl = env.create(json!({ "stock": 50 })).await;
    let carts = join_all((0..12).map(|n| {
        let (env, lines) = (&env, [(&*vase, 1), (&*bowl, 2)]);
        async move { env.held_cart("ann", &format!("k{n}"), &lines).await }
    }))
    .await;
    let env = &env;
    join_all(carts.iter().map(|cart| async move {
        let payment = format!("p-{cart}");
        tokio::join!(
            env.pay_cart(cart, &payment, None),
            env.cancel_cart("ann", cart)
        )
    }))
    .await;
    let mut confirmed = 0;
    for cart in &carts {
        let state = env.read_cart(cart).await.body["state"].clone();
        assert!(
            ["confirmed", "cancelled"].contains(&state.as_str().unwrap()),
            "{state}"
        );
        assert_eq!(env.line_states(cart).await, [state.as_str().unwrap(); 2]);
        confirmed += u64::from(state == "confirmed");
    }
    assert_eq!(env.units(&vase).await, [50 - confirmed, 0, confirmed]);
    assert_eq!(
        env.units(&bowl).await,
        [50 - 2 * confirmed, 0, 2 * confirmed]
    );
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_cart_expires_as_one(env: Env) {
    let vase = env.create(json!({ "stock": 5, "hold_seconds": 1 })).await;
    let bowl = env.create(json!({ "stock": 5, "hold_seconds": 600 })).await;
    let lines = [(&*vase, 1), (&*bowl, 1)];
    let cart = env.expiring_cart("ann", "k", &lines).await;
    assert_eq!(env.line_states(&cart).await, ["expired", "expired"]);
    assert_eq!(env.units(&vase).await, [5, 0, 0]);
    assert_eq!(env.units(&bowl).await, [5, 0, 0]);
    let refused = env.cancel_cart("ann", &cart).await;
    refused.is(409, "cart_not_cancellable");
}

/// A cart that its request has abandoned after its row, and after each line that took its units.
struct Abandoned {
    cart: Cart,
}

impl Abandoned {
    async fn place(env: &TestEnv, key: &str, items: &[&str], taken: usize, left: Duration) -> Self {
        let abandoned = Self::written(env, "ann", key, items, left).await;
        for line in 0..taken {
            abandoned.take(env, line).await;
        }
        abandoned
    }

    /// A cart that has a row and nothing else.
    async fn written(
        env: &TestEnv,
        buyer: &str,
        key: &str,
        items: &[&str],
        left: Duration,
    ) -> Self {
        let (buyer, key) = (
            BuyerId::new(buyer).unwrap(),
            IdempotencyKey::new(key).unwrap(),
        );
        let deadline = Timestamp::now() + SignedDuration::try_from(left).unwrap();
        let lines = items.iter().map(|item| ItemId::new(item).unwrap());
        let cart = Cart {
            id: CartId::derive(&buyer, &key),
            state: CartState::Placing,
            lines: lines
                .map(|item| CartLine {
                    order: OrderId::of_line(&item, &buyer, &key),
                    item,
                    quantity: Quantity::ONE,
                })
                .collect(),
            amount: 0,
            is_checked: true,
            price: None,
            currency: "USD".into(),
            buyer,
            deadline,
            expires_at: deadline,
            payment: None,
            refusal: None,
            version: 1,
        };
        env.engines[0].ledger.create_cart(&cart).await.unwrap();
        Self { cart }
    }

    /// The request for a line, as the saga sends it.
    async fn take(&self, env: &TestEnv, line: usize) {
        let engine = &env.engines[0];
        let line = &self.cart.lines[line];
        let item = engine.ledger.item(&line.item).await.unwrap().unwrap();
        let reservation = Reservation {
            order: line.order,
            buyer: self.cart.buyer.clone(),
            quantity: line.quantity,
            acknowledge: Acknowledge::Accepted,
            within: timeout(),
        };
        let taken = engine.stock.item(&item).order(reservation).await.unwrap();
        assert!(matches!(taken, Outcome::Held { .. }), "{taken:?}");
    }
}

#[tested_in(open_each(Options::default()))]
async fn a_repeat_goes_on_with_a_cart_that_was_abandoned_at_any_step(env: Env) {
    let vase = env.create(json!({ "stock": 9 })).await;
    let bowl = env.create(json!({ "stock": 9 })).await;
    for taken in 0..=2 {
        let key = format!("k{taken}");
        let abandoned = Abandoned::place(&env, &key, &[&vase, &bowl], taken, timeout()).await;
        let repeated = env.cart("ann", &key, &[(&vase, 1), (&bowl, 1)]).await;
        assert_eq!(repeated.is_held().body["id"], json!(abandoned.cart.id));
    }
    assert_eq!(env.units(&vase).await, [6, 3, 0]);
    assert_eq!(env.units(&bowl).await, [6, 3, 0]);
}

/// What a lagging replica does not know: home's decision on the first line, and that it counted the
/// buyer. Home's mark is then one of another history.
async fn lose_at_home(env: &TestEnv, cart: &Cart, home: u16) {
    let line = &cart.lines[0];
    let key = |name: &str| format!("{name}:{{{}:{home}}}", line.item);
    let order = line.order.as_bytes();
    let mut connection = testbed::patient_connection(&env.redis_url).await.unwrap();
    // Home hears of the end of the spillover later than the request.
    eventually("home's last word on the line", async || {
        let mut read = redis::cmd("HGET");
        read.arg(key("decisions")).arg(&order[..]);
        let decision: Option<Vec<u8>> = read.query_async(&mut connection).await.unwrap();
        decision.is_some_and(|decision| decision.first() == Some(&b'E'))
    })
    .await;
    let mut lose = redis::pipe();
    lose.cmd("HDEL").arg(key("decisions")).arg(&order[..]);
    lose.cmd("HDEL").arg(key("buyers")).arg(cart.buyer.as_str());
    lose.cmd("HSET")
        .arg(key("stock"))
        .arg("checked")
        .arg("another history");
    let _: [i64; 3] = lose.query_async(&mut connection).await.unwrap();
}

#[tested_in(on_both_ledgers(Options {
    recorder: false,
    order_timeout: Duration::from_secs(3),
    ..Options::default()
}))]
async fn a_line_that_a_segment_has_is_not_refused_on_the_word_of_an_unchecked_home(env: Env) {
    let vase = env.create(json!({ "stock": 1, "segments": 2 })).await;
    let mut names = (0..).map(|number| format!("buyer-{number}"));
    let buyer = names.find(|name| BuyerId::new(name).unwrap().home(2) == 1);
    let buyer = buyer.unwrap();
    // Home has no unit, and the other segment has one.
    let abandoned = Abandoned::written(&env, &buyer, "k", &[&vase], timeout()).await;
    abandoned.take(&env, 0).await;
    lose_at_home(&env, &abandoned.cart, 1).await;
    // The ledger does not have the line yet, so neither this nor a refusal is an answer.
    let unknown = env.cart(&buyer, "k", &[(&vase, 1)]).await;
    unknown.is(503, "outcome_unknown");
    env.start_recorder();
    let repeated = known(async || env.cart(&buyer, "k", &[(&vase, 1)]).await).await;
    let id = json!(abandoned.cart.id);
    assert_eq!(repeated.is_held().body["id"], id);
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_reconciler_settles_a_cart_that_was_abandoned_at_any_step(env: Env) {
    let vase = env.create(json!({ "stock": 9, "hold_seconds": 1 })).await;
    let bowl = env.create(json!({ "stock": 9, "segments": 2 })).await;
    let left = Duration::from_millis(1500);
    let mut carts = Vec::new();
    for taken in 0..=2 {
        let key = format!("k{taken}");
        carts.push(
            Abandoned::place(&env, &key, &[&vase, &bowl], taken, left)
                .await
                .cart,
        );
    }
    // The deadline of the cart decides, and not that of a line's hold.
    let before = carts[0].deadline;
    for (taken, cart) in carts.iter().enumerate() {
        env.cart_becomes(&cart.id.to_string(), "failed").await;
        assert!(Timestamp::now() >= before, "not before the deadline");
        let repeated = env
            .cart("ann", &format!("k{taken}"), &[(&vase, 1), (&bowl, 1)])
            .await;
        repeated.is(409, "cart_timed_out");
        for line in &cart.lines[..taken] {
            env.becomes(&line.order.to_string(), "cancelled").await;
        }
    }
    assert_eq!(env.units(&vase).await, [9, 0, 0]);
    assert_eq!(env.units(&bowl).await, [9, 0, 0]);
}

/// The request was asleep while its cart failed, and goes on afterwards.
#[tested_in(open_each(Options::reconciled()))]
async fn a_line_that_takes_its_units_after_its_cart_has_failed_is_released(env: Env) {
    let vase = env.create(json!({ "stock": 9 })).await;
    let bowl = env.create(json!({ "stock": 9 })).await;
    let abandoned = Abandoned::place(&env, "k", &[&vase, &bowl], 1, Duration::ZERO).await;
    env.cart_becomes(&abandoned.cart.id.to_string(), "failed")
        .await;
    abandoned.take(&env, 1).await;
    env.becomes(&abandoned.cart.lines[1].order.to_string(), "cancelled")
        .await;
    assert_eq!(env.units(&vase).await, [9, 0, 0]);
    assert_eq!(env.units(&bowl).await, [9, 0, 0]);
}

/// A recorder that is behind: the cart fails before the ledger knows what its first line took.
#[tested_in(open_each(Options {
    recorder: false,
    order_timeout: Duration::from_millis(800),
    ..Options::reconciled()
}))]
async fn a_line_that_is_recorded_after_its_cart_has_failed_is_released(env: Env) {
    let vase = env.create(json!({ "stock": 9 })).await;
    let sold = env.create(json!({ "stock": 1 })).await;
    let (first, last) = if vase < sold {
        (&vase, &sold)
    } else {
        (&sold, &vase)
    };
    // The item that is tried last is the one that has too few units.
    let lines = [(&**first, 1), (&**last, 10)];
    let mut refused = env.cart("ann", "k", &lines).await;
    // A busy machine needs more than the short time of a request.
    while refused.status == 503 {
        refused = env.cart("ann", "k", &lines).await;
    }
    assert_eq!(refused.is(409, "sold_out").body["item"], json!(last));
    env.start_recorder();
    let cart = env.buyer_gets("ann", "/v1/carts").await.body["data"][0].clone();
    assert_eq!(cart["state"], "failed", "{cart}");
    env.becomes(&orders(&cart)[0], "cancelled").await;
    assert_eq!(env.units(first).await[1], 0);
}

/// The recorder is behind, and then the ledger does not answer. The buyer learns what was decided,
/// and not that the outcome is unknown.
#[tested_in(open(Options {
    stores: Stores::Postgres,
    recorder: false,
    order_timeout: Duration::from_secs(3),
    ..Options::default()
}))]
async fn a_cart_that_has_failed_is_answered_although_its_lines_cannot_be_released(env: Env) {
    let ann = BuyerId::new("ann").unwrap();
    let deadline = Deadline::start();
    for attempt in 0.. {
        // No unit of these was ordered yet, so the refusal is not foreseen.
        let mut items = [
            env.create(json!({ "stock": 100 })).await,
            env.create(json!({ "stock": 100 })).await,
        ];
        // Lines take their units by item: the first line has its units when the last one is
        // refused.
        items.sort_unstable();
        let lines = [(&*items[0], 1), (&*items[1], 1000)];
        let key = format!("k{attempt}");
        let cart = CartId::derive(&ann, &IdempotencyKey::new(&key).unwrap()).to_string();
        let mut answer = pin!(env.cart("ann", &key, &lines));
        let early = tokio::select! {
            early = &mut answer => Some(early),
            () = env.cart_becomes(&cart, "failed") => None,
        };
        if let Some(early) = early {
            // The machine was too busy to fail the cart and to notice it in the time of a
            // request.
            if early.status != 503 {
                early.is(409, "sold_out");
            }
            deadline.check("no cart failed before its answer");
            continue;
        }
        let mut lock = PgConnection::connect(&env.database_url).await.unwrap();
        let locked = sqlx::raw_sql("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE");
        locked.execute(&mut lock).await.unwrap();
        let refused = answer.await;
        assert_eq!(refused.is(409, "sold_out").body["item"], json!(items[1]));
        lock.close().await.unwrap();
        break;
    }
    env.start_recorder();
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_buyer_lists_carts_page_by_page_and_an_erased_one_has_no_name(env: Env) {
    let vase = env.create(json!({ "stock": 9 })).await;
    let name = format!("ann@{vase}");
    let mut expected = Vec::new();
    for n in 0..3 {
        expected.push(env.held_cart(&name, &format!("k{n}"), &[(&vase, 1)]).await);
    }
    env.held_cart("bob", "k", &[(&vase, 1)]).await;
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/carts?limit=2{after}");
        let page = env.buyer_gets(&name, &path).await;
        let data = page.rows();
        found.extend(
            data.iter()
                .map(|cart| cart["id"].as_str().unwrap().to_owned()),
        );
        assert!(
            data.iter().all(|cart| cart["lines"][0]["item"] == vase),
            "{page:?}"
        );
        let Some(next) = page.body["next"].as_str() else {
            break;
        };
        after = format!("&after={next}");
    }
    expected.sort_unstable();
    assert_eq!(found, expected);
    let csv = env.buyer(&name, Method::GET, "/v1/carts?format=csv");
    assert_eq!(
        Answer::of(csv).await.is(400, "invalid_request").body["errors"][0]["pointer"],
        "/format"
    );

    for cart in &found {
        env.cancel_cart(&name, cart).await.is_now("cancelled");
    }
    let bob = env.buyer_gets("bob", "/v1/carts").await.body["data"][0]["id"].clone();
    let answer = env.cancel_cart("bob", bob.as_str().unwrap()).await;
    answer.is_now("cancelled");
    env.units(&vase).await;
    env.put_state(&vase, "closed").await;
    eventually("an archived item", async || {
        let archive = env.admin(Method::POST, &format!("/v1/items/{vase}/archive"));
        Answer::of(archive).await.status == 200
    })
    .await;
    let erase = format!("/v1/buyers/ann%40{vase}/erase");
    let erased = Answer::of(env.admin(Method::POST, &erase)).await;
    assert_eq!(erased.body["erased"], 3, "{erased:?}");
    let mine = env.buyer_gets(&name, "/v1/carts").await;
    assert_eq!(mine.body["data"], json!([]));
    env.forget_item(&vase);
}

/// Number of erased and kept orders.
async fn erase(env: &TestEnv, buyer: &str) -> (u64, u64) {
    let path = format!("/v1/buyers/{buyer}/erase");
    let answer = Answer::of(env.admin(Method::POST, &path)).await;
    let number = |name: &str| answer.body[name].as_u64().unwrap();
    (number("erased"), number("kept"))
}

#[tested_in(on_both_ledgers(Options::reconciled().with_instances(2)))]
async fn a_failed_cart_loses_its_buyers_name_or_counts_as_kept_while_its_items_live(env: Env) {
    let bowl = env.create(json!({ "stock": 1, "segments": 1 })).await;
    let cup = env.create(json!({ "stock": 1 })).await;
    env.hold(&bowl, "bob", "k").await;
    let ann = format!("ann-{bowl}");
    let carts = async |buyer: &str| -> Value {
        let carts = env.buyer(buyer, Method::GET, "/v1/carts");
        Answer::of(carts).await.body["data"].clone()
    };
    // The second instance has not seen the item, so it foresees no refusal.
    let failed = env.post_cart(1, &ann, "k", &cart_of(&[(&bowl, 1)])).await;
    assert_eq!(failed.is(409, "sold_out").body["item"], *bowl);
    assert_eq!(carts(&ann).await.as_array().unwrap().len(), 1);
    assert_eq!(erase(&env, &ann).await, (0, 0));
    assert_eq!(carts(&ann).await, json!([]), "no name is left");
    assert_eq!(erase(&env, &ann).await, (0, 0));

    // A paused item may still take for a cart that has failed, until its deadline.
    env.put_state(&cup, "paused").await;
    let carl = format!("carl-{bowl}");
    let refused = env.cart(&carl, "new", &[(&cup, 1)]).await;
    refused.is(409, "not_open");
    assert_eq!(carts(&carl).await, json!([]), "it was not made");
    Abandoned::written(&env, &carl, "k", &[&cup], timeout()).await;
    env.cart(&carl, "k", &[(&cup, 1)]).await.is(409, "not_open");
    assert_eq!(erase(&env, &carl).await, (0, 1));
    assert_eq!(carts(&carl).await.as_array().unwrap().len(), 1);
}

/// The first instance has looked the cart up in vain a moment before the second one places it.
#[tested_in(open_each(Options::default().with_instances(2)))]
async fn an_admin_changes_a_cart_that_this_instance_has_just_missed(env: Env) {
    let vase = env.create(json!({ "stock": 2 })).await;
    let name = format!("ann-{vase}");
    let ann = BuyerId::new(&*name).unwrap();
    let lines = cart_of(&[(&vase, 1)]);
    for (key, is_extended) in [("cancelled", false), ("extended", true)] {
        let cart = CartId::derive(&ann, &IdempotencyKey::new(key).unwrap()).to_string();
        env.read_cart(&cart).await.is(404, "cart_not_found");
        env.post_cart(1, &name, key, &lines).await.is_held();
        let changed = if is_extended {
            let extend = env.admin(Method::POST, &format!("/v1/carts/{cart}/hold"));
            Answer::of(extend.json(&json!({ "seconds": 900 }))).await
        } else {
            Answer::of(env.admin(Method::DELETE, &format!("/v1/carts/{cart}"))).await
        };
        assert_eq!(changed.status, 200, "{changed:?}");
    }
}

#[tested_in(on_both_ledgers(Options::default().with_instances(2)))]
async fn every_change_of_a_cart_has_an_event(env: Env) {
    let vase = json!({ "stock": 2, "max_hold_seconds": 1200 });
    let vase = env.create(vase).await;
    let paid = env.held_cart("ann", "k1", &[(&vase, 1)]).await;
    let extend = env.buyer("ann", Method::POST, &format!("/v1/carts/{paid}/hold"));
    let extended = Answer::of(extend.json(&json!({ "seconds": 1200 }))).await;
    assert_eq!(extended.status, 200, "{extended:?}");
    env.confirm_cart(&paid, &format!("p-{paid}"), None).await;
    env.refund_cart(&paid).await.is_now("refunded");
    let cancelled = env.held_cart("ann", "k2", &[(&vase, 1)]).await;
    env.cancel_cart("ann", &cancelled).await.is_now("cancelled");
    // The second instance has not seen the item, so it foresees no refusal.
    let refused = env.post_cart(1, "ann", "k3", &cart_of(&[(&vase, 9)])).await;
    refused.is(409, "sold_out");
    let found: Vec<Value> = eventually_some("seven events of carts", async || {
        let page = env.admin_gets("/v1/events?limit=1000").await;
        let data = page.rows().clone();
        let is_cart = |event: &&Value| {
            event["type"]
                .as_str()
                .unwrap()
                .starts_with("stockade.cart.")
        };
        let found: Vec<_> = data.iter().filter(is_cart).cloned().collect();
        (found.len() >= 7).then_some(found)
    })
    .await;
    let kinds: Vec<_> = found
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "stockade.cart.held",
            "stockade.cart.extended",
            "stockade.cart.confirmed",
            "stockade.cart.refunded",
            "stockade.cart.held",
            "stockade.cart.cancelled",
            "stockade.cart.failed"
        ]
    );
    assert_eq!(found[2]["subject"], json!(paid));
    assert_eq!(found[2]["data"]["cart"], json!(paid));
    assert_eq!(found[1]["data"]["expires_at"], extended.body["expires_at"]);
    assert_eq!(found[2]["data"]["payment"], json!(format!("p-{paid}")));
    assert_eq!(found[2]["data"]["orders"].as_array().unwrap().len(), 1);
    assert_eq!(found[6]["data"]["code"], "sold_out");
    assert_eq!(found[6]["data"]["item"], json!(vase));
}
