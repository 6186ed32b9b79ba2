//! Every act of an admin is in a journal with the admin's name, once however often it is repeated.

use events::TargetPolicy;
use order::{Admin, Limits, Scope};
use reqwest::Method;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use testkit::{fresh_item_id, tested_in};

use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers, patient};

/// An admin, and the token.
const NAME: &str = "dora";
const TOKEN: &str = "the token of dora";

fn options() -> Options {
    let hash = digest(&SHA256, TOKEN.as_bytes());
    let dora = Admin::new(NAME, hash.as_ref().try_into().unwrap(), Scope::ALL.to_vec());
    Options {
        admins: vec![dora],
        limits: Limits {
            webhook_targets: TargetPolicy { private: true },
            ..patient()
        },
        ..Options::reconciled()
    }
}

/// A call of dora's.
async fn call(env: &TestEnv, method: &Method, path: &str, key: &str, body: &Value) -> Answer {
    let request = env.anyone(method.clone(), path).bearer_auth(TOKEN);
    let request = request
        .header("Idempotency-Key", key)
        .header("If-Match", "*");
    Answer::of(request.json(body)).await
}

/// The entries of dora's with this action.
async fn named(env: &TestEnv, item: &str, action: &str) -> Vec<Value> {
    let mut entries = env.journal(item, action).await;
    entries.retain(|entry| entry["actor"] == NAME);
    entries
}

#[tested_in(on_both_ledgers(options()))]
async fn each_act_on_an_item_and_its_orders_names_the_admin_once(env: Env) {
    let item = json!({ "stock": 40, "hold_seconds": 600, "max_hold_seconds": 1200 });
    let item = env.create(item).await;
    let [extended, cancelled, refunded] = [
        env.hold(&item, "ann", "extended").await,
        env.hold(&item, "ann", "cancelled").await,
        env.hold(&item, "ann", "refunded").await,
    ];
    env.confirm(&refunded, "pay-order").await;
    let lines = [(&*item, 1)];
    let [held, paid] = [
        env.held_cart("bob", "held", &lines).await,
        env.held_cart("bob", "paid", &lines).await,
    ];
    env.confirm_cart(&paid, "pay-cart", None).await;
    let wave =
        json!([{ "at": jiff::Timestamp::now() + jiff::SignedDuration::from_hours(9), "units": 1 }]);
    let batch = json!({ "orders": [{ "buyer": "cleo", "quantity": 1, "key": "k" }] });
    let of_item = format!("/v1/items/{item}");
    let acts = [
        (
            "extend",
            Method::POST,
            format!("/v1/orders/{extended}/hold"),
            json!({ "seconds": 900 }),
        ),
        (
            "cancel",
            Method::DELETE,
            format!("/v1/orders/{cancelled}"),
            json!(null),
        ),
        (
            "refund",
            Method::POST,
            format!("/v1/orders/{refunded}/refund"),
            json!(null),
        ),
        (
            "extend",
            Method::POST,
            format!("/v1/carts/{held}/hold"),
            json!({ "seconds": 900 }),
        ),
        (
            "cancel",
            Method::DELETE,
            format!("/v1/carts/{held}"),
            json!(null),
        ),
        (
            "refund",
            Method::POST,
            format!("/v1/carts/{paid}/refund"),
            json!(null),
        ),
        (
            "place_orders",
            Method::POST,
            format!("{of_item}/orders:batch"),
            batch,
        ),
        (
            "top_up",
            Method::POST,
            format!("{of_item}/stock"),
            json!({ "add": 2 }),
        ),
        (
            "withdraw",
            Method::POST,
            format!("{of_item}/stock"),
            json!({ "withdraw": 1 }),
        ),
        (
            "limit",
            Method::PATCH,
            of_item.clone(),
            json!({ "limit_per_buyer": 30 }),
        ),
        (
            "waves",
            Method::PATCH,
            of_item.clone(),
            json!({ "waves": wave }),
        ),
        (
            "state",
            Method::PUT,
            format!("{of_item}/state"),
            json!({ "state": "paused" }),
        ),
    ];
    for (n, (action, method, path, body)) in acts.iter().enumerate() {
        let before = named(&env, &item, action).await.len();
        for round in ["first", "repeat"] {
            let answer = call(&env, method, path, &format!("key-{n}"), body).await;
            assert!(answer.status < 300, "{action} of {path}: {answer:?}");
            let entries = named(&env, &item, action).await;
            assert_eq!(
                entries.len(),
                before + 1,
                "{round} {action} of {path}: {entries:?}"
            );
        }
    }
    let orders = async |action: &str| {
        let entries = named(&env, &item, action).await;
        let orders = entries.iter().map(|entry| entry["before"]["order"].clone());
        orders.collect::<Vec<_>>()
    };
    for (action, order) in [
        ("extend", &extended),
        ("cancel", &cancelled),
        ("refund", &refunded),
    ] {
        let orders = orders(action).await;
        assert!(orders.contains(&json!(order)), "{action}: {orders:?}");
    }
    let of_carts = named(&env, &item, "refund").await;
    assert!(
        of_carts
            .iter()
            .any(|entry| entry["before"]["cart"] == *paid),
        "{of_carts:?}"
    );
}

#[tested_in(on_both_ledgers(options()))]
async fn the_journal_of_an_item_begins_with_its_creation_by_an_admin(env: Env) {
    let item = fresh_item_id().to_string();
    let new = json!({ "id": item, "stock": 3, "title": "A vase" });
    for _ in 0..2 {
        let created = call(&env, &Method::POST, "/v1/items", "k", &new).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    let path = format!("/v1/items/{item}/journal");
    let journal = env.admin_gets(&path).await;
    let [entry] = &journal.rows()[..] else {
        panic!("{journal:?}");
    };
    assert_eq!(entry["actor"], json!(NAME));
    assert_eq!(entry["action"], "create");
    assert_eq!(entry["after"]["stock"], 3);
}

#[tested_in(on_both_ledgers(options()))]
async fn what_buyers_do_is_in_no_journal(env: Env) {
    let item = json!({ "stock": 9, "hold_seconds": 600, "max_hold_seconds": 1200 });
    let item = env.create(item).await;
    let order = env.hold(&item, "ann", "k").await;
    let cart = env.held_cart("ann", "k", &[(&item, 1)]).await;
    for path in [format!("orders/{order}"), format!("carts/{cart}")] {
        let hold = env.buyer("ann", Method::POST, &format!("/v1/{path}/hold"));
        let extended = Answer::of(hold.json(&json!({ "seconds": 900 }))).await;
        assert_eq!(extended.status, 200, "{extended:?}");
    }
    env.cancel("ann", &order).await.is_now("cancelled");
    env.cancel_cart("ann", &cart).await.is_now("cancelled");
    let path = format!("/v1/items/{item}/journal");
    let journal = env.admin_gets(&path).await;
    let entries = journal.rows();
    assert_eq!(entries.len(), 1, "only its creation: {entries:?}");
}

#[tested_in(on_both_ledgers(Options {
    instances: 2,
    ..options()
}))]
async fn an_admin_who_places_orders_is_named_once_for_each_item(env: Env) {
    let item = env.create(json!({ "stock": 40 })).await;
    let path = format!("/v1/items/{item}/orders:batch");
    for n in 0..3 {
        for (instance, token) in [(0, TOKEN), (1, TOKEN), (n % 2, crate::env::ADMIN)] {
            let line = |buyer: usize| json!({ "buyer": format!("buyer-{buyer}"), "quantity": 1, "key": format!("{n}") });
            let lines: Vec<_> = (0..4).map(line).collect();
            let request = env.at(instance, Method::POST, &path).bearer_auth(token);
            let placed = Answer::of(request.json(&json!({ "orders": lines }))).await;
            assert_eq!(placed.status, 200, "{placed:?}");
        }
    }
    let entries = env.journal(&item, "place_orders").await;
    let mut actors: Vec<_> = entries.iter().map(|entry| &entry["actor"]).collect();
    actors.sort_by_key(|actor| actor.to_string());
    assert_eq!(actors, ["admin", NAME]);
}

#[tested_in(on_both_ledgers(options()))]
async fn each_act_on_a_webhook_or_a_buyer_is_in_the_service_journal(env: Env) {
    let hook = json!({ "url": "https://127.0.0.1:9/hook/t0ken", "kinds": ["order.held"] });
    let created = call(&env, &Method::POST, "/v1/webhooks", "k", &hook).await;
    assert_eq!(created.status, 201, "{created:?}");
    let id = created.body["id"].as_str().unwrap();
    let of_hook = |part: &str| format!("/v1/webhooks/{id}{part}");
    let acts = [
        ("enable_webhook", Method::POST, of_hook("/enable")),
        ("test_webhook", Method::POST, of_hook("/test")),
        ("remove_webhook", Method::DELETE, of_hook("")),
        (
            "erase_buyer",
            Method::POST,
            "/v1/buyers/ann-the-buyer/erase".to_owned(),
        ),
    ];
    for (action, method, path) in &acts {
        let answer = call(&env, method, path, "k", &json!(null)).await;
        assert!(answer.status < 300, "{action}: {answer:?}");
    }
    for part in ["", "/enable", "/test"] {
        let method = if part.is_empty() {
            Method::DELETE
        } else {
            Method::POST
        };
        let gone = call(&env, &method, &of_hook(part), "k", &json!(null)).await;
        gone.is(404, "webhook_not_found");
    }
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/journal?limit=2{after}");
        let page = env.admin_gets(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        rows.extend(page.rows().clone());
        match page.body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    rows.reverse();
    let actions: Vec<_> = rows
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    let expected = [&["create_webhook"][..], &acts.each_ref().map(|act| act.0)].concat();
    assert_eq!(actions, expected);
    for row in &rows {
        assert_eq!(row["actor"], NAME, "{row}");
        let is_of_hook = row["action"] != "erase_buyer";
        assert_eq!(row["subject"] == id, is_of_hook, "{row}");
        let text = row.to_string();
        for secret in ["t0ken", "whsec", "ann-the-buyer"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let refused = env.buyer_gets("ann", "/v1/journal").await;
    refused.is(403, "forbidden");
    env.anyone_gets("/v1/journal").await.is(401, "unauthorized");
    let refused = env.admin_gets("/v1/journal?format=csv").await;
    refused.is(400, "invalid_request");
}
