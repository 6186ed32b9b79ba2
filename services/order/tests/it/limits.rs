//! Limits of requests, and shutdown.

use std::{io::ErrorKind, time::Duration};

use futures::future::join_all;
use order::Limits;
use reqwest::Method;
use serde_json::json;
use testkit::{eventually, in_time, tested_in, timeout};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::TcpStream,
};

use crate::env::{Answer, Env, Options, open, patient};

pub fn within(limits: Limits) -> Options {
    Options {
        limits,
        ..Options::default()
    }
}

#[tested_in(open(within(Limits {
    headers: 20,
    ..patient()
})))]
async fn a_body_or_head_that_is_too_large_is_refused(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    let body = format!(r#"{{"quantity":1,"x":"{}"}}"#, "x".repeat(20_000));
    let order = env
        .buyer("ann", Method::POST, &format!("/v1/items/{item}/orders"))
        .header("Idempotency-Key", "k");
    let refused = Answer::of(order.body(body)).await;
    refused.is(413, "payload_too_large");
    let held = env.hold(&item, "ann", "k").await;
    let payment = env.report(
        0,
        &held,
        &json!({ "payment": "pay-1", "x": "x".repeat(20_000) }),
    );
    Answer::of(payment).await.is(413, "payload_too_large");
    assert_eq!(env.state_of(&held).await, "held");
    let many = (0..30).fold(env.anyone(Method::GET, "/healthz"), |request, n| {
        request.header(format!("x-{n}"), "1")
    });
    assert_eq!(Answer::of(many).await.status, 431);
    let long = env
        .anyone(Method::GET, "/healthz")
        .header("x-long", "x".repeat(40_000));
    assert_eq!(Answer::of(long).await.status, 431);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_request_times_out() {
    let limits = Limits {
        head_timeout: Duration::from_millis(600),
        ..patient()
    };
    open(within(limits), async |env| {
        let address = env.urls[0].strip_prefix("http://").unwrap();
        let mut slow_head = TcpStream::connect(address).await.unwrap();
        slow_head
            .write_all(b"GET /healthz HTTP/1.1\r\nhost:")
            .await
            .unwrap();
        let mut answer = Vec::new();
        let read = in_time(
            "the end of the connection",
            slow_head.read_to_end(&mut answer),
        );
        read.await.unwrap();
    })
    .await;
    let limits = Limits {
        request_timeout: Duration::from_millis(1500),
        ..patient()
    };
    open(within(limits), async |env| {
        let address = env.urls[0].strip_prefix("http://").unwrap();
        let mut slow_body = TcpStream::connect(address).await.unwrap();
        let token = crate::env::token("ann");
        let head = format!(
            "POST /v1/items/x/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nidempotency-key: k\r\ncontent-length: 14\r\n\r\n{{\"quan"
        );
        slow_body.write_all(head.as_bytes()).await.unwrap();
        let mut start = vec![0; 12];
        let read = in_time("the answer", slow_body.read_exact(&mut start));
        read.await.unwrap();
        assert_eq!(start, b"HTTP/1.1 408");
    })
    .await;
}

#[tested_in(open(Options::default()))]
async fn shutdown_drains_the_requests_that_were_accepted(env: Env) {
    let item = env.create(json!({ "stock": 500, "segments": 3 })).await;
    // Stops after the first response: at that time some requests are under way, and some have
    // not been sent.
    let (first, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let orders = (0..200).map(|buyer| {
        let (order, first) = (
            env.order_at(0, &item, &format!("buyer-{buyer}"), "k", 1),
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
        env.stop_serving();
    };
    let (answers, ()) = tokio::join!(join_all(orders), stop);
    let held = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(201)))
        .count();
    assert!(
        held > 0 && answers.iter().flatten().all(|status| *status == 201),
        "accepted requests are answered: {answers:?}"
    );
    let report = env.audit_without_http(&item).await;
    assert_eq!(
        (report.held, report.drift),
        (held as u64, 0),
        "orders that took units were answered: {report:?}"
    );
    env.forget_item(&item);
}

/// The descriptor limit keeps connections back for the stores; the test sets the bound itself.
fn crowded(connections: usize) -> Options {
    within(Limits {
        connections: Some(connections),
        // No silent connection makes room by its time-out.
        head_timeout: Duration::from_secs(3600),
        idle_timeout: Duration::from_secs(3600),
        ..patient()
    })
}

pub async fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.trim_start_matches("http://"))
        .await
        .unwrap()
}

/// Whether the server has closed the connection.
pub fn is_closed(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[tested_in(open(crowded(16)))]
async fn silent_connections_make_room_for_those_that_send_requests(env: Env) {
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(connect(&env.urls[0]).await);
    }
    for _ in 0..5 {
        // A new connection each time.
        let healthy = reqwest::Client::new()
            .get(format!("{}/healthz", env.urls[0]))
            .timeout(timeout())
            .send();
        assert_eq!(healthy.await.unwrap().status(), 200);
    }
    eventually("the end of all silent connections but 16", async || {
        silent.iter().filter(|stream| !is_closed(stream)).count() <= 16
    })
    .await;
}

/// The bound is counted in requests and not by the clock: a service without one fails soon, too.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_above_the_bound_are_closed_beside_requests() {
    const REQUESTS: usize = 1000;
    open(crowded(16), async |env| {
        let mut silent = Vec::new();
        for _ in 0..32 {
            silent.push(connect(&env.urls[0]).await);
        }
        let open = || silent.iter().filter(|stream| !is_closed(stream)).count();
        let mut answered = 0;
        while open() > 16 && answered < REQUESTS {
            let healthy = env.anyone(Method::GET, "/healthz").send().await;
            assert_eq!(healthy.unwrap().status(), 200);
            answered += 1;
        }
        assert!(open() <= 16, "{} after {answered} requests", open());
    })
    .await;
}

/// The number of bytes until the connection ends, or until there are so many.
async fn bytes_of(stream: &mut TcpStream, most: usize) -> usize {
    let (mut received, mut space) = (0, vec![0; 65_536]);
    while received < most {
        match stream.read(&mut space).await {
            Ok(0) | Err(_) => break,
            Ok(read) => received += read,
        }
    }
    received
}

/// The end would otherwise wait behind what the client does not take, and the system would keep both
/// for minutes.
#[tested_in(open(within(Limits {
    write_timeout: Duration::from_millis(500),
    ..patient()
})))]
async fn what_a_client_does_not_read_is_forgotten_with_its_connection(env: Env) {
    let mut slow = connect(&env.urls[0]).await;
    let request = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(24);
    slow.write_all(request.as_bytes()).await.unwrap();
    let ended = async {
        let ready = async || slow.ready(Interest::READABLE).await.unwrap();
        while !ready().await.is_read_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time("the end, which the client sees without reading", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_loses_its_connection() {
    // A large response, often enough to fill the buffers of both ends.
    const RESPONSES: usize = 24;
    let limits = Limits {
        write_timeout: Duration::from_millis(500),
        ..patient()
    };
    open(within(limits), async |env| {
        let request =
            "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(RESPONSES);
        // A busy machine may need longer to fill the buffers.
        let mut silence = Duration::from_secs(3);
        loop {
            let mut slow = connect(&env.urls[0]).await;
            slow.write_all(request.as_bytes()).await.unwrap();
            tokio::time::sleep(silence).await;
            let whole = RESPONSES * 1_000_000;
            let received = in_time("all responses", bytes_of(&mut slow, whole)).await;
            if received < whole {
                break;
            }
            assert!(silence < timeout(), "the rest was sent after {silence:?}");
            silence *= 4;
        }
    })
    .await;
}
