//! Carts that are paid after their holds have expired: every line takes its units again, or none.

use super::*;

/// Reports of a payment of the same cart, at the same time.
const REPORTS: usize = 4;

impl TestEnv {
    /// A cart whose holds have expired, and whose units have returned. Nothing else happens to its
    /// items.
    async fn expired_cart(&self, buyer: &str, key: &str, lines: &[(&str, u32)]) -> String {
        let cart = self.expiring_cart(buyer, key, lines).await;
        for (item, _) in lines {
            self.settled_audit(item).await;
        }
        cart
    }

    /// A cart whose holds have expired. Its units may still be returning.
    pub async fn expiring_cart(&self, buyer: &str, key: &str, lines: &[(&str, u32)]) -> String {
        // An item may be known as sold out for a moment after its units have returned.
        let cart = eventually_some("a held cart", async || {
            let placed = self.cart(buyer, key, lines).await;
            let id = placed.body["id"].as_str().filter(|_| placed.status == 201);
            id.map(str::to_owned)
        })
        .await;
        self.cart_becomes(&cart, "expired").await;
        cart
    }

    /// Reports the payment at the instance until the outcome is known, as a provider does.
    async fn pay_cart_at(&self, instance: usize, cart: &str, payment: &str) -> Answer {
        let body = json!({ "payment": payment, "cart": cart }).to_string();
        known(async || {
            let request = self
                .at(instance, Method::POST, &format!("/v1/carts/{cart}/payment"))
                .header("Stockade-Signature", payment_key().sign(body.as_bytes()))
                .header("Content-Type", "application/json");
            Answer::of(request.body(body.clone())).await
        })
        .await
    }

    /// The request for the line's units, as a report of a late payment sends it.
    async fn take_again(&self, order: &str, attempt: u8) {
        let engine = &self.engines[0];
        let order: OrderId = order.parse().unwrap();
        let line = engine.ledger.order(order).await.unwrap().unwrap();
        let item = engine.ledger.item(&line.item).await.unwrap().unwrap();
        let stock = engine.stock.item(&item);
        // The item may be known as sold out for a moment after its units have returned.
        eventually("units for a line", async || {
            let reservation = Reservation {
                order: order.reacquire(attempt),
                buyer: line.buyer.clone(),
                quantity: line.quantity,
                acknowledge: Acknowledge::Accepted,
                within: timeout(),
            };
            matches!(
                stock.order(reservation).await.unwrap(),
                Outcome::Held { .. }
            )
        })
        .await;
    }
}

/// Two items whose holds end after a second. Lines take their units in this order.
async fn two_items(env: &TestEnv, stock: u64, segments: u16) -> [String; 2] {
    let item = json!({ "stock": stock, "segments": segments, "hold_seconds": 1 });
    let mut items = [env.create(item.clone()).await, env.create(item).await];
    items.sort_unstable();
    items
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn a_cart_that_is_paid_late_takes_the_units_of_every_line_again(env: Env) {
    let vase = json!({ "stock": 4, "segments": 2, "hold_seconds": 1, "limit_per_buyer": 2 });
    let vase = env.create(vase).await;
    let bowl = env.create(json!({ "stock": 5, "hold_seconds": 600 })).await;
    let lines = [(&*vase, 2), (&*bowl, 1)];
    // The units that are taken again may still be returning.
    let cart = env.expiring_cart("ann", "k", &lines).await;
    env.pay_cart_at(1, &cart, "pay-1").await.is_now("confirmed");
    env.pay_cart_at(0, &cart, "pay-1").await.is_now("confirmed");
    let refused = env.pay_cart_at(0, &cart, "pay-9").await;
    refused.is(409, "already_paid");
    assert_eq!(env.line_states(&cart).await, ["confirmed", "confirmed"]);
    assert_eq!(env.units(&vase).await, [2, 0, 2]);
    assert_eq!(env.units(&bowl).await, [4, 0, 1]);
    let again = env.cart("ann", "k", &lines).await;
    assert_eq!(
        (again.status, &again.body["id"], &again.body["state"]),
        (201, &json!(cart), &json!("confirmed")),
        "it is still the same cart"
    );
    for _ in 0..2 {
        env.refund_cart(&cart).await.is_now("refunded");
    }
    assert_eq!(
        (env.units(&vase).await, env.units(&bowl).await),
        ([4, 0, 0], [5, 0, 0]),
        "reacquired units are released too"
    );
    env.expiring_cart("ann", "k-2", &[(&vase, 2)]).await;
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_late_payment_is_due_if_one_line_finds_no_units_and_the_others_go_back(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    for sold in 0..2 {
        let cart = env.expired_cart("ann", &format!("k{sold}"), &lines).await;
        let rival = env
            .bought_again(&items[sold], "bob", &format!("b{sold}"), 4)
            .await;
        env.confirm(&rival, &format!("pay-{rival}")).await;
        let payment = format!("p-{cart}");
        for _ in 0..2 {
            let late = env.pay_cart(&cart, &payment, None).await;
            late.is_now("refund_due");
        }
        let refused = env.pay_cart(&cart, &format!("q-{cart}"), None).await;
        refused.is(409, "already_paid");
        assert_eq!(env.line_states(&cart).await, ["refund_due", "refund_due"]);
        assert_eq!(env.units(&items[1 - sold]).await, [4, 0, 0]);
        env.refund(&rival).await.is_now("refunded");
        assert_eq!(env.units(&items[sold]).await, [4, 0, 0]);
        // Units that come back later are not for a cart whose money is due.
        let late = env.pay_cart(&cart, &payment, None).await;
        late.is_now("refund_due");
        env.refund_cart(&cart).await.is_now("refunded");
        for item in &items {
            assert_eq!(env.units(item).await, [4, 0, 0]);
        }
    }
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn a_late_payment_of_a_cart_with_an_item_that_does_not_sell_is_due(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    for state in ["paused", "closed"] {
        let cart = env.expired_cart("ann", state, &lines).await;
        env.put_state(&items[1], state).await;
        let late = env.pay_cart(&cart, &format!("p-{cart}"), None).await;
        late.is_now("refund_due");
        env.put_state(&items[1], "open").await;
        let late = env.pay_cart(&cart, &format!("p-{cart}"), None).await;
        late.is_now("refund_due");
        assert_eq!(env.line_states(&cart).await, ["refund_due", "refund_due"]);
        for item in &items {
            assert_eq!(env.units(item).await, [4, 0, 0]);
        }
    }
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn a_late_payment_whose_money_was_returned_takes_no_units_again(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    let cart = env.expired_cart("ann", "k", &lines).await;
    let engine = &env.engines[0];
    let returned = ledger::PaymentReturn {
        payment: domain::PaymentId::new(format!("p-{cart}")).unwrap(),
        payer: Some(cart.parse().unwrap()),
        at: None,
    };
    engine.ledger.note_return(&returned).await.unwrap();
    let refused = env.pay_cart(&cart, &format!("p-{cart}"), None).await;
    refused.is(409, "payment_returned");
    assert_eq!(env.line_states(&cart).await, ["expired", "expired"]);
    let line = &orders(&env.read_cart(&cart).await.body)[0];
    let line = engine.ledger.order(line.parse().unwrap()).await.unwrap();
    assert_eq!(line.unwrap().attempt, 0);
    // Another payment of the same cart is none of that.
    env.confirm_cart(&cart, &format!("q-{cart}"), None).await;
    assert_eq!(env.units(&items[0]).await, [3, 0, 1]);
}

/// Reports are sent to all instances at the same time, some of them with another payment, while the
/// holds of other carts end.
#[tokio::test(flavor = "multi_thread")]
async fn late_payments_reported_to_all_instances_leave_no_cart_in_parts() {
    const CARTS: u64 = 24;
    const UNITS: u64 = 14;
    let options = Options::reconciled().with_instances(3);
    open_each(options, async |env| {
        let items = two_items(&env, CARTS, 2).await;
        let lines = [(&*items[0], 1), (&*items[1], 1)];
        let carts = (0..CARTS).map(|n| {
            let (env, lines) = (&env, &lines);
            async move { env.expiring_cart(&format!("buyer-{n}"), "k", lines).await }
        });
        let carts = join_all(carts).await;
        for item in &items {
            env.settled_audit(item).await;
        }
        let rival = env.bought_again(&items[1], "bob", "b", u32::try_from(CARTS - UNITS).unwrap());
        let rival = rival.await;
        env.confirm(&rival, &format!("pay-{rival}")).await;
        let reports = carts.iter().enumerate().flat_map(|(n, cart)| {
            let env = &env;
            (0..REPORTS).map(move |report| async move {
                // Every third cart is paid twice.
                let payment = match n % 3 == 0 && report % 2 == 0 {
                    true => format!("second-{cart}"),
                    false => format!("first-{cart}"),
                };
                let answer = env.pay_cart_at(report % 3, cart, &payment).await;
                if answer.status != 200 {
                    answer.is(409, "already_paid");
                }
                (cart, payment, answer)
            })
        });
        let reports = join_all(reports).await;
        let mut confirmed = 0;
        for cart in &carts {
            let body = env.read_cart(cart).await.body;
            let state = body["state"].as_str().unwrap();
            assert!(["confirmed", "refund_due"].contains(&state), "{body}");
            assert_eq!(env.line_states(cart).await, [state; 2]);
            confirmed += u64::from(state == "confirmed");
            for (_, payment, answer) in reports.iter().filter(|(of, ..)| *of == cart) {
                let is_its_own = body["payment"] == json!(payment);
                let expected = if is_its_own { (200, state) } else { (409, "") };
                let found = answer.body["state"]
                    .as_str()
                    .filter(|_| answer.status == 200);
                assert_eq!((answer.status, found.unwrap_or_default()), expected);
            }
        }
        // A cart that fails may have had a unit for a moment that another one would have needed.
        assert!((1..=UNITS).contains(&confirmed), "{confirmed}");
        assert_eq!(
            env.units(&items[0]).await,
            [CARTS - confirmed, 0, confirmed]
        );
        assert_eq!(
            env.units(&items[1]).await,
            [UNITS - confirmed, 0, CARTS - UNITS + confirmed]
        );
    })
    .await;
}

/// A crash after any line: the units are taken, and the cart is expired.
#[tested_in(open_each(Options::reconciled()))]
async fn a_repeat_goes_on_with_a_late_payment_that_was_abandoned_at_any_step(env: Env) {
    let items = two_items(&env, 9, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    for taken in 0..=2 {
        let cart = env.expired_cart("ann", &format!("k{taken}"), &lines).await;
        for order in orders(&env.read_cart(&cart).await.body).iter().take(taken) {
            env.take_again(order, 1).await;
        }
        env.confirm_cart(&cart, &format!("p-{cart}"), None).await;
        assert_eq!(env.line_states(&cart).await, ["confirmed", "confirmed"]);
    }
    for item in &items {
        assert_eq!(env.units(item).await, [6, 0, 3]);
    }
}

#[tested_in(open_each(Options::reconciled()))]
async fn what_an_abandoned_late_payment_took_expires_and_can_be_taken_again(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    for taken in 1..=2 {
        let cart = env.expired_cart("ann", &format!("k{taken}"), &lines).await;
        let orders = orders(&env.read_cart(&cart).await.body);
        for order in orders.iter().take(taken) {
            env.take_again(order, 1).await;
        }
        let engine = &env.engines[0];
        for order in orders.iter().take(taken) {
            eventually("a line that has expired again", async || {
                let line = engine.ledger.order(order.parse().unwrap()).await.unwrap();
                let line = line.unwrap();
                (line.attempt, line.state) == (1, domain::OrderState::Expired)
            })
            .await;
        }
        for item in &items {
            assert_eq!(env.units(item).await[1], 0, "{item}");
        }
        assert_eq!(env.read_cart(&cart).await.body["state"], "expired");
        env.confirm_cart(&cart, &format!("p-{cart}"), None).await;
    }
    for item in &items {
        assert_eq!(env.units(item).await, [2, 0, 2]);
    }
}

/// The first report has taken a line and died, and the second one finds the other line sold out.
#[tested_in(open_each(Options::reconciled()))]
async fn what_an_abandoned_late_payment_took_goes_back_with_its_cart(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    let cart = env.expired_cart("ann", "k", &lines).await;
    let orders = orders(&env.read_cart(&cart).await.body);
    let rival = env.bought_again(&items[1], "bob", "b", 4).await;
    env.confirm(&rival, &format!("pay-{rival}")).await;
    env.take_again(&orders[0], 1).await;
    let late = env.pay_cart(&cart, &format!("p-{cart}"), None).await;
    late.is_now("refund_due");
    assert_eq!(env.line_states(&cart).await, ["refund_due", "refund_due"]);
    assert_eq!(env.units(&items[0]).await, [4, 0, 0]);
}

/// A report that was asleep goes on with the other line when the money of the cart is due already.
#[tested_in(open_each(Options::reconciled()))]
async fn a_line_that_takes_units_after_the_money_of_its_cart_is_due_gives_them_back(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let lines = [(&*items[0], 1), (&*items[1], 1)];
    let cart = env.expired_cart("ann", "k", &lines).await;
    let orders = orders(&env.read_cart(&cart).await.body);
    let rival = env.bought_again(&items[0], "bob", "b", 4).await;
    env.confirm(&rival, &format!("pay-{rival}")).await;
    let answer = env.pay_cart(&cart, &format!("p-{cart}"), None).await;
    answer.is_now("refund_due");
    env.take_again(&orders[1], 1).await;
    let engine = &env.engines[0];
    eventually("the record of the late units", async || {
        let line = engine.ledger.order(orders[1].parse().unwrap()).await;
        line.unwrap().unwrap().attempt == 1
    })
    .await;
    assert_eq!(env.units(&items[1]).await, [4, 0, 0]);
    assert_eq!(env.line_states(&cart).await, ["refund_due", "refund_due"]);
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn a_cart_that_is_paid_late_has_one_event_more(env: Env) {
    let items = two_items(&env, 4, 1).await;
    let cart = env
        .expired_cart("ann", "k", &[(&items[0], 1), (&items[1], 1)])
        .await;
    env.confirm_cart(&cart, &format!("p-{cart}"), None).await;
    let line = orders(&env.read_cart(&cart).await.body)[0].clone();
    let kinds = |events: &[Value], of: &dyn Fn(&Value) -> bool| -> Vec<String> {
        let found = events.iter().filter(|event| of(event));
        found
            .map(|event| event["type"].as_str().unwrap().replace("stockade.", ""))
            .collect()
    };
    let of_cart = |event: &Value| event["subject"] == json!(cart);
    let events: Vec<Value> = eventually_some("the event of the confirmed cart", async || {
        let page = env.admin_gets("/v1/events?limit=1000").await;
        let data = page.rows().clone();
        let is_last = kinds(&data, &of_cart).last().map(String::as_str) == Some("cart.confirmed");
        is_last.then_some(data)
    })
    .await;
    assert_eq!(
        kinds(&events, &of_cart),
        ["cart.held", "cart.expired", "cart.confirmed"]
    );
    let of_line = |event: &Value| {
        let is_of_item = event["subject"] == json!(items[0]);
        let orders = event["data"]["orders"].as_array();
        is_of_item && orders.is_some_and(|orders| orders.contains(&json!(line)))
    };
    assert_eq!(
        kinds(&events, &of_line),
        [
            "order.held",
            "order.expired",
            "order.held",
            "order.confirmed"
        ]
    );
}
