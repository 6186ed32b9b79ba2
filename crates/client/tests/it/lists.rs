//! Lists are followed to their end, with the cursor of each page.

use client::{Client, OrderState, PageRequest, ProblemCode, RefundReason, RetryPolicy, Token};
use futures::TryStreamExt;

use crate::server::{ID, Scripted, Server, problem};

fn orders(buyers: &[&str], next: Option<&str>) -> Scripted {
    let row = |buyer: &&str| {
        format!(
            r#"{{"id":"{ID}","item":"vase","buyer":"{buyer}","state":"held","quantity":2,"amount":500,"currency":"EUR","payment":null,
                 "created_at":null,"expires_at":"2026-01-01T00:00:00Z","version":1}}"#
        )
    };
    page(buyers.iter().map(row).collect(), next)
}

fn page(rows: Vec<String>, next: Option<&str>) -> Scripted {
    let next = next.map_or("null".into(), |next| format!("\"{next}\""));
    let body = format!(r#"{{"data":[{}],"next":{next}}}"#, rows.join(","));
    Scripted::new(200, body)
}

fn client(server: &Server) -> Client {
    let client = Client::new(&server.url).unwrap();
    client.with_retry(RetryPolicy::never())
}

fn token() -> Token {
    Token::bearer("secret").unwrap()
}

fn queries(server: &Server) -> Vec<String> {
    let received = server.received().into_iter();
    received
        .map(|request| request.query.unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn a_stream_follows_the_cursor_of_each_page_and_passes_empty_pages() {
    let script = [
        orders(&["ann", "bob"], Some("c-1")),
        orders(&[], Some("c_2")),
        orders(&["cleo"], None),
    ];
    let server = Server::start(script).await;
    let admin = client(&server).admin(token());
    let rows = admin.all_item_orders("vase", Some(OrderState::Held));
    let rows: Vec<_> = rows.try_collect().await.unwrap();
    let buyers: Vec<_> = rows.iter().map(|row| row.buyer.as_deref()).collect();
    assert_eq!(buyers, [Some("ann"), Some("bob"), Some("cleo")]);
    assert_eq!((rows[0].amount, rows[0].created_at), (500, None));
    assert_eq!(
        queries(&server),
        [
            "state=held&limit=1000",
            "state=held&limit=1000&after=c-1",
            "state=held&limit=1000&after=c_2"
        ]
    );
    assert_eq!(server.received()[0].path, "/v1/items/vase/orders");
}

#[tokio::test]
async fn a_stream_ends_with_the_first_error() {
    let script = [
        orders(&["ann"], Some("c1")),
        problem(400, "invalid_request"),
    ];
    let server = Server::start(script).await;
    let mut rows = Box::pin(client(&server).buyer(token()).all_orders());
    assert!(rows.try_next().await.unwrap().is_some());
    let error = rows.try_next().await.unwrap_err();
    assert!(error.is(ProblemCode::InvalidRequest));
    assert!(rows.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn each_list_is_the_documented_request() {
    let refund = format!(
        r#"{{"id":"journal-7","reason":"unmatched_payment","order":"{ID}","item":"vase","buyer":null,"state":"confirmed","quantity":null,"idempotency_key":"refund-1",
             "payment":"pay-1","amount":null,"currency":"EUR","reported_at":"2026-01-01T00:00:00Z"}}"#
    );
    let item = r#"{"id":"vase","title":"vase","state":"open","stock":9,"available":4,"held":5,"confirmed":0,"returning":0,"price":0,
        "currency":"USD","limit_per_buyer":null,"opens_at":null,"closes_at":null,"hold_seconds":900,"max_hold_seconds":3600,"max_per_order":null,"next_wave":null,"durability":"recorded",
        "segment_count":1,"version":3}"#;
    let script = [
        page(vec![item.into()], None),
        page(vec![refund], Some("c1")),
        orders(&["ann"], None),
        orders(&["ann"], None),
    ];
    let server = Server::start(script).await;
    let (admin, buyer) = (
        client(&server).admin(token()),
        client(&server).buyer(token()),
    );
    let first = PageRequest::default();
    let items = admin.items(&first.clone().limit(7)).await.unwrap();
    assert_eq!((items.data[0].version, items.next), (3, None));
    let refunds = admin.refunds_due(&first).await.unwrap();
    assert_eq!(refunds.data[0].reason, RefundReason::UnmatchedPayment);
    let second = first.clone().after(refunds.next);
    admin.item_orders("vase", None, &second).await.unwrap();
    buyer.orders(&first).await.unwrap();
    let received: Vec<_> = server
        .received()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(
        received,
        [
            "/v1/items",
            "/v1/refunds-due",
            "/v1/items/vase/orders",
            "/v1/orders"
        ]
    );
    assert_eq!(queries(&server), ["limit=7", "", "after=c1", ""]);
}
