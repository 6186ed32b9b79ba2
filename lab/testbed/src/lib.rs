//! Starts real servers on free ports, each in its own folder, and breaks them on purpose. It stops
//! only servers that it has started.
//!
//! This crate contains nothing of Stockade: no key, no table, no type. It starts, checks, pauses,
//! kills and restarts servers of Redis, Sentinel, Redis Cluster, PostgreSQL, MariaDB, etcd,
//! ZooKeeper, NATS, RabbitMQ and pgbouncer. It builds on `local`, which starts the private servers
//! of `stockade up`.
//!
//! Every server is a direct child and leads its own process group (a terminal's Ctrl-C does not
//! reach it). It does not outlive us: dropping its handle kills and reaps it, and on Linux the
//! kernel kills it when our process dies in any other way.
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | builder and handle that all kinds of servers share |
//! | [`redis`] | one Redis server |
//! | [`user`] | users of Redis servers, with passwords |
//! | `replication` | a Redis server and its replicas: following, lagging, promotion, planned failover |
//! | [`sentinel`] | a Redis server, its replicas, and the sentinels that watch them |
//! | [`cluster`] | a Redis Cluster, formed by commands |
//! | [`postgres`] | one PostgreSQL server, and its standby |
//! | [`pgbouncer`] | a connection pooler of PostgreSQL |
//! | [`mariadb`] | one MariaDB server |
//! | [`etcd`] | one etcd server |
//! | [`zookeeper`] | one ZooKeeper server |
//! | [`nats`] | one NATS server with JetStream |
//! | [`rabbitmq`] | one RabbitMQ server |
//! | [`proxy`] | a TCP proxy that holds, delays, cuts and redirects traffic |
//! | [`clock`] | a wall clock that jumps |
//! | [`disk`] | a small disk that can be full |
//! | [`daemon`] | any other program, run like a server |
//! | [`skip`] | what a test prints that cannot check something here |
//! | [`wait`] | the time-out of everything whose time-out is not the subject, and waiting for a condition |
//! | [`error`] | errors |
//! | `process` | state of a process: stopped, alive, its children |
//! | `folder` | a temporary or a kept folder that no other process uses |
//! | `data` | the data folder of a database server, and templates of it |
//! | `mount` | the mount point of a small disk |
//! | `program` | running a program to its end |
//! | `wire` | one short request to a server, over TCP |
//! | `account` | the unprivileged user that PostgreSQL requires |

mod account;
pub mod clock;
pub mod cluster;
pub mod daemon;
mod data;
pub mod disk;
pub mod error;
pub mod etcd;
mod folder;
pub mod mariadb;
mod mount;
pub mod nats;
pub mod pgbouncer;
pub mod postgres;
mod process;
mod program;
pub mod proxy;
pub mod rabbitmq;
pub mod redis;
mod replication;
pub mod sentinel;
pub mod server;
pub mod skip;
pub mod user;
pub mod wait;
mod wire;
pub mod zookeeper;

pub use self::redis::{AppendFsync, Redis, RedisBuilder, patient_connection};
pub use clock::Clock;
pub use cluster::RedisCluster;
pub use daemon::Daemon;
pub use disk::Disk;
pub use error::{Result, TestbedError};
pub use etcd::{Etcd, EtcdBuilder};
pub use local::{LocalError, free_port, kill_with_parent};
pub use mariadb::{MariaDb, MariaDbBuilder};
pub use nats::{Nats, NatsBuilder};
pub use pgbouncer::{PgBouncer, PgBouncerBuilder};
pub use postgres::{Postgres, PostgresBuilder};
pub use proxy::{Proxy, Traffic};
pub use rabbitmq::{RabbitMq, RabbitMqBuilder};
pub use sentinel::{RedisSentinel, Sentinel};
pub use skip::skipped;
pub use user::RedisUser;
pub use wait::{Deadline, eventually, eventually_some, in_time, timeout};
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
