//! Starts real servers in folders of their own on free ports, breaks them on purpose, and stops only what it started.
//!
//! This crate must not know anything of Stockade: no key, no table, no type of its own. It knows how servers of Redis, Sentinel,
//! Redis Cluster, PostgreSQL, MariaDB, etcd and ZooKeeper are started, checked, paused, killed and restarted.
//!
//! Every server is a direct child, in a process group of its own (a terminal's Ctrl-C does not reach it), and does not outlive us: dropping
//! its handle kills and reaps it, and on Linux the kernel kills it when our process dies in any other way.
//!
//! | module | is |
//! |---|---|
//! | [`redis`] | one Redis server |
//! | `replication` | a Redis server and its replicas: following, lagging, promotion |
//! | [`sentinel`] | a Redis server, its replicas, and the sentinels that watch them |
//! | [`cluster`] | a Redis Cluster, formed by commands |
//! | [`postgres`] | one PostgreSQL server |
//! | [`mariadb`] | one MariaDB server |
//! | [`etcd`] | one etcd server |
//! | [`zookeeper`] | one ZooKeeper server |
//! | [`proxy`] | what stands between a client and a server: it holds, delays and cuts |
//! | [`clock`] | a wall clock that jumps |
//! | [`disk`] | a small disk that can be full |
//! | [`daemon`] | any other program, run like a server |
//! | [`port`] | ports that nobody listens on, and that nobody gets by chance |
//! | [`error`] | what can go wrong |
//! | `server` | what all servers have in common: launch, wait until ready, signal, stop |
//! | `child` | a process that dies with us |
//! | `process` | what the system says about a process: stopped, alive, whose child |
//! | `folder` | a temporary or a kept folder that no one else uses |
//! | `log` | the file a server writes to, and its last lines |
//! | `program` | finding a program, running one to its end |
//! | `wire` | one short question to a server, over TCP |
//! | `account` | the unprivileged user that PostgreSQL insists on |

mod account;
mod child;
pub mod clock;
pub mod cluster;
pub mod daemon;
pub mod disk;
pub mod error;
pub mod etcd;
mod folder;
mod log;
pub mod mariadb;
pub mod port;
pub mod postgres;
mod process;
mod program;
pub mod proxy;
pub mod redis;
mod replication;
pub mod sentinel;
mod server;
mod wire;
pub mod zookeeper;

pub use self::redis::{AppendFsync, Redis, RedisBuilder};
pub use child::die_with_us;
pub use clock::Clock;
pub use cluster::RedisCluster;
pub use daemon::Daemon;
pub use disk::Disk;
pub use error::{Result, TestbedError};
pub use etcd::{Etcd, EtcdBuilder};
pub use mariadb::{MariaDb, MariaDbBuilder};
pub use port::free_port;
pub use postgres::{Postgres, PostgresBuilder};
pub use proxy::{Proxy, Traffic};
pub use sentinel::{RedisSentinel, Sentinel};
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
