//! Carts: all lines or none, whatever happens on the way.

use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::env::{Answer, Options, TestEnv, open, open_each, payment_key, token};

/// How soon the units of a failed cart are free again, on a machine that does nothing else. The
/// tests share theirs, so they allow for several times as much.
const FREE_AGAIN: Duration = Duration::from_millis(100);

impl TestEnv {
    async fn post_cart(&self, instance: usize, buyer: &str, key: &str, body: &Value) -> Answer {
        let request = self
            .at(instance, Method::POST, "/v1/carts")
            .bearer_auth(token(buyer))
            .header("Idempotency-Key", key);
        Answer::of(request.json(body)).await
    }

    async fn cart(&self, buyer: &str, key: &str, lines: &[(&str, u32)]) -> Answer {
        self.post_cart(0, buyer, key, &cart_of(lines)).await
    }

    async fn held_cart(&self, buyer: &str, key: &str, lines: &[(&str, u32)]) -> String {
        let cart = self.cart(buyer, key, lines).await;
        cart.is_held().body["id"].as_str().unwrap().to_owned()
    }

    async fn read_cart(&self, cart: &str) -> Answer {
        Answer::of(self.admin(Method::GET, &format!("/v1/carts/{cart}"))).await
    }

    async fn cancel_cart(&self, buyer: &str, cart: &str) -> Answer {
        Answer::of(self.buyer(buyer, Method::DELETE, &format!("/v1/carts/{cart}"))).await
    }

    async fn refund_cart(&self, cart: &str) -> Answer {
        Answer::of(self.admin(Method::POST, &format!("/v1/carts/{cart}/refund"))).await
    }

    async fn pay_cart(&self, cart: &str, payment: &str, amount: Option<u64>) -> Answer {
        let mut body = json!({ "payment": payment, "cart": cart });
        if let Some(amount) = amount {
            body["amount"] = json!(amount);
        }
        self.report_cart(cart, body.to_string().as_bytes()).await
    }

    async fn report_cart(&self, cart: &str, body: &[u8]) -> Answer {
        let request = self
            .anyone(Method::POST, &format!("/v1/carts/{cart}/payment"))
            .header("Stockade-Signature", payment_key().sign(body))
            .header("Content-Type", "application/json");
        Answer::of(request.body(body.to_vec())).await
    }

    /// Waits until the cart is in this state, and all of its lines in that one.
    async fn cart_becomes(&self, cart: &str, state: &str) {
        for _ in 0..500 {
            if self.read_cart(cart).await.body["state"] == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?} is not {state}", self.read_cart(cart).await);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_is_held_paid_and_refunded_as_one() {
    open_each(Options::default(), async |env| {
        let vase = env.create(json!({ "stock": 5, "price_cents": 300 })).await;
        let bowl = env
            .create(json!({ "stock": 5, "price_cents": 50, "segments": 2 }))
            .await;
        let lines = [(&*vase, 2), (&*bowl, 1), (&*vase, 1)];
        let placed = env.cart("ann", "k", &lines).await;
        placed.is_held();
        let body = &placed.body;
        assert_eq!(
            (&body["amount"], &body["currency"]),
            (&json!(950), &json!("USD"))
        );
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
            let shown =
                Answer::of(env.buyer("ann", Method::GET, &format!("/v1/orders/{order}"))).await;
            assert_eq!(
                (&shown.body["state"], &shown.body["cart"]),
                (&json!("held"), &json!(id))
            );
        }
        let repeated = env.cart("ann", "k", &lines).await;
        assert_eq!(&repeated.is_held().body, body);
        assert_eq!(repeated.header("idempotent-replayed"), Some("true"));

        env.pay_cart(id, "pay-1", Some(949))
            .await
            .is(422, "amount_mismatch");
        env.pay_cart(id, "pay-1", None)
            .await
            .is(400, "invalid_request");
        assert_eq!(env.line_states(id).await, ["held", "held"]);
        for _ in 0..2 {
            env.pay_cart(id, "pay-2", Some(950))
                .await
                .is_now("confirmed");
        }
        assert_eq!(env.line_states(id).await, ["confirmed", "confirmed"]);
        env.pay_cart(id, "pay-3", Some(950))
            .await
            .is(409, "already_paid");
        env.cancel_cart("ann", id)
            .await
            .is(409, "cart_not_cancellable");
        assert_eq!(
            (env.units(&vase).await, env.units(&bowl).await),
            ([2, 0, 3], [4, 0, 1])
        );
        for _ in 0..2 {
            env.refund_cart(id).await.is_now("refunded");
        }
        assert_eq!(env.line_states(id).await, ["refunded", "refunded"]);
        assert_eq!(
            (env.units(&vase).await, env.units(&bowl).await),
            ([5, 0, 0], [5, 0, 0])
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_with_a_line_that_is_sold_out_takes_nothing() {
    open_each(Options::default(), async |env| {
        let vase = env.create(json!({ "stock": 5 })).await;
        let bowl = env.create(json!({ "stock": 1 })).await;
        let cup = env.create(json!({ "stock": 5 })).await;
        env.hold(&bowl, "bob", "k").await;
        for lines in [
            [(&*vase, 5), (&*bowl, 1), (&*cup, 5)],
            [(&*bowl, 1), (&*cup, 5), (&*vase, 5)],
        ] {
            let key = lines[0].0;
            let refused = env.cart("ann", key, &lines).await;
            refused.is(409, "sold_out");
            assert_eq!(refused.body["item"], json!(bowl));
            let answered = Instant::now();
            for item in [&*vase, &*cup] {
                loop {
                    let order = env
                        .order(item, "eve", &format!("{key}-{:?}", answered.elapsed()), 5)
                        .await;
                    if order.status == 201 {
                        env.cancel("eve", order.body["id"].as_str().unwrap()).await;
                        break;
                    }
                    assert!(answered.elapsed() < FREE_AGAIN * 20, "{order:?}");
                }
            }
            let repeated = env.cart("ann", key, &lines).await;
            assert_eq!(repeated.is(409, "sold_out").body["item"], json!(bowl));
        }
        assert_eq!(
            (env.units(&vase).await, env.units(&cup).await),
            ([5, 0, 0], [5, 0, 0])
        );
    })
    .await;
}
