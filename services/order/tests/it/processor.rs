//! What a request without a token costs: the processor time of the thread that serves it, and not
//! the clock. A stranger must not be able to buy much of ours with little of his own.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use order::{BuyerKey, Credentials, Limits, Rate, RateLimits};
use testbed::{Redis, timeout};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cost::{engine, runtime},
    env::{ADMIN, SECRET, patient, payment_keys},
};

/// Processor time for each 10 KB that are sent, and for what is below.
const ALLOWED: Duration = Duration::from_millis(1);
const BYTES: usize = 10 * 1024;
/// A build for tests optimizes neither the service nor most of what it calls.
const SLOWER: u32 = if cfg!(debug_assertions) { 20 } else { 1 };
/// Few, because each line of the table sends so many four times.
const REQUESTS: usize = 10;
/// The cheapest of these counts: the first one fills caches.
const ROUNDS: usize = 3;

type Asked = oneshot::Sender<Duration>;

/// A service on a thread of its own.
struct Served {
    address: SocketAddr,
    ask: mpsc::UnboundedSender<Asked>,
    stop: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

/// The processor time of this thread, in the program and in the kernel.
fn spent() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap())
}

fn limits() -> Limits {
    let rate = Rate::new(Duration::from_nanos(1), u32::MAX.try_into().unwrap());
    let rates = RateLimits {
        buyer: rate,
        peer: rate,
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        ..RateLimits::default()
    };
    Limits {
        rates,
        // The thread that listens serves.
        threads: 0,
        ..patient()
    }
}

async fn serve(
    started: oneshot::Sender<SocketAddr>,
    mut asked: mpsc::UnboundedReceiver<Asked>,
    stop: CancellationToken,
) {
    let (redis, folder) = (Redis::start().await.unwrap(), tempfile::tempdir().unwrap());
    let database_url = format!("sqlite://{}", folder.path().join("ledger.db").display());
    let engine = engine(&redis.url(), &database_url).await;
    let credentials = Credentials::new(&BuyerKey::Secret(SECRET.into()), ADMIN).unwrap();
    let (limits, metrics) = (limits(), order::metrics::install());
    let api = order::router(
        Arc::clone(&engine),
        Arc::new(credentials),
        payment_keys(),
        metrics,
        &limits,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    started.send(listener.local_addr().unwrap()).unwrap();
    let answering = async {
        while let Some(reply) = asked.recv().await {
            reply.send(spent()).unwrap();
        }
    };
    tokio::join!(order::serve(listener, api, &limits, stop), answering);
    engine.stock.shutdown().await;
}

impl Served {
    fn start() -> Self {
        let (started, address) = oneshot::channel();
        let (ask, asked) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || runtime().block_on(serve(started, asked, stopped)));
        Self {
            address: address.blocking_recv().unwrap(),
            ask,
            stop,
            thread,
        }
    }

    fn spent(&self) -> Duration {
        let (reply, spent) = oneshot::channel();
        self.ask.send(reply).unwrap();
        spent.blocking_recv().unwrap()
    }

    /// Sends the request on a connection of its own, and returns the beginning of the answer. The
    /// service may close the connection before it has read everything.
    fn send(&self, request: &[u8]) -> String {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(timeout())).unwrap();
        let _ = client.write_all(request);
        let mut answer = [0; 12];
        let _ = client.read_exact(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Fails if so many of these requests cost more than they may.
    fn check(&self, what: &str, status: &str, request: &[u8]) {
        let answers: Vec<_> = (0..REQUESTS).map(|_| self.send(request)).collect();
        let expected = format!("HTTP/1.1 {status}");
        let others: Vec<_> = answers
            .iter()
            .filter(|answer| **answer != expected && !answer.starts_with('\0'))
            .collect();
        assert!(others.is_empty(), "{what}: {others:?}");
        assert!(answers.contains(&expected), "{what}: no answer came");
        let rounds = (0..ROUNDS).map(|_| {
            let before = self.spent();
            for _ in 0..REQUESTS {
                self.send(request);
            }
            self.spent() - before
        });
        let spent = rounds.min().unwrap() / u32::try_from(REQUESTS).unwrap();
        let allowed = ALLOWED * u32::try_from(request.len().div_ceil(BYTES)).unwrap() * SLOWER;
        eprintln!("{what}: {spent:?} for {} bytes", request.len());
        assert!(spent <= allowed, "{what}: {spent:?}, allowed {allowed:?}");
    }

    fn end(self) {
        self.stop.cancel();
        drop(self.ask);
        self.thread.join().unwrap();
    }
}

fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A signature of this moment that is wrong.
fn signature(header: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("{header}: t={},v1={}\r\n", now.as_secs(), "0".repeat(64))
}

/// A body in parts of one byte.
fn in_crumbs(line: &str, headers: &str, bytes: usize) -> Vec<u8> {
    let crumbs = "1\r\nx\r\n".repeat(bytes);
    format!(
        "{line} HTTP/1.1\r\nhost: x\r\n{headers}transfer-encoding: chunked\r\n\r\n{crumbs}0\r\n\r\n"
    )
    .into_bytes()
}

#[test]
fn a_request_without_a_token_costs_little_for_what_it_sends() {
    const ORDERS: &str = "POST /v1/items/vase/orders";
    const PAYMENT: &str = "POST /v1/orders/2d0f5c0b-53dc-8690-8a2b-6181b5fbc615/payment";
    const CART_PAYMENT: &str = "POST /v1/carts/2d0f5c0b-53dc-8690-8a2b-6181b5fbc615/payment";
    const STRIPE: &str = "POST /v1/webhooks/stripe";
    let served = Served::start();
    let (body, long) = ("x".repeat(16_000), "x".repeat(12_000));
    let (provider, stripe) = (
        signature("stockade-signature"),
        signature("stripe-signature"),
    );
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    // {"alg":"HS256"}, and claims that no key has signed.
    let forged = bearer(&format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.{}",
        "e30A".repeat(2900),
        "A".repeat(43)
    ));
    let tags = format!("stockade-signature: t=1{}\r\n", ",v1=00".repeat(1900));
    let hops = format!(
        "x-forwarded-for: {}127.0.0.1\r\n",
        "127.0.0.1, ".repeat(1000)
    );
    let many: String = (0..50)
        .map(|n| format!("x-{n}: {}\r\n", "x".repeat(200)))
        .collect();
    let etags = format!("if-none-match: {}\r\n", "\"1\", ".repeat(2000));
    let huge = "x".repeat(250_000);
    let table = [
        ("a small request", "200", request("GET /healthz", "", "")),
        (
            "the description of the API",
            "200",
            request("GET /openapi.json", "", ""),
        ),
        (
            "an item that does not exist",
            "404",
            request("GET /v1/items/none", "", ""),
        ),
        (
            "a report of a payment",
            "400",
            request(PAYMENT, &provider, &body),
        ),
        (
            "a report of a cart's payment",
            "400",
            request(CART_PAYMENT, &provider, &body),
        ),
        ("an event of Stripe", "400", request(STRIPE, &stripe, &huge)),
        (
            "a report in crumbs",
            "400",
            in_crumbs(PAYMENT, &provider, 2000),
        ),
        (
            "a report that is too large",
            "413",
            request(PAYMENT, &provider, &huge),
        ),
        (
            "a signature with many tags",
            "400",
            request(PAYMENT, &tags, &body),
        ),
        (
            "an order without a token",
            "401",
            request(ORDERS, "", &body),
        ),
        (
            "an order with a long token",
            "401",
            request(ORDERS, &bearer(&long), &body),
        ),
        (
            "an order with a forged token",
            "401",
            request(ORDERS, &forged, &body),
        ),
        (
            "a batch with a long token",
            "401",
            request("POST /v1/items/vase/orders:batch", &bearer(&long), &body),
        ),
        (
            "an admin's call with a forged token",
            "401",
            request("POST /v1/items", &forged, &body),
        ),
        (
            "a list with a long token",
            "401",
            request("GET /v1/orders", &bearer(&long), ""),
        ),
        (
            "a chain of proxies",
            "404",
            request("GET /v1/items/none", &hops, ""),
        ),
        (
            "many headers",
            "404",
            request("GET /v1/items/none", &many, ""),
        ),
        (
            "many versions",
            "404",
            request("GET /v1/items/none", &etags, ""),
        ),
        (
            "a long path",
            "404",
            request(&format!("GET /v1/{long}"), "", ""),
        ),
        (
            "a long name",
            "404",
            request(&format!("GET /v1/items/{long}"), "", ""),
        ),
        (
            "a long query",
            "401",
            request(&format!("GET /v1/orders?cursor={long}"), "", ""),
        ),
    ];
    for (what, status, request) in &table {
        served.check(what, status, request);
    }
    served.end();
}
