//! Holds of carts that are extended, all lines as one.

use super::*;

impl TestEnv {
    async fn extend_cart(&self, buyer: &str, cart: &str, seconds: &Value) -> Answer {
        let request = self.buyer(buyer, Method::POST, &format!("/v1/carts/{cart}/hold"));
        Answer::of(request.json(&json!({ "seconds": seconds }))).await
    }

    /// The cart's lines, as the orders that the buyer sees.
    async fn line_orders(&self, cart: &str) -> Vec<Value> {
        let cart = self.read_cart(cart).await;
        let lines = orders(&cart.body);
        let shown = lines.iter().map(async |order| {
            let path = format!("/v1/orders/{order}");
            self.admin_gets(&path).await.body
        });
        join_all(shown).await
    }

    /// All lines are in the cart's state, and none of them ends before it.
    async fn assert_whole(&self, cart: &str) -> String {
        let body = self.read_cart(cart).await.body;
        let state = body["state"].as_str().unwrap().to_owned();
        for line in self.line_orders(cart).await {
            assert_eq!(line["state"], json!(state), "{line}");
            assert!(
                time(&line, "expires_at") >= time(&body, "expires_at"),
                "{line}"
            );
        }
        state
    }
}

fn time(body: &Value, field: &str) -> Timestamp {
    body[field].as_str().unwrap().parse().unwrap()
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn the_holds_of_a_cart_are_extended_together_up_to_the_smallest_cap(env: Env) {
    let hold = |seconds: u32, max: u32| json!({ "stock": 5, "hold_seconds": seconds, "max_hold_seconds": max });
    let vase = env.create(hold(60, 1800)).await;
    let bowl = env.create(hold(90, 3600)).await;
    let long = env.create(hold(1700, 3600)).await;
    let cart = env
        .held_cart("ann", "k", &[(&vase, 1), (&bowl, 2), (&long, 1)])
        .await;
    let before = env.line_orders(&cart).await;
    let created = before.iter().map(|line| time(line, "created_at"));
    let created = created.min().unwrap();

    let same = env.extend_cart("ann", &cart, &json!(30)).await;
    assert_eq!(same.status, 200, "{same:?}");
    assert_eq!(env.line_orders(&cart).await, before, "never shorter");

    let answers =
        join_all((0..6).map(|_| async { env.extend_cart("ann", &cart, &json!(1600)).await })).await;
    let end = created + SignedDuration::from_secs(1600);
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(time(&answer.body, "expires_at"), end);
        assert_eq!(answer.body["state"], "held");
    }
    assert_eq!(time(&env.read_cart(&cart).await.body, "expires_at"), end);
    let after = env.line_orders(&cart).await;
    for line in &after[..2] {
        assert_eq!(time(line, "expires_at"), end, "{line}");
        assert_eq!(line["version"], 2, "extended once");
    }
    assert_eq!(after[2], before[2], "it lasts longer already");

    let longest = env.extend_cart("ann", &cart, &json!(1800)).await;
    assert_eq!(
        time(&longest.body, "expires_at"),
        created + SignedDuration::from_secs(1800)
    );
    let too_long = env.extend_cart("ann", &cart, &json!(1801)).await;
    let error = &too_long.is(400, "invalid_request").body["errors"][0];
    assert_eq!(error["pointer"], "/seconds");
    assert!(
        error["detail"]
            .as_str()
            .unwrap()
            .contains(&format!("1800 at most, the item {vase}'s")),
        "{error}"
    );
    for seconds in [json!(0), json!(-1), json!("60"), json!(1.5), json!(null)] {
        let refused = env.extend_cart("ann", &cart, &seconds).await;
        refused.blames("seconds");
    }
    env.extend_cart("bob", &cart, &json!(1800))
        .await
        .is(404, "cart_not_found");
    env.extend_cart("ann", "no-cart", &json!(1800))
        .await
        .is(404, "cart_not_found");
    let line = &orders(&env.read_cart(&cart).await.body)[0];
    let alone = env.buyer("ann", Method::POST, &format!("/v1/orders/{line}/hold"));
    let alone = Answer::of(alone.json(&json!({ "seconds": 1800 }))).await;
    assert_eq!(alone.is(409, "order_in_cart").body["cart"], json!(cart));

    assert_eq!(env.assert_whole(&cart).await, "held");
    env.cancel_cart("ann", &cart).await.is_now("cancelled");
    let ended = env.extend_cart("ann", &cart, &json!(1800)).await;
    assert_eq!(
        ended.is(409, "cart_not_extendable").body["state"],
        "cancelled"
    );
}

#[tested_in(open(Options::default()))]
async fn a_cart_that_is_being_placed_has_no_hold_to_extend(env: Env) {
    let vase = env.create(json!({ "stock": 5 })).await;
    let left = Duration::from_secs(60);
    let placing = Abandoned::place(&env, "k", &[&vase], 1, left).await.cart.id;
    let extended = env
        .extend_cart("ann", &placing.to_string(), &json!(600))
        .await;
    assert_eq!(
        extended.is(409, "cart_not_extendable").body["state"],
        "placing"
    );
    env.held_cart("ann", "k", &[(&vase, 1)]).await;
}

#[tested_in(open_each(Options::reconciled()))]
async fn an_extended_cart_outlives_its_first_end(env: Env) {
    let bowl = json!({ "stock": 5, "hold_seconds": 600, "max_hold_seconds": 600 });
    let bowl = env.create(bowl).await;
    // A busy machine may need longer than the first hold lasts.
    let mut holds = [2, 10, 60].into_iter();
    let (vase, kept) = loop {
        let hold = holds.next().expect("an extension before the end of a hold");
        let vase = json!({ "stock": 5, "hold_seconds": hold, "max_hold_seconds": 600 });
        let vase = env.create(vase).await;
        let lines = [(&*vase, 1), (&*bowl, 1)];
        let placed = env.cart("ann", &format!("k{hold}"), &lines).await;
        assert_eq!(placed.status, 201, "{placed:?}");
        let kept = placed.id();
        let extended = env.extend_cart("ann", &kept, &json!(600)).await;
        if extended.status == 200 {
            break (vase, kept);
        }
        extended.is(409, "cart_not_extendable");
    };
    let lines = [(&*vase, 1), (&*bowl, 1)];
    let lost = env.expiring_cart("bob", "k", &lines).await;
    assert_eq!(env.assert_whole(&kept).await, "held");
    let late = env.extend_cart("bob", &lost, &json!(600)).await;
    assert_eq!(late.is(409, "cart_not_extendable").body["state"], "expired");
    env.confirm_cart(&kept, &format!("p-{kept}"), None).await;
    assert_eq!(env.units(&vase).await, [4, 0, 1]);
}

/// Extensions come from shortly before until shortly after the end of the holds. Whichever is
/// answered with 200 keeps the whole cart, and one that is refused finds all of it expired.
#[tested_in(open_each(Options::reconciled()))]
async fn of_an_extension_and_the_end_of_the_hold_one_has_the_whole_cart(env: Env) {
    for hold in SHORT_HOLDS {
        let kept = race_for_carts(&env, hold).await;
        // The first extensions come long before the end, unless the machine is busy.
        if kept > 0 {
            return;
        }
    }
    panic!("no extension kept a cart");
}

/// Returns the number of carts that were extended.
async fn race_for_carts(env: &TestEnv, hold: u32) -> u64 {
    let item = json!({ "stock": 50, "hold_seconds": hold, "max_hold_seconds": 600 });
    let (vase, bowl) = (env.create(item.clone()).await, env.create(item).await);
    let rounds = (0..24_i64).map(|n| {
        let lines = [(&*vase, 1), (&*bowl, 1)];
        async move {
            let began = Timestamp::now();
            let placed = env.cart("ann", &format!("k{hold}-{n}"), &lines).await;
            if placed.status != 201 || placed.body["state"] != "held" {
                // Its holds ended before it was answered.
                let passed = Timestamp::now().duration_since(began);
                assert!(
                    passed >= SignedDuration::from_secs(hold.into()),
                    "{placed:?}"
                );
                return None;
            }
            let cart = placed.id();
            let end = time(&placed.body, "expires_at");
            let sent = end + SignedDuration::from_millis(30 * n - 600);
            let wait = sent.duration_since(Timestamp::now());
            tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
            let extended = env.extend_cart("ann", &cart, &json!(600)).await;
            let is_kept = extended.status == 200;
            if !is_kept {
                extended.is(409, "cart_not_extendable");
            }
            Some((cart, is_kept))
        }
    });
    let (mut kept, mut lost) = (0, 0);
    for (cart, is_kept) in join_all(rounds).await.into_iter().flatten() {
        let state = env.assert_whole(&cart).await;
        assert_eq!(state, if is_kept { "held" } else { "expired" });
        *if is_kept { &mut kept } else { &mut lost } += 1;
    }
    eprintln!("{kept} extended, {lost} expired");
    assert_eq!(env.units(&vase).await, [50 - kept, kept, 0]);
    assert_eq!(env.units(&bowl).await, [50 - kept, kept, 0]);
    kept
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn an_extension_and_a_payment_at_the_same_time_leave_a_sold_cart(env: Env) {
    let vase = json!({ "stock": 50, "max_hold_seconds": 1200 });
    let vase = env.create(vase).await;
    let bowl = json!({ "stock": 50, "max_hold_seconds": 1200 });
    let bowl = env.create(bowl).await;
    let carts = (0..12).map(|n| {
        let (env, lines) = (&env, [(&*vase, 1), (&*bowl, 1)]);
        async move { env.held_cart("ann", &format!("k{n}"), &lines).await }
    });
    let carts = join_all(carts).await;
    let env = &env;
    join_all(carts.iter().map(|cart| async move {
        let (payment, seconds) = (format!("p-{cart}"), json!(1200));
        let (paid, extended) = tokio::join!(
            env.pay_cart(cart, &payment, None),
            env.extend_cart("ann", cart, &seconds)
        );
        paid.is_now("confirmed");
        if extended.status != 200 {
            extended.is(409, "cart_not_extendable");
        }
        assert_eq!(env.assert_whole(cart).await, "confirmed");
    }))
    .await;
    assert_eq!(env.units(&vase).await, [38, 0, 12]);
    assert_eq!(env.units(&bowl).await, [38, 0, 12]);
}
