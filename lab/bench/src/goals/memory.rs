//! P6: memory of an order in Redis, and of ten thousand connections in the service.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::Durability;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::sleep;

use crate::{
    buyers::{self, CROWD, Crowd},
    connection::{Connection, order_request},
    goal::{Bound, Line, Measured, Sample},
    options::Options,
    programs,
    sale::PLENTY,
    test_env::TestEnv,
    wrk::{Load, load},
};

const ITEM: &str = "p6";
const ORDERS: usize = 240_000;
const BYTES_PER_ORDER_MAX: f64 = 160.0;
/// Duration of `wrk`, which does not end with the last order.
const SECONDS: u64 = 20;
const TRIM_TIMEOUT: Duration = Duration::from_secs(120);

const CONNECTIONS: usize = 10_000;
const RSS_MB_MAX: f64 = 100.0;
/// Longer than a connection keeps its buffers after a request.
const SILENCE: Duration = Duration::from_secs(3);
/// Connections that are opened concurrently: the system's queue of unaccepted connections is short.
const OPEN_CONCURRENCY: usize = 128;

/// Memory hardly varies, so it is measured once, whatever `--repeats` is.
pub async fn measure(options: &Options) -> Result<Measured> {
    let [with_outbox, trimmed] = bytes_per_order(options).await?;
    let connections = CONNECTIONS.min(programs::connections_allowed());
    let resident = resident_mb(connections).await?;
    Ok(Measured {
        goal: "P6",
        title: "memory",
        lines: lines(connections, [trimmed, with_outbox, resident]),
    })
}

/// Bytes per order before and after the ledger records the orders.
async fn bytes_per_order(options: &Options) -> Result<[Sample; 2]> {
    let mut env = TestEnv::without_recorder().await?;
    env.open(ITEM, PLENTY, Durability::Accepted).await?;
    let crowd = Crowd::new(ORDERS + 2 * options.connections as usize)?;
    let empty = used_memory(&env).await?;
    let order = Load {
        url: &env.url,
        item: ITEM,
        tokens: crowd.tokens(),
        run: "run",
        connections: options.connections,
        seconds: SECONDS,
        requests: Some(ORDERS),
        statuses: true,
    };
    let answered = load(order).await?;
    ensure!(
        answered.statuses.keys().eq([&202]),
        "orders of {ITEM} were answered {:?}, not all 202",
        answered.statuses
    );
    let full = settled_memory(&env).await?;
    let orders = env.audit_now(ITEM).await?.in_flight;
    ensure!(
        orders >= answered.answers,
        "{} orders were acknowledged, and the outboxes have {orders}",
        answered.answers
    );
    env.start_recorder().await?;
    let audit = env.audit(ITEM).await?;
    ensure!(
        audit.held == orders,
        "the outboxes had {orders} orders, and the ledger has {}",
        audit.held
    );
    until_trimmed(&env).await?;
    let trimmed = settled_memory(&env).await?;
    let sample = Sample {
        accepted: orders,
        drift: i64::try_from(audit.drift)?,
        oversold: audit.oversold,
        baseline: BYTES_PER_ORDER_MAX,
        ..Sample::default()
    };
    Ok([full, trimmed].map(|used| Sample {
        figure: (used - empty) / orders as f64,
        ..sample
    }))
}

async fn until_trimmed(env: &TestEnv) -> Result<()> {
    let until = Instant::now() + TRIM_TIMEOUT;
    while env.untrimmed(ITEM).await? > 0 {
        ensure!(
            Instant::now() < until,
            "the outboxes are not trimmed after {TRIM_TIMEOUT:?}"
        );
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Memory after Redis has freed the buffers of idle connections and finished resizing its tables.
async fn settled_memory(env: &TestEnv) -> Result<f64> {
    let mut last = used_memory(env).await?;
    for _ in 0..20 {
        sleep(Duration::from_millis(500)).await;
        let now = used_memory(env).await?;
        if (now - last).abs() < 0.001 * last {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

async fn used_memory(env: &TestEnv) -> Result<f64> {
    let mut connection = testbed::patient_connection(&env.redis.url()).await?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("memory")
        .query_async(&mut connection)
        .await?;
    info.get("used_memory").context("INFO has no used_memory")
}

/// Each connection has placed an order, stays open, and is silent.
async fn resident_mb(connections: usize) -> Result<Sample> {
    let env = TestEnv::start().await?;
    env.open(ITEM, PLENTY, Durability::Recorded).await?;
    let address = env.url.trim_start_matches("http://");
    let tokens: Vec<_> = (0..CROWD).map(buyers::token).collect::<Result<_>>()?;
    let open = |number: usize| {
        let request = order_request(
            ITEM,
            &tokens[number % CROWD],
            &format!("connection-{number}"),
        );
        async move {
            let mut connection = Connection::open(address).await?;
            let status = connection.send(&request).await?;
            ensure!(status == 201, "an order of {ITEM} was answered {status}");
            anyhow::Ok(connection)
        }
    };
    let opened: Vec<_> = stream::iter(0..connections)
        .map(open)
        .buffer_unordered(OPEN_CONCURRENCY)
        .try_collect()
        .await?;
    sleep(SILENCE).await;
    let figure =
        rss_mb(env.service_pid()).context("the memory of the service could not be read")?;
    let audit = env.audit(ITEM).await?;
    ensure!(
        audit.held == opened.len() as u64,
        "{} orders were acknowledged, and the ledger has {}",
        opened.len(),
        audit.held
    );
    let baseline = RSS_MB_MAX * connections as f64 / CONNECTIONS as f64;
    Ok(Sample {
        figure,
        baseline,
        accepted: audit.held,
        drift: i64::try_from(audit.drift)?,
        oversold: audit.oversold,
        ..Sample::default()
    })
}

/// Resident memory of a process, in MB.
fn rss_mb(pid: u32) -> Option<f64> {
    let from_proc = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .map(str::to_owned)
    };
    let from_ps = || {
        let output = std::process::Command::new("ps")
            .args(["-o", "rss=", "-p", &pid.to_string()])
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let kilobytes: f64 = from_proc()
        .or_else(from_ps)?
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .ok()?;
    Some(kilobytes / 1024.0)
}

fn lines(connections: usize, [trimmed, with_outbox, resident]: [Sample; 3]) -> Vec<Line> {
    let line = |figure: String, unit, bound, setting, sample| Line {
        figure,
        baseline: "bound".into(),
        unit,
        bound,
        setting,
        samples: vec![sample],
    };
    let difference = "used_memory of Redis after some orders less before the first, over the orders: one unit each, each by another buyer, limit \
                      counted, one segment";
    let fewer = if connections < CONNECTIONS {
        format!("; this machine allows no {CONNECTIONS}, and the bound is scaled down")
    } else {
        String::new()
    };
    let goal = Bound::AtMost(1.0);
    vec![
        line(
            "bytes per order, recorded".into(),
            "bytes",
            goal,
            format!("{difference}; the ledger has them and the outboxes are trimmed"),
            trimmed,
        ),
        line(
            "bytes per order, outbox included".into(),
            "bytes",
            Bound::None,
            format!("{difference}; no recorder runs, so every entry is still in its outbox"),
            with_outbox,
        ),
        line(
            format!("service at {connections} connections"),
            "MB",
            goal,
            format!(
                "resident memory of the process with every role; each connection has placed a recorded order, stays open, and has been silent for {SILENCE:?}{fewer}"
            ),
            resident,
        ),
    ]
}
