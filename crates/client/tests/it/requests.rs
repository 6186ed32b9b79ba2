//! What arrives at the service.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use client::{
    BuyerOrder, CartAmount, CartPayment, Client, HoldChange, IdempotencyKey, ItemPatch, ItemState,
    NewCart, NewItem, NewOrder, Payment, PaymentKey, Request, StockChange, Token,
};
use serde_json::Value;
use uuid::Uuid;

use crate::server::{Received, Scripted, Server};

const KEY: &str = "cart-7";
const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");

async fn receive(request: &Request) -> Received {
    let server = Server::start([Scripted::new(200, "{}")]).await;
    let client = Client::new(&server.url).unwrap();
    client.send(request).await.result.unwrap();
    server.received().remove(0)
}

fn key() -> IdempotencyKey {
    IdempotencyKey::new(KEY).unwrap()
}

/// A line of a batch.
fn line() -> BuyerOrder {
    BuyerOrder {
        buyer: "ann".into(),
        quantity: 1,
        key: key(),
        amount: Some(1499),
    }
}

fn requests(token: &Token) -> Vec<(Request, &'static str, &'static str)> {
    let id = Uuid::from_u128(1);
    let order = NewOrder::new("vase", 3).with_key(key());
    let cheap = NewCart::new().with("vase", 1).with_key(key());
    let add = StockChange::add(5).with_key(key());
    let patch = ItemPatch::default().limit_per_buyer(None);
    let cart = NewCart::new().with("vase", 1).with("bowl", 2);
    let cart = cart.with_key(key());
    let on_cart = |method: &str, rest: &str| -> &'static str {
        format!("{method} /v1/carts/{id}{rest}").leak()
    };
    let order_path = "/v1/orders/00000000-0000-0000-0000-000000000001";
    let on_order = |method: &str, rest: &str| -> &'static str {
        format!("{method} {order_path}{rest}").leak()
    };
    vec![
        (
            Request::place(token, &order),
            "POST /v1/items/vase/orders",
            r#"{"quantity":3}"#,
        ),
        (
            Request::place(token, &order.clone().with_amount(2494)),
            "POST /v1/items/vase/orders",
            r#"{"quantity":3,"amount":2494}"#,
        ),
        (
            Request::place_batch(token, "vase", &[line()]),
            "POST /v1/items/vase/orders:batch",
            r#"{"orders":[{"buyer":"ann","quantity":1,"key":"cart-7","amount":1499}]}"#,
        ),
        (
            Request::place_cart(token, &cheap.clone().with_amount(2494)),
            "POST /v1/carts",
            r#"{"lines":[{"item":"vase","quantity":1}],"amount":2494}"#,
        ),
        (
            Request::place_cart_for(token, "ann", &cheap.with_amount(CartAmount::Unchecked)),
            "POST /v1/carts",
            r#"{"buyer":"ann","lines":[{"item":"vase","quantity":1}],"amount":"unchecked"}"#,
        ),
        (Request::order(token, id), on_order("GET", ""), ""),
        (Request::cancel(token, id), on_order("DELETE", ""), ""),
        (Request::refund(token, id), on_order("POST", "/refund"), ""),
        (
            Request::place_cart(token, &cart),
            "POST /v1/carts",
            r#"{"lines":[{"item":"vase","quantity":1},{"item":"bowl","quantity":2}]}"#,
        ),
        (Request::cart(token, id), on_cart("GET", ""), ""),
        (
            Request::extend_cart(token, id, &HoldChange::seconds(1800)),
            on_cart("POST", "/hold"),
            r#"{"seconds":1800}"#,
        ),
        (
            Request::extend_hold(token, id, &HoldChange::session("cs_1")),
            on_order("POST", "/hold"),
            r#"{"session":"cs_1"}"#,
        ),
        (
            Request::extend_hold(token, id, &HoldChange::from(60).in_session("cs_1")),
            on_order("POST", "/hold"),
            r#"{"seconds":60,"session":"cs_1"}"#,
        ),
        (Request::cancel_cart(token, id), on_cart("DELETE", ""), ""),
        (
            Request::refund_cart(token, id),
            on_cart("POST", "/refund"),
            "",
        ),
        (
            Request::refund_cart_line(token, id, id),
            on_cart("POST", &format!("/lines/{id}/refund")),
            "",
        ),
        (
            Request::create_item(token, &NewItem::new("vase", 9)),
            "POST /v1/items",
            r#"{"id":"vase","stock":9}"#,
        ),
        (Request::item("vase", Some(token)), "GET /v1/items/vase", ""),
        (
            Request::patch_item(token, "vase", &patch, Some(4)),
            "PATCH /v1/items/vase",
            r#"{"limit_per_buyer":null}"#,
        ),
        (
            Request::set_state(token, "vase", ItemState::Paused, Some(4)),
            "PUT /v1/items/vase/state",
            r#"{"state":"paused"}"#,
        ),
        (
            Request::change_stock(token, "vase", &add),
            "POST /v1/items/vase/stock",
            r#"{"add":5}"#,
        ),
        (
            Request::set_stock(token, "vase", 7, 4),
            "PUT /v1/items/vase/stock",
            r#"{"stock":7}"#,
        ),
        (
            Request::audit(token, "vase"),
            "GET /v1/items/vase/audit",
            "",
        ),
        (
            Request::journal(token, "vase", &client::PageRequest::default().limit(7)),
            "GET /v1/items/vase/journal",
            "",
        ),
        (
            Request::service_journal(token, &client::PageRequest::default().limit(7)),
            "GET /v1/journal",
            "",
        ),
    ]
}

#[tokio::test]
async fn each_call_is_the_documented_request() {
    for (request, line, body) in requests(&Token::bearer("secret").unwrap()) {
        let received = receive(&request).await;
        assert_eq!(format!("{} {}", received.method, received.path), line);
        assert_eq!(received.body, body, "{line}");
        assert_eq!(received.header("authorization"), Some("Bearer secret"));
        let json = (!body.is_empty()).then_some("application/json");
        assert_eq!(received.header("content-type"), json, "{line}");
        let conditional = ["PATCH", "PUT"].contains(&received.method.as_str());
        let version = conditional.then_some("\"4\"");
        assert_eq!(received.header("if-match"), version, "{line}");
        let keyed = line.ends_with("/orders")
            || ["POST /v1/carts", "POST /v1/items/vase/stock"].contains(&line);
        let key = keyed.then_some(KEY);
        assert_eq!(received.header("idempotency-key"), key, "{line}");
    }
}

fn fields(object: Option<&Value>) -> BTreeSet<String> {
    object
        .unwrap()
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

/// What `scripts/client_rust.py` does not write: a schema, its place in the body, and the requests.
fn by_hand() -> Vec<(&'static str, &'static str, Vec<Request>)> {
    let (id, key) = (Uuid::from_u128(1), PaymentKey::new("Jefe"));
    let token = Token::bearer("secret").unwrap();
    let order = NewOrder::new("vase", 3).with_amount(1);
    let cart = NewCart::new().with("vase", 1).with_amount(1);
    let cart = Request::place_cart_for(&token, "ann", &cart);
    let paid = Payment::new("pay_1", id).amount(1).currency("EUR");
    let paid_cart = CartPayment::new("pay_1", id).amount(1).currency("EUR");
    let change = |change: StockChange| Request::change_stock(&token, "vase", &change);
    let changes = vec![
        change(StockChange::add(1)),
        change(StockChange::withdraw(1)),
    ];
    let state = Request::set_state(&token, "vase", ItemState::Open, None);
    let webhook = Request::create_webhook(&token, "https://shop.example", &[]);
    vec![
        ("NewCart", "", vec![cart.clone()]),
        ("NewCartLine", "/lines/0", vec![cart]),
        (
            "NewCartPayment",
            "",
            vec![Request::pay_cart(&key, &paid_cart)],
        ),
        ("NewOrder", "", vec![Request::place(&token, &order)]),
        (
            "NewOrders",
            "",
            vec![Request::place_batch(&token, "vase", &[line()])],
        ),
        ("NewPayment", "", vec![Request::pay(&key, id, &paid)]),
        ("NewState", "", vec![state]),
        (
            "NewStock",
            "",
            vec![Request::set_stock(&token, "vase", 7, 4)],
        ),
        ("StockMove", "", changes),
        ("WebhookRequest", "", vec![webhook]),
    ]
}

#[tokio::test]
async fn bodies_that_are_written_by_hand_have_the_fields_of_the_description() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    for (schema, part, requests) in by_hand() {
        let mut sent = BTreeSet::new();
        for request in requests {
            let body: Value = serde_json::from_str(&receive(&request).await.body).unwrap();
            sent.extend(fields(body.pointer(part)));
        }
        let properties = format!("/components/schemas/{schema}/properties");
        assert_eq!(sent, fields(description.pointer(&properties)), "{schema}");
    }
}

#[tokio::test]
async fn several_items_are_one_request_of_anyone() {
    let received = receive(&Request::items(["vase", "a b,c"])).await;
    let line = format!("{} {}", received.method, received.path);
    assert_eq!(line, "GET /v1/items:batch");
    assert_eq!(received.query.as_deref(), Some("ids=vase,a%20b%2Cc"));
    assert_eq!(received.header("authorization"), None);
}

#[tokio::test]
async fn only_an_order_that_asks_for_it_is_answered_before_it_is_recorded() {
    let token = Token::bearer("secret").unwrap();
    let order = NewOrder::new("vase", 1);
    let patient = receive(&Request::place(&token, &order)).await;
    assert_eq!(patient.header("prefer"), None);
    let hasty = receive(&Request::place(&token, &order.respond_async())).await;
    assert_eq!(hasty.header("prefer"), Some("respond-async"));
}

#[tokio::test]
async fn a_payment_is_signed_over_the_body_that_is_sent() {
    let (id, key) = (Uuid::from_u128(1), PaymentKey::new("Jefe"));
    let payment = Payment::new("pay_1", id).amount(250);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let before = now().as_secs();
    let received = receive(&Request::pay(&key, id, &payment)).await;
    let body = r#"{"payment":"pay_1","amount":250,"order":"00000000-0000-0000-0000-000000000001"}"#;
    assert_eq!(received.body, body);
    assert_eq!(received.header("authorization"), None);

    let signature = received.header("stockade-signature").unwrap();
    let seconds: u64 = signature.split([',', '=']).nth(1).unwrap().parse().unwrap();
    assert!((before..=now().as_secs()).contains(&seconds), "{seconds}");
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(signature, key.sign(body.as_bytes(), time));
}

#[tokio::test]
async fn the_version_of_an_item_is_read_from_its_etag_also_behind_a_proxy_that_compresses() {
    let body = r#"{"id":"vase","title":"vase","state":"open","stock":9,"available":4,"held":5,"confirmed":0,"returning":0,"withdrawing":0,"sold_out":false,"price":0,"currency":"USD","limit_per_buyer":null,"opens_at":null,"closes_at":null,"hold_seconds":900,"max_hold_seconds":3600,"max_per_order":null,"next_wave":null,"durability":"recorded","segments":[]}"#;
    for (etag, version) in [
        ("\"12\"", Some(12)),
        ("W/\"12\"", Some(12)),
        ("\"12-gzip\"", Some(12)),
        ("\"12;br\"", Some(12)),
        ("W/\"x\"", None),
        ("\"9a\"", None),
    ] {
        let response = Scripted {
            etag: Some(etag),
            ..Scripted::new(200, body)
        };
        let server = Server::start([response]).await;
        let client = Client::new(&server.url).unwrap();
        let item = client.item("vase").await.unwrap();
        assert_eq!((item.available, item.version), (4, version), "{etag}");
    }
}

#[tokio::test]
async fn an_order_or_a_cart_that_costs_something_else_is_not_the_one() {
    let body = r#""id":"0190a0b0-0000-8000-8000-000000000001","item":"vase","quantity":1,"state":"held","amount":2494,"currency":"USD","expires_at":"2026-01-01T00:00:00Z","lines":[{"item":"vase","order":"0190a0b0-0000-8000-8000-000000000002","quantity":1}]"#;
    let checked = format!("{{{body}}}");
    let unchecked = format!("{{{body},\"amount_check\":\"unchecked\"}}");
    for (amount, fits) in [(2494, true), (1999, false), (0, false)] {
        let server = Server::start([Scripted::new(201, &*checked)]).await;
        let buyer = Client::new(&server.url)
            .unwrap()
            .buyer(Token::bearer("secret").unwrap());
        let placed = buyer
            .place(&NewOrder::new("vase", 1).with_amount(amount))
            .await;
        assert_eq!(placed.is_ok(), fits, "{amount}: {placed:?}");
    }
    for (amount, answer, fits) in [
        (CartAmount::Of(2494), &checked, true),
        (CartAmount::Of(1999), &checked, false),
        (CartAmount::Unchecked, &checked, false),
        (CartAmount::Unchecked, &unchecked, true),
        (CartAmount::Of(2494), &unchecked, false),
    ] {
        let server = Server::start([Scripted::new(201, &**answer)]).await;
        let admin = Client::new(&server.url)
            .unwrap()
            .admin(Token::bearer("secret").unwrap());
        let cart = NewCart::new().with("vase", 1).with_amount(amount);
        let placed = admin.place_cart("ann", &cart).await;
        assert_eq!(placed.is_ok(), fits, "{amount:?}: {placed:?}");
    }
}
