//! The shop: a counter in Redis, orders in flight, their records in SQL, and the repair of the
//! counter.

use std::time::Duration;

use anyhow::Result;
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use sqlx::PgPool;

use crate::{
    point::Point,
    timeline::{Event, Lane},
};

/// Number of units that are left.
pub(super) const LEFT: &str = "phones:left";
/// Queue of orders for the recorder.
pub(super) const QUEUE: &str = "phones:queue";
/// Orders as a log: every change of the counter, in order.
pub(super) const OUTBOX: &str = "phones:outbox";

pub(super) const SCHEMA: &str =
    "CREATE TABLE items (available bigint NOT NULL, checkpoint text NOT NULL);
    CREATE TABLE orders (id text PRIMARY KEY)";

/// Strategy of the reconciler for a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    Overwrite,
    /// Overwrites if the difference is the same after this delay.
    OverwriteAfter(Duration),
    /// Overwrites if the queue is empty.
    OverwriteWhenIdle,
    Invariant,
}

/// Connections of buyers and reconciler to the shop.
#[derive(Clone)]
pub(super) struct Shop {
    pub redis: MultiplexedConnection,
    pub pool: PgPool,
    pub outbox: bool,
}

impl Shop {
    /// Buys a unit, and returns whether there was one. One step changes the counter and sends the
    /// order.
    pub async fn buy(&self, order: &str) -> Result<bool> {
        let send = if self.outbox {
            "redis.call('XADD', KEYS[2], '*', 'order', ARGV[1])"
        } else {
            "redis.call('RPUSH', KEYS[2], ARGV[1])"
        };
        let script = Script::new(&format!(
            "if tonumber(redis.call('GET', KEYS[1])) < 1 then return 0 end
             redis.call('DECR', KEYS[1])
             {send}
             return 1"
        ));
        let key = if self.outbox { OUTBOX } else { QUEUE };
        let sold: u64 = script
            .key(LEFT)
            .key(key)
            .arg(order)
            .invoke_async(&mut self.redis())
            .await?;
        Ok(sold == 1)
    }

    pub async fn left(&self) -> Result<i64> {
        Ok(self.redis().get(LEFT).await?)
    }

    async fn available_in_sql(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT available FROM items")
            .fetch_one(&self.pool)
            .await?)
    }

    /// Compares and repairs. It passes the point `compared` between the two.
    pub async fn reconcile(&self, repair: Repair, lane: &Lane, compared: &Point) -> Result<()> {
        match repair {
            Repair::Overwrite => self.overwrite(lane, compared).await,
            Repair::OverwriteAfter(pause) => {
                let before = self.available_in_sql().await? - self.left().await?;
                lane.notes(Event::Note, format!("difference: {before}"));
                tokio::time::sleep(pause).await;
                let is_the_same = self.available_in_sql().await? - self.left().await? == before;
                if is_the_same {
                    self.overwrite(lane, compared).await
                } else {
                    Ok(())
                }
            }
            Repair::OverwriteWhenIdle => {
                let waiting: u64 = self.redis().llen(QUEUE).await?;
                lane.notes(Event::Note, format!("{waiting} orders in the queue"));
                if waiting == 0 {
                    self.overwrite(lane, compared).await
                } else {
                    Ok(())
                }
            }
            Repair::Invariant => self.adjust(lane, compared).await,
        }
    }

    /// Treats SQL as the truth.
    async fn overwrite(&self, lane: &Lane, compared: &Point) -> Result<()> {
        let (available, left) = (self.available_in_sql().await?, self.left().await?);
        lane.notes(Event::Note, format!("Redis {left}, SQL {available}"));
        compared.pass().await;
        if left != available {
            let () = self.redis().set(LEFT, available).await?;
            lane.notes(Event::Write, format!("SET {available}"));
        }
        Ok(())
    }

    /// Applies the invariant: Redis as of the last log entry must equal SQL as of the checkpoint,
    /// minus the orders in between. It repairs only the unexplained difference, and only if the log
    /// has not grown.
    async fn adjust(&self, lane: &Lane, compared: &Point) -> Result<()> {
        loop {
            let (left, last): (i64, String) = self.inspect().await?;
            let row: (i64, String) = sqlx::query_as("SELECT available, checkpoint FROM items")
                .fetch_one(&self.pool)
                .await?;
            let (available, checkpoint) = row;
            let between: redis::streams::StreamRangeReply = self
                .redis()
                .xrange(OUTBOX, format!("({checkpoint}"), &last)
                .await?;
            let missing = available - i64::try_from(between.ids.len())? - left;
            lane.notes(
                Event::Note,
                format!(
                    "Redis {left}, SQL {available}, {} in flight: {missing} missing",
                    between.ids.len()
                ),
            );
            compared.pass().await;
            if missing == 0 || self.add_if_last_is(&last, missing).await? {
                lane.notes(Event::Write, format!("adds {missing}"));
                return Ok(());
            }
            lane.notes(Event::Refused, "the log has grown: compares again");
        }
    }

    /// Reads the counter and the last entry of the log atomically.
    async fn inspect(&self) -> Result<(i64, String)> {
        let script = "local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
                      return {tonumber(redis.call('GET', KEYS[1])), last and last[1] or '0-0'}";
        Ok(Script::new(script)
            .key(LEFT)
            .key(OUTBOX)
            .invoke_async(&mut self.redis())
            .await?)
    }

    async fn add_if_last_is(&self, last: &str, units: i64) -> Result<bool> {
        let script = "local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
                      if (last and last[1] or '0-0') ~= ARGV[1] then return 0 end
                      redis.call('INCRBY', KEYS[1], ARGV[2])
                      return 1";
        let added: u64 = Script::new(script)
            .key(LEFT)
            .key(OUTBOX)
            .arg(last)
            .arg(units)
            .invoke_async(&mut self.redis())
            .await?;
        Ok(added == 1)
    }

    fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }
}
