//! The order service of the story, as it was written, and as its readers mend it. A process of its own: it can be stopped with the lock in its
//! hand.

use std::time::Duration;

use anyhow::{Result, ensure};
use redis::{
    AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions, aio::MultiplexedConnection,
};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::Redis;
use uuid::Uuid;

use super::identity::{self, IdentityService};
use crate::{
    actor::Host,
    engine::{Answer, Counter, Engine},
    pace::Pace,
    stage,
    timeline::{Doing, Event},
};

/// Bottles that are left.
pub(super) const BOTTLES: &str = "maotai:amount";
/// Who has a bottle.
pub(super) const ORDERS: &str = "maotai:orders";
/// Who wants one.
pub(super) const BUYERS: &str = "maotai:buyers";
const LOCK: &str = "maotai:lock";

/// Where a service stands when it has sold the last bottle but one.
pub(super) const ONE_IS_LEFT: &str = "one bottle is left";
/// Where it stands when it has read that one is left, and has not yet taken it.
pub(super) const LAST_BOTTLE: &str = "after the stock was read, and one was left";

/// How often a service tries to get the lock, in the story.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// What a service is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    redis_url: String,
    identity_url: String,
    engine: Option<(Counter, String)>,
    speed: f64,
    lease_ms: u64,
    stock: u64,
    selling: Selling,
}

/// How it sells.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Selling {
    pub lock: Option<StoryLock>,
    /// The identity check comes before the lock.
    pub identity_first: bool,
    pub orders: Orders,
}

/// The lock, and what was mended of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StoryLock {
    /// Its value is the holder's own, and only who has it deletes it.
    pub unique: bool,
    /// A watchdog extends it.
    pub renewed: bool,
}

/// How it takes a bottle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Orders {
    GetAndCompare,
    AtomicScript,
    Engine,
}

/// What became of the buyers who came to it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
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
            engine: engine.map(|(engine, item)| (engine.counter.clone(), item.clone())),
            speed: pace.speed(),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            stock,
            selling,
        }
    }
}

/// Is a service, until nobody wants anything any more.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let pace = Pace::new(task.speed).unwrap_or_else(|| unreachable!("it was one"));
    let redis = stage::connect(&task.redis_url).await?;
    let service = Service {
        host,
        redis,
        client: Client::new(),
        pace,
        lease: Duration::from_millis(task.lease_ms),
        task,
    };
    let mut tally = Tally::default();
    while let Some(buyer) = service.next_buyer().await? {
        match service.sell(&buyer).await? {
            true => tally.sold += 1,
            false => tally.refused += 1,
        }
    }
    Ok(serde_json::to_value(tally)?)
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

    /// Serves one buyer, from the click to the answer. Whether there is an order.
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

    async fn sell_under(&self, lock: StoryLock, buyer: &str) -> Result<bool> {
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
                tokio::select! { sold = work => sold, Err(error) = self.renew(&value, inside) => Err(error) }
            }
        };
        // From here on it does nothing that another must not do.
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
        let waiting = self.host.begins(Doing::Waiting, "wants the lock").await?;
        while !self.try_lock(value).await? {
            self.pace.sleep(TRY_EVERY).await;
        }
        self.host.ends(waiting).await
    }

    async fn try_lock(&self, value: &str) -> Result<bool> {
        let lease = SetExpiry::PX(self.pace.real_ms(self.lease));
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(lease);
        let set: Option<String> = self.redis().set_options(LOCK, value, options).await?;
        Ok(set.is_some())
    }

    async fn unlock(&self, lock: StoryLock, value: &str) -> Result<()> {
        let deleted: u64 = if lock.unique {
            let script = Script::new(
                "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
            );
            script
                .key(LOCK)
                .arg(value)
                .invoke_async(&mut self.redis())
                .await?
        } else {
            self.redis().del(LOCK).await?
        };
        if deleted == 0 {
            self.host.notes(Event::Expired, "its lock was gone").await?;
        }
        Ok(())
    }

    /// The watchdog. It never ends by itself, but with an error.
    async fn renew(
        &self,
        value: &str,
        inside: crate::actor::At,
    ) -> Result<std::convert::Infallible> {
        let script = Script::new(
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0",
        );
        loop {
            self.pace.sleep(self.lease / 3).await;
            let lease_ms = self.pace.real_ms(self.lease);
            let extended: u64 = script
                .key(LOCK)
                .arg(value)
                .arg(lease_ms)
                .invoke_async(&mut self.redis())
                .await?;
            // Redisson's watchdog of the time gave up silently as well: the work goes on.
            if extended == 1 {
                self.host.extended(inside, self.lease).await?;
            }
        }
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
        let Some((counter, item)) = &self.task.engine else {
            anyhow::bail!("no engine")
        };
        let answer = loop {
            match counter.buy(&self.client, item, buyer, "one-bottle").await? {
                Answer::Unknown => self.pace.sleep(TRY_EVERY).await,
                answer => break answer,
            }
        };
        if answer == Answer::Refused {
            return Ok(false);
        }
        let left: i64 = self.redis().decr(BOTTLES, 1).await?;
        self.sold(buyer, left).await
    }

    async fn sold(&self, buyer: &str, left: i64) -> Result<bool> {
        let orders: u64 = self.redis().rpush(ORDERS, buyer).await?;
        ensure!(orders > 0, "the order was not written");
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
