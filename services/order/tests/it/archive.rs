//! Archived items: the ledger alone answers for them, at every instance.

use std::{path::Path, time::Duration};

use domain::PaymentId;
use jiff::Timestamp;
use ledger::{RefundReport, RefundState};
use order::engine::{MoneyReturned, Payable};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{eventually, eventually_some, tested_in};

use crate::env::{ADMIN, Answer, Env, Options, TestEnv, on_both_ledgers, open, open_each, token};

impl TestEnv {
    async fn archive_at(&self, instance: usize, item: &str, version: Option<&str>) -> Answer {
        let path = format!("/v1/items/{item}/archive");
        let request = self.at(instance, Method::POST, &path).bearer_auth(ADMIN);
        Answer::of(match version {
            Some(version) => request.header("If-Match", version),
            None => request,
        })
        .await
    }

    /// The provider returns the money of the dropped order, and its refund fails.
    async fn fails_to_return_after_the_drop(&self, payment: &str, order: &str) {
        let (engine, now) = (&self.engines[0], Timestamp::now());
        let payment = PaymentId::new(payment).unwrap();
        let returned = engine.money_returned(&payment, None, Some(now)).await;
        let of = Payable::Order(order.parse().unwrap());
        assert_eq!(returned.unwrap(), MoneyReturned::Unmatched(of));
        let report = RefundReport {
            id: format!("re-{payment}"),
            payment: payment.clone(),
            payer: None,
            state: RefundState::Failed,
            amount: 5,
            currency: None,
            created_at: Some(now),
            at: Some(now + Duration::from_secs(1)),
        };
        engine.refund_reported(&report).await.unwrap();
        let listed = self.admin_gets("/v1/refunds-due?limit=1000").await;
        let rows = listed.rows();
        let row = rows.iter().find(|row| row["payment"] == payment.as_str());
        let row = row.unwrap_or_else(|| panic!("{listed:?}"));
        assert_eq!(
            [&row["reason"], &row["order"], &row["amount"]],
            [&json!("refund_failed"), &json!(order), &json!(5)]
        );
        let path = format!("/v1/refunds-due/{}/done", row["id"].as_str().unwrap());
        let done = Answer::of(self.admin(Method::POST, &path)).await;
        assert_eq!(done.status, 200, "{done:?}");
    }

    async fn audited(&self, item: &str) -> Value {
        self.admin_gets(&format!("/v1/items/{item}/audit"))
            .await
            .body
    }

    /// Archives the item once nothing of it is on its way to the ledger.
    async fn archives(&self, item: &str) -> Answer {
        eventually_some("the archiving of the item", async || {
            let answer = self.archive_at(0, item, None).await;
            if answer.status != 409 {
                return Some(answer);
            }
            answer.is(409, "item_not_archivable");
            None
        })
        .await
    }
}

fn two_instances() -> Options {
    Options::reconciled().with_instances(2)
}

#[tested_in(open_each(two_instances()))]
async fn an_archived_item_is_answered_for_from_the_ledger(env: Env) {
    let item = json!({ "stock": 6, "segments": 2, "limit_per_buyer": 2 });
    let item = env.create(item).await;
    let paid = env.hold(&item, "ann", "k").await;
    env.pay_at(0, &paid, &format!("pay-{item}")).await;
    let cancelled = env.hold(&item, "bob", "k").await;
    env.cancel("bob", &cancelled).await.is_now("cancelled");
    // The second instance knows the item from before its end.
    let before = Answer::of(env.order_at(1, &item, "ann", "k", 1)).await;
    assert_eq!(before.body["state"], "confirmed", "{before:?}");
    env.set_state(&item, "closed").await.is_now("closed");
    env.archives(&item).await.is_now("archived");
    env.archive_at(1, &item, None).await.is_now("archived");

    for instance in [1, 0] {
        let again = Answer::of(env.order_at(instance, &item, "ann", "k", 1)).await;
        assert_eq!(
            (again.status, &again.body["id"], &again.body["state"]),
            (before.status, &json!(paid), &json!("confirmed")),
            "{again:?}"
        );
        assert_eq!(
            again.header("idempotent-replayed"),
            Some("true"),
            "{again:?}"
        );
        let refused = Answer::of(env.order_at(instance, &item, "eve", "k", 1)).await;
        assert_eq!(refused.is(409, "not_open").body["state"], "archived");
        assert_eq!(refused.body["final"], true, "no segment is left");
        Answer::of(env.order_at(instance, &item, "ann", "k", 2))
            .await
            .is(422, "idempotency_key_reused");
        let path = format!("/v1/orders/{paid}");
        let shown = Answer::of(
            env.at(instance, Method::GET, &path)
                .bearer_auth(token("ann")),
        );
        shown.await.is_now("confirmed");
    }
    let stranger = format!("/v1/orders/{}", refused_id(&item));
    let answer = env.buyer_gets("eve", &stranger).await;
    answer.is(404, "order_not_found");

    let shown = env.anyone_gets(&format!("/v1/items/{item}")).await;
    let units = ["available", "held", "confirmed", "returning"].map(|units| &shown.body[units]);
    assert_eq!(units, [5, 0, 1, 0], "{shown:?}");
    let audit = env.audited(&item).await;
    assert!(audit["archived_at"].is_string(), "{audit:#}");
    assert_eq!(audit["ok"], true);
    assert_eq!(audit["confirmed"], 1);

    for state in ["open", "paused", "closed"] {
        env.set_state(&item, state).await.is(409, "item_archived");
    }
    let patch = env
        .admin(Method::PATCH, &format!("/v1/items/{item}"))
        .json(&json!({ "limit_per_buyer": 5 }));
    Answer::of(patch).await.is(409, "item_archived");
    for (key, change) in [("a", json!({ "add": 1 })), ("w", json!({ "withdraw": 1 }))] {
        let moved = env.move_stock(1, &item, key, &change).await;
        moved.is(409, "item_archived");
    }
    let set = env
        .admin(Method::PUT, &format!("/v1/items/{item}/stock"))
        .header("If-Match", env.version(&item).await)
        .json(&json!({ "stock": 9 }));
    Answer::of(set).await.is(409, "item_archived");

    // Money can still be returned. The units return in the ledger.
    let refund = format!("/v1/orders/{paid}/refund");
    let refund = env.at(1, Method::POST, &refund).bearer_auth(ADMIN);
    Answer::of(refund).await.is_now("refunded");
    let shown = env.admin_gets(&format!("/v1/items/{item}")).await;
    assert_eq!(shown.body["available"], 6);
    assert_eq!(shown.body["returning"], 0);
}

/// An id of no order, with the item's tag.
fn refused_id(item: &str) -> String {
    let (item, key) = (
        item.parse::<domain::ItemId>().unwrap(),
        domain::IdempotencyKey::new("k").unwrap(),
    );
    let buyer = domain::BuyerId::new("eve").unwrap();
    domain::OrderId::derive(&item, item.tag(), &buyer, &key).to_string()
}

#[tested_in(open_each(two_instances()))]
async fn a_late_payment_for_an_archived_item_must_be_returned(env: Env) {
    let item = json!({ "stock": 4, "segments": 2, "hold_seconds": 1 });
    let item = env.create(item).await;
    let order = env.hold(&item, "ann", "k").await;
    env.order_at(1, &item, "bob", "other", 1)
        .send()
        .await
        .unwrap();
    env.set_state(&item, "closed").await.is_now("closed");
    env.archives(&item).await.is_now("archived");
    let late = env.pay_at(1, &order, &format!("late-{item}")).await;
    late.is_now("refund_due");
}

#[tested_in(open(Options::reconciled()))]
async fn an_archive_is_refused_with_what_is_open(env: Env) {
    let item = env.create(json!({ "stock": 4, "segments": 2 })).await;
    let refused = env.archive_at(0, &item, None).await;
    let detail = refused.is(409, "item_not_archivable").body["detail"].clone();
    assert_eq!(
        detail,
        "nothing was changed: the item is open, close it first"
    );
    env.hold(&item, "ann", "k").await;
    env.set_state(&item, "closed").await.is_now("closed");
    env.settled_audit(&item).await;
    let refused = env.archive_at(0, &item, None).await;
    let detail = refused.is(409, "item_not_archivable").body["detail"].clone();
    assert!(
        detail.as_str().unwrap().contains("1 units of held orders"),
        "{detail}"
    );
    let answer = env.archive_at(0, &item, Some("\"999\"")).await;
    answer.is(412, "version_mismatch");
    let answer = env.archive_at(0, "no-such-item", None).await;
    answer.is(404, "item_not_found");
    let state = env.set_state(&item, "archived").await;
    state.is(400, "invalid_request");
    let buyer = env.buyer("ann", Method::POST, &format!("/v1/items/{item}/archive"));
    Answer::of(buyer).await.is(403, "forbidden");
}

#[tested_in(open(Options::default()))]
async fn without_a_reconciler_the_request_for_an_archive_is_kept(env: Env) {
    let item = env.create(json!({ "stock": 4 })).await;
    env.set_state(&item, "closed").await.is_now("closed");
    env.settled_audit(&item).await;
    let asked = env.archives(&item).await;
    assert_eq!(asked.status, 202);
    assert_eq!(asked.body["state"], "closed");
    env.start_reconciler(Options::reconciled().reconciler.unwrap())
        .await;
    env.archives(&item).await.is_now("archived");
    let entry = env.journal(&item, "archive").await.swap_remove(0);
    assert_eq!(entry["actor"], "admin");
}

/// Changes the units of the item's orders behind the ledger's code. Only a walk over them tells.
async fn change_orders(env: &TestEnv, item: &str, units: i32) {
    let change = format!("UPDATE orders SET quantity = quantity + {units} WHERE item = '{item}'");
    assert_eq!(env.database.execute(&change).await.unwrap(), 1);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn the_orders_are_read_by_the_archive_and_not_by_the_request_for_it(env: Env) {
    let item = env.create(json!({ "stock": 4 })).await;
    let paid = env.hold(&item, "ann", "k").await;
    env.confirm(&paid, &format!("pay-{item}")).await;
    env.set_state(&item, "closed").await.is_now("closed");
    env.settled_audit(&item).await;
    change_orders(&env, &item, 1).await;
    assert_eq!(env.archives(&item).await.status, 202);
    env.start_reconciler(Options::reconciled().reconciler.unwrap())
        .await;
    eventually("what the final audit has found", async || {
        env.audited(&item).await["orders_checked"]["fault"]["miscounted"] == 1
    })
    .await;
    let found = env.journal(&item, "miscounted").await;
    assert_eq!(found.len(), 1, "it is told once: {found:?}");
    change_orders(&env, &item, -1).await;
    eventually("the archive", async || {
        let answer = env.archive_at(0, &item, None).await;
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        answer.body["state"] == "archived"
    })
    .await;
}

#[tested_in(open_each(two_instances()))]
async fn a_buyers_name_is_erased_once_the_items_are_archived(env: Env) {
    let erase = async |buyer: &str| {
        let path = format!("/v1/buyers/{buyer}/erase");
        Answer::of(env.admin(Method::POST, &path)).await
    };
    let item = env.create(json!({ "stock": 4, "segments": 2 })).await;
    let ann = format!("ann%40{item}");
    let name = format!("ann@{item}");
    let order = env.hold(&item, &name, "k").await;
    erase(&ann).await.is(409, "buyer_has_held_orders");
    env.pay_at(0, &order, &format!("pay-{item}")).await;
    let kept = erase(&ann).await;
    assert_eq!(kept.status, 200);
    assert_eq!(kept.body, json!({ "erased": 0, "kept": 1 }));
    env.set_state(&item, "closed").await.is_now("closed");
    env.archives(&item).await.is_now("archived");
    for erased in [1, 0] {
        let answer = erase(&ann).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, json!({ "erased": erased, "kept": 0 }));
    }
    let shown = env.admin_gets(&format!("/v1/orders/{order}")).await;
    shown.is_now("confirmed");
    assert!(!shown.body.to_string().contains(&name), "{shown:?}");
    let mine = env.buyer(&name, Method::GET, &format!("/v1/orders/{order}"));
    Answer::of(mine).await.is(404, "order_not_found");
    assert_eq!(
        env.journal(&item, "erase_buyer").await[0]["after"]["orders"],
        1
    );
}

fn dropping(retention: Duration, exports: &Path) -> Options {
    let mut options = two_instances();
    options.drop_retention = retention;
    if let Some(settings) = &mut options.reconciler {
        settings.drop_interval = Duration::from_millis(20);
        settings.drop_exports = Some(exports.to_owned());
    }
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn the_orders_of_an_archived_item_are_dropped_after_their_retention() {
    let exports = tempfile::tempdir().unwrap();
    open_each(dropping(Duration::ZERO, exports.path()), async |env| {
        let drop = async |item: &str| {
            let path = format!("/v1/items/{item}");
            Answer::of(env.admin(Method::DELETE, &path)).await
        };
        let item = env.create(json!({ "stock": 6, "segments": 2 })).await;
        let paid = env.hold(&item, "ann", "k").await;
        let cart = env.held_cart("ann", &item, &[(&item, 1)]).await;
        let sessions = async || {
            let ids = [&paid, &cart].map(|id| id.parse().unwrap());
            let named = ids.map(|id| env.engines[0].ledger.named_session(id));
            let named = futures::future::try_join_all(named).await.unwrap();
            named.into_iter().flatten().count()
        };
        for path in [format!("orders/{paid}"), format!("carts/{cart}")] {
            let request = env.buyer("ann", Method::POST, &format!("/v1/{path}/hold"));
            let named = Answer::of(request.json(&json!({ "session": "cs_1" }))).await;
            assert_eq!(named.status, 200, "{named:?}");
        }
        assert_eq!(sessions().await, 2);
        env.pay_at(0, &paid, &format!("pay-{item}")).await;
        env.pay_cart(&cart, &format!("pay-{cart}"), None).await;
        let refused = drop(&item).await;
        assert_eq!(
            refused.is(409, "item_not_droppable").body["detail"],
            "nothing was changed: it is not archived"
        );
        env.set_state(&item, "closed").await.is_now("closed");
        env.archives(&item).await.is_now("archived");
        let audit = env.audited(&item).await;
        eventually("the drop of the item", async || {
            let answer = drop(&item).await;
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
            assert_eq!(answer.body["state"], "archived");
            answer.status == 200
        })
        .await;
        let shown = Answer::of(env.buyer("ann", Method::GET, &format!("/v1/orders/{paid}")));
        shown.await.is(404, "order_not_found");
        env.read_cart(&cart).await.is(404, "cart_not_found");
        assert_eq!(sessions().await, 0);
        for instance in [0, 1] {
            let again = Answer::of(env.order_at(instance, &item, "ann", "k", 1)).await;
            assert_eq!(again.is(409, "not_open").body["state"], "archived");
        }
        let mut after = env.audited(&item).await;
        let at = after.as_object_mut().unwrap().remove("dropped_at");
        assert!(at.is_some_and(|at| at.is_string()), "{after}");
        assert_eq!(after, audit, "the final audit stays");
        let entry = env.journal(&item, "drop").await.swap_remove(0);
        assert_eq!(entry["actor"], "admin");
        assert_eq!(entry["after"]["orders"], 2);
        drop("no-such-item").await.is(404, "item_not_found");
        env.fails_to_return_after_the_drop(&format!("pay-{item}"), &paid)
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_item_keeps_its_orders_for_the_retention() {
    let exports = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    open(dropping(hour, exports.path()), async |env| {
        let item = env.create(json!({ "stock": 6, "segments": 2 })).await;
        let paid = env.hold(&item, "ann", "k").await;
        env.pay_at(0, &paid, &format!("pay-{item}")).await;
        env.set_state(&item, "closed").await.is_now("closed");
        env.archives(&item).await.is_now("archived");
        let refused = Answer::of(env.admin(Method::DELETE, &format!("/v1/items/{item}"))).await;
        let detail = refused.is(409, "item_not_droppable").body["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("it keeps its orders until 20"), "{detail}");
        let buyer = env.buyer("ann", Method::DELETE, &format!("/v1/items/{item}"));
        Answer::of(buyer).await.is(403, "forbidden");
        let shown = Answer::of(env.buyer("ann", Method::GET, &format!("/v1/orders/{paid}")));
        shown.await.is_now("confirmed");
    })
    .await;
}

/// A drop that no reconciler makes is refused, and not accepted for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_not_droppable_without_a_folder_for_its_export() {
    let mut options = dropping(Duration::ZERO, Path::new(""));
    if let Some(settings) = &mut options.reconciler {
        settings.drop_exports = None;
    }
    open_each(options, async |env| {
        let item = env.create(json!({ "stock": 6, "segments": 2 })).await;
        let drop = async |item: &str| {
            let path = format!("/v1/items/{item}");
            Answer::of(env.admin(Method::DELETE, &path)).await
        };
        let is_refused = async |reason: &str| {
            let refused = drop(&item).await;
            let detail = refused.is(409, "item_not_droppable").body["detail"].clone();
            assert!(detail.as_str().unwrap().contains(reason), "{detail}");
        };
        is_refused("it is not archived").await;
        env.set_state(&item, "closed").await.is_now("closed");
        env.archives(&item).await.is_now("archived");
        is_refused("STOCKADE_DROP_EXPORTS").await;
        assert!(env.journal(&item, "drop_request").await.is_empty());
        drop("no-such-item").await.is(404, "item_not_found");
    })
    .await;
}
