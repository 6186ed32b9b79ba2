//! What becomes of a shard whose master is killed.

use std::time::{Duration, Instant};

use redis::{RedisResult, cmd};
use tokio::time::sleep;

use super::{RedisCluster, SLOTS};
use crate::{Redis, Result, TestbedError};

const FAILED_OVER_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

impl RedisCluster {
    /// The nodes that the shard consists of, whatever their roles are now.
    pub fn shard(&self, shard: usize) -> Vec<usize> {
        (shard..self.nodes.len()).step_by(self.masters).collect()
    }

    /// SIGKILL for the shard's master, whichever node that is now; returns which, when its replicas have noticed that it is gone. What
    /// a replica that [lags](Redis::lag) has not carried out by then it never will.
    pub async fn kill_master(&mut self, shard: usize) -> Result<usize> {
        let master = self.until_writable(shard).await?;
        self.nodes[master].kill().await?;
        for replica in self.shard(shard) {
            // Those that were killed before do not answer, and need not notice.
            if replica != master && self.nodes[replica].connect().await.is_ok() {
                self.nodes[replica].notices_its_masters_end().await?;
            }
        }
        Ok(master)
    }

    /// Waits until some node takes writes for the shard, and returns which. A promoted node that lags must catch up first.
    pub async fn until_writable(&self, shard: usize) -> Result<usize> {
        let deadline = Instant::now() + FAILED_OVER_WITHIN;
        loop {
            for node in self.shard(shard) {
                if self.takes_writes(shard, node).await {
                    return Ok(node);
                }
            }
            if Instant::now() > deadline {
                return Err(TestbedError::NoFailover {
                    waited: FAILED_OVER_WITHIN,
                    view: format!("no node of shard {shard} takes writes"),
                });
            }
            sleep(POLL).await;
        }
    }

    async fn takes_writes(&self, shard: usize, node: usize) -> bool {
        let first = SLOTS * shard / self.masters;
        let end = SLOTS * (shard + 1) / self.masters;
        write_and_delete(&self.nodes[node], first..end)
            .await
            .is_ok()
    }
}

/// A replica, or a master of other slots, refuses it.
async fn write_and_delete(node: &Redis, slots: std::ops::Range<usize>) -> RedisResult<()> {
    let client = redis::Client::open(node.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut key = String::from("testbed");
    while !slots.contains(
        &cmd("CLUSTER")
            .arg("KEYSLOT")
            .arg(&key)
            .query_async(&mut connection)
            .await?,
    ) {
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
