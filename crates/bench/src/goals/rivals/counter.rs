//! Stock as a number in Redis, read and written back by whoever holds its lock.
//!
//! It is written as what was read less one, as code under a lock is, and not counted down by the server: a lock that two have at once loses a unit, and that
//! shows.

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;

use crate::goals::{crowd::Told, servers};

/// Some numbers, with the stock shared among them.
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
        let share = |place: u64| stock / number as u64 + u64::from(place < stock % number as u64);
        for place in 0..number {
            redis::cmd("SET")
                .arg(key(place))
                .arg(share(place as u64))
                .query_async::<()>(&mut counters.connection.clone())
                .await?;
        }
        Ok(counters)
    }

    /// Takes one, if there is one. Only for whoever holds the lock of this number.
    pub async fn take(&self, place: usize) -> Result<Told> {
        let mut connection = self.connection.clone();
        let left: i64 = redis::cmd("GET")
            .arg(key(place))
            .query_async(&mut connection)
            .await?;
        if left < 1 {
            return Ok(Told::Refused);
        }
        redis::cmd("SET")
            .arg(key(place))
            .arg(left - 1)
            .query_async::<()>(&mut connection)
            .await?;
        Ok(Told::Sold)
    }

    /// Nobody writes orders down here: what is gone is what was sold.
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

fn key(place: usize) -> String {
    format!("units:{place}")
}
