//! The Redis servers of a drill: one, a master and a replica under Sentinel, or a cluster.

use testbed::{Redis, RedisCluster, RedisSentinel};

/// Where the stock is.
pub enum StockServers {
    One(Redis),
    Sentinel(RedisSentinel),
    Cluster(RedisCluster),
}

impl StockServers {
    pub async fn one() -> Self {
        Self::One(Redis::start().await.unwrap())
    }

    pub async fn sentinel() -> Self {
        Self::Sentinel(RedisSentinel::start(1).await.unwrap())
    }

    pub async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start_with(3, 1).await.unwrap())
    }

    /// REDIS_URL of Stockade.
    pub fn url(&self) -> String {
        match self {
            Self::One(redis) => redis.url(),
            Self::Sentinel(group) => group.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// All servers, the masters first.
    pub fn servers(&self) -> &[Redis] {
        match self {
            Self::One(redis) => std::slice::from_ref(redis),
            Self::Sentinel(group) => group.servers(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    fn servers_mut(&mut self) -> &mut [Redis] {
        match self {
            Self::One(redis) => std::slice::from_mut(redis),
            Self::Sentinel(group) => group.servers_mut(),
            Self::Cluster(cluster) => cluster.nodes_mut(),
        }
    }

    pub fn masters(&self) -> &[Redis] {
        &self.servers()[..self.masters_count()]
    }

    fn masters_count(&self) -> usize {
        match self {
            Self::One(_) | Self::Sentinel(_) => 1,
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Stops the replicas, and then the masters: no replica takes over.
    pub async fn kill(&mut self) {
        for server in self.servers_mut().iter_mut().rev() {
            server.kill().await.unwrap();
        }
    }

    /// Starts the masters, and then the replicas. Returns when they work together.
    pub async fn restart(&mut self) {
        for server in self.servers_mut() {
            server.restart().await.unwrap();
        }
        match self {
            Self::One(_) => {}
            Self::Sentinel(group) => {
                for replica in 1..group.servers().len() {
                    group.becomes_replica(replica).await.unwrap();
                }
                assert_eq!(group.master().await.unwrap(), 0, "no replica took over");
            }
            Self::Cluster(cluster) => {
                for shard in 0..cluster.masters() {
                    let master = cluster.until_writable(shard).await.unwrap();
                    assert_eq!(master, shard, "no replica took over");
                }
            }
        }
    }
}
