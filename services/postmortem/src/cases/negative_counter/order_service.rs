//! The order service, with a counter in Redis. A process of its own: it can be killed between two of its commands.

use anyhow::{Result, bail};
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{actor::Host, stage, timeline::Event};

/// The counter.
pub(super) const LEFT: &str = "sneakers:left";
/// Who wants a pair.
pub(super) const BUYERS: &str = "sneakers:buyers";
/// Who has one.
pub(super) const ORDERS: &str = "sneakers:orders";
/// Where a service stands when a buyer has come too late.
pub(super) const REFUSED: &str = "after the counter said no";

/// How it takes a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Taking {
    Decrement,
    DecrementAndPutBack,
    Script,
}

/// What a service is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub redis_url: String,
    pub taking: Taking,
}

/// Is a service, until nobody wants anything any more. How many it sold.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let mut redis = stage::connect(&task.redis_url).await?;
    let mut sold = 0_u64;
    while let Some(buyer) = redis.lpop::<_, Option<String>>(BUYERS, None).await? {
        if task.taking.take(&mut redis).await? {
            sold = redis.rpush(ORDERS, &buyer).await?;
            host.notes(Event::Sale, &buyer).await?;
        } else {
            host.point(REFUSED).await?;
            task.taking.was_refused(&mut redis).await?;
        }
    }
    Ok(serde_json::to_value(sold)?)
}

impl Taking {
    /// What comes after the counter's no.
    pub(super) async fn was_refused(self, redis: &mut MultiplexedConnection) -> Result<()> {
        if self == Self::DecrementAndPutBack {
            let () = redis.incr(LEFT, 1).await?;
        }
        Ok(())
    }

    /// Whether there was one.
    pub(super) async fn take(self, redis: &mut MultiplexedConnection) -> Result<bool> {
        if self != Self::Script {
            let left: i64 = redis.decr(LEFT, 1).await?;
            return Ok(left >= 0);
        }
        let script = "if tonumber(redis.call('GET', KEYS[1])) < 1 then return 0 end redis.call('DECR', KEYS[1]) return 1";
        match Script::new(script).key(LEFT).invoke_async(redis).await? {
            0 => Ok(false),
            1 => Ok(true),
            other => bail!("the script answered {other}"),
        }
    }
}
