//! Several Checkout sessions of an order or a cart: only the end of the one that was named last
//! cancels it.

use futures::future::join;

use super::*;

/// The ways in which a session ends without a payment.
const ENDS: [&str; 2] = [
    "checkout.session.expired",
    "checkout.session.async_payment_failed",
];

/// What is paid in a session.
#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    Order(&'a str),
    Cart(&'a str),
}

impl Of<'_> {
    fn path(self) -> String {
        match self {
            Self::Order(order) => format!("/v1/orders/{order}"),
            Self::Cart(cart) => format!("/v1/carts/{cart}"),
        }
    }

    /// A session with this id in which it is paid.
    fn session(self, id: &str) -> Value {
        let (id_of_target, field) = match self {
            Self::Order(order) => (order, "stockade_order"),
            Self::Cart(cart) => (cart, "stockade_cart"),
        };
        let mut object = session(
            id_of_target,
            &format!("pi_{id}_{id_of_target}"),
            1999,
            "eur",
        );
        object["id"] = json!(id);
        object["metadata"] = json!({ field: id_of_target });
        object
    }
}

impl TestEnv {
    pub(super) async fn name_session(&self, order: &str, session: &Value) -> Answer {
        self.change_hold(0, Of::Order(order), &json!({ "session": session }))
            .await
    }

    async fn change_hold(&self, instance: usize, of: Of<'_>, body: &Value) -> Answer {
        let path = format!("{}/hold", of.path());
        let request = self.at(instance, Method::POST, &path);
        Answer::of(request.bearer_auth(crate::env::token("ann")).json(body)).await
    }

    async fn named(&self, of: Of<'_>, session: &str) -> Value {
        let named = self
            .change_hold(0, of, &json!({ "session": session }))
            .await;
        assert_eq!(named.status, 200, "{named:?}");
        named.body
    }

    async fn shown(&self, of: Of<'_>) -> Value {
        self.admin_gets(&of.path()).await.body
    }

    /// The end of a session, in each way and more than once, changes nothing.
    async fn assert_ignored(&self, of: Of<'_>, session: &str, why: &str) {
        let before = self.shown(of).await;
        for kind in ENDS.iter().chain(&ENDS) {
            let ignored = self.stripe(kind, &of.session(session)).await;
            is(&ignored, "ignored");
            let detail = ignored.body["detail"].as_str().unwrap();
            assert!(detail.contains(why), "{kind} {session}: {detail}");
        }
        assert_eq!(self.shown(of).await, before);
    }

    /// An item of which one unit exists, and an order and a cart, each of its own item.
    async fn last_units(&self) -> [(String, String); 2] {
        let item = json!({ "stock": 1, "price": 1999, "currency": "EUR", "hold_seconds": 3600, "max_hold_seconds": 7200 });
        let [single, of_cart] = [self.create(item.clone()).await, self.create(item).await];
        let order = self.hold(&single, "ann", "k").await;
        // A buyer has one cart for each key.
        let cart = self.held_cart("ann", &of_cart, &[(&of_cart, 1)]).await;
        [(single, order), (of_cart, cart)]
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn only_the_end_of_the_session_that_was_named_last_counts(env: Env) {
    let [(single, order), (of_cart, cart)] = env.last_units().await;
    for (item, of) in [(&single, Of::Order(&order)), (&of_cart, Of::Cart(&cart))] {
        env.assert_ignored(of, "cs_A", "no session was named").await;
        env.named(of, "cs_A").await;
        env.named(of, "cs_B").await;
        env.assert_ignored(of, "cs_A", "another session").await;
        env.assert_ignored(of, "cs_C", "another session").await;
        // The unit is not free.
        env.order(item, "bob", "k", 1).await.is(409, "sold_out");
        assert_eq!(env.units(item).await, [0, 1, 0]);
        let paid = of.session("cs_B");
        env.notified("checkout.session.completed", &paid, "confirmed")
            .await;
        // Out of order: what came before the payment arrives after it.
        env.assert_ignored(of, "cs_A", "another session").await;
        env.assert_ignored(of, "cs_B", "in another state").await;
        env.notified("checkout.session.completed", &paid, "confirmed")
            .await;
        assert_eq!(env.units(item).await, [0, 0, 1]);
    }
}

/// What a buyer pays in a session that was never named, beside one that expires.
#[tested_in(open(Options::default()))]
async fn a_session_that_was_not_named_is_paid_like_any_other(env: Env) {
    let [(single, order), (of_cart, cart)] = env.last_units().await;
    for (item, of) in [(&single, Of::Order(&order)), (&of_cart, Of::Cart(&cart))] {
        env.assert_ignored(of, "cs_A", "no session was named").await;
        let paid = of.session("cs_B");
        env.notified("checkout.session.completed", &paid, "confirmed")
            .await;
        assert_eq!(env.units(item).await, [0, 0, 1]);
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn the_end_of_the_named_session_releases_the_units(env: Env) {
    for kind in ENDS {
        let [(single, order), (of_cart, cart)] = env.last_units().await;
        for (item, of) in [(&single, Of::Order(&order)), (&of_cart, Of::Cart(&cart))] {
            env.named(of, "cs_A").await;
            for _ in 0..2 {
                env.notified(kind, &of.session("cs_A"), "cancelled").await;
            }
            env.assert_ignored(of, "cs_B", "another session").await;
            assert_eq!(env.units(item).await, [1, 0, 0]);
            // A shop that opens a session now learns that there is nothing to pay.
            let late = env.change_hold(0, of, &json!({ "session": "cs_B" })).await;
            assert_eq!(late.status, 409);
            assert_eq!(late.body["state"], "cancelled");
            env.assert_ignored(of, "cs_B", "another session").await;
        }
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_session_is_named_with_or_without_a_longer_hold(env: Env) {
    let [(_, order), (_, cart)] = env.last_units().await;
    for of in [Of::Order(&order), Of::Cart(&cart)] {
        let before = env.shown(of).await;
        let named = env.named(of, "cs_A").await;
        assert_eq!(named["expires_at"], before["expires_at"]);
        assert_eq!(
            env.named(of, "cs_A").await,
            named,
            "a repeat changes nothing"
        );
        let both = json!({ "session": "cs_B", "seconds": 7200 });
        let longer = env.change_hold(0, of, &both).await;
        assert_eq!(longer.status, 200, "{longer:?}");
        assert_ne!(longer.body["expires_at"], before["expires_at"]);
        assert_eq!(env.change_hold(0, of, &both).await.body, longer.body);
        // The new session counts, whether its hold got longer or not.
        env.assert_ignored(of, "cs_A", "another session").await;
        let shorter = json!({ "session": "cs_C", "seconds": 1 });
        let kept = env.change_hold(0, of, &shorter).await;
        assert_eq!(
            kept.body["expires_at"], longer.body["expires_at"],
            "never shorter"
        );
        env.assert_ignored(of, "cs_B", "another session").await;

        let too_long = json!({ "session": "cs_D", "seconds": 7201 });
        let refused = env.change_hold(0, of, &too_long).await;
        refused.blames("seconds");
        env.assert_ignored(of, "cs_D", "another session").await;
        let malformed = [
            "".to_owned(),
            "cs 1".into(),
            "cs_\u{e9}".into(),
            "c".repeat(256),
        ];
        for malformed in malformed {
            let body = json!({ "session": malformed });
            let refused = env.change_hold(0, of, &body).await;
            refused.blames("session");
        }
        for nothing in [json!({}), json!({ "session": null })] {
            let refused = env.change_hold(0, of, &nothing).await;
            refused.blames("seconds");
        }
        env.notified(ENDS[0], &of.session("cs_C"), "cancelled")
            .await;
    }
}

/// A request that was delayed names the session that a newer one has replaced.
#[tested_in(on_both_ledgers(Options::default()))]
async fn a_late_repeat_of_an_older_naming_does_not_bring_its_session_back(env: Env) {
    let [(_, order), (_, cart)] = env.last_units().await;
    for of in [Of::Order(&order), Of::Cart(&cart)] {
        env.named(of, "cs_A").await;
        let newer = env.named(of, "cs_B").await;
        assert_eq!(env.named(of, "cs_A").await, newer, "it changes nothing");
        env.assert_ignored(of, "cs_A", "another session").await;
        env.notified(ENDS[0], &of.session("cs_B"), "cancelled")
            .await;
    }
}

/// Either the shop learns that the order is cancelled, or the new session counts and it is not.
#[tested_in(open_each(Options::default().with_instances(2)))]
async fn of_a_new_session_and_the_end_of_the_old_one_one_wins(env: Env) {
    for _ in 0..8 {
        let [(_, order), (_, cart)] = env.last_units().await;
        for of in [Of::Order(&order), Of::Cart(&cart)] {
            env.named(of, "cs_A").await;
            let end = event(ENDS[0], &of.session("cs_A")).to_string();
            let body = json!({ "session": "cs_B" });
            let (named, ended) =
                join(env.change_hold(0, of, &body), env.stripe_text_at(1, &end)).await;
            let state = env.shown(of).await["state"].clone();
            match named.status {
                200 => {
                    is(&ended, "ignored");
                    assert_eq!(state, "held", "{of:?}");
                }
                409 => {
                    is(&ended, "cancelled");
                    assert_eq!(state, "cancelled", "{of:?}");
                }
                _ => panic!("{named:?}"),
            }
        }
    }
}
