//! Requests whose body does not come, or comes slowly, and clients that read slowly.

use std::{
    future::pending,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use order::{Limits, RateLimits};
use serde_json::{Value, json};
use testkit::{eventually, in_time, tested_in, timeout};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    env::{Answer, Env, TestEnv, open, patient, token},
    limits::{connect, is_closed, within},
};

/// Longer than any test waits.
const HOUR: Duration = Duration::from_secs(3600);

/// The default limits without any time-out, so that only bounds close a connection.
fn without_time_outs() -> Limits {
    Limits {
        head_timeout: HOUR,
        idle_timeout: HOUR,
        request_timeout: HOUR,
        body_timeout: HOUR,
        write_timeout: HOUR,
        ..patient()
    }
}

/// The head of a report of a payment that only its body can refute.
fn report_head(length: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!(
        "POST /v1/orders/2d0f5c0b-53dc-8690-8a2b-6181b5fbc615/payment HTTP/1.1\r\nhost: x\r\nstockade-signature: t={},v1={}\r\ncontent-length: {length}\r\n\r\n",
        now.as_secs(),
        "0".repeat(64)
    )
}

/// The head of an order.
fn order_head(item: &str, buyer: &str, length: usize) -> String {
    let token = token(buyer);
    format!(
        "POST /v1/items/{item}/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nidempotency-key: k\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Clients that have sent a head and half a body. The service may have closed some of them.
async fn half_bodies(env: &TestEnv, count: usize) -> Vec<TcpStream> {
    let half = format!("{}{{\"payment\":", report_head(200));
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = connect(&env.urls[0]).await;
        let _ = client.write_all(half.as_bytes()).await;
        clients.push(client);
    }
    clients
}

fn open_ones(clients: &[TcpStream]) -> usize {
    clients.iter().filter(|client| !is_closed(client)).count()
}

/// The first line of the response, up to its status.
async fn status(client: &mut TcpStream) -> String {
    let mut start = [0; 12];
    let read = in_time("an answer", client.read_exact(&mut start));
    read.await.unwrap();
    String::from_utf8_lossy(&start).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_with_half_bodies_leaves_every_honest_request_answered() {
    // What 1,024 descriptors leave for clients.
    const BOUND: usize = 1024 - 128;
    const CROWD: usize = 1500;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard), hard).unwrap();
    for (bodies_per_peer, most_open) in [(None, BOUND), (Some(256), 256)] {
        let limits = Limits {
            connections: Some(BOUND),
            bodies_per_peer,
            ..without_time_outs()
        };
        open(within(limits), async |env| {
            let item = env.create(json!({ "stock": 20 })).await;
            let crowd = half_bodies(&env, CROWD).await;
            for number in 0..10 {
                // A new connection each time.
                let honest = reqwest::Client::new();
                let healthy = honest.get(env.url(0, "/healthz")).timeout(timeout());
                assert_eq!(healthy.send().await.unwrap().status(), 200, "{number}");
                let order = honest
                    .post(env.url(0, &format!("/v1/items/{item}/orders")))
                    .bearer_auth(token(&format!("buyer-{number}")))
                    .header("Idempotency-Key", "k")
                    .json(&json!({ "quantity": 1 }))
                    .timeout(timeout());
                Answer::of(order).await.is_held();
            }
            eventually("the end of all half bodies above the bound", async || {
                open_ones(&crowd) <= most_open
            })
            .await;
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_one_peer_are_bounded_and_those_of_a_trusted_proxy_are_not() {
    const BODIES: usize = 20;
    let limits = Limits {
        bodies_per_peer: Some(4),
        ..without_time_outs()
    };
    open(within(limits.clone()), async |env| {
        let bodies = half_bodies(&env, BODIES).await;
        eventually("the end of all half bodies but four", async || {
            open_ones(&bodies) == 4
        })
        .await;
    })
    .await;
    let rates = RateLimits {
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        ..RateLimits::default()
    };
    open(within(Limits { rates, ..limits }), async |env| {
        let mut bodies = half_bodies(&env, BODIES).await;
        let rest = " ".repeat(200);
        for body in &mut bodies {
            body.write_all(rest.as_bytes()).await.unwrap();
            assert_eq!(status(body).await, "HTTP/1.1 400", "a wrong signature");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_is_refused() {
    let limits = Limits {
        body_timeout: Duration::from_millis(500),
        body_rate_min: 500,
        ..patient()
    };
    open(within(limits), async |env| {
        // On the way past the router, and behind it.
        for head in [order_head("x", "ann", 10_000), report_head(10_000)] {
            let mut client = connect(&env.urls[0]).await;
            client.write_all(head.as_bytes()).await.unwrap();
            let (mut reader, mut writer) = client.split();
            let drip = async {
                // A tenth of the rate.
                while writer.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                pending::<()>().await;
            };
            let mut start = [0; 12];
            tokio::select! {
                read = in_time("the answer", reader.read_exact(&mut start)) => read.unwrap(),
                () = drip => unreachable!("it never ends"),
            };
            assert_eq!(&start, b"HTTP/1.1 408", "{head}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_above_the_rate_is_accepted() {
    const PART: usize = 5000;
    let limits = Limits {
        body_timeout: Duration::from_millis(300),
        // Each part gives it longer than a busy machine takes for the next one.
        body_rate_min: 40,
        ..patient()
    };
    open(within(limits.clone()), async |env| {
        let item = env.create(json!({ "stock": 2 })).await;
        let mut client = connect(&env.urls[0]).await;
        let spaces = " ".repeat(PART);
        let first = order_head(&item, "ann", 2 * PART + 14) + &spaces;
        for part in [&*first, &*spaces, "{\"quantity\":1}"] {
            client.write_all(part.as_bytes()).await.unwrap();
            // Longer than all of a body may take that gains no time.
            tokio::time::sleep(2 * limits.body_timeout).await;
        }
        assert_eq!(status(&mut client).await, "HTTP/1.1 201");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_in_drips_loses_its_connection() {
    // Large responses, more of them than fit into the buffers of both ends.
    const RESPONSES: usize = 48;
    const WHOLE: usize = RESPONSES * 1_000_000;
    let limits = Limits {
        write_timeout: Duration::from_secs(1),
        // More than the client takes, which takes something all the time.
        write_rate_min: 1_000_000_000,
        ..patient()
    };
    open(within(limits), async |env| {
        let request =
            "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(RESPONSES);
        let mut pause = Duration::from_millis(20);
        loop {
            let mut slow = connect(&env.urls[0]).await;
            slow.write_all(request.as_bytes()).await.unwrap();
            let (mut received, mut space) = (0, vec![0; 65_536]);
            while received < WHOLE {
                tokio::time::sleep(pause).await;
                match in_time("a part", slow.read(&mut space)).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => received += read,
                }
            }
            if received < WHOLE {
                break;
            }
            // A busy machine may write more slowly than the client reads.
            assert!(pause < timeout() / 100, "all was sent at {pause:?}");
            pause *= 4;
        }
    })
    .await;
}

/// The calls of the API that have a body, each with a path.
async fn calls_with_a_body(env: &TestEnv) -> Vec<(String, String)> {
    let api = reqwest::get(env.url(0, "/openapi.json")).await.unwrap();
    let api: Value = api.json().await.unwrap();
    let mut calls = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        let parts = path.split('/').map(|part| match part.strip_prefix('{') {
            Some(rest) => format!("x{}", rest.split_once('}').unwrap().1),
            None => part.to_owned(),
        });
        let path = parts.collect::<Vec<_>>().join("/");
        for (method, call) in methods.as_object().unwrap() {
            if call["requestBody"].is_object() {
                calls.push((method.to_uppercase(), path.clone()));
            }
        }
    }
    calls
}

#[tested_in(open(within(without_time_outs())))]
async fn what_the_head_refuses_is_refused_before_the_body(env: Env) {
    let calls = calls_with_a_body(&env).await;
    assert!(calls.len() > 12, "{calls:?}");
    let old = format!("t=1,v1={}", "0".repeat(64));
    let heads = [
        String::new(),
        "authorization: Bearer nonsense\r\n".into(),
        format!("authorization: Bearer {}\r\n", "x.".repeat(1000)),
        "stockade-signature: t=1\r\nstripe-signature: t=1\r\n".into(),
        format!("stockade-signature: {old}\r\nstripe-signature: {old}\r\n"),
    ];
    for (method, path) in &calls {
        for headers in &heads {
            let mut client = connect(&env.urls[0]).await;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\n{headers}content-length: 200\r\n\r\n{{"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            let status = status(&mut client).await;
            let refused = ["HTTP/1.1 400", "HTTP/1.1 401"];
            assert!(refused.contains(&&*status), "{status}: {head}");
        }
    }
}
