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
    let calls = [
        (Method::GET, "/v1/items".into(), json!(null), Scope::Read),
        (
            Method::GET,
            "/v1/refunds-due".into(),
            json!(null),
            Scope::Read,
        ),
        (
            Method::POST,
            format!("/v1/items/{item}/orders:batch"),
            json!({}),
            Scope::OrdersPlace,
        ),
        (
            Method::POST,
            "/v1/carts".into(),
            json!({}),
            Scope::OrdersPlace,
        ),
        (Method::GET, "/v1/events".into(), json!(null), Scope::Read),
        (Method::GET, "/v1/journal".into(), json!(null), Scope::Read),
        (Method::GET, "/v1/webhooks".into(), json!(null), Scope::Read),
        (
            Method::POST,
            "/v1/webhooks".into(),
            json!({}),
            Scope::WebhooksWrite,
        ),
        (
            Method::POST,
            "/v1/items".into(),
            json!({}),
            Scope::ItemsWrite,
        ),
        (
            Method::PATCH,
            format!("/v1/items/{item}"),
            json!({ "nothing": 1 }),
            Scope::ItemsWrite,
        ),
        (
            Method::DELETE,
            format!("/v1/items/{item}"),
            json!(null),
            Scope::ItemsWrite,
        ),
        (
            Method::PUT,
            format!("/v1/items/{item}/state"),
            json!({}),
            Scope::ItemsWrite,
        ),
        (
            Method::POST,
            "/v1/buyers/nobody/erase".into(),
            json!(null),
            Scope::BuyersErase,
        ),
        (
            Method::POST,
            format!("/v1/items/{item}/archive"),
            json!({}),
            Scope::ItemsWrite,
        ),
        (
            Method::POST,
            format!("/v1/items/{item}/stock"),
            json!({}),
            Scope::StockWrite,
        ),
        (
            Method::PUT,
            format!("/v1/items/{item}/stock"),
            json!({}),
            Scope::StockWrite,
        ),
        (
            Method::GET,
            format!("/v1/items/{item}/journal"),
            json!(null),
            Scope::Read,
        ),
        (
            Method::GET,
            format!("/v1/items/{item}/audit"),
            json!(null),
            Scope::Read,
        ),
        (
            Method::GET,
            format!("/v1/orders/{order}"),
            json!(null),
            Scope::Read,
        ),
        (
            Method::POST,
            format!("/v1/orders/{order}/hold"),
            json!({ "seconds": 1 }),
            Scope::OrdersPlace,
        ),
        (
            Method::POST,
            "/v1/refunds-due/journal-0/done".into(),
            json!(null),
            Scope::RefundsWrite,
        ),
        (
            Method::POST,
            format!("/v1/orders/{order}/refund"),
            json!(null),
            Scope::RefundsWrite,
        ),
        (
            Method::DELETE,
            format!("/v1/orders/{order}"),
            json!(null),
            Scope::OrdersPlace,
        ),
    ];
    let cart = "2d0f5c0b-53dc-8690-8a2b-6181b5fbc615";
    let of_carts = [
        (Method::GET, "", json!(null), Scope::Read),
        (
            Method::POST,
            "/hold",
            json!({ "seconds": 1 }),
            Scope::OrdersPlace,
        ),
        (Method::DELETE, "", json!(null), Scope::OrdersPlace),
        (Method::POST, "/refund", json!(null), Scope::RefundsWrite),
    ];
    let of_carts = of_carts.map(|(method, part, body, scope)| {
        (method, format!("/v1/carts/{cart}{part}"), body, scope)
    });
    for (method, path, body, needed) in calls.iter().chain(&of_carts) {
        for scope in Scope::ALL {
            let request = call(&env, method, path, body).bearer_auth(scope);
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
