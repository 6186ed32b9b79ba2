//! A Redis Cluster on this machine, formed by commands.
//!
//! "Every node runs" does not mean "the cluster works". A fresh master refuses every command for
//! its first two seconds, a node discovers the others one by one, and a replica whose link is up
//! has not yet received anything. [`RedisCluster::start`] returns when all of these states have
//! passed.

mod failover;
mod growth;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use redis::{InfoDict, aio::MultiplexedConnection, cmd};
use tokio::time::sleep;

pub use growth::Migration;

use crate::{
    Clock, Redis, RedisBuilder, Result, TestbedError, replication::confirmed_write, timeout,
};

const SLOTS: usize = 16_384;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Redis servers that share the slots. Dropping it kills all of them.
#[derive(Debug)]
pub struct RedisCluster {
    /// How a node is started, also one that joins later.
    node: RedisBuilder,
    nodes: Vec<Redis>,
    /// The clock of each node, if they can jump.
    clocks: Option<Vec<Clock>>,
    masters: usize,
    replicas_per_master: usize,
    /// Number of masters that joined later. Each has its replicas behind it.
    grown: usize,
    /// Slots that another shard serves than at first.
    moved: BTreeSet<u16>,
}

impl RedisCluster {
    /// A cluster of masters without replicas.
    pub async fn start(masters: usize) -> Result<Self> {
        Self::start_with(masters, 0).await
    }

    /// A cluster of masters with replicas each. The masters come first in [`RedisCluster::nodes`];
    /// the replicas follow, one round for each. Shard `i` has the slots that master `i` serves at
    /// first, and its replicas are the nodes `masters + i`, `2 * masters + i` and so on.
    ///
    /// A node counts as failed after one second of silence, and a failed master makes only its own
    /// slots unavailable.
    pub async fn start_with(masters: usize, replicas_per_master: usize) -> Result<Self> {
        Self::start_from(Redis::builder(), masters, replicas_per_master).await
    }

    /// The same with nodes that are configured like this.
    pub async fn start_from(
        node: RedisBuilder,
        masters: usize,
        replicas_per_master: usize,
    ) -> Result<Self> {
        Self::start_of(node, masters, replicas_per_master, None).await
    }

    /// The same, and each node has a [clock](RedisCluster::clock) of its own that jumps. One that
    /// all nodes shared would make each of them take all the others for dead.
    pub async fn start_with_clocks(
        node: RedisBuilder,
        masters: usize,
        replicas_per_master: usize,
    ) -> Result<Self> {
        Self::start_of(node, masters, replicas_per_master, Some(Vec::new())).await
    }

    async fn start_of(
        node: RedisBuilder,
        masters: usize,
        replicas_per_master: usize,
        clocks: Option<Vec<Clock>>,
    ) -> Result<Self> {
        let mut cluster = Self {
            node: node
                .config("cluster-enabled", "yes")
                .config("cluster-node-timeout", "1000")
                .config("cluster-require-full-coverage", "no"),
            nodes: Vec::new(),
            clocks,
            masters,
            replicas_per_master,
            grown: 0,
            moved: BTreeSet::new(),
        };
        for _ in 0..masters * (1 + replicas_per_master) {
            cluster.start_node().await?;
        }
        cluster.form().await?;
        Ok(cluster)
    }

    /// `redis+cluster://127.0.0.1:P1,127.0.0.1:P2,...`, all nodes, masters first.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(Redis::address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Number of shards at first.
    pub fn masters(&self) -> usize {
        self.masters
    }

    /// All servers.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// All servers, for kills and restarts.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// The clock of a node, if it can jump.
    pub fn clock(&self, node: usize) -> Option<&Clock> {
        self.clocks.as_ref()?.get(node)
    }

    /// Stops all servers in an orderly way.
    pub async fn stop(self) -> Result<()> {
        for node in self.nodes {
            node.stop().await?;
        }
        Ok(())
    }

    /// Starts one more node, which knows no other yet.
    async fn start_node(&mut self) -> Result<()> {
        let mut node = self.node.clone();
        let clock = match self.clocks {
            Some(_) => Some(Clock::new().await?),
            None => None,
        };
        if let Some(clock) = &clock {
            node = node.clock(clock).await?;
        }
        self.nodes.push(node.start().await?);
        if let Some(clocks) = &mut self.clocks {
            clocks.extend(clock);
        }
        Ok(())
    }

    async fn form(&self) -> Result<()> {
        let mut members = self.members().await?;
        self.share_slots(&mut members).await?;
        introduce(&mut members, 1).await?;
        self.until_all(&mut members, 0).await?;
        self.attach_replicas(&mut members).await?;
        self.until_all(&mut members, self.replicas()).await?;
        self.until_replicas_follow(&mut members).await
    }

    async fn members(&self) -> Result<Vec<Member<'_>>> {
        let mut members = Vec::new();
        for node in &self.nodes {
            members.push(Member {
                node,
                connection: node.connect_for_long().await?,
            });
        }
        Ok(members)
    }

    fn replicas(&self) -> usize {
        (self.masters + self.grown) * self.replicas_per_master
    }

    /// The slots that a shard has at first.
    fn slots(&self, shard: usize) -> std::ops::Range<usize> {
        SLOTS * shard / self.masters..SLOTS * (shard + 1) / self.masters
    }

    /// Gives each master a distinct epoch, so that no two masters conflict. Redis accepts a new
    /// epoch only from a node that is still alone.
    async fn share_slots(&self, members: &mut [Member<'_>]) -> Result<()> {
        for (index, member) in members[..self.masters].iter_mut().enumerate() {
            let std::ops::Range { start, end } = self.slots(index);
            let _: () = member
                .query(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(index + 1))
                .await?;
            let _: () = member
                .query(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(start).arg(end - 1))
                .await?;
        }
        Ok(())
    }

    async fn attach_replicas(&self, members: &mut [Member<'_>]) -> Result<()> {
        let (masters, replicas) = members.split_at_mut(self.masters);
        for (index, replica) in replicas.iter_mut().enumerate() {
            let master = masters[index % self.masters].id().await?;
            let _: () = replica
                .query(cmd("CLUSTER").arg("REPLICATE").arg(master))
                .await?;
        }
        Ok(())
    }

    /// Waits until every node reports all nodes, and this number of replicas.
    async fn until_all(&self, members: &mut [Member<'_>], replicas: usize) -> Result<()> {
        let goal = Goal {
            nodes: self.nodes.len(),
            replicas,
        };
        let deadline = Instant::now() + timeout();
        for member in members {
            while let Err(view) = member.reports(&goal).await? {
                fail_after(deadline, || {
                    format!("the node on port {} reported:\n{view}", member.node.port())
                })?;
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// The link of a replica is up before its first acknowledgement, and until then its master
    /// sends it nothing. Only a confirmed write proves that it follows.
    async fn until_replicas_follow(&self, members: &mut [Member<'_>]) -> Result<()> {
        let deadline = Instant::now() + timeout();
        let per_master = self.replicas_per_master;
        for master in members[..self.masters]
            .iter_mut()
            .filter(|_| per_master > 0)
        {
            while master.confirmed_write(per_master).await? < per_master {
                fail_after(deadline, || {
                    format!("replicas of port {} do not follow", master.node.port())
                })?;
            }
        }
        Ok(())
    }
}

/// State that every node must report.
struct Goal {
    nodes: usize,
    replicas: usize,
}

impl Goal {
    fn is_met(&self, info: &InfoDict, nodes: &str) -> bool {
        let unsettled = ["handshake", "fail", "noaddr", "disconnected"]
            .iter()
            .any(|word| nodes.contains(word));
        info.get::<String>("cluster_state")
            .is_some_and(|state| state == "ok")
            && info.get::<usize>("cluster_slots_ok") == Some(SLOTS)
            && nodes.lines().count() == self.nodes
            && nodes.lines().filter(|line| line.contains("slave")).count() == self.replicas
            && !unsettled
    }
}

/// A node and a connection to it.
struct Member<'a> {
    node: &'a Redis,
    connection: MultiplexedConnection,
}

impl Member<'_> {
    async fn query<T: redis::FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T> {
        command
            .query_async(&mut self.connection)
            .await
            .map_err(|source| self.node.refused(source))
    }

    async fn id(&mut self) -> Result<String> {
        self.query(cmd("CLUSTER").arg("MYID")).await
    }

    /// Checks the state that the node reports. The inner error is that state.
    async fn reports(&mut self, goal: &Goal) -> Result<Result<(), String>> {
        let info: String = self.query(cmd("CLUSTER").arg("INFO")).await?;
        let nodes: String = self.query(cmd("CLUSTER").arg("NODES")).await?;
        Ok(if goal.is_met(&InfoDict::new(&info), &nodes) {
            Ok(())
        } else {
            Err(info + &nodes)
        })
    }

    async fn confirmed_write(&mut self, replicas: usize) -> Result<usize> {
        let key = self.own_key().await?;
        confirmed_write(&mut self.connection, &key, replicas)
            .await
            .map_err(|source| self.node.refused(source))
    }

    /// A key that this master serves: the others answer a read with MOVED as well.
    async fn own_key(&mut self) -> Result<String> {
        let mut key = String::from("testbed");
        while let Err(TestbedError::Redis { source, .. }) =
            self.query::<bool>(cmd("EXISTS").arg(&key)).await
        {
            if source.kind() != redis::ErrorKind::Server(redis::ServerErrorKind::Moved) {
                return Err(self.node.refused(source));
            }
            key.push('+');
        }
        Ok(key)
    }
}

/// Introduces the nodes from the index `first` to every earlier one. If one node met all, gossip
/// would need a second or two.
async fn introduce(members: &mut [Member<'_>], first: usize) -> Result<()> {
    for later in first..members.len() {
        let port = members[later].node.port();
        for member in &mut members[..later] {
            let _: () = member
                .query(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(port))
                .await?;
        }
    }
    Ok(())
}

fn fail_after(deadline: Instant, view: impl FnOnce() -> String) -> Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(TestbedError::ClusterIncomplete {
        waited: timeout(),
        view: view(),
    })
}
