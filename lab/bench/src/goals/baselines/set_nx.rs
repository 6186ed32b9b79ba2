//! A lock in Redis as it is commonly written: `SET NX PX`, the work, compare-and-delete. One for
//! the item, or one for each of some parts of its stock.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use async_trait::async_trait;
use redis::Script;

use super::{
    counter::Counters,
    patience::{Doors, Pause},
    variant::Variant,
};
use crate::goals::crowd::Reply;

const LEASE_MS: u64 = 10_000;
const COMPARE_AND_DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

/// The stock in parts, each behind its lock.
pub struct Locked {
    counters: Counters,
    release: Script,
    parts: usize,
    pause: Pause,
    owners: AtomicU64,
    doors: Doors,
}

impl Locked {
    pub async fn open(url: &str, parts: usize, pause: Pause, stock: u64) -> Result<Self> {
        let (counters, release) = (
            Counters::open(url, parts, stock).await?,
            Script::new(COMPARE_AND_DELETE),
        );
        release.load_async(&mut counters.connection.clone()).await?;
        Ok(Self {
            counters,
            release,
            parts,
            pause,
            owners: AtomicU64::default(),
            doors: Doors::default(),
        })
    }

    /// Acquires the lock. Returns `false` if the variant closed first.
    async fn lock(&self, name: &str, owner: &str) -> Result<bool> {
        let mut connection = self.counters.connection.clone();
        let mut set = redis::cmd("SET");
        set.arg(name).arg(owner).arg("NX").arg("PX").arg(LEASE_MS);
        while set
            .query_async::<Option<String>>(&mut connection)
            .await?
            .is_none()
        {
            if self.doors.are_closed() {
                return Ok(false);
            }
            self.pause.around().await;
        }
        Ok(true)
    }

    async fn unlock(&self, name: &str, owner: &str) -> Result<()> {
        let mut release = redis::cmd("EVALSHA");
        release
            .arg(self.release.get_hash())
            .arg(1)
            .arg(name)
            .arg(owner);
        let freed: i64 = release
            .query_async(&mut self.counters.connection.clone())
            .await?;
        anyhow::ensure!(freed == 1, "a lease ended while its lock was held");
        Ok(())
    }
}

#[async_trait]
impl Variant for Locked {
    /// Tries the buyer's part first, then the next parts while they are empty.
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        let owner = self.owners.fetch_add(1, Ordering::Relaxed).to_string();
        for step in 0..self.parts {
            let part = (usize::try_from(buyer)? + step) % self.parts;
            let name = format!("lock:{part}");
            if !self.lock(&name, &owner).await? {
                return Ok(Reply::Refused);
            }
            let reply = self.counters.take(part).await?;
            self.unlock(&name, &owner).await?;
            if reply == Reply::Sold {
                return Ok(reply);
            }
        }
        Ok(Reply::Refused)
    }

    fn close(&self) {
        self.doors.close();
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.counters.audit(stock, accepted).await
    }
}
