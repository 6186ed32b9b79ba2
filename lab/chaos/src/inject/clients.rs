//! Clients that use up a service's connections: silent ones, and ones that read no answer.
//!
//! Meanwhile new buyers order, each on a new connection. Some of them must be served.

use std::time::Duration;

use anyhow::Result;
use client::NewOrder;
use futures::future::join_all;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand::{RngExt, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, sleep_until, timeout_at},
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
/// In less time no new buyer could be served on a busy machine.
const LASTS_MIN: Duration = Duration::from_secs(1);
const PAUSE_BETWEEN_BUYERS: Duration = Duration::from_millis(50);

/// New buyers during a fault.
#[derive(Default)]
struct NewBuyers {
    came: usize,
    served: usize,
    /// What the last one heard that was not served.
    error: Option<client::Error>,
}

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
    let until = Instant::now() + (round.lasts * 2).max(LASTS_MIN);
    let attacks = urls
        .iter()
        .flat_map(|url| (0..clients).map(move |_| attack(round.fault, url, until)));
    let buyers = order_until(until, env.api.at(urls.clone())?, round.number);
    let (attacks, buyers) = tokio::join!(join_all(attacks), buyers);
    let opened = attacks.iter().flatten().count();
    let closed = attacks.iter().flatten().filter(|closed| **closed).count();
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

/// Returns whether the service closed the connection. `None`: it could not be opened in time.
async fn attack(fault: Fault, url: &str, until: Instant) -> Option<bool> {
    let address = url.trim_start_matches("http://");
    let connect = timeout_at(until, TcpStream::connect(address));
    let mut connection = connect.await.ok()?.ok()?;
    let attack = async {
        if fault == Fault::ConnectionFlood {
            stay_silent(&mut connection).await;
        } else {
            never_read(&mut connection).await;
        }
    };
    let closed = timeout_at(until, attack).await.is_ok();
    sleep_until(until).await;
    Some(closed)
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

/// Sends one order of one new buyer after the other, each on its own connection.
async fn order_until(until: Instant, api: Api, round: usize) -> NewBuyers {
    let mut buyers = NewBuyers::default();
    while Instant::now() < until {
        buyers.came += 1;
        // A copy of a client would share its connections.
        let Ok(api) = api.reconnected() else { continue };
        let buyer = api.buyer(&format!("new-{round}-{}", buyers.came));
        let placed = buyer.place(&NewOrder::new(PROBE, 1)).await;
        match placed {
            Ok(_) => buyers.served += 1,
            Err(error) => buyers.error = Some(error),
        }
        sleep(PAUSE_BETWEEN_BUYERS).await;
    }
    buyers
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
