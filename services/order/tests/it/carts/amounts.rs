//! What a cart costs: the price of its lines, or the total of the shop.

use domain::Cart;
use serde_json::{Value, json};
use testkit::tested_in;

use super::cart_of;
use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers, open};

/// A cart of these lines that costs this.
fn cart_at(amount: &Value, lines: &[(&str, u32)]) -> Value {
    let mut cart = cart_of(lines);
    cart["amount"] = amount.clone();
    cart
}

/// The same of ann's, for an admin.
fn for_ann(amount: &Value, lines: &[(&str, u32)]) -> Value {
    let mut cart = cart_at(amount, lines);
    cart["buyer"] = json!("ann");
    cart
}

fn id(placed: &Answer) -> String {
    placed.is_held().id()
}

impl TestEnv {
    /// The amounts of the rows of money to return for lines of this cart, in the order of the
    /// lines.
    async fn amounts_due(&self, cart: &str) -> Vec<u64> {
        let lines = super::orders(&self.read_cart(cart).await.body);
        let page = self.admin_gets("/v1/refunds-due?limit=1000").await;
        let rows = page.rows();
        let of = |line: &String| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row["order"] == json!(line)).unwrap();
            assert_eq!(row["cart"], json!(cart), "{row}");
            row["amount"].as_u64().unwrap()
        };
        lines.iter().map(of).collect()
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_payment_pays_the_total_of_the_shop_and_not_the_price(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 1999 })).await;
    let lines = [(&*vase, 1)];
    let with_shipping = cart_at(&json!(2494), &lines);
    let placed = env.post_cart(0, "ann", "k", &with_shipping).await;
    let cart = id(&placed);
    let repeated = env.post_cart(0, "ann", "k", &with_shipping).await;
    assert_eq!(repeated.header("idempotent-replayed"), Some("true"));
    for shown in [&placed, &repeated, &env.read_cart(&cart).await] {
        assert_eq!(shown.body["amount"], 2494, "{shown:?}");
        assert_eq!(shown.body["amount_check"], json!(null));
    }
    let listed = env.buyer_gets("ann", "/v1/carts").await;
    assert_eq!(listed.body["data"][0]["amount"], 2494);
    for other in [cart_of(&lines), cart_at(&json!(2495), &lines)] {
        let reused = env.post_cart(0, "ann", "k", &other).await;
        reused.is(422, "idempotency_key_reused");
    }
    env.pay_cart(&cart, &format!("price-{cart}"), Some(1999))
        .await
        .is(422, "amount_mismatch");
    env.pay_cart(&cart, &format!("none-{cart}"), None)
        .await
        .is(400, "invalid_request");
    env.confirm_cart(&cart, &format!("total-{cart}"), Some(2494))
        .await;
    assert_eq!(
        env.unmatched_payments(&vase).await,
        [format!("price-{cart}")]
    );
    // The price, stated or not, is the same cart.
    let stated = env
        .post_cart(0, "ann", "l", &cart_at(&json!(1999), &lines))
        .await;
    let unstated = env.cart("ann", "l", &lines).await;
    assert_eq!(unstated.is_held().body["id"], json!(id(&stated)));
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn only_an_admin_takes_a_voucher_off_and_one_of_all_is_free(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 1999 })).await;
    let lines = [(&*vase, 1)];
    for amount in [json!(1998), json!(0), json!("unchecked")] {
        let refused = env
            .post_cart(0, "ann", "k", &cart_at(&amount, &lines))
            .await;
        let error = &refused.is(400, "invalid_request").body["errors"][0];
        assert_eq!(error["pointer"], "/amount", "{amount}: {error}");
        assert!(
            error["detail"].as_str().unwrap().contains("1999"),
            "{error}"
        );
    }
    assert_eq!(env.units(&vase).await, [9, 0, 0]);
    let cheaper = id(&env.cart_by_admin("k", &for_ann(&json!(1499), &lines)).await);
    env.confirm_cart(&cheaper, &format!("p-{cheaper}"), Some(1499))
        .await;
    let free = id(&env.cart_by_admin("l", &for_ann(&json!(0), &lines)).await);
    let answer = env.pay_cart(&free, &format!("p-{free}"), Some(1999)).await;
    answer.is(422, "amount_mismatch");
    env.confirm_cart(&free, &format!("free-{free}"), None).await;
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn an_unchecked_cart_takes_any_amount_and_keeps_what_was_paid(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 1999 })).await;
    let lines = [(&*vase, 1)];
    let new = for_ann(&json!("unchecked"), &lines);
    let placed = env.cart_by_admin("k", &new).await;
    let cart = id(&placed);
    assert_eq!(placed.body["amount"], 1999);
    assert_eq!(placed.body["amount_check"], "unchecked");
    let refused = env.cart_by_admin("k", &for_ann(&json!(1999), &lines)).await;
    refused.is(422, "idempotency_key_reused");
    let without = env.pay_cart(&cart, &format!("p-{cart}"), None).await;
    without.blames("amount");
    let report =
        json!({ "payment": format!("p-{cart}"), "cart": cart, "amount": 777, "currency": "EUR" });
    let refused = env.report_cart(&cart, report.to_string().as_bytes()).await;
    refused.is(422, "currency_mismatch");
    let payment = format!("q-{cart}");
    for _ in 0..2 {
        let paid = env.pay_cart(&cart, &payment, Some(777)).await;
        assert_eq!(paid.is_now("confirmed").body["amount"], 777);
    }
    let repeated = env.cart_by_admin("k", &new).await;
    assert_eq!(repeated.body["id"], json!(cart));
    assert_eq!(repeated.body["amount"], 777);
    assert_eq!(repeated.body["amount_check"], "unchecked");
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn what_is_due_of_a_cart_is_what_was_paid_whatever_its_lines_cost(env: Env) {
    let vase = json!({ "stock": 9, "price": 900, "hold_seconds": 1 });
    let vase = env.create(vase).await;
    let bowl = env.create(json!({ "stock": 9, "price": 50 })).await;
    let lines = [(&*vase, 1), (&*bowl, 1)];
    for (key, amount, paid, due) in [
        ("price", json!(950), 950, [900_u64, 50]),
        ("shipping", json!(1000), 1000, [947, 53]),
        ("voucher", json!(95), 95, [90, 5]),
        ("unchecked", json!("unchecked"), 1000, [947, 53]),
    ] {
        let cart = id(&env.cart_by_admin(key, &for_ann(&amount, &lines)).await);
        env.cart_becomes(&cart, "expired").await;
        env.put_state(&bowl, "paused").await;
        let late = env.pay_cart(&cart, &format!("p-{cart}"), Some(paid)).await;
        late.is_now("refund_due");
        env.put_state(&bowl, "open").await;
        assert_eq!(env.amounts_due(&cart).await, due, "{key}");
    }
}

#[tested_in(open(Options::default()))]
async fn an_amount_is_a_whole_number_or_the_word(env: Env) {
    let vase = env.create(json!({ "stock": 9 })).await;
    let lines = [(&*vase, 1)];
    let more = Cart::AMOUNT_MAX + 1;
    for amount in [
        json!(-1),
        json!(1.5),
        json!("7"),
        json!("free"),
        json!(true),
        json!([]),
        json!(more),
    ] {
        let refused = env.cart_by_admin("k", &for_ann(&amount, &lines)).await;
        let error = &refused.is(400, "invalid_request").body["errors"][0];
        assert_eq!(error["pointer"], "/amount", "{amount}: {error}");
        assert!(
            error["detail"].as_str().unwrap().contains("unchecked"),
            "{error}"
        );
    }
    let most = cart_at(&json!(Cart::AMOUNT_MAX), &lines);
    let most = env.post_cart(0, "ann", "k", &most).await;
    assert_eq!(most.is_held().body["amount"], json!(Cart::AMOUNT_MAX));
    let unsaid = cart_at(&json!(null), &lines);
    let unsaid = env.post_cart(0, "ann", "l", &unsaid).await;
    assert_eq!(unsaid.is_held().body["amount"], 0, "as if it were absent");
}
