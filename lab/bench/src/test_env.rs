//! A running Stockade on private servers: Redis flushes every write, and PostgreSQL every commit.

use std::{
    collections::BTreeMap,
    env,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use client::{
    Admin, Audit, Client, Durability, IdempotencyKey, NewItem, NewOrder, OrderBatcher, Request,
    RetryPolicy, Token,
};
use tempfile::TempDir;
use testbed::{Daemon, Postgres, Redis, free_port, timeout};
use tokio::time::sleep;

use crate::{
    buyers::{self, JWT_SECRET},
    programs,
};

/// Token of the admins.
pub const ADMIN_TOKEN: &str = "a token of the admins of the bench";

/// Segments of an item: one for each master, as an operator would choose.
pub const SEGMENTS: u16 = 1;

/// More than any buyer orders: the service counts towards the limit, and no buyer reaches it.
pub const LIMIT: u32 = 1_000_000;

const THREADS: &str = "STOCKADE_HTTP_THREADS";

/// An answer may wait behind a whole measurement.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// For longer the service answers with no older metrics.
pub const METRICS_FRESH_FOR: Duration = Duration::from_millis(1100);

/// A running Stockade. Dropping it stops all of it.
pub struct TestEnv {
    // Fields drop in this order: processes, then their servers, then the folder with the logs.
    service: Daemon,
    recorder: Option<Daemon>,
    /// Server of the stock.
    pub redis: Redis,
    /// Server of the ledger.
    pub postgres: Postgres,
    /// Base URL of the service.
    pub url: String,
    database_url: String,
    client: Client,
    admin: Admin,
    dir: TempDir,
}

impl TestEnv {
    /// Every role in one process.
    pub async fn start() -> Result<Self> {
        Self::with_roles("order,recorder,reconciler").await
    }

    /// Only the order service: its orders stay in the outboxes.
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
        let process = Process {
            name: "service",
            roles,
            listen: Some(&listen),
            settings: &[],
        };
        let service = process.start(&dir, &redis, &database_url).await?;
        let url = format!("http://{listen}");
        let client = client(&url)?;
        let env = Self {
            service,
            recorder: None,
            redis,
            postgres,
            url,
            database_url,
            admin: client.admin(Token::bearer(ADMIN_TOKEN)?),
            client,
            dir,
        };
        env.until_ready().await?;
        Ok(env)
    }

    /// Adds a process with the roles that [`TestEnv::without_recorder`] leaves out.
    pub async fn start_recorder(&mut self) -> Result<()> {
        let process = Process {
            name: "recorder",
            roles: "recorder,reconciler",
            listen: None,
            settings: &[],
        };
        let recorder = process.start(&self.dir, &self.redis, &self.database_url);
        self.recorder = Some(recorder.await?);
        Ok(())
    }

    /// Ends the process that [`TestEnv::start_recorder`] started. What it leaves is in the
    /// outboxes.
    pub fn stop_recorder(&mut self) {
        self.recorder = None;
    }

    /// Process id of the order service.
    pub fn service_pid(&self) -> u32 {
        self.service.pid()
    }

    /// Process id of the recorder, if it is a separate process.
    pub fn recorder_pid(&self) -> Option<u32> {
        self.recorder.as_ref().map(Daemon::pid)
    }

    /// Creates and opens an item with this durability, in one segment for each master.
    pub async fn open(&self, item: &str, stock: u64, durability: Durability) -> Result<()> {
        self.open_in(SEGMENTS, item, stock, durability).await
    }

    /// The same in any number of segments.
    pub async fn open_in(
        &self,
        segments: u16,
        item: &str,
        stock: u64,
        durability: Durability,
    ) -> Result<()> {
        let item = NewItem {
            segments: Some(segments),
            limit_per_buyer: Some(LIMIT),
            hold_seconds: Some(86_400),
            durability: Some(durability),
            ..NewItem::new(item, stock)
        };
        self.admin.create_item(&item).await?;
        Ok(())
    }

    /// A shop's backend that orders for many buyers, with so many requests at the same time.
    pub fn batcher(&self, item: &str, flights: usize) -> OrderBatcher {
        OrderBatcher::with_flights(&self.admin, item, flights)
    }

    /// Number of requests that the service has answered on this route.
    pub async fn requests(&self, route: &str) -> Result<u64> {
        Ok(requests(&self.metrics().await?, route))
    }

    /// Places one order and returns the status of the answer.
    pub async fn order(&self, item: &str, key: &str) -> Result<u16> {
        let token = Token::bearer(buyers::token(0)?)?;
        let order = NewOrder::new(item, 1).with_key(IdempotencyKey::new(key)?);
        let response = self
            .client
            .send_once(&Request::place(&token, &order))
            .await?;
        Ok(response.status)
    }

    /// The full audit once nothing is in flight. Fails if units stay in flight, or if the ledger
    /// rejected an acknowledged order.
    pub async fn audit(&self, item: &str) -> Result<Audit> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let audit = self.admin.audit(item).await?;
            if audit.is_at_rest() {
                let audit = self.admin.full_audit(item).await?;
                ensure!(
                    audit.rejected_orders == 0,
                    "the ledger rejected {} orders of {item}",
                    audit.rejected_orders
                );
                ensure!(
                    audit.ok || audit.drift > 0 || audit.oversold > 0,
                    "the audit of {item} failed without drift or oversell"
                );
                return Ok(audit);
            }
            ensure!(
                Instant::now() < until,
                "units of {item} are still in flight after {SETTLE_TIMEOUT:?}: {audit:?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The audit at this moment.
    pub async fn audit_now(&self, item: &str) -> Result<Audit> {
        Ok(self.admin.audit(item).await?)
    }

    /// Number of outbox entries of an item that are not trimmed yet. The entries at the checkpoints
    /// stay, and do not count.
    pub async fn untrimmed(&self, item: &str) -> Result<u64> {
        let segments = self.admin.item(item).await?.segments.unwrap_or_default();
        Ok(segments
            .iter()
            .map(|segment| segment.outbox.saturating_sub(1))
            .sum())
    }

    /// Number of orders that the service has answered, by outcome.
    pub async fn outcomes(&self) -> Result<BTreeMap<String, u64>> {
        Ok(outcomes(&self.metrics().await?))
    }

    /// The metrics after all that has been answered so far: the service renders them once a second.
    async fn metrics(&self) -> Result<String> {
        sleep(METRICS_FRESH_FOR).await;
        Ok(self.client.metrics().await?)
    }

    async fn until_ready(&self) -> Result<()> {
        let limit = timeout();
        let until = Instant::now() + limit;
        loop {
            if self.client.is_ready().await {
                return Ok(());
            }
            if Instant::now() > until {
                let log = std::fs::read_to_string(self.service.log()).unwrap_or_default();
                bail!("the service was not ready after {limit:?}:\n{log}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A client that makes each call once: a measurement must not repeat what it counts.
pub fn client(url: &str) -> Result<Client> {
    Ok(Client::builder([url])
        .attempt_timeout(ATTEMPT_TIMEOUT)
        .retry(RetryPolicy::never())
        .build()?)
}

/// A process of Stockade.
pub struct Process<'a> {
    /// Name of its folder and of its log.
    pub name: &'a str,
    /// What it does.
    pub roles: &'static str,
    /// `HOST:PORT`, if it serves.
    pub listen: Option<&'a str>,
    /// Further settings, by variable.
    pub settings: &'a [(&'static str, &'static str)],
}

impl Process<'_> {
    /// Starts it. Without LOCK_URLS, the ledger's database keeps the reconciler's lock. Redis then
    /// serves the stock only.
    pub async fn start(self, dir: &TempDir, redis: &Redis, database_url: &str) -> Result<Daemon> {
        let (program, folder) = (programs::stockade()?, dir.path().join(self.name));
        let variables = self.variables(redis, database_url);
        let command = move || {
            let mut command = programs::unsteered(&program);
            command
                .arg("--dir")
                .arg(&folder)
                .arg("serve")
                .envs(variables.iter().cloned());
            command
        };
        let log = dir.path().join(format!("{}.log", self.name));
        Ok(Daemon::start("stockade", log, command).await?)
    }

    fn variables(&self, redis: &Redis, database_url: &str) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("REDIS_URL", redis.url()),
            ("DATABASE_URL", database_url.to_owned()),
            ("STOCKADE_JWT_SECRET", JWT_SECRET.to_owned()),
            ("STOCKADE_ADMIN_TOKEN", ADMIN_TOKEN.to_owned()),
            ("STOCKADE_ROLES", self.roles.to_owned()),
            ("STOCKADE_MIGRATE", "on".to_owned()),
            // The counters of the metrics are read where the orders are placed.
            ("STOCKADE_OPERATORS_AT_LISTEN", "on".to_owned()),
        ];
        // Of the caller's settings only this one, to compare runs with and without it.
        variables.extend(env::var(THREADS).map(|count| (THREADS, count)));
        let listen = self.listen.map(str::to_owned);
        variables.extend(listen.map(|listen| ("STOCKADE_LISTEN", listen)));
        let settings = self.settings.iter();
        variables.extend(settings.map(|(name, value)| (*name, (*value).to_owned())));
        variables
    }
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

/// `http_server_request_duration_seconds_count{http_route="/v1/items",...} 12`
fn requests(metrics: &str, route: &str) -> u64 {
    let label = format!("http_route=\"{route}\"");
    let count = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("http_server_request_duration_seconds_count{")?;
        let (labels, count) = rest.split_once("} ")?;
        labels
            .split(',')
            .any(|found| found == label)
            .then(|| count.trim().parse().ok())?
    };
    metrics.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::{outcomes, requests};

    #[test]
    fn requests_of_a_route_are_summed_over_their_statuses() {
        let name = "http_server_request_duration_seconds";
        let text = format!(
            "{name}_count{{http_route=\"/a\",http_response_status_code=\"200\"}} 7\n{name}_sum{{http_route=\"/a\"}} 9\n\
             {name}_count{{http_route=\"/ab\",http_response_status_code=\"200\"}} 5\n{name}_count{{http_route=\"/a\",http_response_status_code=\"409\"}} 2\n"
        );
        assert_eq!(requests(&text, "/a"), 9);
    }

    #[test]
    fn outcomes_are_read_from_the_metrics() {
        let text = "# TYPE stockade_orders_total counter\nstockade_orders_total{outcome=\"held\"} 12\nstockade_orders_total{outcome=\"sold_out\"} 3\n\
            stockade_order_seconds_count 15\n";
        let found = outcomes(text);
        assert_eq!((found.len(), found["held"], found["sold_out"]), (2, 12, 3));
    }
}
