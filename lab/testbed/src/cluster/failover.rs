//! Kill of a shard's master, and the failover that follows.

use std::time::{Duration, Instant};

use redis::{RedisResult, cmd};
use tokio::time::sleep;

use super::RedisCluster;
use crate::{Redis, Result, TestbedError, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl RedisCluster {
    /// Nodes of the shard, in any role.
    pub fn shard(&self, shard: usize) -> Vec<usize> {
        let formed = self.masters * (1 + self.replicas_per_master);
        (shard..formed).step_by(self.masters).collect()
    }

    /// Sends SIGKILL to the present master of the shard, waits until its replicas have noticed, and
    /// returns its index. A replica that [lags](Redis::lag) never carries out the writes that it has
    /// not carried out before.
    pub async fn kill_master(&mut self, shard: usize) -> Result<usize> {
        let master = self.until_writable(shard).await?;
        self.nodes[master].kill().await?;
        for replica in self.shard(shard) {
            // Nodes that were killed earlier do not answer, and need not notice.
            if replica != master && self.nodes[replica].connect().await.is_ok() {
                self.nodes[replica].notices_its_masters_end().await?;
            }
        }
        Ok(master)
    }

    /// Waits until a node accepts writes for the shard, and returns its index. A promoted node that
    /// lags must catch up first.
    pub async fn until_writable(&self, shard: usize) -> Result<usize> {
        let waited = timeout();
        let deadline = Instant::now() + waited;
        loop {
            for node in self.shard(shard) {
                if self.accepts_writes(shard, node).await {
                    return Ok(node);
                }
            }
            if Instant::now() > deadline {
                return Err(TestbedError::NoFailover {
                    waited,
                    view: format!("no node of shard {shard} accepts writes"),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn accepts_writes(&self, shard: usize, node: usize) -> bool {
        let own = |slot: u16| {
            self.slots(shard).contains(&usize::from(slot)) && !self.moved.contains(&slot)
        };
        write_and_delete(&self.nodes[node], own).await.is_ok()
    }
}

/// Fails on a replica and on a master of other slots.
async fn write_and_delete(node: &Redis, own: impl Fn(u16) -> bool) -> RedisResult<()> {
    let client = redis::Client::open(node.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut key = String::from("testbed");
    while !own(cmd("CLUSTER")
        .arg("KEYSLOT")
        .arg(&key)
        .query_async(&mut connection)
        .await?)
    {
        key.push('+');
    }
    redis::pipe()
        .cmd("SET")
        .arg(&key)
        .arg("")
        .cmd("DEL")
        .arg(&key)
        .exec_async(&mut connection)
        .await
}
