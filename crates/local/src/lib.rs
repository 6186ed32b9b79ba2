//! Starts private servers on this machine, for example the Redis servers of `stockade up`.
//!
//! A private server is a direct child of our process. It runs in a folder that no other process
//! uses, listens on a free port of 127.0.0.1, and does not outlive us: dropping its handle kills
//! and reaps it, and on Linux the kernel kills it when our process dies in any other way. Each
//! server leads its own process group, so a terminal's Ctrl-C does not reach it.
//!
//! This crate knows Redis and nothing of Stockade. It only starts and stops servers; the lab's
//! `testbed` builds on it to start other servers and to break them.
//!
//! | module | contents |
//! |---|---|
//! | [`redis`] | a private Redis server |
//! | [`instance`] | a server of any kind: start, restart, kill, stop |
//! | [`process`] | a server process: launch, readiness, signals |
//! | [`child`] | a child process that dies with its parent |
//! | [`folder`] | a data folder that one process uses at a time |
//! | [`log`] | the log file of a server, and its last lines |
//! | [`port`] | free ports that outgoing connections do not take |
//! | [`program`] | program lookup in PATH |
//! | [`error`] | errors |

pub mod child;
pub mod error;
pub mod folder;
pub mod instance;
pub mod log;
pub mod port;
pub mod process;
pub mod program;
pub mod redis;

pub use self::redis::{AppendFsync, Redis, RedisBuilder};
pub use child::kill_with_parent;
pub use error::{LocalError, Result};
pub use folder::LockedFolder;
pub use instance::{Instance, Kind, Settings};
pub use log::Log;
pub use port::free_port;
pub use process::{Readiness, ServerProcess};
