//! Stockade on real servers of its own: Redis that flushes every write, and PostgreSQL that flushes every commit.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use testbed::{Daemon, Postgres, Redis, free_port};
use tokio::time::sleep;

use crate::{
    buyers::{self, JWT_SECRET},
    programs,
};

/// What admins present.
pub const ADMIN_TOKEN: &str = "a token of the admins of the bench";

/// Stock counters of every item, as the goals have it.
pub const SEGMENTS: u16 = 8;

/// More than anybody orders: the limit is counted and not reached.
const LIMIT: u32 = 1_000_000;

const READY_WITHIN: Duration = Duration::from_secs(30);
const AT_REST_WITHIN: Duration = Duration::from_secs(60);

/// A running Stockade. Dropping it ends it.
pub struct Site {
    // The processes go before their servers, and all before the folder with their logs.
    service: Daemon,
    recorder: Option<Daemon>,
    /// Where the stock is.
    pub redis: Redis,
    /// Where the ledger is.
    pub postgres: Postgres,
    /// Where the service serves.
    pub url: String,
    database_url: String,
    client: Client,
    dir: TempDir,
}

/// What the audit of an item says.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Audit {
    /// Units that nobody has.
    pub available: u64,
    /// Units of orders in the ledger.
    pub held: u64,
    returning: u64,
    in_transit: u64,
    /// Units that were taken in Redis and are on their way to the ledger.
    pub in_flight: u64,
    /// Units that the identity does not explain.
    pub drift: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
    rejected_orders: u64,
    ok: bool,
}

#[derive(Deserialize)]
struct Shown {
    segments: Vec<ShownSegment>,
}

#[derive(Deserialize)]
struct ShownSegment {
    outbox: u64,
}

impl Site {
    /// Every role in one process.
    pub async fn start() -> Result<Self> {
        Self::with_roles("order,recorder,reconciler").await
    }

    /// Only the order service: what it takes stays in the outboxes.
    pub async fn without_recorder() -> Result<Self> {
        Self::with_roles("order").await
    }

    async fn with_roles(roles: &'static str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("stockade-bench-")
            .tempdir()?;
        let (redis, postgres) = (Redis::start().await?, Postgres::start().await?);
        let database_url = postgres.create_database("bench").await?;
        let listen = format!("127.0.0.1:{}", free_port().await);
        let service = serve(&dir, "service", roles, &redis, &database_url, Some(&listen)).await?;
        let client = Client::builder().timeout(Duration::from_secs(60)).build()?;
        let site = Self {
            service,
            recorder: None,
            redis,
            postgres,
            url: format!("http://{listen}"),
            database_url,
            client,
            dir,
        };
        site.until_ready().await?;
        Ok(site)
    }

    /// Adds what was left out.
    pub async fn start_recorder(&mut self) -> Result<()> {
        self.recorder = Some(
            serve(
                &self.dir,
                "recorder",
                "recorder,reconciler",
                &self.redis,
                &self.database_url,
                None,
            )
            .await?,
        );
        Ok(())
    }

    /// The process that serves.
    pub fn service_pid(&self) -> u32 {
        self.service.pid()
    }

    /// The process that records, if it is one of its own.
    pub fn recorder_pid(&self) -> Option<u32> {
        self.recorder.as_ref().map(Daemon::pid)
    }

    /// Opens an item that acknowledges its orders at this point.
    pub async fn open(&self, item: &str, stock: u64, durability: &str) -> Result<()> {
        let new = json!({ "id": item, "stock": stock, "segments": SEGMENTS, "limit_per_buyer": LIMIT, "hold_seconds": 86_400, "durability": durability });
        self.as_admin(self.client.post(format!("{}/items", self.url)).json(&new))
            .await
            .map(drop)
    }

    /// Places one order and says with which status it was answered.
    pub async fn order(&self, item: &str, key: &str) -> Result<u16> {
        let request = self
            .client
            .post(format!("{}/items/{item}/orders", self.url))
            .bearer_auth(buyers::token(0)?);
        Ok(request
            .header("Idempotency-Key", key)
            .json(&json!({ "quantity": 1 }))
            .send()
            .await?
            .status()
            .as_u16())
    }

    /// The audit as soon as nothing is under way. An error if units stay under way, or if an order was rejected that had been acknowledged.
    pub async fn audit(&self, item: &str) -> Result<Audit> {
        let until = Instant::now() + AT_REST_WITHIN;
        loop {
            let audit = self.audit_now(item).await?;
            if audit.in_flight == 0 && audit.returning == 0 && audit.in_transit == 0 {
                ensure!(
                    audit.rejected_orders == 0,
                    "the ledger rejected {} orders of {item}",
                    audit.rejected_orders
                );
                ensure!(
                    audit.ok || audit.drift > 0 || audit.oversold > 0,
                    "the audit of {item} is not good, and does not say why"
                );
                return Ok(audit);
            }
            ensure!(
                Instant::now() < until,
                "units of {item} are still under way after {AT_REST_WITHIN:?}: {audit:?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The audit as it is.
    pub async fn audit_now(&self, item: &str) -> Result<Audit> {
        let text = self
            .as_admin(self.client.get(format!("{}/items/{item}/audit", self.url)))
            .await?;
        serde_json::from_str(&text).context("the audit is not what the API promises")
    }

    /// Entries in the outboxes of an item that are not trimmed yet, without those at the checkpoints, which stay.
    pub async fn untrimmed(&self, item: &str) -> Result<u64> {
        let text = self
            .as_admin(self.client.get(format!("{}/items/{item}", self.url)))
            .await?;
        let shown: Shown =
            serde_json::from_str(&text).context("the item is not what the API promises")?;
        Ok(shown
            .segments
            .iter()
            .map(|segment| segment.outbox.saturating_sub(1))
            .sum())
    }

    /// How many orders the service has answered, by outcome.
    pub async fn outcomes(&self) -> Result<BTreeMap<String, u64>> {
        let text = self
            .client
            .get(format!("{}/metrics", self.url))
            .send()
            .await?
            .error_for_status()?
            .text()
            .await?;
        Ok(outcomes(&text))
    }

    async fn as_admin(&self, request: RequestBuilder) -> Result<String> {
        let response = request.bearer_auth(ADMIN_TOKEN).send().await?;
        let (status, url) = (response.status(), response.url().clone());
        let text = response.text().await?;
        ensure!(status.is_success(), "{url}: {status}: {text}");
        Ok(text)
    }

    async fn until_ready(&self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            let answer = self.client.get(format!("{}/readyz", self.url)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if Instant::now() > until {
                let log = std::fs::read_to_string(self.service.log()).unwrap_or_default();
                bail!("the service was not ready after {READY_WITHIN:?}:\n{log}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Without LOCK_URLS the reconciler's lock is kept by the ledger's database, so that Redis is the stock's alone.
async fn serve(
    dir: &TempDir,
    name: &str,
    roles: &'static str,
    redis: &Redis,
    database_url: &str,
    listen: Option<&str>,
) -> Result<Daemon> {
    let (program, folder) = (programs::stockade()?, dir.path().join(name));
    let mut variables = vec![
        ("REDIS_URL", redis.url()),
        ("DATABASE_URL", database_url.to_owned()),
        ("STOCKADE_JWT_SECRET", JWT_SECRET.to_owned()),
        ("STOCKADE_ADMIN_TOKEN", ADMIN_TOKEN.to_owned()),
        ("STOCKADE_ROLES", roles.to_owned()),
    ];
    variables.extend(listen.map(|listen| ("STOCKADE_LISTEN", listen.to_owned())));
    let command = move || {
        let mut command = programs::unsteered(&program);
        command
            .arg("--dir")
            .arg(&folder)
            .arg("serve")
            .envs(variables.iter().cloned());
        command
    };
    Ok(Daemon::start("stockade", dir.path().join(format!("{name}.log")), command).await?)
}

/// `stockade_orders_total{outcome="held"} 12`
fn outcomes(metrics: &str) -> BTreeMap<String, u64> {
    let counter = |line: &str| {
        let (outcome, count) = line
            .strip_prefix("stockade_orders_total{outcome=\"")?
            .split_once("\"} ")?;
        Some((outcome.to_owned(), count.trim().parse().ok()?))
    };
    metrics.lines().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::outcomes;

    #[test]
    fn outcomes_are_read_from_the_metrics() {
        let text = "# TYPE stockade_orders_total counter\nstockade_orders_total{outcome=\"held\"} 12\nstockade_orders_total{outcome=\"sold_out\"} 3\n\
            stockade_order_seconds_count 15\n";
        let found = outcomes(text);
        assert_eq!((found.len(), found["held"], found["sold_out"]), (2, 12, 3));
    }
}
