#![doc = include_str!("../README.md")]

mod backend;
#[cfg(feature = "consul")]
mod consul;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod guard;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod keys;
mod lease;
mod name;
mod patience;
#[cfg(feature = "redlock")]
mod redlock;
mod renewed;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod script;
#[cfg(any(feature = "etcd", feature = "zookeeper", feature = "consul"))]
mod segment;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod server;
mod several;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod store;
mod token;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod wakeup;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use backend::{Capabilities, Grant, Hold, Lock, Mode, Patience, Request};
#[cfg(feature = "consul")]
pub use consul::{ConsulBuilder, ConsulLock};
pub use error::{Answer, Cause, Exclusion, InvalidArgument, LockError, Vote};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdBuilder, EtcdLock};
pub use guard::{Guard, Scope, Sequencer};
#[cfg(feature = "redlock")]
pub use redlock::{NodeStatus, Redlock, RedlockBuilder, Standing};
pub use renewed::{Left, Renewed};
pub use several::GuardSet;
pub use token::FencingToken;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperBuilder, ZooKeeperLock};
