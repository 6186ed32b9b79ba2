//! The servers of a stage.

use std::path::PathBuf;

use anyhow::Result;
use testbed::{Clock, Disk, Postgres, Redis, RedisCluster, RedisSentinel};

use crate::fault::StageKind;

const LOCK_NODES: usize = 5;
const MASTERS: usize = 3;
const REPLICAS_OF_THE_SENTINELS: usize = 2;
/// PostgreSQL's own files take forty megabytes, and what it must be able to write ahead takes as much again.
const DISK_OF_POSTGRES_MB: u32 = 256;
const DISK_OF_SQLITE_MB: u32 = 64;

/// Redis for the stock.
pub enum StockServers {
    /// One server.
    Server(Redis),
    /// A master, its replicas and sentinels.
    Sentinel(RedisSentinel),
    /// A cluster.
    Cluster(RedisCluster),
}

impl StockServers {
    pub(super) async fn start(kind: StageKind) -> Result<Self> {
        Ok(match kind {
            StageKind::Server | StageKind::Embedded => Self::Server(Redis::start().await?),
            StageKind::Sentinel => {
                Self::Sentinel(RedisSentinel::start(REPLICAS_OF_THE_SENTINELS).await?)
            }
            StageKind::Cluster => Self::Cluster(RedisCluster::start_with(MASTERS, 1).await?),
        })
    }

    /// As Stockade is told.
    pub fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Sentinel(group) => group.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// The one server, if it is one.
    pub fn server(&self) -> Option<&Redis> {
        if let Self::Server(server) = self {
            Some(server)
        } else {
            None
        }
    }

    /// How many replicas a master has.
    pub fn replicas(&self) -> usize {
        match self {
            Self::Server(_) => 0,
            Self::Sentinel(_) => REPLICAS_OF_THE_SENTINELS,
            Self::Cluster(_) => 1,
        }
    }

    /// Every server of it.
    pub fn all(&self) -> Vec<&Redis> {
        match self {
            Self::Server(server) => vec![server],
            Self::Sentinel(group) => group.servers().iter().collect(),
            Self::Cluster(cluster) => cluster.nodes().iter().collect(),
        }
    }
}

/// SQL.
pub enum LedgerServer {
    /// A server, its database, and its disk, if that is a small one.
    Postgres {
        /// The server.
        server: Postgres,
        /// The database.
        url: String,
        /// Where its files are.
        disk: Option<Disk>,
    },
    /// A file that the processes open themselves.
    Sqlite {
        /// The folder that `stockade up` keeps everything in.
        dir: PathBuf,
        /// Where the folder is.
        disk: Option<Disk>,
        /// Removes the folder, if it is on no small disk.
        temporary: Option<tempfile::TempDir>,
    },
}

impl LedgerServer {
    pub(super) async fn start(kind: StageKind, small_disk: bool) -> Result<Self> {
        if kind == StageKind::Embedded {
            Self::sqlite(small_disk).await
        } else {
            Self::postgres(small_disk).await
        }
    }

    async fn postgres(small_disk: bool) -> Result<Self> {
        let disk = if small_disk {
            Some(Disk::mount(DISK_OF_POSTGRES_MB).await?)
        } else {
            None
        };
        let builder = Postgres::builder()
            .config("shared_buffers", "32MB")
            .config("max_wal_size", "64MB");
        let builder = match &disk {
            Some(disk) => builder.dir(disk.path().join("postgres")),
            None => builder,
        };
        let server = builder.start().await?;
        let url = server.create_database("chaos").await?;
        Ok(Self::Postgres { server, url, disk })
    }

    async fn sqlite(small_disk: bool) -> Result<Self> {
        if small_disk {
            let disk = Disk::mount(DISK_OF_SQLITE_MB).await?;
            return Ok(Self::Sqlite {
                dir: disk.path().join("stockade"),
                disk: Some(disk),
                temporary: None,
            });
        }
        let temporary = tempfile::tempdir()?;
        Ok(Self::Sqlite {
            dir: temporary.path().join("stockade"),
            disk: None,
            temporary: Some(temporary),
        })
    }

    /// Where its files are, if that is a small disk.
    pub fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Postgres { disk, .. } | Self::Sqlite { disk, .. } => disk.as_ref(),
        }
    }
}

/// A Redis server of the lock.
pub struct LockNode {
    /// The server.
    pub server: Redis,
    /// What it tells the time by, if that can jump.
    pub clock: Option<Clock>,
}

pub(super) async fn start_lock_nodes(clocks: bool) -> Result<Vec<LockNode>> {
    let mut nodes = Vec::new();
    for _ in 0..LOCK_NODES {
        let clock = if clocks {
            Some(Clock::new().await?)
        } else {
            None
        };
        let builder = match &clock {
            Some(clock) => Redis::builder().clock(clock).await?,
            None => Redis::builder(),
        };
        nodes.push(LockNode {
            server: builder.start().await?,
            clock,
        });
    }
    Ok(nodes)
}
