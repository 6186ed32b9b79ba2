//! Refunds at Stripe: they fail later, come before their payment, and are told by the payment
//! alone.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{eventually, tested_in};

use super::{charge, event, intent, is};
use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers};

/// When the reports of a test begin, in seconds since 1970.
const START: i64 = 1_686_089_970;

impl TestEnv {
    /// An event that happened so many seconds after the start.
    async fn stripe_at(&self, second: i64, kind: &str, object: &Value) -> Answer {
        let mut body = event(kind, object);
        body["created"] = json!(START + second);
        self.stripe_text(&body.to_string()).await
    }

    async fn notified_at(&self, second: i64, kind: &str, object: &Value, result: &str) {
        is(&self.stripe_at(second, kind, object).await, result);
    }

    /// The rows of money to return, as payment, reason and amount.
    async fn due_back(&self) -> Vec<Value> {
        let rows = self.rows_due().await;
        let of = |row: &Value| json!([row["payment"], row["reason"], row["amount"]]);
        rows.iter().map(of).collect()
    }

    async fn rows_due(&self) -> Vec<Value> {
        let due = self.admin_gets("/v1/refunds-due").await;
        due.rows().clone()
    }

    async fn note_done(&self, row: &Value) -> Answer {
        let id = row["id"].as_str().unwrap();
        Answer::of(self.admin(Method::POST, &format!("/v1/refunds-due/{id}/done"))).await
    }

    /// The events of the item of this kind, of which there are so many. One appears once nothing
    /// before it is being written any more.
    async fn events_of(&self, item: &str, kind: &str, count: usize) -> Vec<Value> {
        let wanted = json!(format!("stockade.{kind}"));
        let mut found = Vec::new();
        eventually(&format!("{count} events {kind}"), async || {
            let page = self.admin_gets("/v1/events?limit=1000").await;
            let all = page.rows().iter();
            let of_item = all.filter(|event| event["subject"] == item && event["type"] == wanted);
            found = of_item.cloned().collect();
            found.len() >= count
        })
        .await;
        assert_eq!(found.len(), count, "{found:?}");
        found
    }
}

/// A refund as Stripe describes it. Its metadata is the shop's, and usually empty.
fn refund(id: &str, intent: &str, status: &str, created: i64) -> Value {
    json!({
        "id": id, "object": "refund", "amount": 1999, "charge": "ch_3MmlLrLkdIwHu7ix0uke3Ezy", "created": START + created,
        "currency": "eur", "metadata": {}, "payment_intent": intent, "reason": null, "status": status,
    })
}

fn failed(payment: &str) -> Value {
    json!([payment, "refund_failed", 1999])
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_refund_that_fails_later_is_due_again_until_another_one_succeeds(env: Env) {
    let (item, order) = env.ordered().await;
    let paid = intent(&order, "pi_1", 1999);
    env.notified_at(0, "payment_intent.succeeded", &paid, "confirmed")
        .await;
    let back = charge(&order, "pi_1", true);
    env.notified_at(100, "charge.refunded", &back, "refunded")
        .await;
    let succeeded = refund("re_1", "pi_1", "succeeded", 100);
    env.notified_at(100, "refund.updated", &succeeded, "noted")
        .await;
    assert_eq!(env.due_back().await, Vec::<Value>::new());

    let fails = refund("re_1", "pi_1", "failed", 100);
    for kind in ["refund.failed", "charge.refund.updated", "refund.failed"] {
        env.notified_at(200, kind, &fails, "refund_failed").await;
    }
    assert_eq!(env.due_back().await, [failed("pi_1")]);
    let row = env.rows_due().await.remove(0);
    assert_eq!((&row["order"], &row["item"]), (&json!(order), &json!(item)));
    assert_eq!(row["state"], "refunded");
    assert_eq!(row["currency"], "EUR");
    assert_eq!(env.state_of(&order).await, "refunded");
    assert_eq!(env.units(&item).await, [5, 0, 0]);
    let noted = env.journal(&item, "refund_failed").await;
    assert_eq!(noted.len(), 1);
    assert_eq!(noted[0]["after"]["refund"], "re_1");
    let happened = env.events_of(&item, "payment.refund_failed", 1).await;
    let data = &happened[0]["data"];
    assert_eq!(data["payment"], "pi_1");
    assert_eq!(data["due"], 1999);

    // What Stripe delivers again hides nothing.
    env.stripe_at(100, "charge.refunded", &back).await;
    env.stripe_at(100, "refund.updated", &succeeded).await;
    assert_eq!(env.due_back().await, [failed("pi_1")]);
    // A new refund does, once it has succeeded.
    let another = refund("re_2", "pi_1", "pending", 300);
    env.stripe_at(300, "refund.created", &another).await;
    assert_eq!(env.due_back().await, [failed("pi_1")]);
    let another = refund("re_2", "pi_1", "succeeded", 300);
    env.notified_at(301, "refund.updated", &another, "noted")
        .await;
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    env.events_of(&item, "payment.refunded", 1).await;
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_failed_refund_has_its_own_key_and_leaves_the_list_when_it_is_done(env: Env) {
    let (item, order) = env.ordered().await;
    let paid = intent(&order, "pi_1", 1999);
    env.stripe("payment_intent.succeeded", &paid).await;
    // The failure overtakes the return.
    let fails = refund("re_1", "pi_1", "failed", 100);
    env.stripe_at(200, "refund.failed", &fails).await;
    assert_eq!(
        env.due_back().await,
        Vec::<Value>::new(),
        "the order has its units"
    );
    let back = charge(&order, "pi_1", true);
    env.notified_at(100, "charge.refunded", &back, "refunded")
        .await;
    assert_eq!(env.due_back().await, [failed("pi_1")]);
    let first = env.rows_due().await.remove(0);
    let again = refund("re_2", "pi_1", "canceled", 300);
    env.stripe_at(400, "refund.updated", &again).await;
    assert_eq!(env.due_back().await, [failed("pi_1")], "the same money");
    let second = env.rows_due().await.remove(0);
    assert_ne!(first["idempotency_key"], second["idempotency_key"]);
    env.note_done(&first).await.is(404, "refund_not_found");
    for _ in 0..2 {
        let done = env.note_done(&second).await;
        assert_eq!((done.status, &done.body), (200, &second));
    }
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    assert_eq!(env.journal(&item, "payment_refunded").await.len(), 1);
}

/// An admin returns the money of an order of which a refund has failed before.
#[tested_in(on_both_ledgers(Options::default()))]
async fn what_an_admin_returns_is_asked_for_once(env: Env) {
    let (_, order) = env.ordered().await;
    let paid = intent(&order, "pi_1", 1999);
    env.stripe("payment_intent.succeeded", &paid).await;
    let fails = refund("re_1", "pi_1", "failed", 100);
    env.stripe_at(200, "refund.failed", &fails).await;
    let path = format!("/v1/orders/{order}/refund");
    for _ in 0..2 {
        let returned = Answer::of(env.admin(Method::POST, &path)).await;
        assert_eq!(returned.status, 200, "{returned:?}");
        assert_eq!(env.due_back().await, Vec::<Value>::new());
    }
    // The refund of the admin fails as well. A repeat of the request does not settle that.
    let again = refund("re_2", "pi_1", "failed", 300);
    env.stripe_at(400, "refund.failed", &again).await;
    Answer::of(env.admin(Method::POST, &path)).await;
    assert_eq!(env.due_back().await, [failed("pi_1")]);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn events_without_times_count_by_their_arrival(env: Env) {
    let (_, order) = env.ordered().await;
    env.stripe("payment_intent.succeeded", &intent(&order, "pi_1", 1999))
        .await;
    let untimed = async |kind: &str, mut object: Value| {
        object.as_object_mut().unwrap().remove("created");
        let mut body = event(kind, &object);
        body.as_object_mut().unwrap().remove("created");
        env.stripe_text(&body.to_string()).await
    };
    let back = charge(&order, "pi_1", true);
    is(&untimed("charge.refunded", back.clone()).await, "refunded");
    let fails = refund("re_1", "pi_1", "failed", 0);
    is(&untimed("refund.failed", fails).await, "refund_failed");
    untimed("charge.refunded", back).await;
    assert_eq!(env.due_back().await, [failed("pi_1")]);
    let another = refund("re_2", "pi_1", "succeeded", 0);
    is(&untimed("refund.updated", another).await, "noted");
    assert_eq!(env.due_back().await, Vec::<Value>::new());
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_payment_that_no_order_took_leaves_the_list_when_it_was_returned(env: Env) {
    let (item, order) = env.ordered().await;
    let other = env.hold(&item, "bob", "k").await;
    for (payment, amount, result) in [
        ("pi_1", 1, "amount_mismatch"),
        ("pi_2", 1999, "confirmed"),
        ("pi_3", 1999, "already_paid"),
    ] {
        let paid = intent(&order, payment, amount);
        env.notified("payment_intent.succeeded", &paid, result)
            .await;
    }
    let reason = |payment: &str, amount: u64| json!([payment, "unmatched_payment", amount]);
    assert_eq!(
        env.due_back().await,
        [reason("pi_1", 1), reason("pi_3", 1999)]
    );
    // A part of it, then the rest.
    let part = charge(&order, "pi_1", false);
    env.notified("charge.refunded", &part, "ignored").await;
    // Neither metadata of another order nor none at all matters.
    let mut bare = charge(&order, "pi_1", true);
    bare["metadata"] = json!({});
    let elsewhere = charge(&other, "pi_3", true);
    for _ in 0..2 {
        env.notified("charge.refunded", &bare, "payment_refunded")
            .await;
        env.notified("charge.refunded", &elsewhere, "payment_refunded")
            .await;
    }
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    env.events_of(&item, "payment.refunded", 2).await;
    assert_eq!(env.state_of(&order).await, "confirmed");
    // Reported again, it is still returned.
    for (payment, amount) in [("pi_1", 1), ("pi_3", 1999)] {
        let late = intent(&order, payment, amount);
        env.notified("payment_intent.succeeded", &late, "payment_returned")
            .await;
    }
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    // The payment of the order itself, whatever the charge names.
    let own = charge(&other, "pi_2", true);
    env.notified("charge.refunded", &own, "refunded").await;
    assert_eq!(env.state_of(&order).await, "refunded");
    assert_eq!(env.state_of(&other).await, "held");
    // This one is of something else that the shop sells.
    let mut foreign = charge(&order, "pi_9", true);
    foreign["metadata"] = json!({});
    env.notified("charge.refunded", &foreign, "ignored").await;
    let foreign = refund("re_9", "pi_9", "failed", 0);
    env.notified("refund.failed", &foreign, "ignored").await;
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn a_payment_that_was_returned_confirms_nothing(env: Env) {
    let (item, order) = env.ordered().await;
    let brief = json!({ "stock": 5, "price": 1999, "currency": "EUR", "hold_seconds": 1 });
    let brief = env.create(brief).await;
    let expired = env.hold(&brief, "ann", "k").await;
    env.becomes(&expired, "expired").await;
    // Returned before it was reported, and after it was reported with another amount.
    let wrong = intent(&order, "pi_2", 1);
    env.notified("payment_intent.succeeded", &wrong, "amount_mismatch")
        .await;
    for (order, payment) in [(&order, "pi_1"), (&order, "pi_2"), (&expired, "pi_3")] {
        let before = env.state_of(order).await;
        let back = charge(order, payment, true);
        env.notified("charge.refunded", &back, "payment_refunded")
            .await;
        let paid = intent(order, payment, 1999);
        for _ in 0..2 {
            env.notified("payment_intent.succeeded", &paid, "payment_returned")
                .await;
        }
        let refused = env.pay_amount(order, payment, 1999).await;
        refused.is(409, "payment_returned");
        assert_eq!(env.state_of(order).await, before);
    }
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    // What an admin has noted as returned confirms nothing either.
    let wrong = intent(&order, "pi_4", 1);
    env.stripe("payment_intent.succeeded", &wrong).await;
    let row = env.rows_due().await.remove(0);
    assert_eq!(env.note_done(&row).await.status, 200);
    let cart = env.held_cart("ann", "c", &[(&item, 1)]).await;
    let refused = env.pay_cart(&cart, "pi_4", Some(1999)).await;
    refused.is(409, "payment_returned");
    let refused = env.pay_amount(&order, "pi_4", 1999).await;
    refused.is(409, "payment_returned");
    // Another payment does.
    env.confirm_for(&order, "pi_5", 1999).await;
    assert_eq!(env.units(&brief).await, [5, 0, 0]);
}

/// An admin returns the money of an order and of a cart. Each payment is reported again for the
/// other one.
#[tested_in(on_both_ledgers(Options::default()))]
async fn what_an_admin_has_returned_confirms_nothing_else(env: Env) {
    let (item, order) = env.ordered().await;
    let cart = env.held_cart("ann", "c", &[(&item, 1)]).await;
    env.confirm_for(&order, "pi_1", 1999).await;
    let done = env.pay_cart(&cart, "pi_2", Some(1999)).await;
    done.is_now("confirmed");
    for path in [
        format!("/v1/orders/{order}/refund"),
        format!("/v1/carts/{cart}/refund"),
    ] {
        for _ in 0..2 {
            let returned = Answer::of(env.admin(Method::POST, &path)).await;
            assert_eq!(returned.status, 200, "{returned:?}");
        }
    }
    let other_order = env.hold(&item, "bob", "k").await;
    let other_cart = env.held_cart("bob", "c", &[(&item, 1)]).await;
    for payment in ["pi_1", "pi_2"] {
        let refused = env.pay_amount(&other_order, payment, 1999).await;
        refused.is(409, "payment_returned");
        let refused = env.pay_cart(&other_cart, payment, Some(1999)).await;
        refused.is(409, "payment_returned");
    }
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    assert_eq!(env.state_of(&other_order).await, "held");
}

/// The first report of a payment is that all of it was returned, and it names nothing.
#[tested_in(on_both_ledgers(Options::default()))]
async fn a_return_that_names_nothing_and_comes_first_is_remembered(env: Env) {
    let (item, order) = env.ordered().await;
    let mut back = charge(&order, "pi_1", true);
    back["metadata"] = json!({});
    env.notified_at(100, "charge.refunded", &back, "ignored")
        .await;
    let fails = refund("re_1", "pi_1", "failed", 100);
    env.notified_at(200, "refund.failed", &fails, "ignored")
        .await;
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    for _ in 0..2 {
        let refused = env.pay_amount(&order, "pi_1", 1999).await;
        refused.is(409, "payment_returned");
        // The report says whose it is, and the refund had failed.
        assert_eq!(env.due_back().await, [failed("pi_1")]);
    }
    assert_eq!(env.state_of(&order).await, "held");
    env.events_of(&item, "payment.refunded", 1).await;
    env.events_of(&item, "payment.refund_failed", 1).await;
}

/// Each row was listed, and something else has taken it off the list since.
#[tested_in(on_both_ledgers(Options::default()))]
async fn a_row_that_has_left_the_list_cannot_be_noted(env: Env) {
    let (item, order) = env.ordered().await;
    for payment in ["pi_1", "pi_2"] {
        let refused = env.pay_amount(&order, payment, 1).await;
        refused.is(422, "amount_mismatch");
    }
    let rows = env.rows_due().await;
    env.confirm_for(&order, "pi_1", 1999).await;
    let back = charge(&order, "pi_2", true);
    env.notified("charge.refunded", &back, "payment_refunded")
        .await;
    assert_eq!(env.due_back().await, Vec::<Value>::new());
    for row in &rows {
        env.note_done(row).await.is(404, "refund_not_found");
    }
    assert_eq!(env.state_of(&order).await, "confirmed");
    // The one of the provider alone.
    assert_eq!(env.journal(&item, "payment_refunded").await.len(), 1);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn the_refund_of_a_cart_fails_like_that_of_an_order(env: Env) {
    let item = json!({ "stock": 5, "price": 1999, "currency": "EUR" });
    let item = env.create(item).await;
    let cart = env.held_cart("ann", "k", &[(&item, 1)]).await;
    let of_cart = |mut object: Value| {
        object["metadata"] = json!({ "stockade_cart": cart });
        object
    };
    let paid = of_cart(intent(&cart, "pi_1", 1999));
    env.notified_at(0, "payment_intent.succeeded", &paid, "confirmed")
        .await;
    let back = of_cart(charge(&cart, "pi_1", true));
    env.notified_at(100, "charge.refunded", &back, "refunded")
        .await;
    let fails = refund("re_1", "pi_1", "failed", 100);
    let answer = env.stripe_at(200, "refund.failed", &fails).await;
    is(&answer, "refund_failed");
    assert_eq!(answer.body["cart"], json!(cart));
    assert_eq!(env.due_back().await, [failed("pi_1")]);
    assert_eq!(env.rows_due().await[0]["cart"], json!(cart));
    env.stripe_at(300, "charge.refunded", &back).await;
    assert_eq!(
        env.due_back().await,
        Vec::<Value>::new(),
        "returned again, all of it"
    );
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_refund_that_lacks_what_names_it_is_acknowledged(env: Env) {
    let (_, order) = env.ordered().await;
    env.stripe("payment_intent.succeeded", &intent(&order, "pi_1", 1999))
        .await;
    let whole = refund("re_1", "pi_1", "failed", 0);
    for field in ["id", "status", "amount"] {
        let mut thin = whole.clone();
        thin[field] = json!(null);
        env.notified("refund.failed", &thin, "ignored").await;
    }
    let mut nameless = whole.clone();
    nameless["payment_intent"] = json!(null);
    nameless["charge"] = json!(null);
    env.notified("refund.failed", &nameless, "ignored").await;
    let mut expanded = whole;
    expanded["payment_intent"] = json!({ "id": "pi_1", "object": "payment_intent" });
    env.notified("refund.failed", &expanded, "refund_failed")
        .await;
}

/// The payment alone tells what its return is about.
#[tested_in(on_both_ledgers(Options::default()))]
async fn unusable_metadata_hide_no_return_of_a_known_payment(env: Env) {
    let (item, order) = env.ordered().await;
    for (payment, result) in [("pi_1", "confirmed"), ("pi_2", "already_paid")] {
        let paid = intent(&order, payment, 1999);
        env.notified("payment_intent.succeeded", &paid, result)
            .await;
    }
    let both = json!({ "stockade_order": order, "stockade_cart": order });
    for (metadata, why) in [
        (
            json!({ "stockade_order": "nonsense" }),
            "not the id of an order",
        ),
        (both, "set one of them"),
    ] {
        let returned = |payment: &str| {
            let mut charge = charge(&order, payment, true);
            charge["metadata"] = metadata.clone();
            charge
        };
        let unknown = env.stripe("charge.refunded", &returned("pi_9")).await;
        is(&unknown, "ignored");
        let detail = unknown.body["detail"].as_str().unwrap();
        assert!(detail.contains(why), "{detail}");
        let surplus = returned("pi_2");
        env.notified("charge.refunded", &surplus, "payment_refunded")
            .await;
        assert_eq!(env.due_back().await, Vec::<Value>::new());
        let own = env.stripe("charge.refunded", &returned("pi_1")).await;
        is(&own, "refunded");
    }
    assert_eq!(env.state_of(&order).await, "refunded");
    assert_eq!(env.units(&item).await, [5, 0, 0]);
}
