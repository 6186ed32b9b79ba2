#![doc = include_str!("../README.md")]

// The interface.
mod backend;
mod error;
mod guard;
mod guard_set;
mod hold;
mod renewed;
mod request;
mod secrets;
mod sequencer;
mod token;

// Shared by all backends, and unused without one.
#[cfg(feature = "_backend")]
mod lease;
#[cfg(feature = "_backend")]
mod options;
#[cfg(feature = "_backend")]
mod retry;
#[cfg(feature = "_backend")]
mod validate;
// Shared by the backends that choose the identifier of an owner.
#[cfg(any(feature = "_redis_server", feature = "_sql"))]
mod owner;

// Shared by the backends whose server keeps a tree of keys.
#[cfg(feature = "_ephemeral_queue")]
mod ephemeral_queue;
#[cfg(any(feature = "_ephemeral_queue", feature = "consul"))]
mod path_segment;
// Shared by the backends on Redis.
#[cfg(feature = "_redis_server")]
mod redis_server;

// The backends.
#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "redlock")]
mod redlock;
#[cfg(feature = "redis")]
mod single;
#[cfg(feature = "_sql")]
mod sql;
#[cfg(feature = "zookeeper")]
mod zookeeper;

// The check of fencing tokens in a database.
#[cfg(feature = "_sql")]
pub mod store;

pub use backend::Lock;
#[cfg(feature = "consul")]
pub use consul::{ConsulBuilder, ConsulLock};
pub use error::{Answer, Cause, Exclusion, InvalidArgument, LockError, Vote};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdBuilder, EtcdLock};
pub use guard::{Guard, Scope};
pub use guard_set::GuardSet;
pub use hold::{Grant, Hold};
#[cfg(feature = "redlock")]
pub use redlock::{
    Durability, Holder, LockView, NodeStatus, NodeView, Redlock, RedlockBuilder, Standing, Verdict,
};
pub use renewed::{ReleaseOutcome, Renewed};
pub use request::{Capabilities, Mode, Request, Wait};
pub use secrets::{unencoded, unencoded_text, without_secrets};
pub use sequencer::Sequencer;
#[cfg(feature = "redis")]
pub use single::{RedisLock, RedisLockBuilder};
#[cfg(feature = "_session_lock")]
pub use sql::SessionLock;
#[cfg(feature = "sqlite")]
pub use sql::SqliteLock;
#[cfg(feature = "mysql")]
pub use sql::{MySqlLock, MySqlSessionLock};
#[cfg(feature = "postgres")]
pub use sql::{PostgresLock, PostgresSessionLock};
#[cfg(feature = "_sql")]
pub use sql::{SqlLock, SqlLockBuilder};
pub use token::FencingToken;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperBuilder, ZooKeeperLock};
