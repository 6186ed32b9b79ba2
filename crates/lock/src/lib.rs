#![doc = include_str!("../README.md")]

mod backend;
mod error;
mod guard;
mod lease;
mod name;
mod patience;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod random;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod redis_server;
#[cfg(feature = "redlock")]
mod redlock;
mod renewed;
mod several;
#[cfg(feature = "redis")]
mod single;
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
pub use token::FencingToken;
