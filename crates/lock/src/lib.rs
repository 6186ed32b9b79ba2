#![doc = include_str!("../README.md")]

mod builder;
mod claim;
mod clock;
mod error;
mod guard;
mod monitor;
mod name;
mod node;
mod redlock;
mod script;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod store;
mod token;

pub use builder::RedlockBuilder;
pub use error::{Answer, Exclusion, InvalidArgument, LockError, Vote};
pub use guard::{Guard, Scope, Sequencer};
pub use redlock::{NodeStatus, Redlock, Standing};
pub use token::FencingToken;
