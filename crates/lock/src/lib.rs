#![doc = include_str!("../README.md")]

mod backend;
mod error;
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
#[cfg(any(feature = "redlock", feature = "redis"))]
mod server;
mod several;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod store;
mod token;
#[cfg(any(feature = "redlock", feature = "redis"))]
mod wakeup;

pub use backend::{Capabilities, Grant, Hold, Lock, Mode, Patience, Request};
pub use error::{Answer, Cause, Exclusion, InvalidArgument, LockError, Vote};
pub use guard::{Guard, Scope, Sequencer};
#[cfg(feature = "redlock")]
pub use redlock::{Holder, LockView, NodeStatus, NodeView, Redlock, RedlockBuilder, Standing, Verdict};
pub use renewed::{Left, Renewed};
pub use several::GuardSet;
pub use token::FencingToken;
