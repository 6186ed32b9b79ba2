//! The contract of each API call, as tables.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey};
use order::{BuyerKey, Credentials, Limits};
use reqwest::Method;
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair},
};
use serde_json::{Value, json};
use testkit::{eventually, tested_in};
use tower::ServiceExt;

use crate::env::{ADMIN, Answer, Env, Options, SECRET, TestEnv, open, open_each, token};

#[tested_in(open_each(Options::default()))]
async fn an_order_is_held_and_a_repeat_is_the_same_order(env: Env) {
    let item = json!({ "stock": 10, "segments": 3, "hold_seconds": 60 });
    let item = env.create(item).await;
    let first = env.order(&item, "ann", "key-1", 2).await;
    first.is_held();
    assert_eq!(first.body["item"], json!(item));
    assert_eq!(first.body["quantity"], 2);
    let expires_at: jiff::Timestamp = first.body["expires_at"].as_str().unwrap().parse().unwrap();
    let hold = expires_at.as_second() - jiff::Timestamp::now().as_second();
    assert!((55..=61).contains(&hold), "{hold}");
    assert_eq!(first.header("idempotent-replayed"), None);
    let location = first.header("location").unwrap().to_owned();
    assert_eq!(
        location,
        format!("/v1/orders/{}", first.body["id"].as_str().unwrap())
    );

    let second = env.order(&item, "ann", "key-1", 2).await;
    assert_eq!((second.status, &second.body), (201, &first.body));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    assert_eq!(second.header("location"), Some(&*location));

    let refused = env.order(&item, "ann", "key-1", 1).await;
    refused.is(422, "idempotency_key_reused");
    let other = env.order(&item, "bob", "key-1", 2).await;
    assert_ne!(
        other.is_held().body["id"],
        first.body["id"],
        "another buyer's key is another order"
    );
}

#[tested_in(open(Options::default()))]
async fn an_order_is_shown_to_its_buyer_and_admins_only(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    let order = env.order(&item, "ann", "k", 1).await;
    let path = order.header("location").unwrap();
    let shown = env.buyer_gets("ann", path).await;
    assert_eq!((shown.status, &shown.body), (200, &order.body));
    let shown = env.admin_gets(path).await;
    let mut with_buyer = order.body.clone();
    with_buyer["buyer"] = json!("ann");
    assert_eq!((shown.status, &shown.body), (200, &with_buyer));
    env.buyer_gets("bob", path).await.is(404, "order_not_found");
    env.anyone_gets(path).await.is(401, "unauthorized");
    let nobodys = "/v1/orders/00000000-0000-8000-8000-000000000000";
    let refused = env.buyer_gets("ann", nobodys).await;
    refused.is(404, "order_not_found");
    let refused = env.admin_gets("/v1/orders/nonsense").await;
    refused.is(404, "order_not_found");
}

#[tested_in(open(Options::default()))]
async fn a_bad_order_is_refused_by_the_name_of_the_field_and_changes_nothing(env: Env) {
    const TWICE: &str = r#"{"quantity":1,"quantity":2}"#;
    let item = env.create(json!({ "stock": 5 })).await;
    let path = format!("/v1/items/{item}/orders");
    let bodies = [
        ("", "body"),
        ("nonsense", "body"),
        ("[]", "body"),
        ("{}", "quantity"),
        (r#"{"quantity":0}"#, "quantity"),
        (r#"{"quantity":-1}"#, "quantity"),
        (r#"{"quantity":1.5}"#, "quantity"),
        (r#"{"quantity":"1"}"#, "quantity"),
        (r#"{"quantity":null}"#, "quantity"),
        (r#"{"quantity":1000001}"#, "quantity"),
        (r#"{"quantity":99999999999999999999}"#, "quantity"),
        (r#"{"quantity":1,"colour":"red"}"#, "colour"),
        (TWICE, "quantity"),
        (r#"{"quantity":1}{"quantity":1}"#, "body"),
    ];
    for (body, field) in bodies {
        let request = env
            .buyer("ann", Method::POST, &path)
            .header("Idempotency-Key", "k")
            .body(body);
        let answer = Answer::of(request).await;
        answer.blames(field);
        let expected = if field == "quantity" && !["{}", TWICE].contains(&body) {
            "expected"
        } else {
            ""
        };
        assert!(
            answer.body["detail"].as_str().unwrap().contains(expected),
            "{answer:?}"
        );
    }
    let long = "x".repeat(256);
    for key in [None, Some(""), Some("two words"), Some(&*long)] {
        let request = env
            .buyer("ann", Method::POST, &path)
            .json(&json!({ "quantity": 1 }));
        let request = key.into_iter().fold(request, |request, key| {
            request.header("Idempotency-Key", key)
        });
        Answer::of(request).await.blames("Idempotency-Key");
    }
    let refused = env.order("no-such-item", "ann", "k", 1).await;
    refused.is(404, "item_not_found");
    let refused = env.order("no%20such%7Bitem", "ann", "k", 1).await;
    refused.is(404, "item_not_found");
    let refused = env.order("%ff", "ann", "k", 1).await;
    refused.is(404, "item_not_found");
    let refused = env.anyone_gets("/v1/items/%ff").await;
    refused.is(404, "item_not_found");
    let refused = env.buyer_gets("ann", "/v1/orders/%ff").await;
    refused.is(404, "order_not_found");
    let shown = env.admin_gets(&format!("/v1/items/{item}")).await;
    assert_eq!(shown.body["available"], 5);
}

#[tested_in(open(Options::default()))]
async fn only_valid_credentials_are_accepted(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let good = token("ann");
    let (head, signature) = good.rsplit_once('.').unwrap();
    let bad = [
        None,
        Some("Basic YW5uOmFubg==".to_owned()),
        Some("Bearer".into()),
        Some("Bearer nonsense".into()),
        Some(format!(
            "Bearer {head}.{}",
            signature.chars().rev().collect::<String>()
        )),
        Some("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.".into()),
    ];
    for authorization in &bad {
        let with = |request: reqwest::RequestBuilder| {
            authorization.iter().fold(request, |request, value| {
                request.header("Authorization", value)
            })
        };
        let order = env
            .anyone(Method::POST, &format!("/v1/items/{item}/orders"))
            .header("Idempotency-Key", "k")
            .json(&json!({ "quantity": 1 }));
        let answer = Answer::of(with(order)).await;
        assert_eq!(
            answer.is(401, "unauthorized").header("www-authenticate"),
            Some("Bearer"),
            "{authorization:?}"
        );
        let create = env
            .anyone(Method::POST, "/v1/items")
            .json(&json!({ "id": "x", "stock": 1 }));
        Answer::of(with(create)).await.is(401, "unauthorized");
    }
    let calls = [
        (Method::POST, "/v1/items".to_owned()),
        (Method::PUT, format!("/v1/items/{item}/state")),
        (Method::GET, format!("/v1/items/{item}/audit")),
    ];
    for (method, path) in calls {
        Answer::of(env.buyer("ann", method, &path).json(&json!({})))
            .await
            .is(403, "forbidden");
    }
    let order = env
        .admin(Method::POST, &format!("/v1/items/{item}/orders"))
        .header("Idempotency-Key", "k")
        .json(&json!({ "quantity": 1 }));
    Answer::of(order).await.is(401, "unauthorized");
    let lower = env
        .anyone(Method::GET, &format!("/v1/items/{item}/audit"))
        .header("authorization", format!("bearer {ADMIN}"));
    assert_eq!(
        Answer::of(lower).await.status,
        200,
        "the scheme's case does not matter"
    );
}

// Keys for these tests only.
const ED_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIIKf+eUnecANgf4XrwEzPQD0tW4a8M4OykzIrsPL06n4
-----END PRIVATE KEY-----
";
const ED_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAxMq0KvGHQvWQqAp/4pMFo3qUwm53Z3iamHLt4EVIVs4=
-----END PUBLIC KEY-----
";
const EC_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgh/rsGRmZ1JfX1/0u
jyuEPdLe2Scn4Qfi2uyVQ42X8cuhRANCAAQ69cjye4S3IOvzflhlIb5Fht19iW9L
6r42sny8e3DbZMnRt44/0YKfAvujCq9LZOwO/6cZ+WaMN3svDlgGqjB7
-----END PRIVATE KEY-----
";
const EC_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEOvXI8nuEtyDr835YZSG+RYbdfYlv
S+q+NrJ8vHtw22TJ0beOP9GCnwL7owqvS2TsDv+nGflmjDd7Lw5YBqowew==
-----END PUBLIC KEY-----
";

#[tested_in(open(Options::default()))]
async fn a_public_key_verifies_tokens_and_signs_none(env: Env) {
    let ed = (
        Algorithm::EdDSA,
        EncodingKey::from_ed_pem(ED_PRIVATE.as_bytes()).unwrap(),
    );
    let ec = (
        Algorithm::ES256,
        EncodingKey::from_ec_pem(EC_PRIVATE.as_bytes()).unwrap(),
    );
    for (public, own, others) in [(ED_PUBLIC, &ed, &ec), (EC_PUBLIC, &ec, &ed)] {
        let router = router_with(&env, public);
        // If the service used the public key as a shared secret, any client could sign with it.
        let forged = (
            Algorithm::HS256,
            EncodingKey::from_secret(public.as_bytes()),
        );
        let trimmed = (
            Algorithm::HS256,
            EncodingKey::from_secret(public.trim().as_bytes()),
        );
        for ((algorithm, key), expected) in
            [(own, 404), (others, 401), (&forged, 401), (&trimmed, 401)]
        {
            let token = signed(*algorithm, key, &json!({ "sub": "ann", "exp": 4e9 }));
            assert_eq!(
                status_of(&router, &token).await,
                expected,
                "{algorithm:?} for {public}"
            );
        }
    }
    assert!(Credentials::new(&BuyerKey::PublicKey(b"a secret".into()), ADMIN).is_err());
}

/// That of the default policy.
const LEEWAY_SECONDS: f64 = 30.0;

#[tested_in(open(Options::default()))]
async fn a_refused_token_is_told_which_claim_is_wrong(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let key = EncodingKey::from_secret(SECRET);
    let now = jiff::Timestamp::now().as_second();
    for (claims, expected) in [
        (json!({ "nbf": now + 7200, "exp": now + 9000 }), "nbf is 7"),
        (json!({ "iat": now + 7200, "exp": now + 9000 }), "iat is 7"),
        (json!({ "exp": now - 60 }), "exp was"),
        (json!({ "exp": "soon" }), "exp is no number"),
        (json!({}), "missing field `exp`"),
        (
            json!({ "sub": "..", "exp": now + 60 }),
            "sub: expected another name",
        ),
    ] {
        let mut all = json!({ "sub": "ann" });
        all.as_object_mut()
            .unwrap()
            .extend(claims.as_object().unwrap().clone());
        let request = env
            .anyone(Method::POST, &format!("/v1/items/{item}/orders"))
            .header("Idempotency-Key", "k")
            .bearer_auth(signed(Algorithm::HS256, &key, &all))
            .json(&json!({ "quantity": 1 }));
        let refused = Answer::of(request).await;
        let detail = refused.is(401, "unauthorized").body["detail"].as_str();
        assert!(detail.unwrap().contains(expected), "{claims}: {detail:?}");
    }
}

#[tested_in(open(Options::default()))]
async fn a_header_that_comes_twice_is_refused_and_none_of_the_two_counts(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let path = format!("/v1/items/{item}/orders");
    for second in ["other", "key"] {
        let request = env
            .buyer("ann", Method::POST, &path)
            .header("Idempotency-Key", "key")
            .header("Idempotency-Key", second)
            .json(&json!({ "quantity": 1 }));
        let refused = Answer::of(request).await;
        refused.blames("Idempotency-Key");
    }
    let lines = json!({ "lines": [{ "item": item, "quantity": 1 }] });
    let cart = env
        .buyer("ann", Method::POST, "/v1/carts")
        .header("Idempotency-Key", "key")
        .header("Idempotency-Key", "other");
    let cart = Answer::of(cart.json(&lines)).await;
    cart.blames("Idempotency-Key");
    for first in [token("ann"), ADMIN.to_owned()] {
        let request = env
            .anyone(Method::POST, &path)
            .bearer_auth(first)
            .bearer_auth(token("bob"))
            .header("Idempotency-Key", "key")
            .json(&json!({ "quantity": 1 }));
        let refused = Answer::of(request).await;
        let detail = refused.is(401, "unauthorized").body["detail"].as_str();
        assert!(
            detail.unwrap().contains("Authorization: expected"),
            "{detail:?}"
        );
    }
    let both = env.admin(Method::GET, &path).bearer_auth(token("ann"));
    Answer::of(both).await.is(401, "unauthorized");
    let orders = env.admin_gets(&path).await;
    assert_eq!(orders.body["data"], json!([]), "nothing was ordered");
}

#[tested_in(open(Options::default()))]
async fn a_name_that_no_url_can_have_in_its_path_is_refused(env: Env) {
    for dots in [".", ".."] {
        let create = env
            .admin(Method::POST, "/v1/items")
            .json(&json!({ "id": dots, "stock": 1 }));
        let refused = Answer::of(create).await;
        refused.blames("id");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains("no URL can have"), "{detail}");
    }
    let item = env.create(json!({ "stock": 5 })).await;
    let orders = json!({ "orders": [
        { "buyer": "..", "quantity": 1, "key": "k" },
        { "buyer": "...", "quantity": 1, "key": "k" },
    ] });
    let batch = env
        .admin(Method::POST, &format!("/v1/items/{item}/orders:batch"))
        .json(&orders);
    let results = &Answer::of(batch).await.body["results"];
    assert_eq!(results[0]["status"], 400);
    assert_eq!(results[0]["field"], "buyer");
    assert_eq!(results[1]["status"], 201, "{results}");
}

#[tested_in(open(Options::default()))]
async fn an_item_that_an_earlier_release_has_named_with_dots_stays_readable(env: Env) {
    let id = domain::ItemId::new("..").unwrap();
    let like = env.create(json!({ "stock": 3 })).await.parse().unwrap();
    let like = env.engines[0].item(&like).await.unwrap().unwrap();
    let old = domain::Item { id, ..like };
    // Only in the ledger, which is the test's own.
    let engine = &env.engines[0];
    engine.ledger.create_item(&old).await.unwrap();
    assert_eq!(engine.item(&old.id).await.unwrap().unwrap().id, old.id);
    let list = env.admin_gets("/v1/items?limit=1000").await;
    let mut rows = list.rows().iter();
    assert!(rows.any(|row| row["id"] == ".."), "{list:?}");
}

#[tested_in(open(Options::default()))]
async fn a_token_is_valid_from_nbf_to_exp(env: Env) {
    let (router, key) = (
        router_with(&env, ED_PUBLIC),
        EncodingKey::from_ed_pem(ED_PRIVATE.as_bytes()).unwrap(),
    );
    let now = jiff::Timestamp::now().as_second() as f64;
    let table = [
        (json!({}), 401),
        (json!({ "exp": now + 60.0 }), 404),
        (json!({ "exp": now + 60.5 }), 404),
        (json!({ "exp": now - 0.5 }), 401),
        (json!({ "exp": -1 }), 401),
        (json!({ "exp": "tomorrow" }), 401),
        (json!({ "nbf": now - 0.5, "exp": now + 60.0 }), 404),
        (json!({ "nbf": now + 20.5, "exp": now + 90.0 }), 404),
        (json!({ "iat": now + 20.5, "exp": now + 90.0 }), 404),
        (json!({ "nbf": now + 3600.0, "exp": now + 7200.0 }), 401),
        (json!({ "iat": now + 3600.0, "exp": now + 7200.0 }), 401),
        (json!({ "nbf": "yesterday", "exp": now + 60.0 }), 401),
        (json!({ "nbf": now - 60.0, "exp": now - 30.0 }), 401),
    ];
    for (mut claims, expected) in table {
        claims["sub"] = json!("ann");
        let token = signed(Algorithm::EdDSA, &key, &claims);
        for _ in 0..2 {
            assert_eq!(
                status_of(&router, &token).await,
                expected,
                "{claims}, also from the cache"
            );
        }
    }
    let seconds = || jiff::Timestamp::now().as_duration().as_secs_f64();
    let mut ahead = 0.7;
    let (early, late, nearly) = loop {
        let nearly = seconds() + ahead;
        let nbf = nearly + LEEWAY_SECONDS;
        let early = json!({ "sub": "ann", "nbf": nbf, "exp": nearly + 3600.0 });
        let early = signed(Algorithm::EdDSA, &key, &early);
        let late = json!({ "sub": "ann", "exp": nearly });
        let late = signed(Algorithm::EdDSA, &key, &late);
        let statuses = (
            status_of(&router, &early).await,
            status_of(&router, &late).await,
        );
        if seconds() < nearly {
            assert_eq!(statuses, (401, 404));
            break (early, late, nearly);
        }
        // The machine was too busy to ask in time.
        ahead *= 4.0;
    };
    let left = (nearly - seconds()).max(0.0) + 0.1;
    tokio::time::sleep(std::time::Duration::from_secs_f64(left)).await;
    assert_eq!(
        (
            status_of(&router, &early).await,
            status_of(&router, &late).await
        ),
        (404, 401),
        "the cache does not stop the clock"
    );
}

fn router_with(env: &TestEnv, public_key: &str) -> axum::Router {
    let credentials = Credentials::new(&BuyerKey::PublicKey(public_key.into()), ADMIN).unwrap();
    order::router(
        Arc::clone(&env.engines[0]),
        Arc::new(credentials),
        order::PaymentKeys::default(),
        None,
        &Limits::default(),
    )
    .into()
}

fn signed(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(json!({ "alg": algorithm }).to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = match algorithm {
        Algorithm::EdDSA => Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.inner())
            .unwrap()
            .sign(text.as_bytes())
            .as_ref()
            .to_vec(),
        Algorithm::ES256 => {
            let random = SystemRandom::new();
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.inner(), &random)
                .unwrap()
                .sign(&random, text.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec()
        }
        _ => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.inner());
            hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
        }
    };
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// 404 for a valid buyer, because there is no such order; 401 for other callers.
async fn status_of(router: &axum::Router, token: &str) -> u16 {
    let request =
        http::Request::get("/v1/orders/none").header("authorization", format!("Bearer {token}"));
    let response = router
        .clone()
        .oneshot(request.body(axum::body::Body::empty()).unwrap())
        .await;
    response.unwrap().status().as_u16()
}

#[tested_in(open_each(Options::default()))]
async fn creating_an_item_is_idempotent_and_refused_with_another_body(env: Env) {
    let body = json!({ "stock": 7, "title": "Vase", "price": 100, "currency": "CNY", "limit_per_buyer": 2, "segments": 3,
        "opens_at": "2020-01-01T00:00:00.123Z", "closes_at": "2099-01-01T00:00:00Z", "hold_seconds": 60, "durability": "recorded" });
    let id = env.create(body.clone()).await;
    let mut same = body.clone();
    same["id"] = json!(id);
    let again = env.admin_posts("/v1/items", &same).await;
    assert_eq!((again.status, &again.body["stock"]), (201, &json!(7)));
    env.order(&id, "ann", "k", 1).await.is_held();
    same["opens_at"] = json!("2020-01-01T00:00:00.123456789Z");
    let later = env.admin_posts("/v1/items", &same).await;
    assert_eq!(
        (later.status, &later.body["available"]),
        (201, &json!(6)),
        "what was sold stays sold"
    );
    for (field, value) in [
        ("stock", json!(8)),
        ("title", json!("Other")),
        ("segments", json!(2)),
        ("limit_per_buyer", json!(null)),
    ] {
        let mut other = same.clone();
        other[field] = value;
        let refused = env.admin_posts("/v1/items", &other).await;
        refused.is(409, "item_exists");
    }
    let shown = env.anyone_gets(&format!("/v1/items/{id}")).await;
    for field in [
        "title",
        "stock",
        "price",
        "currency",
        "limit_per_buyer",
        "opens_at",
        "closes_at",
        "hold_seconds",
        "durability",
    ] {
        assert_eq!(shown.body[field], body[field], "{field}");
    }
}

#[tested_in(open(Options::default()))]
async fn a_bad_item_is_refused_by_the_name_of_the_field(env: Env) {
    let refused = async |item: &Value, field: &str| {
        env.admin_posts("/v1/items", item).await.blames(field);
    };
    refused(&json!({ "stock": 1 }), "id").await;
    refused(&json!({ "id": "x" }), "stock").await;
    let wave = json!([{ "at": "2027-07-01T10:00:00+01:00[Europe/Berlin]", "units": 1 }]);
    refused(
        &json!({ "id": "x", "stock": 1, "waves": wave }),
        "waves[0].at",
    )
    .await;
    let [opens_at, closes_at] = ["2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z"];
    let backwards = json!({ "id": "x", "stock": 1, "opens_at": opens_at, "closes_at": closes_at });
    refused(&backwards, "closes_at").await;
    for (field, value) in [
        ("id", json!("")),
        ("id", json!("a b")),
        ("id", json!("a{b}")),
        ("id", json!("x".repeat(65))),
        ("id", json!(7)),
        ("id", json!(".")),
        ("stock", json!(-1)),
        ("stock", json!("many")),
        ("stock", json!(1_000_000_000_001_u64)),
        ("title", json!("")),
        ("title", json!("x".repeat(201))),
        ("title", json!("a\u{0}b")),
        ("price", json!(-5)),
        ("currency", json!("usd")),
        ("limit_per_buyer", json!(0)),
        ("segments", json!(0)),
        ("segments", json!(257)),
        ("opens_at", json!("tomorrow")),
        (
            "opens_at",
            json!("2027-07-01T10:00:00+01:00[Europe/Berlin]"),
        ),
        (
            "closes_at",
            json!("2027-07-01T10:00:00+01:00[!Europe/Berlin]"),
        ),
        ("closes_at", json!("2027-07-01T10:00:00+01:00[No/Where]")),
        ("closes_at", json!("1970-01-01T00:00:00Z")),
        ("opens_at", json!("-004714-01-01T00:00:00Z")),
        ("closes_at", json!("9999-01-01T00:00:00Z")),
        ("hold_seconds", json!(0)),
        ("durability", json!("eternal")),
        ("colour", json!("red")),
    ] {
        let mut item = json!({ "id": "x", "stock": 1 });
        item[field] = value;
        refused(&item, field).await;
    }
    let answer = env.anyone_gets("/v1/items/x").await;
    answer.is(404, "item_not_found");
}

#[tested_in(open(Options::default()))]
async fn an_item_has_sensible_defaults(env: Env) {
    let id = env.create(json!({ "stock": 5 })).await;
    let shown = env.anyone_gets(&format!("/v1/items/{id}")).await.body;
    let expected = json!({ "id": id, "title": id, "state": "open", "stock": 5, "available": 5, "held": 0, "confirmed": 0, "returning": 0,
        "sold_out": false, "price": 0, "currency": "USD", "limit_per_buyer": null, "opens_at": null, "closes_at": null, "hold_seconds": 900,
        "max_hold_seconds": 900, "max_per_order": null, "next_wave": null, "durability": "recorded" });
    assert_eq!(shown, expected);
    let admin = env.admin_gets(&format!("/v1/items/{id}")).await.body;
    assert_eq!(
        admin["segments"].as_array().unwrap().len(),
        1,
        "one master, one segment"
    );
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn an_item_sells_only_while_it_is_open(env: Env) {
    let item = env.create(json!({ "stock": 5, "segments": 2 })).await;
    let before = env.order(&item, "ann", "before", 1).await;
    before.is_held();
    for state in ["paused", "closed"] {
        env.put_state(&item, state).await;
        let refused = Answer::of(env.order_at(1, &item, "ann", state, 1)).await;
        assert_eq!(refused.is(409, "not_open").body["state"], state);
        assert!(
            refused.body["opens_at"].is_null()
                && refused.body.as_object().unwrap().contains_key("opens_at")
        );
        let replay = env.order(&item, "ann", "before", 1).await;
        assert_eq!(
            replay.is_held().body,
            before.body,
            "a repeat has the recorded decision"
        );
    }
    env.put_state(&item, "open").await;
    env.order(&item, "ann", "paused", 1).await.is_held();
    let wrong = [
        json!({}),
        json!({ "state": "ajar" }),
        json!({ "state": 1 }),
        json!({ "state": null }),
    ];
    for body in wrong {
        let request = env.admin(Method::PUT, &format!("/v1/items/{item}/state"));
        Answer::of(request.json(&body)).await.blames("state");
    }
    let missing = env.set_state("no-such-item", "open").await;
    missing.is(404, "item_not_found");
}

#[tested_in(open(Options::default()))]
async fn an_item_sells_only_inside_its_window(env: Env) {
    let early = json!({ "stock": 5, "opens_at": "2099-01-01T00:00:00Z" });
    let early = env.create(early).await;
    let answer = env.order(&early, "ann", "k", 1).await;
    assert_eq!(
        answer.is(409, "not_open").body["opens_at"],
        "2099-01-01T00:00:00Z"
    );
    let late = json!({ "stock": 5, "closes_at": "2020-01-01T00:00:00Z" });
    let late = env.create(late).await;
    env.order(&late, "ann", "k", 1).await.is(409, "not_open");

    let opens_at = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1500);
    let soon = json!({ "stock": 5, "opens_at": opens_at });
    let soon = env.create(soon).await;
    eventually("the opening of the sale", async || {
        let order = env.order(&soon, "ann", "k", 1).await;
        if order.status != 201 {
            order.is(409, "not_open");
            return false;
        }
        assert!(jiff::Timestamp::now() >= opens_at);
        true
    })
    .await;
}

#[tested_in(open(Options::default()))]
async fn the_api_documentation_needs_no_internet(env: Env) {
    let api = env.anyone_gets("/openapi.json").await.body;
    let calls = [
        ("/v1/items", "get"),
        ("/v1/items", "post"),
        ("/v1/items:batch", "get"),
        ("/v1/items/{item}", "get"),
        ("/v1/items/{item}", "patch"),
        ("/v1/items/{item}", "delete"),
        ("/v1/items/{item}/state", "put"),
        ("/v1/items/{item}/stock", "post"),
        ("/v1/items/{item}/stock", "put"),
        ("/v1/items/{item}/archive", "post"),
        ("/v1/items/{item}/journal", "get"),
        ("/v1/items/{item}/orders", "get"),
        ("/v1/buyers/{buyer}/erase", "post"),
        ("/v1/items/{item}/orders", "post"),
        ("/v1/items/{item}/orders:batch", "post"),
        ("/v1/items/{item}/audit", "get"),
        ("/v1/orders", "get"),
        ("/v1/refunds-due", "get"),
        ("/v1/refunds-due/{id}/done", "post"),
        ("/v1/orders/{order}", "get"),
        ("/v1/orders/{order}", "delete"),
        ("/v1/orders/{order}/hold", "post"),
        ("/v1/orders/{order}/payment", "post"),
        ("/v1/orders/{order}/refund", "post"),
        ("/v1/carts", "get"),
        ("/v1/carts", "post"),
        ("/v1/carts/{cart}", "get"),
        ("/v1/carts/{cart}", "delete"),
        ("/v1/carts/{cart}/hold", "post"),
        ("/v1/carts/{cart}/payment", "post"),
        ("/v1/carts/{cart}/refund", "post"),
        ("/v1/carts/{cart}/lines/{order}/refund", "post"),
        ("/v1/journal", "get"),
        ("/v1/events", "get"),
        ("/v1/webhooks", "get"),
        ("/v1/webhooks", "post"),
        ("/v1/webhooks/stripe", "post"),
        ("/v1/webhooks/{webhook}", "delete"),
        ("/v1/webhooks/{webhook}/enable", "post"),
        ("/v1/webhooks/{webhook}/test", "post"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    ];
    for (path, method) in calls {
        assert!(api["paths"][path][method].is_object(), "{method} {path}");
    }
    let described: usize = api["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|path| path.as_object().unwrap().len())
        .sum();
    assert_eq!(described, calls.len());
    for code in ["sold_out", "buyer_limit_reached", "not_open"] {
        let conflict =
            api["paths"]["/v1/items/{item}/orders"]["post"]["responses"]["409"]["description"]
                .as_str()
                .unwrap();
        assert!(conflict.contains(code));
    }
    for page in [
        "/docs/",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
    ] {
        let answer = env.anyone_gets(page).await;
        assert_eq!(answer.status, 200, "{page}");
        let text = answer.body.as_str().unwrap_or_default();
        assert!(page != "/docs/" || !text.contains("src=\"http"), "{text}");
    }
}

#[tested_in(open(Options::default()))]
async fn operators_see_health_readiness_and_metrics(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    env.order(&item, "ann", "k", 1).await.is_held();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(env.anyone_gets(path).await.status, 200, "{path}");
    }
    let metrics = env.anyone_gets("/metrics").await;
    let text = metrics.body.as_str().unwrap();
    for name in [
        "stockade_orders_total{outcome=\"held\"}",
        "stockade_order_seconds_bucket",
        "stockade_batch_orders_bucket",
        "http_server_request_duration_seconds_bucket{http_route=\"/v1/items/{item}/orders\",http_response_status_code=\"201\"",
        "http_server_request_duration_seconds_bucket{http_route=\"/readyz\",http_response_status_code=\"200\"",
        "stockade_build_info{version=",
        "process_open_fds ",
    ] {
        assert!(text.contains(name), "{name}");
    }
    for path in ["/no/such/path", "/docs/no-such-page", "/docs/%ff"] {
        env.anyone_gets(path).await.is(404, "not_found");
    }
    for (method, path) in [
        (Method::DELETE, "/v1/items"),
        (Method::POST, "/openapi.json"),
        (Method::POST, "/docs/"),
    ] {
        let refused = Answer::of(env.anyone(method, path)).await;
        refused.is(405, "method_not_allowed");
    }
}

#[tested_in(open(Options::default()))]
async fn pages_say_what_they_may_run_and_nothing_is_taken_for_another_kind(env: Env) {
    for path in [
        "/docs/",
        "/docs/no-such-page",
        "/docs/problems",
        "/openapi.json",
        "/metrics",
    ] {
        let answer = env.anyone_gets(path).await;
        let nosniff = answer.header("x-content-type-options");
        assert_eq!(nosniff, Some("nosniff"), "{path}");
        if !path.starts_with("/docs") {
            continue;
        }
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
        let policy = answer.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
    }
}

#[tested_in(open(Options::default()))]
async fn a_problem_refers_to_its_page_and_to_its_request(env: Env) {
    let item = env.create(json!({ "stock": 0 })).await;
    let sold_out = env.order(&item, "ann", "k", 1).await;
    let page = env.anyone_gets("/docs/problems").await;
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    let page = page.body.as_str().unwrap();
    let missing = env.anyone_gets("/v1/items/no-such-item").await;
    for problem in [&sold_out, &missing] {
        let kind = problem.body["type"].as_str().unwrap();
        assert_eq!(kind, format!("/docs/problems#{}", problem.code()));
        assert!(page.contains(&format!("id=\"{}\"", problem.code())));
    }
    let id = missing.header("x-request-id").unwrap();
    assert_eq!(missing.body["instance"], format!("urn:request:{id}"));
    assert_ne!(sold_out.header("x-request-id"), Some(id));

    let named = |id| {
        env.anyone(Method::GET, "/healthz")
            .header("X-Request-Id", id)
    };
    let given = Answer::of(named("shop-7")).await;
    assert_eq!(given.header("x-request-id"), Some("shop-7"));
    let unfit = Answer::of(named("two words")).await;
    assert_ne!(unfit.header("x-request-id"), Some("two words"));
}
