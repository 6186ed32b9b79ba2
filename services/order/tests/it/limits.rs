//! Requests that cost too much, and the end of the service.

use std::time::Duration;

use futures::future::join_all;
use order::Limits;
use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::shop::{Answer, Options, open};

fn strict() -> Options {
    let limits = Limits {
        head_within: Duration::from_millis(300),
        request_within: Duration::from_millis(500),
        headers: 20,
        ..Limits::default()
    };
    Options {
        limits,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_or_head_that_is_too_large_is_refused() {
    open(strict(), async |shop| {
        let item = shop.create(json!({ "stock": 1 })).await;
        let body = format!(r#"{{"quantity":1,"x":"{}"}}"#, "x".repeat(20_000));
        let order = shop
            .buyer("ann", Method::POST, &format!("/items/{item}/orders"))
            .header("Idempotency-Key", "k");
        Answer::of(order.body(body))
            .await
            .is(413, "payload_too_large");
        let held = shop.hold(&item, "ann", "k").await;
        let payment = shop.report(
            0,
            &held,
            &json!({ "payment": "pay-1", "x": "x".repeat(20_000) }),
        );
        Answer::of(payment).await.is(413, "payload_too_large");
        assert_eq!(shop.state_of(&held).await, "held");
        let many = (0..30).fold(shop.anyone(Method::GET, "/healthz"), |request, n| {
            request.header(format!("x-{n}"), "1")
        });
        assert_eq!(Answer::of(many).await.status, 431);
        let long = shop
            .anyone(Method::GET, "/healthz")
            .header("x-long", "x".repeat(40_000));
        assert_eq!(Answer::of(long).await.status, 431);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_come_is_not_waited_for() {
    open(strict(), async |shop| {
        let address = shop.urls[0].strip_prefix("http://").unwrap();
        let mut slow_head = TcpStream::connect(address).await.unwrap();
        slow_head.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(3), slow_head.read_to_end(&mut answer)).await;
        read.expect("the connection was left open").unwrap();

        let mut slow_body = TcpStream::connect(address).await.unwrap();
        let token = crate::shop::token("ann");
        let head = format!(
            "POST /items/x/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nidempotency-key: k\r\ncontent-length: 14\r\n\r\n{{\"quan"
        );
        slow_body.write_all(head.as_bytes()).await.unwrap();
        let mut start = vec![0; 12];
        let read = tokio::time::timeout(Duration::from_secs(3), slow_body.read_exact(&mut start)).await;
        read.expect("no answer").unwrap();
        assert_eq!(start, b"HTTP/1.1 408");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_ends_only_after_it_has_finished_what_it_took() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 500, "segments": 3 })).await;
        // Ends after the first answer: some requests are under way then, and some have not been sent.
        let (first, mut answered) = tokio::sync::mpsc::unbounded_channel();
        let orders = (0..200).map(|buyer| {
            let (order, first) = (
                shop.order_at(0, &item, &format!("buyer-{buyer}"), "k", 1),
                first.clone(),
            );
            async move {
                let answer = order
                    .send()
                    .await
                    .map(|response| response.status().as_u16());
                let _ = first.send(());
                answer
            }
        });
        let stop = async {
            answered.recv().await;
            shop.stop_serving();
        };
        let (answers, ()) = tokio::join!(join_all(orders), stop);
        let held = answers
            .iter()
            .filter(|answer| matches!(answer, Ok(201)))
            .count();
        assert!(
            held > 0 && answers.iter().flatten().all(|status| *status == 201),
            "who is taken in is answered: {answers:?}"
        );
        let report = shop.audit_without_http(&item).await;
        assert_eq!(
            (report.held, report.drift),
            (held as u64, 0),
            "what was taken was answered: {report:?}"
        );
        shop.forget_item(&item);
    })
    .await;
}
