//! Orders go past the router. Both ways write the same bytes.

use std::sync::Arc;

use axum::Router;
use order::{Api, BuyerKey, Credentials, Limits};
use serde_json::json;
use testkit::in_time;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::env::{ADMIN, Options, SECRET, TestEnv, open, patient, payment_keys, token};

/// Two listeners over the same service: one as it runs, and one with the router alone.
struct BothWays {
    api: Api,
    addresses: [String; 2],
    stop: CancellationToken,
    serving: Vec<tokio::task::JoinHandle<()>>,
}

fn limits() -> Limits {
    Limits {
        body_bytes: 200,
        ..patient()
    }
}

impl BothWays {
    async fn over(env: &TestEnv) -> Self {
        let credentials = Credentials::new(&BuyerKey::Secret(SECRET.into()), ADMIN).unwrap();
        let engine = Arc::clone(&env.engines[0]);
        let (credentials, payments) = (Arc::new(credentials), payment_keys());
        let api = order::router(engine, credentials, payments, None, &limits());
        let routed = Api::from(Router::from(api.clone()));
        let (mut addresses, mut serving) = (Vec::new(), Vec::new());
        let stop = CancellationToken::new();
        for api in [api.clone(), routed] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap().to_string());
            let stop = stop.clone();
            serving.push(tokio::spawn(async move {
                order::serve(listener, api, &limits(), stop).await;
            }));
        }
        Self {
            api,
            addresses: addresses.try_into().unwrap(),
            stop,
            serving,
        }
    }

    /// What each way answers to these bytes, until it closes the connection. `KEY` is another
    /// idempotency key for each way; the order's id and times are replaced.
    async fn answers(&self, request: &str) -> [String; 2] {
        let mut answers = Vec::new();
        for (way, address) in self.addresses.iter().enumerate() {
            let request = request.replace("KEY", &format!("key-of-way-{way}"));
            answers.push(settled(&exchange(address, request.as_bytes()).await));
        }
        answers.try_into().unwrap()
    }

    async fn close(self) {
        self.stop.cancel();
        for task in self.serving {
            task.await.unwrap();
        }
    }
}

async fn exchange(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = in_time("the end of the connection", stream.read_to_end(&mut answer));
    read.await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// The answer without what differs from order to order, and from second to second.
fn settled(answer: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    // A body of JSON ends without a line break.
    let answer = answer.replace("}HTTP/", "}\r\nHTTP/");
    for line in answer.split("\r\n") {
        let settled = if line.starts_with("date: ") {
            "date: NOW".into()
        } else if let Some(id) = line.strip_prefix("location: /v1/orders/") {
            assert_eq!(id.len(), 36, "{answer}");
            "location: /v1/orders/ID".into()
        } else if line.starts_with("{\"id\":\"") {
            // A time has fewer digits now and then, so the length is compared here.
            let written = format!("content-length: {}", line.len());
            let length = lines
                .iter_mut()
                .rfind(|line| line.starts_with("content-length: "));
            let length = length.expect("a body has a length");
            assert_eq!(*length, written, "{answer}");
            *length = "content-length: THAT OF THE BODY".into();
            let order: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = [("id", 36), ("created_at", 20), ("expires_at", 20)];
            fields.iter().fold(line.to_owned(), |line, (field, least)| {
                let value = order[field].as_str().unwrap();
                assert!(value.len() >= *least, "{line}");
                line.replace(value, field)
            })
        } else {
            line.to_owned()
        };
        lines.push(settled);
    }
    lines.join("\r\n")
}

fn post(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let token = token("ann");
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nx-request-id: r-1\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request + "connection: close\r\n\r\n" + body
}

/// The name with its first character in percent-encoding, which only the router reads.
fn encoded(item: &str) -> String {
    let (first, rest) = item.split_at(1);
    format!("%{:02X}{rest}", first.as_bytes()[0])
}

/// Requests for the item, with the status that both ways must answer.
fn requests(item: &str) -> Vec<(u16, String)> {
    let path = &*format!("/v1/items/{item}/orders");
    let key = ("idempotency-key", "KEY");
    let one = r#"{"quantity":1}"#;
    let at = |path: &str| post(path, &[key], one);
    let with = |headers: &[(&str, &str)]| post(path, headers, one);
    let body = |body: &str| post(path, &[key], body);
    let to = |method: &str| at(path).replacen("POST", method, 1);
    let chunked = |chunks: &str| {
        let length = "content-length: 0";
        body("").replacen(length, "transfer-encoding: chunked", 1) + chunks
    };
    let long = format!("{{\"quantity\":1{}}}", " ".repeat(300));
    vec![
        (201, at(path)),
        (201, at(path)),
        (201, at(&format!("{path}?from=page"))),
        (201, at(&format!("http://shop{path}"))),
        (201, at(path).replace("HTTP/1.1", "HTTP/1.0")),
        (201, with(&[key, ("prefer", "respond-async"), ("x", "1")])),
        (
            202,
            with(&[
                ("Idempotency-Key", "KEY-2"),
                ("prefer", "wait=1, respond-async"),
            ]),
        ),
        (201, at(&format!("/v1/items/{}/orders", encoded(item)))),
        (422, body(r#"{"quantity":2}"#)),
        (
            201,
            chunked("7\r\n{\"quant\r\n7\r\nity\":1}\r\n0\r\nx: y\r\n\r\n"),
        ),
        (413, body(&long)),
        (
            413,
            chunked(&format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len())),
        ),
        (400, body("")),
        (400, body("{}")),
        (400, body("1")),
        (400, body(r#"{"quantity":0}"#)),
        (400, body(r#"{"quantity":1,"size":2}"#)),
        (400, body(r#"{"quantity":1}{}"#)),
        (400, with(&[])),
        (400, with(&[("idempotency-key", "two words")])),
        (401, at(path).replacen("Bearer ", "Basic ", 1)),
        (401, at(path).replacen("Bearer ", "Bearer x", 1)),
        (404, at("/v1/items/none-of-this-name/orders")),
        (404, at("/v1/items/a+b/orders")),
        (404, at(&format!("{path}/"))),
        (404, at("/v1/items//orders")),
        (405, to("PUT")),
        (405, to("OPTIONS")),
        (405, to("DELETE")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ways_answer_the_same_bytes() {
    open(Options::default(), async |env| {
        let ways = BothWays::over(&env).await;
        let item = env.create(json!({ "stock": 100 })).await;
        for (status, request) in requests(&item) {
            let [direct, routed] = ways.answers(&request).await;
            assert_eq!(direct, routed, "{request}");
            let expected = format!("HTTP/1.1 {status} ");
            let expected = match request.contains("HTTP/1.0") {
                true => expected.replace("1.1", "1.0"),
                false => expected,
            };
            assert!(direct.starts_with(&expected), "{request}\n{direct}");
        }
        let refusals = [
            (
                json!({ "stock": 1, "limit_per_buyer": 1 }),
                r#"{"quantity":2}"#,
            ),
            (json!({ "stock": 1 }), r#"{"quantity":2}"#),
            (
                json!({ "stock": 1, "opens_at": "2999-01-01T00:00:00Z" }),
                r#"{"quantity":1}"#,
            ),
        ];
        for (item, body) in refusals {
            let item = env.create(item).await;
            let path = format!("/v1/items/{item}/orders");
            let request = post(&path, &[("idempotency-key", "KEY")], body);
            let [direct, routed] = ways.answers(&request).await;
            assert_eq!(direct, routed, "{request}");
            assert!(direct.starts_with("HTTP/1.1 409 "), "{direct}");
        }
        ways.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_connection_are_answered_in_turn() {
    open(Options::default(), async |env| {
        let ways = BothWays::over(&env).await;
        let item = env.create(json!({ "stock": 100 })).await;
        let path = format!("/v1/items/{item}/orders");
        let order = post(&path, &[("idempotency-key", "KEY")], r#"{"quantity":1}"#);
        let open = order.replace("connection: close\r\n", "");
        let health = "GET /healthz HTTP/1.1\r\nhost: shop\r\nx-request-id: r-2\r\n\r\n";
        let all = format!("{open}{health}{open}{order}");
        let [direct, routed] = ways.answers(&all).await;
        assert_eq!(direct, routed);
        assert_eq!(direct.matches("HTTP/1.1 201").count(), 3, "{direct}");
        assert_eq!(direct.matches("HTTP/1.1 200").count(), 1, "{direct}");
        assert_eq!(direct.matches("idempotent-replayed").count(), 2, "{direct}");
        ways.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_may_read_the_answer_to_an_order() {
    open(Options::default(), async |env| {
        let ways = BothWays::over(&env).await;
        let shop = "https://shop.example";
        let api = order::with_cors(ways.api.clone(), &shop.parse().unwrap());
        let order = |key: &str| {
            http::Request::post("/v1/items/none/orders")
                .header("authorization", format!("Bearer {}", token("ann")))
                .header("idempotency-key", key)
                .header("origin", shop)
                .body(axum::body::Body::from(r#"{"quantity":1}"#))
                .unwrap()
        };
        let answer = api.answer(order("k")).await;
        assert_eq!(answer.status().as_u16(), 404);
        assert_eq!(answer.headers()["access-control-allow-origin"], shop);
        let without = ways.api.answer(order("k")).await;
        assert!(
            !without
                .headers()
                .contains_key("access-control-allow-origin")
        );
        ways.close().await;
    })
    .await;
}
