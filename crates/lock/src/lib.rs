#![doc = include_str!("../README.md")]

mod backend;
mod error;
mod guard;
mod lease;
mod name;
#[cfg(any(feature = "redlock", feature = "redis", feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod owner;
mod patience;

#[cfg(any(feature = "redlock", feature = "redis"))]
mod redis_server;
#[cfg(feature = "redlock")]
mod redlock;
mod renewed;
mod several;
#[cfg(feature = "redis")]
mod single;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod store;
mod token;

pub use backend::{Capabilities, Grant, Hold, Lock, Mode, Patience, Request};
pub use error::{Answer, Cause, Exclusion, InvalidArgument, LockError, Vote};
pub use guard::{Guard, Scope, Sequencer};
#[cfg(feature = "redlock")]
pub use redlock::{NodeStatus, Redlock, RedlockBuilder, Standing};
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
