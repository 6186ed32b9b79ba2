//! Clients that use up a service's connections: silent ones, and ones that read no answer.
//!
//! Meanwhile new buyers order, each on a new connection. Some of them must be served.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
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

use super::Injected;
use crate::{
    api::Api,
    env::{Role, TestEnv},
    fault::Fault,
    heal::PROBE,
    plan::Round,
};

/// Silent connections to one service: more than its bound, `CONNECTIONS_MAX` in `env/process.rs`.
const SILENT: std::ops::RangeInclusive<usize> = 500..=1200;
/// Clients of one service that read nothing.
const UNREADING: std::ops::RangeInclusive<usize> = 10..=40;
/// Requests that such a client writes at once. All clients together must leave the service time for
/// others, or the fault would be load.
const REQUESTS_AT_ONCE: usize = 20;
const PAUSE_BETWEEN_REQUESTS: Duration = Duration::from_millis(100);
/// The bundle of the API's pages: an answer of a megabyte, which no buffer holds.
const LARGE_ANSWER: &str = "/docs/swagger-ui-bundle.js";
/// Descriptors of this process that the workload and the servers' pipes need.
const DESCRIPTORS_KEPT_BACK: u64 = 512;
/// A fault goes on for longer than planned until so many new buyers came, and one of them was served:
/// beside other programs a second may be too short for any.
const BUYERS_MIN: usize = 5;
/// By then one must have been served.
const LASTS_MAX: Duration = Duration::from_secs(15);
const PAUSE_BETWEEN_BUYERS: Duration = Duration::from_millis(50);

pub(super) async fn inject(env: &TestEnv, round: &Round, rng: &mut StdRng) -> Result<Injected> {
    let is_flood = round.fault == Fault::ConnectionFlood;
    let victims = super::kills::victims(env, Role::Order, rng);
    let clients = rng
        .random_range(if is_flood { SILENT } else { UNREADING })
        .min(descriptors() / victims.len());
    let urls: Vec<_> = victims
        .iter()
        .filter_map(|victim| env.processes[*victim].url.clone())
        .collect();
    let buyers = NewBuyers::of(env.api.at(urls.clone())?, round.number);
    let attackers = Attackers::default();
    // Tasks of their own: in one, buyers would wait until all the others have had their turn.
    let mut attacks = JoinSet::new();
    for url in urls
        .iter()
        .flat_map(|url| std::iter::repeat_n(url, clients))
    {
        attacks.spawn(attackers.clone().attack(round.fault, url.clone()));
    }
    let buyers = buyers.order_for(round.lasts * 2).await;
    attacks.shutdown().await;
    let (opened, closed) = attackers.counts();
    let what = if is_flood {
        "silent connections"
    } else {
        "clients that read no answer"
    };
    let error = buyers
        .error
        .map_or_else(String::new, |error| format!(" ({error})"));
    let NewBuyers { came, served, .. } = buyers;
    let findings =
        (served == 0).then(|| format!("none of {came} new buyers was served meanwhile{error}"));
    Ok(Injected {
        findings: findings.into_iter().collect(),
        ..Injected::now(format!(
            "{opened} {what} at {}, {closed} of which were closed; {served} of {came} new buyers were served meanwhile{error}",
            env.names(&victims)
        ))
    })
}

/// The clients that attack, counted.
#[derive(Clone, Default)]
struct Attackers {
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Attackers {
    /// Attacks until the service closes the connection, and then only keeps its end of it.
    async fn attack(self, fault: Fault, url: String) {
        let address = url.trim_start_matches("http://");
        let Ok(mut connection) = TcpStream::connect(address).await else {
            return;
        };
        self.opened.fetch_add(1, Ordering::Relaxed);
        if fault == Fault::ConnectionFlood {
            stay_silent(&mut connection).await;
        } else {
            never_read(&mut connection).await;
        }
        self.closed.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }

    /// Connections that were opened, and that the service closed.
    fn counts(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.opened), count(&self.closed))
    }
}

/// Sends half of a request, and returns when the service closes the connection.
async fn stay_silent(connection: &mut TcpStream) {
    let _ = connection.write_all(b"GET /healthz HT").await;
    let _ = connection.read(&mut [0]).await;
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

/// New buyers during a fault.
struct NewBuyers {
    api: Api,
    round: usize,
    came: usize,
    served: usize,
    /// What the last one heard that was not served.
    error: Option<client::Error>,
}

impl NewBuyers {
    fn of(api: Api, round: usize) -> Self {
        Self {
            api,
            round,
            came: 0,
            served: 0,
            error: None,
        }
    }

    /// Sends one order of one new buyer after the other, for this time and until enough came.
    async fn order_for(mut self, lasts: Duration) -> Self {
        let began = Instant::now();
        while began.elapsed() < lasts
            || (self.came < BUYERS_MIN || self.served == 0) && began.elapsed() < LASTS_MAX
        {
            self.order().await;
            sleep(PAUSE_BETWEEN_BUYERS).await;
        }
        self
    }

    async fn order(&mut self) {
        self.came += 1;
        // A copy of a client would share its connections.
        let Ok(api) = self.api.reconnected() else {
            return;
        };
        let buyer = api.buyer(&format!("new-{}-{}", self.round, self.came));
        match buyer.place(&NewOrder::new(PROBE, 1)).await {
            Ok(_) => self.served += 1,
            Err(error) => self.error = Some(error),
        }
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
