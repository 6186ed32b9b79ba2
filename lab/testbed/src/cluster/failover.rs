//! Kill of a shard's master and the failover that follows, and a planned failover.

use std::time::{Duration, Instant};

use redis::{RedisResult, cmd};
use tokio::time::sleep;

use super::RedisCluster;
use crate::{Redis, Result, TestbedError, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A replica gives up a planned failover after five seconds. Then it may be asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(6);

impl RedisCluster {
    /// Nodes of the shard, in any role.
    pub fn shard(&self, shard: usize) -> Vec<usize> {
        let formed = self.masters * (1 + self.replicas_per_master);
        (shard..formed).step_by(self.masters).collect()
    }

    /// Sends SIGKILL to the present master of the shard, waits until its replicas have noticed, and
    /// returns its index. A replica that [lags](Redis::lag) never carries out the writes that it
    /// has not carried out before.
    pub async fn kill_master(&mut self, shard: usize) -> Result<usize> {
        let master = self.until_writable(shard).await?;
        self.nodes[master].kill().await?;
        for replica in self.shard(shard) {
            // Nodes that were stopped earlier need not notice.
            if replica != master && self.nodes[replica].is_running() {
                self.nodes[replica].notices_its_masters_end().await?;
            }
        }
        Ok(master)
    }

    /// A planned failover from a master of the shard that stays up and loses no acknowledged write:
    /// Redis holds the writes of clients until a replica has everything. Returns the indices of the
    /// old and of the new master. Connections to the old one stay, and it answers MOVED.
    pub async fn hand_over(&self, shard: usize) -> Result<(usize, usize)> {
        let old = self.until_writable(shard).await?;
        let mut others = self.shard(shard).into_iter().filter(|node| *node != old);
        let Some(new) = others.next() else {
            return Err(TestbedError::NoFailover {
                waited: Duration::ZERO,
                view: format!("shard {shard} has no replica"),
            });
        };
        self.nodes[new].has_a_master().await?;
        self.until_promoted(new).await?;
        self.nodes[old].has_a_master().await?;
        self.until_writable(shard).await?;
        Ok((old, new))
    }

    async fn until_promoted(&self, replica: usize) -> Result<()> {
        let waited = timeout();
        let deadline = Instant::now() + waited;
        let (mut asked, mut refusal) = (None::<Instant>, String::new());
        while !self.nodes[replica].is_master().await? {
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN_AFTER) {
                let mut failover = cmd("CLUSTER");
                match self.nodes[replica].execute(failover.arg("FAILOVER")).await {
                    Ok(()) => asked = Some(Instant::now()),
                    Err(error) => refusal = format!(": {error}"),
                }
            }
            if Instant::now() > deadline {
                return Err(TestbedError::NoFailover {
                    waited,
                    view: format!("node {replica} is still a replica{refusal}"),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
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
