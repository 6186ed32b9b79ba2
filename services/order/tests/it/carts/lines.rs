//! Single lines of confirmed carts that are returned.

use super::*;

impl TestEnv {
    async fn refund_line(&self, cart: &str, order: &str) -> Answer {
        let path = format!("/v1/carts/{cart}/lines/{order}/refund");
        Answer::of(self.admin(Method::POST, &path)).await
    }

    async fn cart_state(&self, cart: &str) -> String {
        let state = &self.read_cart(cart).await.body["state"];
        state.as_str().unwrap().to_owned()
    }
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_line_is_returned_alone_and_the_last_one_takes_the_cart_with_it(env: Env) {
    let vase = env.create(json!({ "stock": 5, "price": 900 })).await;
    let bowl = env.create(json!({ "stock": 5, "price": 50 })).await;
    let cart = env.held_cart("ann", "k", &[(&vase, 1), (&bowl, 2)]).await;
    let lines = orders(&env.read_cart(&cart).await.body);
    let refused = env.refund_line(&cart, &lines[0]).await;
    refused.is(409, "cart_not_refundable");
    env.confirm_cart(&cart, &format!("p-{cart}"), Some(1000))
        .await;
    for _ in 0..2 {
        let returned = env.refund_line(&cart, &lines[1]).await;
        let body = &returned.is_now("refunded").body;
        assert_eq!(
            (&body["id"], &body["cart"], &body["amount"], &body["buyer"]),
            (&json!(lines[1]), &json!(cart), &json!(100), &json!("ann"))
        );
    }
    assert_eq!(env.cart_state(&cart).await, "confirmed");
    assert_eq!(env.line_states(&cart).await, ["confirmed", "refunded"]);
    assert_eq!(env.units(&vase).await, [4, 0, 1]);
    assert_eq!(env.units(&bowl).await, [5, 0, 0]);
    // The payment still pays the cart, and no other one does.
    env.confirm_cart(&cart, &format!("p-{cart}"), Some(1000))
        .await;
    let refused = env.pay_cart(&cart, &format!("q-{cart}"), Some(1000)).await;
    refused.is(409, "already_paid");
    let returned = env.refund_line(&cart, &lines[0]).await;
    assert_eq!(returned.is_now("refunded").body["amount"], 900);
    assert_eq!(env.cart_state(&cart).await, "refunded");
    for _ in 0..2 {
        env.refund_cart(&cart).await.is_now("refunded");
        env.refund_line(&cart, &lines[0]).await.is_now("refunded");
    }
    assert_eq!(env.units(&vase).await, [5, 0, 0]);
    // All of its money was returned.
    let another = env.held_cart("ann", "k-2", &[(&vase, 1)]).await;
    env.pay_cart(&another, &format!("p-{cart}"), Some(900))
        .await
        .is(409, "payment_returned");
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn what_is_left_of_a_cart_is_refunded_as_one(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let bowl = env.create(json!({ "stock": 5 })).await;
    let cup = env.create(json!({ "stock": 5 })).await;
    let lines = [(&*vase, 1), (&*bowl, 1), (&*cup, 1)];
    let cart = env.held_cart("ann", "k", &lines).await;
    env.confirm_cart(&cart, &format!("p-{cart}"), None).await;
    let of = orders(&env.read_cart(&cart).await.body);
    env.refund_line(&cart, &of[1]).await.is_now("refunded");
    env.refund_cart(&cart).await.is_now("refunded");
    assert_eq!(env.line_states(&cart).await, ["refunded"; 3]);
    for item in [&vase, &bowl, &cup] {
        assert_eq!(env.units(item).await, [5, 0, 0]);
        let named = env.journal(item, "refund").await;
        assert_eq!(named.len(), 1, "{named:?}");
        assert_eq!(named[0]["before"]["cart"], json!(cart));
    }
}

#[tested_in(open(Options::default()))]
async fn only_an_admin_returns_a_line_and_only_one_of_the_cart(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let cart = env.held_cart("ann", "k", &[(&vase, 1)]).await;
    let other = env.held_cart("ann", "k-2", &[(&vase, 1)]).await;
    let line = &orders(&env.read_cart(&cart).await.body)[0];
    let of_other = &orders(&env.read_cart(&other).await.body)[0];
    let answer = env.refund_line(&cart, of_other).await;
    answer.is(404, "order_not_found");
    let answer = env.refund_line(&cart, "none").await;
    answer.is(404, "order_not_found");
    for unknown in [of_other.as_str(), "none"] {
        let answer = env.refund_line(unknown, line).await;
        answer.is(404, "cart_not_found");
    }
    let path = format!("/v1/carts/{cart}/lines/{line}/refund");
    let answer = Answer::of(env.buyer("ann", Method::POST, &path)).await;
    answer.is(403, "forbidden");
    let answer = Answer::of(env.anyone(Method::POST, &path)).await;
    answer.is(401, "unauthorized");
    env.cancel_cart("ann", &cart).await.is_now("cancelled");
    let refused = env.refund_line(&cart, line).await;
    assert_eq!(
        refused.is(409, "cart_not_refundable").body["state"],
        "cancelled"
    );
}

/// Requests for all lines at the same time, each of them twice, beside one for the whole cart.
#[tested_in(open_each(Options::default().with_instances(2)))]
async fn lines_that_are_returned_at_the_same_time_return_once(env: Env) {
    let items = join_all((0..4).map(|_| env.create(json!({ "stock": 5, "price": 10 })))).await;
    let lines: Vec<_> = items.iter().map(|item| (&**item, 1)).collect();
    for is_whole in [false, true] {
        let cart = env.held_cart("ann", &format!("k{is_whole}"), &lines).await;
        env.confirm_cart(&cart, &format!("p-{cart}"), Some(40))
            .await;
        let of = orders(&env.read_cart(&cart).await.body);
        let env = &env;
        let twice = of.iter().chain(&of).map(|line| {
            let cart = &cart;
            async move { known(async || env.refund_line(cart, line).await).await }
        });
        let whole = async {
            if is_whole {
                let refunded = known(async || env.refund_cart(&cart).await).await;
                refunded.is_now("refunded");
            }
        };
        let (returned, ()) = tokio::join!(join_all(twice), whole);
        for answer in returned {
            assert_eq!(answer.is_now("refunded").body["amount"], 10);
        }
        assert_eq!(env.cart_state(&cart).await, "refunded");
        for item in &items {
            assert_eq!(env.units(item).await, [5, 0, 0]);
        }
    }
}
