//! What can be broken, and where.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// What the processes of Stockade run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// One Redis server and PostgreSQL, each process with its own way to both.
    Server,
    /// A Redis master, two replicas and three sentinels, and PostgreSQL.
    Sentinel,
    /// A Redis Cluster of three masters with a replica each, and PostgreSQL.
    Cluster,
    /// `stockade up`: every role in one process, SQLite, and one Redis server.
    Embedded,
}

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// kill -9 of an order service.
    OrderServiceKilled,
    /// kill -9 of a recorder.
    RecorderKilled,
    /// kill -9 of a reconciler.
    ReconcilerKilled,
    /// kill -9 of every process of Stockade at once.
    EverythingKilled,
    /// kill -9 of the Redis server, which has an append-only file.
    RedisKilled,
    /// kill -9 of PostgreSQL, all of its processes.
    PostgresKilled,
    /// SIGSTOP of a reconciler until the lease of its lock is over.
    ReconcilerStopped,
    /// The master is killed while its replicas lag behind, and Sentinel promotes one of them.
    SentinelFailover,
    /// A master of the cluster is killed and its replica promoted, which sometimes lags behind.
    ClusterMasterKilled,
    /// Nothing gets through between processes of Stockade and Redis, in one direction or both.
    RedisCut,
    /// The same between them and SQL.
    LedgerCut,
    /// The disk of the ledger is full.
    LedgerDiskFull,
    /// Redis has no memory left (`maxmemory`).
    RedisOutOfMemory,
    /// The clock of a lock node jumps.
    LockClockJump,
}

impl Fault {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::OrderServiceKilled,
        Self::RecorderKilled,
        Self::ReconcilerKilled,
        Self::EverythingKilled,
        Self::RedisKilled,
        Self::PostgresKilled,
        Self::ReconcilerStopped,
        Self::SentinelFailover,
        Self::ClusterMasterKilled,
        Self::RedisCut,
        Self::LedgerCut,
        Self::LedgerDiskFull,
        Self::RedisOutOfMemory,
        Self::LockClockJump,
    ];

    /// Where it can happen.
    pub fn stages(self) -> &'static [StageKind] {
        use StageKind::{Cluster, Embedded, Sentinel, Server};
        match self {
            Self::OrderServiceKilled | Self::RecorderKilled | Self::ReconcilerKilled => {
                &[Server, Sentinel, Cluster]
            }
            Self::EverythingKilled | Self::RedisOutOfMemory | Self::LockClockJump => {
                &[Server, Sentinel, Cluster, Embedded]
            }
            Self::ReconcilerStopped => &[Server, Cluster],
            Self::RedisKilled | Self::RedisCut => &[Server, Embedded],
            Self::PostgresKilled | Self::LedgerCut => &[Server, Sentinel, Cluster],
            Self::LedgerDiskFull => &[Server, Embedded],
            Self::SentinelFailover => &[Sentinel],
            Self::ClusterMasterKilled => &[Cluster],
        }
    }

    /// Whether writes that Redis has acknowledged may be gone afterwards. Orders of the levels that rest on Redis alone may go with them.
    pub fn may_lose_writes_of_redis(self) -> bool {
        matches!(self, Self::SentinelFailover | Self::ClusterMasterKilled)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

fn name_of(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
