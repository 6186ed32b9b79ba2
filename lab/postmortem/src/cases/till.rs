//! A till sells one unit under a common Redis lock. It is a separate process, so it can be stopped
//! and killed between any two of its lines. Several cases use it, each with another fault.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::Redis;
use tokio::time::timeout;
use uuid::Uuid;

use super::plain_lock::{self, renew};
use crate::{
    actor::{Actor, Host, Role, Stop},
    pace::Pace,
    test_env::{self, TestEnv},
    timeline::{Doing, Event},
};

/// Number of units that are left.
const STOCK: &str = "stock";
/// List of sales.
const ORDERS: &str = "orders";
const LOCK: &str = "stock:lock";

/// Point at which the process runs and has not requested anything.
const READY: &str = "before the lock is asked for";
/// Point at which the till has just got the lock.
pub(super) const TAKEN: &str = "after the lock was taken";
/// Point at which the lock was found taken. The till retries when it continues.
pub(super) const REFUSED: &str = "after the lock was found taken";
/// Point at which the till has read an expired time, and has not reacted yet.
pub(super) const OVERDUE: &str = "after the lock was found overdue";
/// Point at which the till has read the stock, and has not written it yet.
pub(super) const READ: &str = "after the stock was read";
/// Point at which the work is done. The next command deletes the lock.
pub(super) const BEFORE_DELETE: &str = "before the lock is deleted";

/// Time between two attempts to lock, in scenario time.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Duration of a sale, in scenario time.
const SALE_DURATION: Duration = Duration::from_secs(2);

/// Arguments of a till.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    redis_url: String,
    speed: f64,
    lease_ms: u64,
    stock: u64,
    locking: Locking,
}

/// How a till locks. The variants of a case differ in this.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Locking {
    pub take: Take,
    /// Whether a watchdog extends the lease.
    pub renewed: bool,
    pub free: Free,
}

/// How it takes the lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Take {
    /// `SETNX`, then `PEXPIRE`.
    SetNxThenExpire,
    /// `SETNX` with the time at which the lock ends. A till that reads an expired time deletes the
    /// lock and starts again.
    TimeInTheValue,
    /// `SET NX PX`.
    SetNxPx,
}

/// How it releases the lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Free {
    /// `DEL`.
    Delete,
    /// `GET`, and `DEL` if the value matches.
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

/// A Redis server with the stock, and the tills that sell from it.
pub(super) struct TillEnv<'a> {
    redis: Redis,
    env: &'a TestEnv,
    redis_connection: MultiplexedConnection,
    stock: u64,
}

impl<'a> TillEnv<'a> {
    pub(super) async fn open(env: &'a TestEnv, stock: u64) -> Result<Self> {
        let redis = env.redis().await?;
        let mut redis_connection = env.connect(&redis).await?;
        let () = redis_connection.set(STOCK, stock).await?;
        let shop = Self {
            redis,
            env,
            redis_connection,
            stock,
        };
        shop.note_stock().await?;
        Ok(shop)
    }

    /// Starts a till. Its process runs, and has not requested the lock.
    pub(super) async fn till(
        &self,
        number: u32,
        lease: Duration,
        locking: Locking,
    ) -> Result<Actor> {
        let task = Task::new(self.env.pace, &self.redis, lease, self.stock, locking);
        let mut till = Actor::start(self.env, &format!("till {number}"), Role::Till, &task).await?;
        till.until(READY).await?;
        Ok(till)
    }

    /// Records the number of units that are left.
    pub(super) async fn note_stock(&self) -> Result<i64> {
        let left = self.redis_connection.clone().get(STOCK).await?;
        self.env.timeline.stock(left);
        Ok(left)
    }

    /// Returns whether the lock is held.
    pub(super) async fn is_locked(&self) -> Result<bool> {
        Ok(self.redis_connection.clone().exists(LOCK).await?)
    }

    /// Returns the number of units that were sold and the number that are left.
    pub(super) async fn count(&self) -> Result<(u64, u64)> {
        let sold = self.redis_connection.clone().llen(ORDERS).await?;
        Ok((sold, u64::try_from(self.note_stock().await?).unwrap_or(0)))
    }

    /// Waits until a till stops at one of these points, for a limited time.
    pub(super) async fn wait_at(
        &self,
        till: &mut Actor,
        points: &[&str],
        within: Duration,
    ) -> Result<Option<String>> {
        match timeout(self.env.pace.real(within), run_until(till, points)).await {
            Ok(point) => point.map(Some),
            Err(_) => Ok(None),
        }
    }
}

/// Waits until a till stops at one of these points.
pub(super) async fn run_until(till: &mut Actor, points: &[&str]) -> Result<String> {
    loop {
        match till.next().await? {
            Stop::At(point) if points.contains(&point.as_str()) => return Ok(point),
            Stop::At(_) => {}
            Stop::Done(result) => bail!("the till ended before any of {points:?}: {result}"),
        }
    }
}

/// Runs a till, and returns whether it has sold a unit.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let pace =
        Pace::new(task.speed).unwrap_or_else(|| unreachable!("the runner sends a valid speed"));
    let redis = test_env::connect(&task.redis_url).await?;
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
                let lock = (LOCK, value.as_str());
                let watchdog = renew(self.host, self.redis(), lock, self.pace, self.lease, inside);
                tokio::select! { sold = self.sell() => sold, Err(error) = watchdog => Err(error) }
            }
        };
        // From here on it does nothing that needs exclusion.
        self.host.ends(inside).await?;
        self.unlock(&value).await?;
        sold
    }

    async fn lock(&self) -> Result<String> {
        if let Some(value) = self.try_lock().await? {
            return Ok(value);
        }
        let waiting = self
            .host
            .begins(Doing::Waiting, "waits for the lock")
            .await?;
        loop {
            self.host.point(REFUSED).await?;
            self.pace.sleep(RETRY_INTERVAL).await;
            if let Some(value) = self.try_lock().await? {
                self.host.ends(waiting).await?;
                return Ok(value);
            }
        }
    }

    /// Returns the value of the lock if the till has got it.
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

    /// The documentation of SETNX used to warn of this pattern, and it is still written.
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
        let lease_ms = self.pace.real_ms(self.lease);
        if !plain_lock::set_nx_px(&mut self.redis(), LOCK, &value, lease_ms).await? {
            return Ok(None);
        }
        self.host.point(TAKEN).await?;
        Ok(Some(value))
    }

    async fn sell(&self) -> Result<bool> {
        let left: i64 = self.redis().get(STOCK).await?;
        self.host.point(READ).await?;
        if left <= 0 {
            self.host.notes(Event::Refused, "sold out").await?;
            return Ok(false);
        }
        self.pace.sleep(SALE_DURATION).await;
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
        Ok(plain_lock::compare_and_delete(&mut self.redis(), LOCK, value).await?)
    }
}

/// Returns the wall clock, which such values hold.
fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis())
}
