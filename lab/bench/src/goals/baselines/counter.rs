//! Stock as a number in Redis, which the holder of its lock reads and writes back.
//!
//! The holder writes the value that it read, less one, as application code under a lock does. The
//! server does not decrement. A lock with two concurrent holders therefore loses a unit, and the
//! audit finds it.

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;

use crate::goals::{crowd::Reply, servers};

/// Several counters that share the stock.
#[derive(Clone)]
pub struct Counters {
    pub connection: MultiplexedConnection,
    number: usize,
}

impl Counters {
    pub async fn open(url: &str, number: usize, stock: u64) -> Result<Self> {
        let counters = Self {
            connection: servers::connect(url).await?,
            number,
        };
        let share = |index: u64| stock / number as u64 + u64::from(index < stock % number as u64);
        for index in 0..number {
            redis::cmd("SET")
                .arg(key(index))
                .arg(share(index as u64))
                .query_async::<()>(&mut counters.connection.clone())
                .await?;
        }
        Ok(counters)
    }

    /// Takes a unit, if one is left. The caller must hold the lock of this counter.
    pub async fn take(&self, index: usize) -> Result<Reply> {
        let mut connection = self.connection.clone();
        let left: i64 = redis::cmd("GET")
            .arg(key(index))
            .query_async(&mut connection)
            .await?;
        if left < 1 {
            return Ok(Reply::Refused);
        }
        redis::cmd("SET")
            .arg(key(index))
            .arg(left - 1)
            .query_async::<()>(&mut connection)
            .await?;
        Ok(Reply::Sold)
    }

    /// Compares the missing units with the accepted orders: this variant records no orders.
    pub async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        let keys: Vec<_> = (0..self.number).map(key).collect();
        let left: Vec<i64> = redis::cmd("MGET")
            .arg(&keys)
            .query_async(&mut self.connection.clone())
            .await
            .context("the counters are gone")?;
        let gone = i64::try_from(stock)? - left.iter().sum::<i64>();
        Ok((
            (gone - i64::try_from(accepted)?).abs(),
            accepted.saturating_sub(stock),
        ))
    }
}

fn key(index: usize) -> String {
    format!("units:{index}")
}
