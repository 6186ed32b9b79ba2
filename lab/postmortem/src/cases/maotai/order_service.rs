//! The order service of the incident, as it was written and with the proposed remedies. It is a
//! separate process, so it can be stopped while it holds the lock.

use std::time::Duration;

use anyhow::{Result, ensure};
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::Redis;
use uuid::Uuid;

use super::identity::{self, IdentityService};
use crate::{
    actor::Host,
    cases::plain_lock::{self, renew},
    engine::{Engine, EngineClient, Outcome},
    pace::Pace,
    test_env,
    timeline::{Doing, Event},
};

/// Number of bottles that are left.
pub(super) const BOTTLES: &str = "maotai:amount";
/// List of buyers who have a bottle.
pub(super) const ORDERS: &str = "maotai:orders";
/// List of buyers who have not been served.
pub(super) const BUYERS: &str = "maotai:buyers";
const LOCK: &str = "maotai:lock";

/// Point after it has sold the last bottle but one.
pub(super) const ONE_IS_LEFT: &str = "one bottle is left";
/// Point after it has read that one bottle is left, before it takes it.
pub(super) const LAST_BOTTLE: &str = "after the stock was read, and one was left";

/// Time between two attempts to lock, in scenario time.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    redis_url: String,
    identity_url: String,
    engine: Option<(EngineClient, String)>,
    speed: f64,
    lease_ms: u64,
    stock: u64,
    selling: Selling,
}

/// How a service sells.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Selling {
    pub lock: Option<LeaseLock>,
    /// Whether the identity check precedes the lock.
    pub identity_first: bool,
    pub orders: Orders,
}

/// The lock of the incident, and its remedies.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct LeaseLock {
    /// Whether its value is unique, and only the holder of that value deletes it.
    pub unique: bool,
    /// Whether a watchdog extends it.
    pub renewed: bool,
}

/// How a service takes a bottle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Orders {
    GetAndCompare,
    AtomicScript,
    Engine,
}

/// Number of buyers with each answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub sold: u64,
    pub refused: u64,
}

impl Task {
    pub(super) fn new(
        pace: Pace,
        redis: &Redis,
        identity: &IdentityService,
        selling: Selling,
        lease: Duration,
        stock: u64,
        engine: Option<&(Engine, String)>,
    ) -> Self {
        Self {
            redis_url: redis.url(),
            identity_url: identity.url.clone(),
            engine: engine.map(|(engine, item)| (engine.client.clone(), item.clone())),
            speed: pace.speed(),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            stock,
            selling,
        }
    }
}

/// Runs a service until no buyer is left.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let pace =
        Pace::new(task.speed).unwrap_or_else(|| unreachable!("the runner sends a valid speed"));
    let redis = test_env::connect(&task.redis_url).await?;
    let service = Service {
        host,
        redis,
        client: Client::new(),
        pace,
        lease: Duration::from_millis(task.lease_ms),
        task,
    };
    let mut totals = Totals::default();
    while let Some(buyer) = service.next_buyer().await? {
        match service.sell(&buyer).await? {
            true => totals.sold += 1,
            false => totals.refused += 1,
        }
    }
    Ok(serde_json::to_value(totals)?)
}

struct Service<'a> {
    host: &'a Host,
    redis: MultiplexedConnection,
    client: Client,
    pace: Pace,
    lease: Duration,
    task: Task,
}

impl Service<'_> {
    fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }

    async fn next_buyer(&self) -> Result<Option<String>> {
        Ok(self.redis().lpop(BUYERS, None).await?)
    }

    /// Serves one buyer, and returns whether there is an order.
    async fn sell(&self, buyer: &str) -> Result<bool> {
        let selling = self.task.selling;
        if selling.identity_first {
            self.identify(buyer).await?;
        }
        match selling.lock {
            None => self.take(buyer).await,
            Some(lock) => self.sell_under(lock, buyer).await,
        }
    }

    async fn sell_under(&self, lock: LeaseLock, buyer: &str) -> Result<bool> {
        let value = if lock.unique {
            Uuid::new_v4().to_string()
        } else {
            "locked".into()
        };
        self.lock(&value).await?;
        let inside = self.host.holds(buyer, self.lease).await?;
        let work = async {
            if !self.task.selling.identity_first {
                self.identify(buyer).await?;
            }
            self.take(buyer).await
        };
        let sold = match lock.renewed {
            false => work.await,
            true => {
                let lock = (LOCK, value.as_str());
                let watchdog = renew(self.host, self.redis(), lock, self.pace, self.lease, inside);
                tokio::select! { sold = work => sold, Err(error) = watchdog => Err(error) }
            }
        };
        // From here on it does nothing that needs exclusion.
        self.host.ends(inside).await?;
        self.unlock(lock, &value).await?;
        sold
    }

    async fn identify(&self, buyer: &str) -> Result<()> {
        identity::identify(&self.client, &self.task.identity_url, buyer).await
    }

    async fn lock(&self, value: &str) -> Result<()> {
        if self.try_lock(value).await? {
            return Ok(());
        }
        let waiting = self
            .host
            .begins(Doing::Waiting, "waits for the lock")
            .await?;
        while !self.try_lock(value).await? {
            self.pace.sleep(RETRY_INTERVAL).await;
        }
        self.host.ends(waiting).await
    }

    async fn try_lock(&self, value: &str) -> Result<bool> {
        let lease_ms = self.pace.real_ms(self.lease);
        Ok(plain_lock::set_nx_px(&mut self.redis(), LOCK, value, lease_ms).await?)
    }

    async fn unlock(&self, lock: LeaseLock, value: &str) -> Result<()> {
        let deleted: bool = if lock.unique {
            plain_lock::compare_and_delete(&mut self.redis(), LOCK, value).await?
        } else {
            self.redis().del(LOCK).await?
        };
        if !deleted {
            self.host.notes(Event::Expired, "its lock was gone").await?;
        }
        Ok(())
    }

    async fn take(&self, buyer: &str) -> Result<bool> {
        match self.task.selling.orders {
            Orders::GetAndCompare => self.get_and_compare(buyer).await,
            Orders::AtomicScript => self.check_and_decrement(buyer).await,
            Orders::Engine => self.order(buyer).await,
        }
    }

    async fn get_and_compare(&self, buyer: &str) -> Result<bool> {
        let left: i64 = self.redis().get(BOTTLES).await?;
        if left == 1 {
            self.host.point(LAST_BOTTLE).await?;
        }
        if left <= 0 {
            return Ok(false);
        }
        let left: i64 = self.redis().decr(BOTTLES, 1).await?;
        self.sold(buyer, left).await
    }

    async fn check_and_decrement(&self, buyer: &str) -> Result<bool> {
        let script = "local left = tonumber(redis.call('GET', KEYS[1])) if left <= 0 then return -1 end return redis.call('DECR', KEYS[1])";
        match Script::new(script)
            .key(BOTTLES)
            .invoke_async(&mut self.redis())
            .await?
        {
            -1 => Ok(false),
            left => self.sold(buyer, left).await,
        }
    }

    async fn order(&self, buyer: &str) -> Result<bool> {
        let Some((engine, item)) = &self.task.engine else {
            anyhow::bail!("the task names no engine")
        };
        let outcome = loop {
            match engine.order(item, buyer, "one-bottle").await? {
                Outcome::Unknown => self.pace.sleep(RETRY_INTERVAL).await,
                outcome => break outcome,
            }
        };
        if outcome == Outcome::Refused {
            return Ok(false);
        }
        let left: i64 = self.redis().decr(BOTTLES, 1).await?;
        self.sold(buyer, left).await
    }

    async fn sold(&self, buyer: &str, left: i64) -> Result<bool> {
        let orders: u64 = self.redis().rpush(ORDERS, buyer).await?;
        ensure!(orders > 0, "the order was not written to Redis");
        let event = if orders > self.task.stock {
            Event::Harm
        } else {
            Event::Sale
        };
        self.host
            .notes(event, &format!("{buyer}: {left} left"))
            .await?;
        if left == 1 {
            self.host.point(ONE_IS_LEFT).await?;
        }
        Ok(true)
    }
}
