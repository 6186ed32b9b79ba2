//! The servers of an environment.

use std::path::PathBuf;

use anyhow::Result;
use rand::{RngExt, rngs::StdRng};
use sqlx::{Connection, PgConnection};
use testbed::{Clock, Disk, Postgres, Redis, RedisBuilder, RedisCluster, RedisSentinel, RedisUser};

use super::EnvConfig;
use crate::{fault::Topology, ledger_view::LedgerView};

const LOCK_NODES: usize = 5;
const MASTERS: usize = 3;
const SENTINEL_REPLICAS: usize = 2;
/// PostgreSQL needs 40 MB for its own files, and as much again for its write-ahead log.
const POSTGRES_DISK_MB: u32 = 256;
const SQLITE_DISK_MB: u32 = 64;

/// Whom the processes log in as at every Redis server.
pub const STOCKADE: RedisUser = RedisUser {
    name: "stockade",
    password: "the-password-of-the-chaos-run",
};
/// Ends the SQL connections of the processes, and no other. Returns their number.
const TERMINATE_STOCKADE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
    WHERE application_name = 'stockade'";

/// The Redis servers of the stock.
pub enum StockServers {
    /// One server.
    Server(Redis),
    /// A master, its replicas and sentinels.
    Sentinel(RedisSentinel),
    /// A Redis Cluster.
    Cluster(RedisCluster),
}

impl StockServers {
    /// `clock`: the clock of all servers, unless they are a cluster. `clocks`: whether each node of
    /// a cluster gets one of its own.
    pub(super) async fn start(
        topology: Topology,
        clock: Option<&Clock>,
        clocks: bool,
    ) -> Result<Self> {
        Ok(match topology {
            Topology::Server | Topology::Embedded | Topology::Events => {
                Self::Server(start_redis(clock).await?)
            }
            Topology::Sentinel => {
                let server = redis(clock).await?;
                Self::Sentinel(RedisSentinel::start_from(&server, SENTINEL_REPLICAS).await?)
            }
            Topology::Cluster => {
                let node = Redis::builder().user(&STOCKADE);
                Self::Cluster(if clocks {
                    RedisCluster::start_with_clocks(node, MASTERS, 1).await?
                } else {
                    RedisCluster::start_from(node, MASTERS, 1).await?
                })
            }
        })
    }

    /// The URL that the processes of Stockade get.
    pub fn url(&self) -> String {
        STOCKADE.at(&match self {
            Self::Server(server) => server.url(),
            Self::Sentinel(group) => group.url(),
            Self::Cluster(cluster) => cluster.url(),
        })
    }

    /// The server, unless there are several.
    pub fn server(&self) -> Option<&Redis> {
        if let Self::Server(server) = self {
            Some(server)
        } else {
            None
        }
    }

    /// Number of replicas that each master has.
    pub fn replicas(&self) -> usize {
        match self {
            Self::Server(_) => 0,
            Self::Sentinel(_) => SENTINEL_REPLICAS,
            Self::Cluster(_) => 1,
        }
    }

    /// Every server.
    pub fn all(&self) -> Vec<&Redis> {
        match self {
            Self::Server(server) => vec![server],
            Self::Sentinel(group) => group.servers().iter().collect(),
            Self::Cluster(cluster) => cluster.nodes().iter().collect(),
        }
    }

    /// The indices, in [`StockServers::all`], of the servers that are masters now.
    pub async fn masters(&self) -> Result<Vec<usize>> {
        let mut masters = Vec::new();
        for (index, server) in self.all().into_iter().enumerate() {
            if server.is_master().await? {
                masters.push(index);
            }
        }
        Ok(masters)
    }

    /// A master that takes writes: that of a random shard, if there are several.
    pub async fn master(&self, rng: &mut StdRng) -> Result<&Redis> {
        Ok(match self {
            Self::Server(server) => server,
            Self::Sentinel(group) => &group.servers()[group.master().await?],
            Self::Cluster(cluster) => {
                let shard = rng.random_range(0..cluster.masters());
                &cluster.nodes()[cluster.until_writable(shard).await?]
            }
        })
    }

    /// A master hands its role over to a replica, and stays up as one. Returns the indices of the
    /// old and the new one in [`StockServers::all`]. `None`: there are no replicas.
    pub async fn hand_over(&self, rng: &mut StdRng) -> Result<Option<(usize, usize)>> {
        Ok(Some(match self {
            Self::Server(_) => return Ok(None),
            Self::Sentinel(group) => group.hand_over().await?,
            Self::Cluster(cluster) => {
                let shard = rng.random_range(0..cluster.masters());
                cluster.hand_over(shard).await?
            }
        }))
    }

    /// Restarts a killed master. It starts as a master, and is then demoted to a replica.
    pub async fn restart_as_replica(&mut self, server: usize) -> Result<()> {
        match self {
            Self::Server(_) => {}
            Self::Sentinel(group) => group.restart_as_replica(server).await?,
            Self::Cluster(cluster) => cluster.nodes_mut()[server].restart().await?,
        }
        Ok(())
    }

    /// A clock that can jump, and whose it is: `shared`, that of all servers, or in a cluster that
    /// of a random master.
    pub async fn clock<'a>(
        &'a self,
        shared: Option<&'a Clock>,
        rng: &mut StdRng,
    ) -> Result<(String, Option<&'a Clock>)> {
        Ok(match self {
            Self::Server(_) => ("Redis".to_owned(), shared),
            Self::Sentinel(group) => {
                let master = group.master().await?;
                let name = format!("all Redis servers, of which {master} is the master,");
                (name, shared)
            }
            Self::Cluster(cluster) => {
                let shard = rng.random_range(0..cluster.masters());
                let node = cluster.until_writable(shard).await?;
                let name = format!("node {node}, the master of shard {shard},");
                (name, cluster.clock(node))
            }
        })
    }
}

/// The SQL database.
#[expect(
    clippy::large_enum_variant,
    reason = "an environment has one, so its size does not matter"
)]
pub enum LedgerServer {
    /// A PostgreSQL server.
    Postgres {
        /// The server.
        server: Postgres,
        /// The URL of the database.
        url: String,
        /// The small disk with its files.
        disk: Option<Disk>,
        /// The clock of the server, if it can jump.
        clock: Option<Clock>,
    },
    /// An SQLite file, which the processes open themselves.
    Sqlite {
        /// The folder of `stockade up`.
        dir: PathBuf,
        /// The small disk with the folder.
        disk: Option<Disk>,
        /// Removes the folder when it is dropped, unless there is a small disk.
        temporary: Option<tempfile::TempDir>,
    },
}

impl LedgerServer {
    pub(super) async fn start(topology: Topology, config: &EnvConfig) -> Result<Self> {
        if topology == Topology::Embedded {
            Self::sqlite(config.small_disk).await
        } else {
            Self::postgres(config).await
        }
    }

    async fn postgres(config: &EnvConfig) -> Result<Self> {
        let disk = if config.small_disk {
            Some(Disk::mount(POSTGRES_DISK_MB).await?)
        } else {
            None
        };
        let clock = clock(config.clocks).await?;
        let mut builder = Postgres::builder()
            .config("shared_buffers", "32MB")
            .config("max_wal_size", "64MB");
        if let Some(disk) = &disk {
            builder = builder.dir(disk.path().join("postgres"));
        }
        if let Some(clock) = &clock {
            builder = builder.clock(clock).await?;
        }
        let server = builder.start().await?;
        let url = server.create_database("chaos").await?;
        Ok(Self::Postgres {
            server,
            url,
            disk,
            clock,
        })
    }

    async fn sqlite(small_disk: bool) -> Result<Self> {
        if small_disk {
            let disk = Disk::mount(SQLITE_DISK_MB).await?;
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

    /// Opens the tables for the judge.
    pub(super) fn view(&self) -> Result<LedgerView> {
        match self {
            Self::Postgres { url, .. } => LedgerView::postgres(url),
            Self::Sqlite { dir, .. } => Ok(LedgerView::sqlite(&dir.join("ledger.db"))),
        }
    }

    /// Ends the SQL connections of the processes as an administrator does, and returns their
    /// number.
    pub async fn terminate_connections(&self) -> Result<i64> {
        let Self::Postgres { url, .. } = self else {
            return Ok(0);
        };
        let mut connection = PgConnection::connect(url).await?;
        let ended = sqlx::query_scalar(TERMINATE_STOCKADE)
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok(ended)
    }

    /// The clock of the server, if there is one that can jump.
    pub fn clock(&self) -> Option<&Clock> {
        match self {
            Self::Postgres { clock, .. } => clock.as_ref(),
            Self::Sqlite { .. } => None,
        }
    }

    /// The small disk with the files, if there is one.
    pub fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Postgres { disk, .. } | Self::Sqlite { disk, .. } => disk.as_ref(),
        }
    }
}

/// A Redis server for locks.
pub struct LockNode {
    /// The server.
    pub server: Redis,
    /// The clock of the server, if it can jump.
    pub clock: Option<Clock>,
}

pub(super) async fn start_lock_nodes(clocks: bool) -> Result<Vec<LockNode>> {
    let mut nodes = Vec::new();
    for _ in 0..LOCK_NODES {
        let clock = clock(clocks).await?;
        nodes.push(LockNode {
            server: start_redis(clock.as_ref()).await?,
            clock,
        });
    }
    Ok(nodes)
}

/// A clock, on a machine where it can jump.
pub(super) async fn clock(can_jump: bool) -> Result<Option<Clock>> {
    Ok(if can_jump {
        Some(Clock::new().await?)
    } else {
        None
    })
}

async fn start_redis(clock: Option<&Clock>) -> Result<Redis> {
    Ok(redis(clock).await?.start().await?)
}

/// Starts a replica of the only Redis server, with the same clock.
pub async fn start_replica(master: &Redis, clock: Option<&Clock>) -> Result<Redis> {
    Ok(redis(clock).await?.replica_of(master).start().await?)
}

async fn redis(clock: Option<&Clock>) -> Result<RedisBuilder> {
    let builder = Redis::builder().user(&STOCKADE);
    Ok(match clock {
        Some(clock) => builder.clock(clock).await?,
        None => builder,
    })
}
