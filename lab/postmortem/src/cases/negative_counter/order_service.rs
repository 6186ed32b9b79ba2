//! The order service with a counter in Redis. It is a separate process, so it can be killed between
//! two of its commands.

use anyhow::{Result, bail};
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{actor::Host, test_env, timeline::Event};

/// Counter of units that are left.
pub(super) const LEFT: &str = "sneakers:left";
/// List of buyers who have not been served.
pub(super) const BUYERS: &str = "sneakers:buyers";
/// List of buyers who have a unit.
pub(super) const ORDERS: &str = "sneakers:orders";
/// Point after a buyer was refused.
pub(super) const REFUSED: &str = "after the counter refused a buyer";

/// How a service takes a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Taking {
    Decrement,
    DecrementAndPutBack,
    Script,
}

/// Arguments of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub redis_url: String,
    pub taking: Taking,
}

/// Runs a service until no buyer is left, and returns the number of units that it sold.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let mut redis = test_env::connect(&task.redis_url).await?;
    let mut sold = 0_u64;
    while let Some(buyer) = redis.lpop::<_, Option<String>>(BUYERS, None).await? {
        if task.taking.take(&mut redis).await? {
            sold = redis.rpush(ORDERS, &buyer).await?;
            host.notes(Event::Sale, &buyer).await?;
        } else {
            host.point(REFUSED).await?;
            task.taking.undo_refusal(&mut redis).await?;
        }
    }
    Ok(serde_json::to_value(sold)?)
}

impl Taking {
    /// Undoes the decrement of a refused buyer, in the variant that does so.
    pub(super) async fn undo_refusal(self, redis: &mut MultiplexedConnection) -> Result<()> {
        if self == Self::DecrementAndPutBack {
            let () = redis.incr(LEFT, 1).await?;
        }
        Ok(())
    }

    /// Takes a unit, and returns whether there was one.
    pub(super) async fn take(self, redis: &mut MultiplexedConnection) -> Result<bool> {
        if self != Self::Script {
            let left: i64 = redis.decr(LEFT, 1).await?;
            return Ok(left >= 0);
        }
        let script = "if tonumber(redis.call('GET', KEYS[1])) < 1 then return 0 end redis.call('DECR', KEYS[1]) return 1";
        match Script::new(script).key(LEFT).invoke_async(redis).await? {
            0 => Ok(false),
            1 => Ok(true),
            other => bail!("expected 0 or 1 from the script, got {other}"),
        }
    }
}
