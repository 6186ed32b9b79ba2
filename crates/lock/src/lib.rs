#![doc = include_str!("../README.md")]
// One backend alone does not need all that they share.
#![cfg_attr(
    not(all(
        feature = "redlock",
        feature = "redis",
        feature = "postgres",
        feature = "mysql"
    )),
    allow(dead_code)
)]

// What every backend offers, and what all of them share.
mod backend;
mod error;
mod guard;
mod lease;
mod name;
mod owner;
mod patience;
mod renewed;
#[cfg(any(feature = "etcd", feature = "zookeeper", feature = "consul"))]
mod segment;
mod several;
mod token;

// The backends.
#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod redis_server;
#[cfg(feature = "redlock")]
mod redlock;
#[cfg(feature = "redis")]
mod single;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(feature = "zookeeper")]
mod zookeeper;

// What a store does with a token.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod store;

pub use backend::{Capabilities, Grant, Hold, Lock, Mode, Patience, Request};
#[cfg(feature = "consul")]
pub use consul::{ConsulBuilder, ConsulLock};
pub use error::{Answer, Cause, Exclusion, InvalidArgument, LockError, Vote};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdBuilder, EtcdLock};
pub use guard::{Guard, Scope, Sequencer};
#[cfg(feature = "redlock")]
pub use redlock::{
    Holder, LockView, NodeStatus, NodeView, Redlock, RedlockBuilder, Standing, Verdict,
};
pub use renewed::{Left, Renewed};
pub use several::GuardSet;
#[cfg(feature = "redis")]
pub use single::{RedisLock, RedisLockBuilder};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use sql::SessionLock;
#[cfg(feature = "sqlite")]
pub use sql::SqliteLock;
#[cfg(feature = "mysql")]
pub use sql::{MySqlLock, MySqlSessionLock};
#[cfg(feature = "postgres")]
pub use sql::{PostgresLock, PostgresSessionLock};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use sql::{SqlLock, SqlLockBuilder};
pub use token::FencingToken;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperBuilder, ZooKeeperLock};
