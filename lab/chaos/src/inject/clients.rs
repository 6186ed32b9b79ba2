//! Clients that use up a service's connections: silent ones, ones that send half of a body, and
//! ones that read no answer.
//!
//! New buyers order, each on a new connection, before the attack and beside it. They are judged by
//! counts and not by the clock: of as many requests, nearly as many must be answered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use client::NewOrder;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand::{RngExt, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep},
};
use uuid::Uuid;

use super::Injected;
use crate::{
    api::Api,
    env::{CONNECTIONS_MAX, Role, TestEnv},
    fault::Fault,
    heal::PROBE,
    plan::Round,
};

/// Connections to one service that never send a whole request: more than its bound.
const UNFINISHED: std::ops::RangeInclusive<usize> = 500..=1200;
/// Clients of one service that read nothing.
const UNREADING: std::ops::RangeInclusive<usize> = 10..=40;
/// Requests that such a client writes at once. All clients together must leave the service time for
/// others, or the fault would be load.
const REQUESTS_AT_ONCE: usize = 20;
const PAUSE_BETWEEN_REQUESTS: Duration = Duration::from_millis(100);
/// The bundle of the API's pages: an answer of a megabyte, which no buffer holds.
const LARGE_ANSWER: &str = "/docs/swagger-ui-bundle.js";
/// Pause after which a client whose connection was closed opens another one, in a workload with the
/// usual pauses.
const PAUSE_BEFORE_RETURN: Duration = Duration::from_secs(1);
/// Bytes of a body of which half is sent.
const BODY_BYTES: usize = 1000;
/// Descriptors of this process that the workload and the servers' pipes need.
const DESCRIPTORS_KEPT_BACK: u64 = 512;
/// New buyers before the attack, and beside it at least. An attack goes on for longer than planned
/// until so many came: beside other programs a second may be too short.
const BUYERS_MIN: usize = 20;
/// Of a hundred new buyers beside the attack, for each hundred that are served without it.
const SERVED_MIN_PERCENT: usize = 90;
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const PAUSE_BETWEEN_BUYERS: Duration = Duration::from_millis(50);

pub(super) async fn inject(env: &TestEnv, round: &Round, rng: &mut StdRng) -> Result<Injected> {
    let reads_nothing = round.fault == Fault::SlowReader;
    let victims = super::kills::victims(env, Role::Order, rng);
    let clients = rng
        .random_range(if reads_nothing { UNREADING } else { UNFINISHED })
        .min(descriptors() / victims.len());
    let urls: Vec<_> = victims
        .iter()
        .filter_map(|victim| env.processes[*victim].url.clone())
        .collect();
    let api = env.api.at(urls.clone(), round.health.order_within)?;
    let mut buyers = NewBuyers::of(api, round.number);
    let alone = buyers.order_for(Duration::ZERO).await;
    let attackers = Attackers::default();
    // Tasks of their own: in one, buyers would wait until all the others have had their turn.
    let mut attacks = JoinSet::new();
    let pause = PAUSE_BEFORE_RETURN * round.pause_factor;
    for url in urls
        .iter()
        .flat_map(|url| std::iter::repeat_n(url, clients))
    {
        attacks.spawn(attackers.clone().attack(round.fault, url.clone(), pause));
    }
    let enough = match reads_nothing {
        true => clients * urls.len(),
        false => CONNECTIONS_MAX * urls.len(),
    };
    attackers.until_opened(enough).await;
    let beside = buyers.order_for(round.lasts * 2).await;
    let must_close = match reads_nothing {
        true => attackers.counts().0,
        false => 1,
    };
    attackers.until_closed(must_close).await;
    attacks.shutdown().await;
    let (opened, closed) = attackers.counts();
    let crowd = Crowd {
        opened,
        enough,
        closed,
        must_close,
    };
    let what = match round.fault {
        Fault::ConnectionFlood => "silent connections",
        Fault::HalfBodies => "connections with half of a body",
        _ => "clients that read no answer",
    };
    let error = buyers
        .error
        .map_or_else(String::new, |error| format!(" ({error})"));
    Ok(Injected {
        findings: findings(alone, beside, &crowd, &error),
        ..Injected::now(format!(
            "{opened} {what} at {}, {closed} of which were closed without an answer; {} of {} new buyers were served meanwhile{error}",
            env.names(&victims),
            beside.served,
            beside.came
        ))
    })
}

/// New buyers, and how many of them were served.
#[derive(Clone, Copy, Debug)]
struct Served {
    came: usize,
    served: usize,
}

/// The connections of an attack.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    opened: usize,
    /// So many must be opened.
    enough: usize,
    closed: usize,
    /// So many must be closed by the service: of clients that read nothing all, and of a crowd
    /// above the bound at least one. Otherwise the write timeout or the bound was not there.
    must_close: usize,
}

/// What is wrong with an attack, or too little to judge.
fn findings(alone: Served, beside: Served, crowd: &Crowd, error: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if crowd.opened < crowd.enough {
        findings.push(format!(
            "too little seen: {} hostile connections, expected at least {}",
            crowd.opened, crowd.enough
        ));
    }
    if crowd.closed < crowd.must_close {
        findings.push(format!(
            "only {} of {} hostile connections were closed by the service, expected at least {}",
            crowd.closed, crowd.opened, crowd.must_close
        ));
    }
    if alone.served == 0 || beside.came < BUYERS_MIN {
        findings.push(format!(
            "too little seen: {} new buyers were served before the attack, and {} came beside it",
            alone.served, beside.came
        ));
    }
    // The shares of both times, without a division.
    let kept = beside.served * alone.came * 100;
    if kept < alone.served * beside.came * SERVED_MIN_PERCENT {
        findings.push(format!(
            "only {} of {} new buyers were served beside the attack, and {} of {} without it{error}",
            beside.served, beside.came, alone.served, alone.came
        ));
    }
    findings
}

/// The clients that attack, counted.
#[derive(Clone, Default)]
struct Attackers {
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Attackers {
    /// Attacks for ever. When the service closes the connection, the client comes back on another
    /// one, so that the service stays at its bound. One that reads no answer only keeps its end.
    async fn attack(self, fault: Fault, url: String, pause: Duration) {
        let address = url.trim_start_matches("http://");
        loop {
            if let Ok(mut connection) = TcpStream::connect(address).await {
                let number = self.opened.fetch_add(1, Ordering::Relaxed);
                let is_closed = match fault {
                    Fault::ConnectionFlood => stay_silent(&mut connection).await,
                    Fault::HalfBodies => send_half_a_body(&mut connection, number).await,
                    _ => {
                        never_read(&mut connection).await;
                        true
                    }
                };
                let closed = usize::from(is_closed);
                self.closed.fetch_add(closed, Ordering::Relaxed);
                if fault == Fault::SlowReader {
                    // Another megabyte for each of them all the time would be load.
                    return std::future::pending().await;
                }
            }
            sleep(pause).await;
        }
    }

    /// Waits until so many connections were opened, or as long as a test waits at most.
    async fn until_opened(&self, enough: usize) {
        let deadline = Instant::now() + testbed::timeout();
        while self.counts().0 < enough && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the service has closed so many, or as long as a test waits at most.
    async fn until_closed(&self, enough: usize) {
        let deadline = Instant::now() + testbed::timeout();
        while self.counts().1 < enough && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Connections that were opened, and that the service closed without an answer.
    fn counts(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.opened), count(&self.closed))
    }
}

/// Sends half of a request, and returns when the service closes the connection: whether that came
/// without an answer.
async fn stay_silent(connection: &mut TcpStream) -> bool {
    let _ = connection.write_all(b"GET /healthz HT").await;
    !matches!(connection.read(&mut [0]).await, Ok(1..))
}

/// Sends a head and half of its body, and returns when the service closes the connection: whether
/// that came without an answer. The reports of payments differ in whether their headers could be
/// those of a signed one; others are answered at once.
async fn send_half_a_body(connection: &mut TcpStream, number: usize) -> bool {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let tag = format!("t={now},v1={}", "0".repeat(64));
    let (path, signature) = match number % 3 {
        0 => (
            format!("/v1/orders/{}/payment", Uuid::new_v4()),
            format!("stockade-signature: {tag}\r\n"),
        ),
        1 => (
            "/v1/webhooks/stripe".to_owned(),
            format!("stripe-signature: {tag}\r\n"),
        ),
        _ => (
            format!("/v1/orders/{}/payment", Uuid::new_v4()),
            String::new(),
        ),
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
         content-length: {BODY_BYTES}\r\n{signature}\r\n"
    );
    let request = head + &"x".repeat(BODY_BYTES / 2);
    let mut answer = Vec::new();
    if connection.write_all(request.as_bytes()).await.is_ok() {
        let _ = connection.read_to_end(&mut answer).await;
    }
    answer.is_empty()
}

/// Sends requests until the service takes no more, and leaves all answers where they are. Returns
/// when the service closes the connection.
async fn never_read(connection: &mut TcpStream) {
    let requests = [&format!("/v1/items/{PROBE}"), LARGE_ANSWER]
        .map(|path| format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n"))
        .concat()
        .repeat(REQUESTS_AT_ONCE);
    while connection.write_all(requests.as_bytes()).await.is_ok() {
        sleep(PAUSE_BETWEEN_REQUESTS).await;
    }
}

/// New buyers before a fault and during it.
struct NewBuyers {
    api: Api,
    round: usize,
    came: usize,
    /// What the last one heard that was not served.
    error: Option<client::Error>,
}

impl NewBuyers {
    fn of(api: Api, round: usize) -> Self {
        Self {
            api,
            round,
            came: 0,
            error: None,
        }
    }

    /// Sends one order of one new buyer after the other, for this time and until enough came.
    async fn order_for(&mut self, lasts: Duration) -> Served {
        let began = Instant::now();
        let (mut came, mut served) = (0, 0);
        while began.elapsed() < lasts || came < BUYERS_MIN && began.elapsed() < testbed::timeout() {
            came += 1;
            served += usize::from(self.order().await);
            sleep(PAUSE_BETWEEN_BUYERS).await;
        }
        Served { came, served }
    }

    /// Returns whether the buyer was served.
    async fn order(&mut self) -> bool {
        self.came += 1;
        // A copy of a client would share its connections.
        let Ok(api) = self.api.reconnected() else {
            return false;
        };
        let buyer = api.buyer(&format!("new-{}-{}", self.round, self.came));
        let placed = buyer.place(&NewOrder::new(PROBE, 1)).await;
        let is_served = placed.is_ok();
        self.error = placed.err().or(self.error.take());
        is_served
    }
}

/// Descriptors for this fault. The limit is raised as far as the system allows.
fn descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let limit = if raised.is_ok() { hard } else { soft };
    usize::try_from(limit.saturating_sub(DESCRIPTORS_KEPT_BACK)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Crowd, Served, findings};

    const CROWD: Crowd = Crowd {
        opened: 300,
        enough: 300,
        closed: 1,
        must_close: 1,
    };

    fn found(alone: (usize, usize), beside: (usize, usize), crowd: Crowd) -> usize {
        let of = |(served, came)| Served { came, served };
        findings(of(alone), of(beside), &crowd, "").len()
    }

    #[test]
    fn buyers_must_keep_nine_tenths_of_their_answers_beside_an_attack() {
        assert_eq!(found((20, 20), (20, 20), CROWD), 0);
        assert_eq!(found((20, 20), (36, 40), CROWD), 0);
        assert_eq!(found((20, 20), (35, 40), CROWD), 1);
        assert_eq!(found((20, 20), (0, 20), CROWD), 1);
        assert_eq!(
            found((10, 20), (9, 20), CROWD),
            0,
            "a slow machine serves fewer"
        );
    }

    #[test]
    fn an_attack_that_is_too_small_or_that_met_no_buyer_is_a_finding() {
        let small = Crowd {
            opened: 299,
            ..CROWD
        };
        assert_eq!(found((20, 20), (20, 20), small), 1);
        assert_eq!(found((20, 20), (3, 3), CROWD), 1);
        assert_eq!(found((0, 20), (20, 20), CROWD), 1);
    }

    #[test]
    fn a_service_without_a_bound_or_a_write_timeout_is_a_finding() {
        let unbounded = Crowd { closed: 0, ..CROWD };
        assert_eq!(found((20, 20), (20, 20), unbounded), 1);
        let patient = Crowd {
            opened: 40,
            enough: 40,
            closed: 39,
            must_close: 40,
        };
        assert_eq!(found((20, 20), (20, 20), patient), 1);
    }
}
