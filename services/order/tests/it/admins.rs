//! Admins with names and scopes.

use order::{Admin, Scope};
use reqwest::{Method, RequestBuilder};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, open};

/// An admin with this scope; the token is its name.
fn admin_with(scope: Scope) -> Admin {
    let hash = digest(&SHA256, scope.as_str().as_bytes());
    let name = scope.as_str().replace(':', "-");
    Admin::new(&name, hash.as_ref().try_into().unwrap(), vec![scope])
}

fn options() -> Options {
    Options {
        admins: Scope::ALL.map(admin_with).to_vec(),
        ..Options::default()
    }
}

fn call(env: &TestEnv, method: &Method, path: &str, body: &Value) -> RequestBuilder {
    let request = env.anyone(method.clone(), path).header("If-Match", "\"1\"");
    request.header("Idempotency-Key", "k").json(body)
}

#[tested_in(open(options()))]
async fn a_call_needs_its_own_scope(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let order = env.hold(&item, "ann", "k").await;
    let cart = "2d0f5c0b-53dc-8690-8a2b-6181b5fbc615";
    let with_an_empty_body = [
        ("POST /v1/items/{item}/orders:batch", Scope::OrdersPlace),
        ("POST /v1/carts", Scope::OrdersPlace),
        ("POST /v1/webhooks", Scope::WebhooksWrite),
        ("POST /v1/items", Scope::ItemsWrite),
        ("PUT /v1/items/{item}/state", Scope::ItemsWrite),
        ("POST /v1/items/{item}/archive", Scope::ItemsWrite),
        ("POST /v1/items/{item}/stock", Scope::StockWrite),
        ("PUT /v1/items/{item}/stock", Scope::StockWrite),
    ];
    let with_a_field = [("PATCH /v1/items/{item}", Scope::ItemsWrite)];
    let with_seconds = [
        ("POST /v1/orders/{order}/hold", Scope::OrdersPlace),
        ("POST /v1/carts/{cart}/hold", Scope::OrdersPlace),
    ];
    let without_a_body = [
        ("GET /v1/items", Scope::Read),
        ("GET /v1/refunds-due", Scope::Read),
        ("GET /v1/events", Scope::Read),
        ("GET /v1/journal", Scope::Read),
        ("GET /v1/webhooks", Scope::Read),
        ("DELETE /v1/items/{item}", Scope::ItemsWrite),
        ("POST /v1/buyers/nobody/erase", Scope::BuyersErase),
        ("GET /v1/items/{item}/journal", Scope::Read),
        ("GET /v1/items/{item}/audit", Scope::Read),
        ("GET /v1/orders/{order}", Scope::Read),
        ("POST /v1/refunds-due/journal-0/done", Scope::RefundsWrite),
        ("POST /v1/orders/{order}/refund", Scope::RefundsWrite),
        ("GET /v1/carts/{cart}", Scope::Read),
        ("DELETE /v1/carts/{cart}", Scope::OrdersPlace),
        ("POST /v1/carts/{cart}/refund", Scope::RefundsWrite),
        ("DELETE /v1/orders/{order}", Scope::OrdersPlace),
    ];
    let mut calls = Vec::new();
    calls.extend(with_an_empty_body.map(|call| (call, json!({}))));
    calls.extend(with_a_field.map(|call| (call, json!({ "nothing": 1 }))));
    calls.extend(with_seconds.map(|call| (call, json!({ "seconds": 1 }))));
    calls.extend(without_a_body.map(|call| (call, json!(null))));
    for ((named, needed), body) in &calls {
        let (method, path) = named.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        let path = path.replace("{item}", &item).replace("{order}", &order);
        let path = path.replace("{cart}", cart);
        for scope in Scope::ALL {
            let request = call(&env, &method, &path, body).bearer_auth(scope);
            let answer = Answer::of(request).await;
            let refused = answer.status == 403;
            assert_eq!(refused, scope != *needed, "{method} {path} with {scope}");
            if refused {
                let detail = answer.is(403, "forbidden").body["detail"].to_string();
                assert!(detail.contains(needed.as_str()), "{detail}");
            }
        }
    }
    assert_eq!(
        env.state_of(&order).await,
        "cancelled",
        "by the last call only"
    );
}

#[tested_in(open(options()))]
async fn the_journal_names_the_admin(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let request = env.anyone(Method::PATCH, &format!("/v1/items/{item}"));
    let request = request.json(&json!({ "limit_per_buyer": 1 }));
    let patched = Answer::of(request.bearer_auth(Scope::ItemsWrite)).await;
    assert_eq!(patched.status, 200, "{}", patched.body);
    let path = format!("/v1/items/{item}/journal");
    let journal = env.admin_gets(&path).await;
    assert_eq!(
        journal.body["data"][0]["actor"], "items-write",
        "{}",
        journal.body
    );
}

#[tested_in(open(options()))]
async fn an_admin_who_may_not_read_sees_what_anyone_sees(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let path = format!("/v1/items/{item}");
    for (scope, etag) in [(Scope::Read, true), (Scope::StockWrite, false)] {
        let answer = Answer::of(env.anyone(Method::GET, &path).bearer_auth(scope)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("etag").is_some(), etag, "{scope}");
    }
}
