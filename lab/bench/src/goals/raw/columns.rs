//! The order step as a script in columns, called by a client that only sends batches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use anyhow::Result;
use redis::{Script, Value, aio::MultiplexedConnection};
use stock::Reservation;
use tokio::task::JoinSet;

use crate::goals::{crowd::Count, servers};

const SOURCE: &str = include_str!("columns.lua");

/// Segments on one Redis, each with one batch in flight.
pub struct Columns {
    connection: MultiplexedConnection,
    segments: usize,
    stock: u64,
}

impl Columns {
    /// Spreads the stock over the segments.
    pub async fn open(url: &str, segments: usize, stock: u64) -> Result<Self> {
        let mut connection = servers::connect(url).await?;
        for segment in 0..segments {
            let _: () = redis::cmd("SET")
                .arg(key("stock", segment))
                .arg(stock / segments as u64)
                .query_async(&mut connection)
                .await?;
        }
        Script::new(SOURCE).load_async(&mut connection).await?;
        Ok(Self {
            connection,
            segments,
            stock: stock / segments as u64 * segments as u64,
        })
    }

    /// Sends the reservations in batches of this size.
    pub async fn sell(&self, reservations: &Arc<Vec<Reservation>>, batch: usize) -> Result<Count> {
        let (began, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let mut segments = JoinSet::new();
        for segment in 0..self.segments {
            let (connection, reservations, next) = (
                self.connection.clone(),
                Arc::clone(reservations),
                Arc::clone(&next),
            );
            segments.spawn(async move {
                Segment::new(segment, connection)
                    .sell(&reservations, batch, &next)
                    .await
            });
        }
        let mut count = Count::default();
        while let Some(sold) = segments.join_next().await {
            let (taken, rejected) = sold??;
            count.accepted += taken;
            count.rejected += rejected;
        }
        count.took = began.elapsed();
        Ok(count)
    }

    /// Returns the units on which counters and answers disagree, and the oversold units.
    pub async fn audit(&mut self, accepted: u64) -> Result<(i64, u64)> {
        let (mut left, mut taken) = (0, 0);
        for segment in 0..self.segments {
            left += redis::cmd("GET")
                .arg(key("stock", segment))
                .query_async::<i64>(&mut self.connection)
                .await?;
            taken += redis::cmd("HLEN")
                .arg(key("buyers", segment))
                .query_async::<i64>(&mut self.connection)
                .await?;
        }
        let (stock, accepted) = (i64::try_from(self.stock)?, i64::try_from(accepted)?);
        let drift = (stock - left - taken).abs() + (taken - accepted).abs();
        Ok((drift, u64::try_from(taken - stock).unwrap_or(0)))
    }
}

fn key(kind: &str, segment: usize) -> String {
    format!("raw:{{{segment}}}:{kind}")
}

struct Segment {
    script: Script,
    keys: [String; 3],
    connection: MultiplexedConnection,
}

impl Segment {
    fn new(segment: usize, connection: MultiplexedConnection) -> Self {
        Self {
            script: Script::new(SOURCE),
            keys: ["stock", "buyers", "outbox"].map(|kind| key(kind, segment)),
            connection,
        }
    }

    async fn sell(
        mut self,
        reservations: &[Reservation],
        batch: usize,
        next: &AtomicUsize,
    ) -> Result<(u64, u64)> {
        let (mut taken, mut rejected) = (0, 0);
        loop {
            let from = next.fetch_add(batch, Ordering::Relaxed);
            let Some(reservations) = reservations
                .get(from..)
                .filter(|reservations| !reservations.is_empty())
            else {
                return Ok((taken, rejected));
            };
            let reservations = &reservations[..batch.min(reservations.len())];
            let sold = self.send(reservations).await?;
            taken += sold;
            rejected += reservations.len() as u64 - sold;
        }
    }

    async fn send(&mut self, reservations: &[Reservation]) -> Result<u64> {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(self.script.get_hash())
            .arg(3)
            .arg(&self.keys)
            .arg(reservations.len());
        for reservation in reservations {
            command.arg(reservation.buyer.as_str());
        }
        for reservation in reservations {
            command.arg(&reservation.order.as_bytes()[..]);
        }
        command.arg(packed(reservations));
        match command.query_async(&mut self.connection).await? {
            Value::Int(1) => Ok(reservations.len() as u64),
            Value::Array(exceptions) => match exceptions.first() {
                Some(Value::Int(taken)) => Ok(u64::try_from(*taken)?),
                other => anyhow::bail!("the script answered {other:?}"),
            },
            other => anyhow::bail!("the script answered {other:?}"),
        }
    }
}

/// The same fields of an order as in the outbox of the stock crate: id, quantity, buyer.
fn packed(reservations: &[Reservation]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(reservations.len() * 40);
    for reservation in reservations {
        packed.extend_from_slice(reservation.order.as_bytes());
        packed.extend_from_slice(&reservation.quantity.get().to_be_bytes());
        packed.push(u8::try_from(reservation.buyer.as_str().len()).unwrap_or(u8::MAX));
        packed.extend_from_slice(reservation.buyer.as_str().as_bytes());
    }
    packed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stock::Acknowledge;
    use testbed::Redis;

    use super::Columns;
    use crate::goals::in_process;

    #[tokio::test]
    async fn the_raw_script_sells_its_stock_and_one_unit_per_buyer() {
        let redis = Redis::start().await.unwrap();
        let mut columns = Columns::open(&redis.url(), 1, 100).await.unwrap();
        let item = in_process::item("raw", 100, 1, None).unwrap();
        let reservations: Vec<_> = (0..90)
            .map(|buyer| in_process::reservation(&item, buyer, Acknowledge::Accepted).unwrap())
            .collect();
        let some = columns
            .sell(&Arc::new(reservations[..60].to_vec()), 32)
            .await
            .unwrap();
        assert_eq!((some.accepted, some.rejected), (60, 0));
        let again = columns.sell(&Arc::new(reservations), 32).await.unwrap();
        assert_eq!(
            (again.accepted, again.rejected),
            (30, 60),
            "sixty have theirs already"
        );
        let late: Vec<_> = (90..110)
            .map(|buyer| in_process::reservation(&item, buyer, Acknowledge::Accepted).unwrap())
            .collect();
        let last = columns.sell(&Arc::new(late), 32).await.unwrap();
        assert_eq!((last.accepted, last.rejected), (10, 10));
        assert_eq!(columns.audit(100).await.unwrap(), (0, 0));
        assert_eq!(
            columns.audit(99).await.unwrap(),
            (1, 0),
            "a unit that was not acknowledged is drift"
        );
    }
}
