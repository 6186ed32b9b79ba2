//! The order step as a script in columns, called by a client that does nothing but send batches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use anyhow::Result;
use redis::{Script, Value, aio::MultiplexedConnection};
use stock::Ask;
use tokio::task::JoinSet;

use crate::goals::{crowd::Count, servers};

const SOURCE: &str = include_str!("columns.lua");

/// Some places to sell at, all on one Redis, each with a batch under way.
pub struct Columns {
    connection: MultiplexedConnection,
    lanes: usize,
    stock: u64,
}

impl Columns {
    /// Shares the stock among them.
    pub async fn open(url: &str, lanes: usize, stock: u64) -> Result<Self> {
        let mut connection = servers::connect(url).await?;
        for lane in 0..lanes {
            let _: () = redis::cmd("SET")
                .arg(key("stock", lane))
                .arg(stock / lanes as u64)
                .query_async(&mut connection)
                .await?;
        }
        Script::new(SOURCE).load_async(&mut connection).await?;
        Ok(Self {
            connection,
            lanes,
            stock: stock / lanes as u64 * lanes as u64,
        })
    }

    /// Sells to these, so many in a batch.
    pub async fn sell(&self, asks: &Arc<Vec<Ask>>, batch: usize) -> Result<Count> {
        let (began, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let mut lanes = JoinSet::new();
        for lane in 0..self.lanes {
            let (connection, asks, next) =
                (self.connection.clone(), Arc::clone(asks), Arc::clone(&next));
            lanes.spawn(async move { Lane::new(lane, connection).sell(&asks, batch, &next).await });
        }
        let mut count = Count::default();
        while let Some(sold) = lanes.join_next().await {
            let (taken, rejected) = sold??;
            count.accepted += taken;
            count.rejected += rejected;
        }
        count.took = began.elapsed();
        Ok(count)
    }

    /// What the counters and the buyers do not agree on, and units beyond the stock.
    pub async fn audit(&mut self, accepted: u64) -> Result<(i64, u64)> {
        let (mut left, mut taken) = (0, 0);
        for lane in 0..self.lanes {
            left += redis::cmd("GET")
                .arg(key("stock", lane))
                .query_async::<i64>(&mut self.connection)
                .await?;
            taken += redis::cmd("HLEN")
                .arg(key("buyers", lane))
                .query_async::<i64>(&mut self.connection)
                .await?;
        }
        let (stock, accepted) = (i64::try_from(self.stock)?, i64::try_from(accepted)?);
        let drift = (stock - left - taken).abs() + (taken - accepted).abs();
        Ok((drift, u64::try_from(taken - stock).unwrap_or(0)))
    }
}

fn key(kind: &str, lane: usize) -> String {
    format!("raw:{{{lane}}}:{kind}")
}

struct Lane {
    script: Script,
    keys: [String; 3],
    connection: MultiplexedConnection,
}

impl Lane {
    fn new(lane: usize, connection: MultiplexedConnection) -> Self {
        Self {
            script: Script::new(SOURCE),
            keys: ["stock", "buyers", "outbox"].map(|kind| key(kind, lane)),
            connection,
        }
    }

    async fn sell(mut self, asks: &[Ask], batch: usize, next: &AtomicUsize) -> Result<(u64, u64)> {
        let (mut taken, mut rejected) = (0, 0);
        loop {
            let from = next.fetch_add(batch, Ordering::Relaxed);
            let Some(asks) = asks.get(from..).filter(|asks| !asks.is_empty()) else {
                return Ok((taken, rejected));
            };
            let asks = &asks[..batch.min(asks.len())];
            let sold = self.send(asks).await?;
            taken += sold;
            rejected += asks.len() as u64 - sold;
        }
    }

    async fn send(&mut self, asks: &[Ask]) -> Result<u64> {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(self.script.get_hash())
            .arg(3)
            .arg(&self.keys)
            .arg(asks.len());
        for ask in asks {
            command.arg(ask.buyer.as_str());
        }
        for ask in asks {
            command.arg(&ask.order.as_bytes()[..]);
        }
        command.arg(packed(asks));
        match command.query_async(&mut self.connection).await? {
            Value::Int(1) => Ok(asks.len() as u64),
            Value::Array(exceptions) => match exceptions.first() {
                Some(Value::Int(taken)) => Ok(u64::try_from(*taken)?),
                other => anyhow::bail!("the script answered {other:?}"),
            },
            other => anyhow::bail!("the script answered {other:?}"),
        }
    }
}

/// As much as the outbox of the stock crate says of an order: id, quantity, buyer.
fn packed(asks: &[Ask]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(asks.len() * 40);
    for ask in asks {
        packed.extend_from_slice(ask.order.as_bytes());
        packed.extend_from_slice(&ask.quantity.get().to_be_bytes());
        packed.push(u8::try_from(ask.buyer.as_str().len()).unwrap_or(u8::MAX));
        packed.extend_from_slice(ask.buyer.as_str().as_bytes());
    }
    packed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stock::Acknowledge;
    use testbed::Redis;

    use super::Columns;
    use crate::goals::shop;

    #[tokio::test]
    async fn the_raw_script_sells_what_there_is_and_nobody_a_second_unit() {
        let redis = Redis::start().await.unwrap();
        let mut columns = Columns::open(&redis.url(), 1, 100).await.unwrap();
        let item = shop::item("raw", 100, 1, None).unwrap();
        let asks: Vec<_> = (0..90)
            .map(|buyer| shop::ask(&item, buyer, Acknowledge::Accepted).unwrap())
            .collect();
        let some = columns
            .sell(&Arc::new(asks[..60].to_vec()), 32)
            .await
            .unwrap();
        assert_eq!((some.accepted, some.rejected), (60, 0));
        let again = columns.sell(&Arc::new(asks), 32).await.unwrap();
        assert_eq!(
            (again.accepted, again.rejected),
            (30, 60),
            "sixty have theirs already"
        );
        let late: Vec<_> = (90..110)
            .map(|buyer| shop::ask(&item, buyer, Acknowledge::Accepted).unwrap())
            .collect();
        let last = columns.sell(&Arc::new(late), 32).await.unwrap();
        assert_eq!((last.accepted, last.rejected), (10, 10));
        assert_eq!(columns.audit(100).await.unwrap(), (0, 0));
        assert_eq!(
            columns.audit(99).await.unwrap(),
            (1, 0),
            "what nobody was told of is drift"
        );
    }
}
