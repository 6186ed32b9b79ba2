//! A till: it sells one unit under a Redis lock, as people write it. A process of its own, so that it can be stopped and killed between any two
//! of its lines. Several cases break it, each in a place of its own.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, bail};
use redis::{
    AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions, aio::MultiplexedConnection,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::Redis;
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    actor::{Actor, At, Host, Role, Stop},
    pace::Pace,
    stage::{self, Stage},
    timeline::{Doing, Event},
};

/// Units that are left.
const STOCK: &str = "stock";
/// What was sold.
const ORDERS: &str = "orders";
const LOCK: &str = "stock:lock";

/// Where a till stands when its process runs, and it has not asked for anything yet.
const READY: &str = "before the lock is asked for";
/// Where a till stands when the lock is its own, and it has not done anything else yet.
pub(super) const TAKEN: &str = "after the lock was taken";
/// Where it stands when somebody else has the lock. It tries again when it goes on.
pub(super) const REFUSED: &str = "after somebody else was found to have the lock";
/// Where it stands when it has read that the holder's time is over, and has not yet done anything about it.
pub(super) const OVERDUE: &str = "after the lock was found overdue";
/// Where it stands when it has read the stock, and has not yet written it.
pub(super) const READ: &str = "after the stock was read";
/// Where it stands when its work is done, and the next thing that it sends deletes the lock.
pub(super) const BEFORE_DELETE: &str = "before the lock is deleted";

/// How often a till tries to get the lock, in the story.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// How long a sale takes, in the story.
const SALE: Duration = Duration::from_secs(2);

/// What a till is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    redis_url: String,
    speed: f64,
    lease_ms: u64,
    stock: u64,
    locking: Locking,
}

/// How it locks. This is what the ways of a case differ in.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Locking {
    pub take: Take,
    /// A watchdog extends the lease.
    pub renewed: bool,
    pub free: Free,
}

/// How it takes the lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Take {
    /// `SETNX`, then `PEXPIRE`.
    SetNxThenExpire,
    /// `SETNX` with the time at which the lock ends; whoever reads that it has ended deletes it and starts anew.
    TimeInTheValue,
    /// `SET NX PX`.
    SetNxPx,
}

/// How it frees the lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Free {
    /// `DEL`.
    Delete,
    /// `GET`, and `DEL` if it is ours.
    GetThenDelete,
    /// Both in one script.
    CompareAndDelete,
}

impl Task {
    pub(super) fn new(
        pace: Pace,
        redis: &Redis,
        lease: Duration,
        stock: u64,
        locking: Locking,
    ) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Self {
            redis_url: redis.url(),
            speed: pace.speed(),
            lease_ms,
            stock,
            locking,
        }
    }
}

/// A Redis server with so many units in stock.
pub(super) struct Shop<'a> {
    redis: Redis,
    stage: &'a Stage,
    counter: MultiplexedConnection,
    stock: u64,
}

impl<'a> Shop<'a> {
    pub(super) async fn open(stage: &'a Stage, stock: u64) -> Result<Self> {
        let redis = stage.redis().await?;
        let mut counter = stage.connect(&redis).await?;
        let () = counter.set(STOCK, stock).await?;
        let shop = Self {
            redis,
            stage,
            counter,
            stock,
        };
        shop.look().await?;
        Ok(shop)
    }

    /// One more till. Its process runs, and it has not yet asked for the lock.
    pub(super) async fn till(
        &self,
        number: u32,
        lease: Duration,
        locking: Locking,
    ) -> Result<Actor> {
        let task = Task::new(self.stage.pace, &self.redis, lease, self.stock, locking);
        let mut till =
            Actor::start(self.stage, &format!("till {number}"), Role::Till, &task).await?;
        till.until(READY).await?;
        Ok(till)
    }

    /// Notes how many units are left.
    pub(super) async fn look(&self) -> Result<i64> {
        let left = self.counter.clone().get(STOCK).await?;
        self.stage.timeline.stock(left);
        Ok(left)
    }

    /// Whether anybody has the lock.
    pub(super) async fn is_locked(&self) -> Result<bool> {
        Ok(self.counter.clone().exists(LOCK).await?)
    }

    /// Units that were sold, and units that are left.
    pub(super) async fn count(&self) -> Result<(u64, u64)> {
        let sold = self.counter.clone().llen(ORDERS).await?;
        Ok((sold, u64::try_from(self.look().await?).unwrap_or(0)))
    }

    /// Waits until a till stands at one of these points, but not for longer than this.
    pub(super) async fn comes_to(
        &self,
        till: &mut Actor,
        points: &[&str],
        within: Duration,
    ) -> Result<Option<String>> {
        match timeout(self.stage.pace.real(within), come_to(till, points)).await {
            Ok(point) => point.map(Some),
            Err(_) => Ok(None),
        }
    }
}

/// Waits until a till stands at one of these points.
pub(super) async fn come_to(till: &mut Actor, points: &[&str]) -> Result<String> {
    loop {
        match till.next().await? {
            Stop::At(point) if points.contains(&point.as_str()) => return Ok(point),
            Stop::At(_) => {}
            Stop::Done(result) => bail!("it ended before it came to any of {points:?}: {result}"),
        }
    }
}

/// Is a till. Whether it has sold a unit.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let pace = Pace::new(task.speed).unwrap_or_else(|| unreachable!("it was one"));
    let redis = stage::connect(&task.redis_url).await?;
    let till = Till {
        host,
        redis,
        pace,
        lease: Duration::from_millis(task.lease_ms),
        task,
    };
    Ok(till.serve().await?.into())
}

struct Till<'a> {
    host: &'a Host,
    redis: MultiplexedConnection,
    pace: Pace,
    lease: Duration,
    task: Task,
}

impl Till<'_> {
    fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }

    async fn serve(&self) -> Result<bool> {
        self.host.point(READY).await?;
        let value = self.lock().await?;
        let inside = self.host.holds("has the lock", self.lease).await?;
        let sold = match self.task.locking.renewed {
            false => self.sell().await,
            true => {
                tokio::select! { sold = self.sell() => sold, Err(error) = self.renew(&value, inside) => Err(error) }
            }
        };
        // From here on it does nothing that another must not do.
        self.host.ends(inside).await?;
        self.unlock(&value).await?;
        sold
    }

    async fn lock(&self) -> Result<String> {
        if let Some(value) = self.try_lock().await? {
            return Ok(value);
        }
        let waiting = self.host.begins(Doing::Waiting, "wants the lock").await?;
        loop {
            self.host.point(REFUSED).await?;
            self.pace.sleep(TRY_EVERY).await;
            if let Some(value) = self.try_lock().await? {
                self.host.ends(waiting).await?;
                return Ok(value);
            }
        }
    }

    /// The value under which it has the lock, if it has.
    async fn try_lock(&self) -> Result<Option<String>> {
        match self.task.locking.take {
            Take::SetNxThenExpire => self.set_nx_then_expire().await,
            Take::TimeInTheValue => self.time_in_the_value().await,
            Take::SetNxPx => self.set_nx_px().await,
        }
    }

    async fn set_nx_then_expire(&self) -> Result<Option<String>> {
        let value = Uuid::new_v4().to_string();
        let taken: bool = self.redis().set_nx(LOCK, &value).await?;
        if !taken {
            return Ok(None);
        }
        self.host.point(TAKEN).await?;
        let () = self
            .redis()
            .pexpire(LOCK, i64::try_from(self.pace.real_ms(self.lease))?)
            .await?;
        Ok(Some(value))
    }

    /// What the page of SETNX used to call wrong, and what is written again and again.
    async fn time_in_the_value(&self) -> Result<Option<String>> {
        if let Some(taken) = self.set_nx_until().await? {
            self.host.point(TAKEN).await?;
            return Ok(Some(taken));
        }
        let until: Option<u128> = self.redis().get(LOCK).await?;
        if until.is_none_or(|until| until >= now_ms()) {
            return Ok(None);
        }
        self.host.point(OVERDUE).await?;
        let () = self.redis().del(LOCK).await?;
        self.set_nx_until().await
    }

    async fn set_nx_until(&self) -> Result<Option<String>> {
        let until = (now_ms() + u128::from(self.pace.real_ms(self.lease))).to_string();
        let taken: bool = self.redis().set_nx(LOCK, &until).await?;
        Ok(taken.then_some(until))
    }

    async fn set_nx_px(&self) -> Result<Option<String>> {
        let value = Uuid::new_v4().to_string();
        let lease = SetExpiry::PX(self.pace.real_ms(self.lease));
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(lease);
        let set: Option<String> = self.redis().set_options(LOCK, &value, options).await?;
        if set.is_none() {
            return Ok(None);
        }
        self.host.point(TAKEN).await?;
        Ok(Some(value))
    }

    /// The watchdog. It never ends by itself, but with an error.
    async fn renew(&self, value: &str, inside: At) -> Result<Infallible> {
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
            // Where there is nothing left to extend, nobody tells the work.
            if extended == 1 {
                self.host.extended(inside, self.lease).await?;
            }
        }
    }

    async fn sell(&self) -> Result<bool> {
        let left: i64 = self.redis().get(STOCK).await?;
        self.host.point(READ).await?;
        if left <= 0 {
            self.host.notes(Event::Refused, "sold out").await?;
            return Ok(false);
        }
        self.pace.sleep(SALE).await;
        let () = self.redis().set(STOCK, left - 1).await?;
        let orders: u64 = self.redis().rpush(ORDERS, left).await?;
        let event = if orders > self.task.stock {
            Event::Harm
        } else {
            Event::Sale
        };
        self.host
            .notes(event, &format!("sold: {} left", left - 1))
            .await?;
        Ok(true)
    }

    async fn unlock(&self, value: &str) -> Result<()> {
        let deleted = match self.task.locking.free {
            Free::Delete => self.delete().await?,
            Free::GetThenDelete => self.get_then_delete(value).await?,
            Free::CompareAndDelete => self.compare_and_delete(value).await?,
        };
        if !deleted {
            self.host.notes(Event::Expired, "its lock was gone").await?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<bool> {
        self.host.point(BEFORE_DELETE).await?;
        Ok(self.redis().del(LOCK).await?)
    }

    async fn get_then_delete(&self, value: &str) -> Result<bool> {
        let owner: Option<String> = self.redis().get(LOCK).await?;
        if owner.as_deref() != Some(value) {
            return Ok(false);
        }
        self.delete().await
    }

    async fn compare_and_delete(&self, value: &str) -> Result<bool> {
        self.host.point(BEFORE_DELETE).await?;
        let script = Script::new(
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
        );
        Ok(script
            .key(LOCK)
            .arg(value)
            .invoke_async(&mut self.redis())
            .await?)
    }
}

/// The wall clock, which is what is written into such values.
fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis())
}
