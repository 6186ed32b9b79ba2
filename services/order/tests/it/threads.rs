//! Threads that serve connections place orders, and nothing else holds them up.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use axum::{body::Body, routing::get};
use bytes::Bytes;
use futures::stream;
use order::{BuyerKey, Credentials, Limits};
use serde_json::json;
use testkit::{in_time, tested_in, timeout};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use crate::env::{ADMIN, Env, Options, SECRET, TestEnv, open, patient, payment_keys};

/// A listener with one thread, over the environment's service with some more routes.
///
/// It has a runtime of its own for the requests that are answered apart from that thread. A request
/// that blocks one of the runtime's workers also blocks the task that the worker would have run
/// next, which no other worker takes over. On the test's runtime that could be a connection to
/// Redis, or the recorder.
struct OneThread {
    address: String,
    stop: CancellationToken,
    serving: thread::JoinHandle<()>,
}

impl OneThread {
    async fn over(env: &TestEnv, routes: axum::Router) -> Self {
        let credentials = Credentials::new(&BuyerKey::Secret(SECRET.into()), ADMIN).unwrap();
        let limits = Limits {
            threads: 1,
            ..patient()
        };
        let engine = Arc::clone(&env.engines[0]);
        let api = order::router(engine, Arc::new(credentials), payment_keys(), None, &limits)
            .map(|api| api.merge(routes));
        let stop = CancellationToken::new();
        let (stopping, (bound, address)) = (stop.clone(), oneshot::channel());
        let mut runtime = Builder::new_multi_thread();
        // One of them drives the sockets while the other one is blocked.
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let serving = thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                order::serve(listener, api, &limits, stopping).await;
            });
        });
        Self {
            address: address.await.unwrap().to_string(),
            stop,
            serving,
        }
    }

    async fn get(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn close(self) {
        self.stop.cancel();
        let ended = tokio::task::spawn_blocking(move || self.serving.join());
        ended.await.unwrap().unwrap();
    }
}

async fn whole(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = in_time("the answer", stream.read_to_end(&mut answer));
    read.await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tested_in(open(Options::default()))]
async fn a_request_that_blocks_holds_up_no_order(env: Env) {
    let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    // It computes, and yields to no other task of its thread.
    let blocking = get(async move || {
        begun.send(()).unwrap();
        let _ = ended.lock().unwrap().recv();
        "done"
    });
    let routes = axum::Router::new().route("/blocking", blocking);
    let one = OneThread::over(&env, routes).await;
    let item = env.create(json!({ "stock": 100, "segments": 2 })).await;
    let blocked = one.get("/blocking").await;
    beginning.recv().await.unwrap();
    let url = format!("http://{}/v1/items/{item}/orders", one.address);
    let client = reqwest::Client::new();
    let orders = (0..20).map(|buyer| {
        let order = client
            .post(&url)
            .bearer_auth(crate::env::token(&format!("buyer-{buyer}")))
            .header("Idempotency-Key", "k")
            .json(&json!({ "quantity": 1 }))
            .timeout(timeout());
        async move { order.send().await.unwrap().status().as_u16() }
    });
    let answers = futures::future::join_all(orders).await;
    assert!(
        answers.iter().all(|status| *status == 201),
        "orders wait for a request that blocks: {answers:?}"
    );
    end.send(()).unwrap();
    assert!(whole(blocked).await.ends_with("done"));
    one.close().await;
}

#[tested_in(open(Options::default()))]
async fn a_request_ends_with_its_connection_and_so_does_a_stream(env: Env) {
    let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
    let streams = begun.clone();
    let routes = axum::Router::new()
        .route(
            "/waits",
            get(async move || {
                let (alive, dropped) = oneshot::channel::<()>();
                begun.send(dropped).unwrap();
                std::future::pending::<()>().await;
                drop(alive);
            }),
        )
        .route(
            "/streams",
            get(async move || {
                let (alive, dropped) = oneshot::channel::<()>();
                streams.send(dropped).unwrap();
                let rows = stream::unfold(alive, async |alive| {
                    Some((Ok::<_, Infallible>(Bytes::from_static(b"row")), alive))
                });
                Body::from_stream(rows)
            }),
        );
    let one = OneThread::over(&env, routes).await;
    for path in ["/waits", "/streams"] {
        let stream = one.get(path).await;
        let dropped = beginning.recv().await.unwrap();
        drop(stream);
        let dropped = in_time("the end of a request without a connection", dropped);
        assert!(dropped.await.is_err(), "{path}");
    }
    one.close().await;
}

#[tested_in(open(Options::default()))]
async fn a_panic_in_a_request_is_answered_and_the_thread_serves_on(env: Env) {
    let panics = get(async || -> &'static str { panic!("this panic is part of the test") });
    let one = OneThread::over(&env, axum::Router::new().route("/panics", panics)).await;
    for _ in 0..2 {
        let answer = whole(one.get("/panics").await).await;
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    }
    let answer = whole(one.get("/healthz").await).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    one.close().await;
}
