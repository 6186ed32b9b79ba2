//! Idle connections give their buffers back, and nothing else changes.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use cost::bytes_kept;
use order::Limits;
use testkit::{in_time, tested_in, timeout};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use crate::env::{Env, Options, TestEnv, open, patient, token};

const PARK_AFTER: Duration = Duration::from_millis(50);
/// Long enough for a silent connection to have parked, unless the machine is busy.
const SILENCE: Duration = Duration::from_millis(250);
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

fn parking(head_timeout: Duration, idle_timeout: Duration) -> Options {
    let limits = Limits {
        park_after: PARK_AFTER,
        head_timeout,
        idle_timeout,
        drain_timeout: HOUR,
        ..patient()
    };
    Options {
        limits,
        ..Options::default()
    }
}

/// The service counts in whole milliseconds.
const CLOCK_STEP: Duration = Duration::from_millis(1);
/// Longer than any test waits.
const HOUR: Duration = Duration::from_secs(3600);

async fn connect(env: &TestEnv) -> TcpStream {
    let address = env.urls[0].trim_start_matches("http://");
    TcpStream::connect(address).await.unwrap()
}

async fn send(stream: &mut TcpStream, bytes: &str) {
    stream.write_all(bytes.as_bytes()).await.unwrap();
}

async fn is_ended(stream: &mut TcpStream) {
    let mut space = [0];
    let end = in_time("the end of the connection", stream.read(&mut space));
    assert_eq!(end.await.unwrap(), 0);
}

/// Reads until this many responses have come.
async fn responses(stream: &mut TcpStream, count: usize) -> String {
    let (mut text, mut space) = (String::new(), [0; 4096]);
    while text.matches("HTTP/1.1 ").count() < count {
        let read = in_time("a response", stream.read(&mut space));
        let read = read.await.unwrap();
        assert!(read > 0, "closed after {text}");
        text += std::str::from_utf8(&space[..read]).unwrap();
    }
    text
}

#[tested_in(open(parking(HOUR, HOUR)))]
async fn a_connection_that_was_idle_serves_on(env: Env) {
    let mut stream = connect(&env).await;
    // Before the first request, and with a request in two parts.
    tokio::time::sleep(SILENCE).await;
    send(&mut stream, "GET /heal").await;
    tokio::time::sleep(SILENCE).await;
    send(&mut stream, "thz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(responses(&mut stream, 1).await.starts_with("HTTP/1.1 200"));
    tokio::time::sleep(SILENCE).await;
    // A whole request, and the beginning of the next one with it.
    send(&mut stream, &format!("{HEALTH}GET /heal")).await;
    assert!(responses(&mut stream, 1).await.starts_with("HTTP/1.1 200"));
    tokio::time::sleep(SILENCE).await;
    send(&mut stream, "thz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(responses(&mut stream, 1).await.starts_with("HTTP/1.1 200"));
    tokio::time::sleep(SILENCE).await;
    send(&mut stream, &HEALTH.repeat(3)).await;
    let text = responses(&mut stream, 3).await;
    assert_eq!(text.matches("HTTP/1.1 200").count(), 3);
}

#[tested_in(open(parking(HOUR, HOUR)))]
async fn the_rest_of_a_body_is_never_read_as_a_request(env: Env) {
    let hidden = "GET /healthz HTTP/1.1\r\nhost: x\r\nx-request-id: hidden\r\n\r\n";
    let orders = "POST /v1/items/x/orders HTTP/1.1\r\nhost: x\r\n";
    let token = token("ann");
    let ann = format!("{orders}authorization: Bearer {token}\r\nidempotency-key: k\r\n");
    let length = format!("content-length: {}\r\n\r\n", hidden.len() + 2);
    for (head, status) in [
        // Refused before the body is read, on the way past the router and behind it.
        (format!("{orders}{length}"), "401"),
        (format!("{orders}expect: 100-continue\r\n{length}"), "401"),
        (
            format!("{ann}transfer-encoding: chunked\r\n\r\nffff\r\n"),
            "",
        ),
        (
            format!("POST /v1/items HTTP/1.1\r\nhost: x\r\n{length}"),
            "401",
        ),
        (
            format!("POST /nowhere HTTP/1.1\r\nhost: x\r\n{length}"),
            "404",
        ),
    ] {
        let mut stream = connect(&env).await;
        send(&mut stream, &format!("{head}{{\"")).await;
        let mut text = String::new();
        if !status.is_empty() {
            text = responses(&mut stream, 1).await;
            assert!(
                text.starts_with(&format!("HTTP/1.1 {status}")),
                "{head}{text}"
            );
        }
        tokio::time::sleep(SILENCE).await;
        // The connection may be closed by now.
        let _ = stream.write_all(hidden.as_bytes()).await;
        let mut rest = vec![0; 4096];
        let read = tokio::time::timeout(SILENCE, stream.read(&mut rest)).await;
        let read = read.map_or(0, |read| read.unwrap_or(0));
        text += std::str::from_utf8(&rest[..read]).unwrap();
        assert!(!text.contains("hidden"), "{head}{text}");
    }
}

/// A connection after its first request, and when that was sent. On a busy machine the service may
/// close a connection before it has read a request: then another one is opened.
async fn connect_and_ask(env: &TestEnv) -> (TcpStream, Instant) {
    loop {
        let (mut stream, since) = (connect(env).await, Instant::now());
        let mut answer = [0; 4096];
        let _ = stream.write_all(HEALTH.as_bytes()).await;
        let read = in_time("an answer", stream.read(&mut answer)).await;
        if read.is_ok_and(|read| answer[..read].starts_with(b"HTTP/1.1 200")) {
            return (stream, since);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_ends_at_the_idle_timeout_and_at_the_stop_of_the_service() {
    let (head_timeout, idle_timeout) = (Duration::from_millis(500), Duration::from_millis(1500));
    open(parking(head_timeout, idle_timeout), async |env| {
        let (mut stream, since) = connect_and_ask(&env).await;
        is_ended(&mut stream).await;
        let elapsed = since.elapsed() + CLOCK_STEP;
        assert!(elapsed >= idle_timeout, "{elapsed:?}");
    })
    .await;
    open(parking(HOUR, HOUR), async |env| {
        let mut stream = connect(&env).await;
        tokio::time::sleep(SILENCE).await;
        env.stop_serving();
        is_ended(&mut stream).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stop_of_the_service_waits_for_no_idle_connection() {
    // A connection that is idle, one whose buffers are kept, and one that has sent nothing.
    for park_after in [PARK_AFTER, HOUR] {
        let mut options = parking(HOUR, HOUR);
        options.limits.park_after = park_after;
        open(options, async |env| {
            let (mut idle, _) = connect_and_ask(&env).await;
            let mut silent = connect(&env).await;
            // Connections are accepted in turn, so this answer shows that the one before it was.
            let (mut later, _) = connect_and_ask(&env).await;
            tokio::time::sleep(SILENCE).await;
            // The time to drain is an hour, so only their own end closes these.
            env.stop_serving();
            for stream in [&mut idle, &mut silent, &mut later] {
                is_ended(stream).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_has_its_own_time_on_a_connection_that_may_be_idle_for_longer() {
    let head_timeout = Duration::from_millis(500);
    open(parking(head_timeout, HOUR), async |env| {
        let (mut stream, _) = connect_and_ask(&env).await;
        // The silence before it is not its time.
        tokio::time::sleep(head_timeout + SILENCE).await;
        let since = Instant::now();
        send(&mut stream, "GET /heal").await;
        is_ended(&mut stream).await;
        let elapsed = since.elapsed() + CLOCK_STEP;
        assert!(elapsed >= head_timeout, "{elapsed:?}");
    })
    .await;
}

/// Opens connections with one request each, reports that all are answered, and keeps them.
fn idle_clients(
    address: SocketAddr,
    count: usize,
    answered: oneshot::Sender<()>,
    done: mpsc::Receiver<()>,
) {
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(HEALTH.as_bytes()).unwrap();
            let mut answer = [0; 1024];
            assert!(client.read(&mut answer).unwrap() > 0);
            client
        })
        .collect();
    answered.send(()).unwrap();
    // Until the bytes have been counted.
    let _ = done.recv();
    drop(clients);
}

/// The bytes that a connection keeps after one request and so much silence: what so many keep more
/// than half of them. What the service keeps without one does not count, nor what it makes once.
fn bytes_of_an_idle_connection(park_after: Duration, silence: Duration) -> i64 {
    const CONNECTIONS: usize = 400;
    bytes_of_idle_connections(CONNECTIONS / 2, park_after, Duration::ZERO);
    let half = bytes_of_idle_connections(CONNECTIONS / 2, park_after, silence);
    let all = bytes_of_idle_connections(CONNECTIONS, park_after, silence);
    (all - half) / i64::try_from(CONNECTIONS / 2).unwrap()
}

fn bytes_of_idle_connections(count: usize, park_after: Duration, silence: Duration) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        park_after,
        // The bytes of this thread are counted.
        threads: 0,
        ..patient()
    };
    let (routes, stop) = (
        Router::new().route("/healthz", get(async || "well")),
        CancellationToken::new(),
    );
    let (counted, done) = mpsc::channel();
    let (answered, all_answered) = oneshot::channel();
    let clients = std::thread::spawn(move || idle_clients(address, count, answered, done));
    let serving = order::serve(listener, routes, &limits, stop);
    let mut serving = std::pin::pin!(serving);
    let kept = bytes_kept(|| {
        runtime.block_on(async {
            let silence = async {
                all_answered.await.unwrap();
                tokio::time::sleep(silence).await;
            };
            tokio::select! {
                _ = serving.as_mut() => panic!("the service has ended"),
                () = silence => {}
            }
        });
    });
    counted.send(()).unwrap();
    clients.join().unwrap();
    kept
}

/// A connection that is served keeps less. It has two buffers of hyper's, of 8 KiB each, and the
/// futures of the service.
const SERVING_BYTES: i64 = 27_500;
/// A connection that has parked keeps less.
const PARKED_BYTES: i64 = 1_600;

#[test]
fn an_idle_connection_keeps_a_tenth_of_what_it_needs_for_a_request() {
    let count = |park_after, silence| {
        let counting = std::thread::spawn(move || bytes_of_an_idle_connection(park_after, silence));
        counting.join().unwrap()
    };
    // On a busy machine some have not parked yet. A connection that is silent for too long is
    // closed.
    let serving = count(HOUR, SILENCE);
    let (mut parked, mut silence) = (count(PARK_AFTER, SILENCE), SILENCE);
    while parked >= PARKED_BYTES && silence < timeout() / 8 {
        silence *= 4;
        parked = count(PARK_AFTER, silence);
    }
    eprintln!("a connection keeps {serving} bytes, and {parked} when it is idle");
    assert!((16_000..SERVING_BYTES).contains(&serving), "{serving}");
    assert!(parked < PARKED_BYTES, "{parked}");
}
