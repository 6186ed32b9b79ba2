#![doc = include_str!("../README.md")]

mod backend;
mod error;
mod guard;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod keys;
mod lease;
mod name;
#[cfg(any(feature = "redlock", feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod owner;
mod patience;
#[cfg(feature = "redlock")]
mod redlock;
mod renewed;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod script;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod server;
mod several;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod store;
mod token;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod wakeup;

pub use backend::{Capabilities, Grant, Hold, Lock, Mode, Patience, Request};
pub use error::{Answer, Cause, Exclusion, InvalidArgument, LockError, Vote};
pub use guard::{Guard, Scope, Sequencer};
#[cfg(feature = "redlock")]
pub use redlock::{NodeStatus, Redlock, RedlockBuilder, Standing};
pub use renewed::{Left, Renewed};
pub use several::GuardSet;
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
